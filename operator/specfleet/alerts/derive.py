"""Which alerts fire follows from status alone, so that a restarted operator sends the same ones."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from specfleet.api.conditions import Condition, ConditionStatus, ConditionType, find_condition
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import DecisionRecord, DeploymentStatus, Phase

ROLLED = (Phase.ROLLING_BACK, Phase.ROLLED_BACK, Phase.EXHAUSTED)
METRICS_GRACE_SECONDS = 900.0
"""A metrics server that is away for this long is told (knowledge: Prometheus outage = hold, alert after 15 min)."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One firing alert, as Alertmanager takes it."""

    name: str
    severity: str
    labels: Mapping[str, str]
    summary: str
    description: str
    since: datetime


def alerts_for(deployment: SpeculativeDeployment, now: datetime) -> tuple[Alert, ...]:
    """All alerts that fire for a deployment now."""
    status = deployment.status
    return tuple(_alerts(deployment, status, now)) if status is not None else ()


def _alerts(deployment: SpeculativeDeployment, status: DeploymentStatus, now: datetime) -> Iterator[Alert]:
    def alert(name: str, severity: str, reason: str, description: str, since: datetime) -> Alert:
        labels = {"namespace": deployment.namespace, "name": deployment.name, "reason": reason}
        summary = f"{deployment.namespace}/{deployment.name}: {reason}"
        return Alert(name, severity, labels, summary, description, since)

    told = _last(status, "RollBack")
    if status.phase in ROLLED and told is not None:
        yield alert("SpecfleetRolledBack", "warning", told.reason, told.message, told.time)
    if status.phase is Phase.EXHAUSTED:
        since = status.phase_since or now
        yield alert("SpecfleetExhausted", "warning", status.phase_reason or "Exhausted", _next_step(), since)
    stalled = _when_true(status, ConditionType.STALLED)
    if stalled is not None:
        yield alert("SpecfleetStalled", "critical", stalled.reason, stalled.message, stalled.last_transition_time)
    drift = _when_true(status, ConditionType.DRIFT_DETECTED)
    if drift is not None:
        yield alert("SpecfleetDrift", "warning", drift.reason, drift.message, drift.last_transition_time)
    unproven = status.last_decision
    if unproven is not None and unproven.reason in ("NotMeasured", "NotProven", "SharedCause"):
        yield alert("SpecfleetUnresolved", "warning", unproven.reason, unproven.message, unproven.time)
    metrics = find_condition(status.conditions, ConditionType.METRICS_AVAILABLE)
    if metrics is not None and metrics.status is ConditionStatus.FALSE and status.stable is not None:
        away = (now - metrics.last_transition_time).total_seconds()
        if away >= METRICS_GRACE_SECONDS:
            said = f"{metrics.message}: nothing is promoted and only hard faults roll back meanwhile"
            yield alert("SpecfleetUnwatched", "warning", metrics.reason, said, metrics.last_transition_time)
    if status.phase is Phase.HELD and told is None:
        since = status.phase_since or now
        reason = status.phase_reason or "Held"
        message = status.last_decision.message if status.last_decision else ""
        yield alert("SpecfleetHeld", "info", reason, message, since)


def _last(status: DeploymentStatus, action: str) -> DecisionRecord | None:
    return next((one for one in reversed(status.history) if one.action == action), None)


def _when_true(status: DeploymentStatus, kind: ConditionType) -> Condition | None:
    found = find_condition(status.conditions, kind)
    return found if found is not None and found.status is ConditionStatus.TRUE else None


def _next_step() -> str:
    return (
        "all attempts of this revision failed; change the model, engine or proposer, or annotate the object with "
        "specfleet.dev/command: retry <nonce>"
    )
