"""The rules against the real engine: vLLM 0.32 on CPU with tiny models (`make test-engine`)."""
