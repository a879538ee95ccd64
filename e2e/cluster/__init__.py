"""The test cluster: a real Kubernetes on one machine without a container engine."""
