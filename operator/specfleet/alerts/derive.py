"""Which alerts fire for a deployment: from its status alone, so that a restart of the operator loses none."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from pydantic import ValidationError

from specfleet.alerts.alert import Alert, AlertSeverity
from specfleet.api.base import RawObject
from specfleet.api.conditions import Condition, ConditionStatus, ConditionType, find_condition
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.reasons import ABORTED, UNREADABLE
from specfleet.api.status import DecisionRecord, DeploymentStatus, Phase

ROLLED_BACK = "SpecfleetRolledBack"
EXHAUSTED = "SpecfleetExhausted"
STALLED = "SpecfleetStalled"
NOTHING_SERVES = "SpecfleetNothingServes"
DRIFT = "SpecfleetDriftDetected"
METRICS = "SpecfleetMetricsUnavailable"
HELD = "SpecfleetHeld"

LABEL_LIMIT = 128
ALERT_PLACE = "{alert}"


def alerts_for(deployment: SpeculativeDeployment, runbooks_url: str | None = None) -> tuple[Alert, ...]:
    """The alerts that fire now. Empty for a deployment without status (the operator has not seen it yet).

    `runbooks_url` is the address of a runbook page with {alert} in place of the alert's name.
    """
    status = deployment.status
    if status is None:
        return ()
    return _linked((*_of_phase(deployment, status), *_of_conditions(deployment, status)), runbooks_url)


def alerts_of_unreadable(body: RawObject, runbooks_url: str | None = None) -> tuple[Alert, ...]:
    """The alert about an object (as the cluster has it) that does not fit the API of this operator: nobody looks after
    it. It says what the operator has written into its conditions; empty before that."""
    metadata, status = body["metadata"], body.get("status")
    listed = status.get("conditions") if isinstance(status, dict) else None
    for one in listed if isinstance(listed, list) else ():
        if not isinstance(one, dict) or (one.get("type"), one.get("reason")) != (ConditionType.STALLED, UNREADABLE):
            continue
        try:
            condition = Condition.model_validate(one)
        except ValidationError:
            # Somebody edited it; the operator writes it again, and other objects' alerts must not wait for that.
            continue
        summary = f"{metadata['namespace']}/{metadata['name']}: this operator cannot read it; what serves is unwatched"
        named = {"namespace": metadata["namespace"], "name": metadata["name"], "reason": UNREADABLE}
        since = condition.last_transition_time
        return _linked(
            (Alert(STALLED, AlertSeverity.CRITICAL, since, summary, condition.message, named),), runbooks_url
        )
    return ()


def _linked(found: tuple[Alert, ...], runbooks_url: str | None) -> tuple[Alert, ...]:
    if runbooks_url is None:
        return found
    return tuple(replace(one, runbook_url=runbooks_url.replace(ALERT_PLACE, one.name)) for one in found)


def _of_phase(owner: SpeculativeDeployment, status: DeploymentStatus) -> Iterator[Alert]:
    who = f"{owner.namespace}/{owner.name}"
    reason = status.phase_reason or "Unknown"
    # A changed engine that was refused on the bench rests here too: nothing was rolled back, and Stalled tells it.
    refused = status.revision_refused is not None and status.revision_refused == status.revision
    if status.phase is Phase.ROLLING_BACK or (status.phase is Phase.ROLLED_BACK and not refused):
        decision = _last(status, "RollBack")
        done = (
            "the plain arm serves" if status.phase is Phase.ROLLED_BACK else "traffic goes back to what served before"
        )
        summary = f"{who}: {_what_failed(status)} rolled back, {done}"
        yield _alert(owner, ROLLED_BACK, AlertSeverity.WARNING, decision, status.phase_since, reason, summary)
    if status.phase is Phase.EXHAUSTED and reason != ABORTED:
        attempts = status.attempts.count if status.attempts else 0
        summary = (
            f"{who}: no attempt is left after {attempts} promotions; the plain arm serves until the spec changes or "
            "the command `retry` is given"
        )
        decision = _last(status, "RollBack") or status.last_decision
        yield _alert(owner, EXHAUSTED, AlertSeverity.WARNING, decision, status.phase_since, reason, summary)
    if status.phase is Phase.HELD:
        summary = f"{who}: held, evidence or capacity is missing; the stable arm serves"
        yield _alert(owner, HELD, AlertSeverity.INFO, _last(status, "Hold"), status.phase_since, reason, summary)


def _what_failed(status: DeploymentStatus) -> str:
    """A changed model or engine in its trial, or speculation."""
    stable = status.stable
    changed = stable is not None and stable.name != status.revision and status.candidate != stable.speculative
    return "the changed model or engine" if changed and status.phase is Phase.ROLLING_BACK else "speculation"


def _of_conditions(owner: SpeculativeDeployment, status: DeploymentStatus) -> Iterator[Alert]:
    who = f"{owner.namespace}/{owner.name}"
    stalled = _with_status(status, ConditionType.STALLED, ConditionStatus.TRUE)
    if stalled is not None and stalled.reason == NOTHING_SERVES.removeprefix("Specfleet"):
        yield _of_condition(owner, NOTHING_SERVES, AlertSeverity.CRITICAL, stalled, f"{who}: no pod of any arm answers")
    elif stalled is not None:
        summary = f"{who}: stalled, what the spec asks for does not serve and will not without a person"
        yield _of_condition(owner, STALLED, AlertSeverity.CRITICAL, stalled, summary)
    drift = _with_status(status, ConditionType.DRIFT_DETECTED, ConditionStatus.TRUE)
    if drift is not None:
        yield _of_condition(owner, DRIFT, AlertSeverity.WARNING, drift, f"{who}: {drift.reason} is being investigated")
    metrics = _with_status(status, ConditionType.METRICS_AVAILABLE, ConditionStatus.FALSE)
    if metrics is not None:
        summary = f"{who}: no usable metrics; nothing is promoted and only dead pods are acted on"
        yield _of_condition(owner, METRICS, AlertSeverity.WARNING, metrics, summary)


def _with_status(status: DeploymentStatus, type_: ConditionType, wanted: ConditionStatus) -> Condition | None:
    found = find_condition(status.conditions, type_)
    return found if found is not None and found.status is wanted else None


def _last(status: DeploymentStatus, action: str) -> DecisionRecord | None:
    return next((record for record in reversed(status.history) if record.action == action), None)


def _alert(
    owner: SpeculativeDeployment,
    name: str,
    severity: AlertSeverity,
    decision: DecisionRecord | None,
    since: datetime | None,
    reason: str,
    summary: str,
) -> Alert:
    starts_at = decision.time if decision is not None else since or datetime.fromtimestamp(0, UTC)
    description = decision.message if decision is not None else ""
    if decision is not None and decision.evidence:
        description += f" Evidence: {', '.join(decision.evidence)}."
    return Alert(name, severity, starts_at, summary, description or reason, _labels(owner, reason))


def _of_condition(
    owner: SpeculativeDeployment, name: str, severity: AlertSeverity, condition: Condition, summary: str
) -> Alert:
    description = condition.message or condition.reason
    return Alert(name, severity, condition.last_transition_time, summary, description, _labels(owner, condition.reason))


def _labels(owner: SpeculativeDeployment, reason: str) -> dict[str, str]:
    return {"namespace": owner.namespace, "name": owner.name, "reason": reason[:LABEL_LIMIT]}
