"""specfleet: a Kubernetes operator for fleets of vLLM servers that decode speculatively."""

__version__ = "0.1.0"
