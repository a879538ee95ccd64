"""Kubernetes Events of decisions. Their names follow from the decision: telling twice is telling once."""

from hashlib import sha256

from specfleet.api.base import API_VERSION, RawObject
from specfleet.api.deployment import KIND, SpeculativeDeployment
from specfleet.api.status import DecisionRecord, Verdict

COMPONENT = "specfleet"
WARNINGS = ("RollBack", "RefuseCandidate", "RefuseRevision", "Hold", "RestartProbeFailed", "Investigate", "RepeatUnit")
"""Actions that a person on call wants to see as warnings."""
MESSAGE_LIMIT = 1024
"""core/v1 Event: longer messages are refused."""


def build_event(deployment: SpeculativeDeployment, decision: DecisionRecord) -> RawObject:
    """core/v1 Event of one decision."""
    moment = decision.time.strftime("%Y-%m-%dT%H:%M:%SZ")
    seed = f"{deployment.uid}/{moment}/{decision.action}/{decision.reason}/{decision.message}"
    said = f"{decision.action}: {decision.message}" if decision.message else decision.action
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{deployment.name[:200]}.{sha256(seed.encode()).hexdigest()[:16]}",
            "namespace": deployment.namespace,
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": deployment.name,
            "namespace": deployment.namespace,
            "uid": deployment.uid,
        },
        "type": "Warning" if decision.action in WARNINGS or decision.verdict is Verdict.FAIL else "Normal",
        "reason": decision.reason,
        "action": decision.action,
        "message": said[:MESSAGE_LIMIT],
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
    }
