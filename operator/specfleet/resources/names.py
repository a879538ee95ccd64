"""Names of child objects. Deterministic, so that a crash between two writes never makes a second one."""

from hashlib import sha256

MAX_DEPLOYMENT = 46
"""A pod's name is its Deployment's plus 17 characters, and may be used as a label value (63)."""
MAX_LABEL = 63


def shorten(name: str, limit: int) -> str:
    """The name itself, or its start and a hash when it is too long for where it is used."""
    if len(name) <= limit:
        return name
    return f"{name[: limit - 9].rstrip('-.')}-{sha256(name.encode()).hexdigest()[:8]}"


def arm(deployment: str, fingerprint: str, benchmark: bool = False) -> str:
    """Deployment and Service of an arm: by fingerprint, so that any change of the engine is a new Deployment."""
    kind = "-bench" if benchmark else ""
    return f"{shorten(deployment, MAX_DEPLOYMENT - len(kind) - len(fingerprint) - 1)}{kind}-{fingerprint}"


def unit(deployment: str, benchmark: str, unit_name: str) -> str:
    """Job, ConfigMap and SpeculativeBenchmark of one unit."""
    suffix = f"-{benchmark}-{unit_name}"
    return f"{shorten(deployment, MAX_LABEL - len(suffix))}{suffix}"
