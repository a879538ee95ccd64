"""A simulated vLLM: the contract of the real engine image (command line, HTTP, metrics, signals) without a model."""

ENGINE_VERSION = "0.32.0"
