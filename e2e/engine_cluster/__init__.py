"""The operator with real vLLM pods on the test cluster (`make e2e-engine`)."""
