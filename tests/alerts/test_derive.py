import pytest
from specfleet.alerts.alert import AlertSeverity
from specfleet.alerts.derive import alerts_for
from specfleet.api.conditions import ConditionStatus, ConditionType
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import AttemptStatus, Phase

from tests.alerts.made import NOON, condition, decision, deployment

TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN

CASES: dict[str, tuple[SpeculativeDeployment, set[tuple[str, str]]]] = {
    "a healthy promoted deployment is silent": (
        deployment(
            phase=Phase.SPECULATIVE,
            conditions=[
                condition(ConditionType.READY, TRUE, "Serving"),
                condition(ConditionType.STALLED, FALSE, "Progressing"),
                condition(ConditionType.METRICS_AVAILABLE, TRUE, "Answered"),
                condition(ConditionType.DRIFT_DETECTED, FALSE, "WithinCalibration"),
            ],
        ),
        set(),
    ),
    "a benchmark that did not pass is no alert": (deployment(phase=Phase.BASELINE, history=[decision("Judge")]), set()),
    "a roll-back in flight": (
        deployment(phase=Phase.ROLLING_BACK, phase_reason="AcceptanceDrift", history=[decision()]),
        {("SpecfleetRolledBack", "AcceptanceDrift")},
    ),
    "a roll-back that is done keeps the alert of its start": (
        deployment(
            phase=Phase.ROLLED_BACK, phase_reason="AcceptanceDrift", history=[decision(), decision("RolledBack")]
        ),
        {("SpecfleetRolledBack", "AcceptanceDrift")},
    ),
    "a changed engine that was refused without a roll-back, although speculation was rolled back long ago": (
        deployment(
            phase=Phase.ROLLED_BACK,
            phase_reason="Slower",
            revision="llama-2",
            revision_refused="llama-2",
            history=[decision(), decision("RefuseRevision", "Slower")],
        ),
        set(),
    ),
    "speculation rolled back, while the changed engine that was refused is another one": (
        deployment(
            phase=Phase.ROLLED_BACK,
            phase_reason="AcceptanceDrift",
            revision="llama-3",
            revision_refused="llama-2",
            history=[decision()],
        ),
        {("SpecfleetRolledBack", "AcceptanceDrift")},
    ),
    "no attempt left": (
        deployment(
            phase=Phase.EXHAUSTED, phase_reason="AcceptanceDrift", attempts=AttemptStatus(revision="r", count=3)
        ),
        {("SpecfleetExhausted", "AcceptanceDrift")},
    ),
    "a person who aborts need not be told": (deployment(phase=Phase.EXHAUSTED, phase_reason="CommandAbort"), set()),
    "no room": (
        deployment(phase=Phase.HELD, phase_reason="InsufficientCapacity", history=[decision("Hold")]),
        {("SpecfleetHeld", "InsufficientCapacity")},
    ),
    "a drift under investigation": (
        deployment(
            phase=Phase.INVESTIGATING, conditions=[condition(ConditionType.DRIFT_DETECTED, TRUE, "AcceptanceDrift")]
        ),
        {("SpecfleetDriftDetected", "AcceptanceDrift")},
    ),
    "no metrics": (
        deployment(
            phase=Phase.SPECULATIVE, conditions=[condition(ConditionType.METRICS_AVAILABLE, FALSE, "Unavailable")]
        ),
        {("SpecfleetMetricsUnavailable", "Unavailable")},
    ),
    "metrics that are not known to be missing": (
        deployment(conditions=[condition(ConditionType.METRICS_AVAILABLE, UNKNOWN, "Starting")]),
        set(),
    ),
    "stalled and serving": (
        deployment(conditions=[condition(ConditionType.STALLED, TRUE, "RevisionRolledBack")]),
        {("SpecfleetStalled", "RevisionRolledBack")},
    ),
    "nothing serves": (
        deployment(conditions=[condition(ConditionType.STALLED, TRUE, "NothingServes")]),
        {("SpecfleetNothingServes", "NothingServes")},
    ),
}


def test_a_changed_engine_that_loses_its_traffic_is_not_called_speculation() -> None:
    owner = deployment(
        phase=Phase.ROLLING_BACK,
        phase_reason="CrashLoop",
        revision="llama-2",
        candidate="f2",
        stable={"name": "llama-1", "baseline": "f1"},
        history=[decision()],
    )
    (alert,) = alerts_for(owner)
    assert "the changed model or engine rolled back" in alert.summary


@pytest.mark.parametrize("case", CASES)
def test_which_alerts_fire(case: str) -> None:
    owner, wanted = CASES[case]
    assert {(one.name, one.labels["reason"]) for one in alerts_for(owner)} == wanted


def test_a_deployment_the_operator_has_not_seen_yet_is_silent() -> None:
    owner = deployment().model_copy(update={"status": None})
    assert alerts_for(owner) == ()


def test_an_alert_says_who_why_and_on_which_evidence() -> None:
    owner = deployment(phase=Phase.ROLLED_BACK, phase_reason="AcceptanceDrift", history=[decision()])
    (alert,) = alerts_for(owner)
    assert alert.all_labels() == {
        "alertname": "SpecfleetRolledBack",
        "severity": "warning",
        "namespace": "models",
        "name": "llama",
        "reason": "AcceptanceDrift",
    }
    assert alert.summary.startswith("models/llama: ")
    assert "acceptance 0.21, expected 0.70" in alert.description
    assert "llama-b2-p1" in alert.description
    assert alert.starts_at == NOON


def test_the_same_status_gives_the_same_alerts_after_a_restart() -> None:
    owner = deployment(phase=Phase.ROLLED_BACK, phase_reason="AcceptanceDrift", history=[decision()])
    read_again = SpeculativeDeployment.model_validate(owner.to_wire())
    assert alerts_for(read_again) == alerts_for(owner)


def test_only_what_users_of_the_model_feel_wakes_somebody() -> None:
    alerts = [alert for owner, _ in CASES.values() for alert in alerts_for(owner)]
    critical = {one.name for one in alerts if one.severity is AlertSeverity.CRITICAL}
    assert critical == {"SpecfleetStalled", "SpecfleetNothingServes"}
