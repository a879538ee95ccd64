"""What the operator must show on a real cluster, one by one (`make e2e`)."""
