"""Kubernetes Events of decisions. The name follows from the decision, so that a crash tells nothing twice."""

from datetime import datetime
from hashlib import sha256

from specfleet.api.base import API_VERSION, RawObject
from specfleet.api.deployment import KIND, SpeculativeDeployment
from specfleet.api.status import DecisionRecord, Verdict

COMPONENT = "specfleet"
MESSAGE_LIMIT = 1024
REASON_LIMIT = 128
NAME_LIMIT = 253
WARNING_ACTIONS = frozenset(
    {
        "Hold",
        "Investigate",
        "RefuseCandidate",
        "RefuseModel",
        "RefuseRevision",
        "Rescue",
        "RestartProbeFailed",
        "RollBack",
        "RolledBack",
    }
)


def build_event(deployment: SpeculativeDeployment, decision: DecisionRecord) -> RawObject:
    """A core/v1 Event manifest about one decision; create it, and take AlreadyExists for success."""
    moment = decision.time.isoformat().replace("+00:00", "Z")
    evidence = f" Evidence: {', '.join(decision.evidence)}." if decision.evidence else ""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": _name(deployment, decision), "namespace": deployment.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "namespace": deployment.namespace,
            "name": deployment.name,
            "uid": deployment.uid,
        },
        "type": "Warning" if is_warning(decision) else "Normal",
        "action": decision.action,
        "reason": decision.reason[:REASON_LIMIT],
        "message": _shortened(f"{decision.action}: {decision.message}", evidence),
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
    }


def operator_error_event(body: RawObject, reason: str, family: str, message: str, now: datetime) -> RawObject:
    """A core/v1 Event about a deployment that the operator cannot work on (its raw object: it may be unreadable)."""
    metadata = body["metadata"]
    moment = now.replace(microsecond=0).isoformat().replace("+00:00", "Z")
    identity = f"{metadata.get('uid')}\0{family}\0{moment}"
    suffix = f".{sha256(identity.encode()).hexdigest()[:16]}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": metadata["name"][: NAME_LIMIT - len(suffix)].rstrip(".-") + suffix,
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata.get("uid"),
        },
        "type": "Warning",
        "action": "Reconcile",
        "reason": reason,
        "message": _shortened(message, ""),
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
    }


def is_warning(decision: DecisionRecord) -> bool:
    """Whether a person should look at it: something failed, was refused or waits for them."""
    return decision.action in WARNING_ACTIONS or decision.verdict in (Verdict.FAIL, Verdict.ERROR)


def _name(deployment: SpeculativeDeployment, decision: DecisionRecord) -> str:
    identity = "\0".join(
        [deployment.uid, decision.time.isoformat(), decision.action, decision.reason, decision.message]
    )
    suffix = f".{sha256(identity.encode()).hexdigest()[:16]}"
    return deployment.name[: NAME_LIMIT - len(suffix)].rstrip(".-") + suffix


def _shortened(message: str, evidence: str) -> str:
    """At most 1024 bytes (the API server's limit); the evidence gives way first, then the end of the message."""
    for text in (message + evidence, message):
        if len(text.encode()) <= MESSAGE_LIMIT:
            return text
    return message.encode()[: MESSAGE_LIMIT - 3].decode(errors="ignore") + "..."
