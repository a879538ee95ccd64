"""Names of child objects. Deterministic, so that a crash between two writes never makes a second one."""

import re
from hashlib import sha256

DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
"""RFC 1035 label, as a Service's name must be: `llama-3.1` is a fine object name, but not one of these."""
MAX_DEPLOYMENT = 46
"""A pod's name is its Deployment's plus 17 characters, and may be used as a label value (63)."""
MAX_LABEL = 63


def shorten(name: str, limit: int) -> str:
    """The name itself, or its start and a hash when it is too long for where it is used."""
    if len(name) <= limit:
        return name
    return f"{name[: limit - 9].rstrip('-.')}-{sha256(name.encode()).hexdigest()[:8]}"


def dns_label(name: str, limit: int) -> str:
    """The name itself where it is a DNS label of that length, or one made of it and a hash."""
    if len(name) <= limit and DNS_LABEL.fullmatch(name):
        return name
    safe = re.sub(r"[^a-z0-9-]", "-", name)
    safe = safe if safe[:1].isalpha() else f"sd-{safe}"
    return f"{safe[: limit - 9].rstrip('-')}-{sha256(name.encode()).hexdigest()[:8]}"


def arm(deployment: str, fingerprint: str, benchmark: bool = False) -> str:
    """Deployment and Service of an arm: by fingerprint, so that any change of the engine is a new Deployment."""
    kind = "-bench" if benchmark else ""
    return f"{dns_label(deployment, MAX_DEPLOYMENT - len(kind) - len(fingerprint) - 1)}{kind}-{fingerprint}"


def group_set(deployment: str, fingerprint: str, benchmark: bool = False) -> str:
    """LeaderWorkerSet of an arm whose engines span nodes.

    Not the arm's own name: the LeaderWorkerSet controller makes a headless Service of the name of its set, by which the
    pods of an engine find each other, and would take the arm's Service for it.
    """
    kind = "-bench-nodes" if benchmark else "-nodes"
    return f"{dns_label(deployment, MAX_DEPLOYMENT - len(kind) - len(fingerprint) - 1)}{kind}-{fingerprint}"


def service(deployment: str) -> str:
    """Service over all serving pods."""
    return dns_label(deployment, MAX_LABEL)


def unit(deployment: str, benchmark: str, unit_name: str) -> str:
    """Job, ConfigMap and SpeculativeBenchmark of one unit."""
    suffix = f"-{benchmark}-{unit_name}"
    return f"{dns_label(deployment, MAX_LABEL - len(suffix))}{suffix}"
