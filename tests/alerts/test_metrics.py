import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import generate_latest
from specfleet.alerts.metrics import OperatorMetrics
from specfleet.api.conditions import ConditionStatus, ConditionType
from specfleet.api.status import ArmRole, Phase
from specfleet.decide.watch_report import (
    Answer,
    ArmWindow,
    Attribution,
    Severity,
    Signal,
    Stage,
    Suspicion,
    WatchReport,
)

from tests.alerts.made import NOON, condition, decision, deployment

KEY = ("models", "llama")


@pytest.fixture
def metrics() -> Iterator[OperatorMetrics]:
    made = OperatorMetrics()
    yield made
    made.close()


def _value(metrics: OperatorMetrics, series: str, /, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(series, labels)


def _report(acceptance: float | None) -> WatchReport:
    suspicion = Suspicion(
        signal=Signal.ACCEPTANCE_DRIFT,
        severity=Severity.ECONOMIC,
        stage=Stage.SUSPECT,
        attribution=Attribution.PENDING,
        since=NOON,
        message="",
        statistic=12.0,
        threshold=9.2,
    )
    window = ArmWindow(Answer.OK if acceptance is not None else Answer.NO_TRAFFIC, acceptance_rate=acceptance)
    return WatchReport(Answer.OK, last={ArmRole.SPECULATIVE: window}, suspicions=(suspicion,))


def test_the_fleet_as_it_is_now(metrics: OperatorMetrics) -> None:
    metrics.show_fleet([deployment(phase=Phase.CANARY, weight_percent=25, gpu_hours_spent=1.5)])
    metrics.show_reports({KEY: _report(0.7)}, queries=12)
    owner = {"namespace": "models", "name": "llama"}
    assert _value(metrics, "specfleet_phase", phase="Canary", **owner) == 1
    assert _value(metrics, "specfleet_weight_ratio", **owner) == 0.25
    assert _value(metrics, "specfleet_gpu_hours_total", **owner) == 1.5
    assert _value(metrics, "specfleet_acceptance_rate", **owner) == 0.7
    assert _value(metrics, "specfleet_detector_statistic", signal="AcceptanceDrift", **owner) == 12.0
    assert _value(metrics, "specfleet_detector_threshold", signal="AcceptanceDrift", **owner) == 9.2
    assert _value(metrics, "specfleet_telemetry_queries_total") == 12


def test_a_deployment_is_in_one_phase_only(metrics: OperatorMetrics) -> None:
    for phase in (Phase.CANARY, Phase.SPECULATIVE):
        metrics.show_fleet([deployment(phase=phase)])
    assert generate_latest(metrics.registry).decode().count("specfleet_phase{") == 1


def test_no_data_is_no_series_and_never_zero(metrics: OperatorMetrics) -> None:
    metrics.show_fleet([deployment()])
    metrics.show_reports({KEY: _report(None)}, queries=0)
    owner = {"namespace": "models", "name": "llama"}
    assert _value(metrics, "specfleet_acceptance_rate", **owner) is None
    assert _value(metrics, "specfleet_gain_ratio", **owner) is None
    assert _value(metrics, "specfleet_metrics_available", **owner) is None


@pytest.mark.parametrize(
    ("status", "value"), [(ConditionStatus.TRUE, 1.0), (ConditionStatus.FALSE, 0.0), (ConditionStatus.UNKNOWN, None)]
)
def test_a_condition_is_one_zero_or_absent(
    metrics: OperatorMetrics, status: ConditionStatus, value: float | None
) -> None:
    metrics.show_fleet([deployment(conditions=[condition(ConditionType.METRICS_AVAILABLE, status, "R")])])
    assert _value(metrics, "specfleet_metrics_available", namespace="models", name="llama") == value


def test_decisions_and_rollbacks_are_counted_with_their_reason(metrics: OperatorMetrics) -> None:
    for one in (decision(), decision(), decision("Investigate")):
        metrics.count_decision(*KEY, one)
    owner = {"namespace": "models", "name": "llama"}
    assert _value(metrics, "specfleet_rollbacks_total", reason="AcceptanceDrift", **owner) == 2
    labels = {"action": "Investigate", "reason": "AcceptanceDrift", "verdict": "Fail"}
    assert _value(metrics, "specfleet_decisions_total", **labels, **owner) == 1


def test_a_deleted_deployment_leaves_no_series(metrics: OperatorMetrics) -> None:
    metrics.show_fleet([deployment(), deployment(name="other")])
    metrics.show_reports({KEY: _report(0.7)}, queries=1)
    metrics.count_decision(*KEY, decision())
    metrics.forget(*KEY)
    text = generate_latest(metrics.registry).decode()
    assert 'name="llama"' not in text
    assert 'name="other"' in text


def test_a_deployment_that_is_missing_from_the_fleet_is_gone_even_if_its_deletion_was_missed(
    metrics: OperatorMetrics,
) -> None:
    metrics.show_fleet([deployment()])
    metrics.show_reports({KEY: _report(0.7)}, queries=1)
    metrics.show_fleet([])
    assert 'name="llama"' not in generate_latest(metrics.registry).decode()


def test_the_page_is_served_and_says_how_the_process_is(metrics: OperatorMetrics) -> None:
    metrics.follow(lambda: 3, lambda: True, lambda: {("apply", "Deployment"): 2}, lambda: 1)
    metrics.count_error("ConflictError")
    with metrics.reconcile_timer():
        pass
    metrics.serve(0)
    assert metrics._server is not None
    port = metrics._server[0].server_port  # type: ignore[attr-defined]
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    for line in (
        "specfleet_queue_depth 3.0",
        'specfleet_leader{lease="default/specfleet"} 1.0',
        'specfleet_api_writes_total{kind="Deployment",verb="apply"} 2.0',
        "specfleet_alert_failures_total 1.0",
        'specfleet_reconcile_errors_total{error="ConflictError"} 1.0',
        "specfleet_reconcile_duration_seconds_count 1.0",
        "process_resident_memory_bytes",
    ):
        assert line in page
