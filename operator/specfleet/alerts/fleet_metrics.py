"""Metrics per deployment, built at each scrape from the last seen objects: nothing has to be removed label by label."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from specfleet.api.conditions import ConditionStatus, ConditionType, find_condition
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import ArmRole, DecisionRecord, DeploymentStatus
from specfleet.decide.watch_report import Suspicion, WatchReport

Key = tuple[str, str]
"""(namespace, name)."""
OWNER = ("namespace", "name")
ROLL_BACK = "RollBack"

_Decision = tuple[str, str, str]
_CONDITIONS = (
    ("specfleet_ready", ConditionType.READY, "1: a proven arm serves at full capacity what the spec asks for"),
    ("specfleet_stalled", ConditionType.STALLED, "1: what the spec asks for does not serve and needs a person"),
    ("specfleet_drift_detected", ConditionType.DRIFT_DETECTED, "1: a drift is being investigated"),
    ("specfleet_metrics_available", ConditionType.METRICS_AVAILABLE, "0: no usable metrics, nothing is decided"),
)
_STATUS_GAUGES: tuple[tuple[str, str, Callable[[DeploymentStatus], float | None]], ...] = (
    ("specfleet_weight_ratio", "Traffic share of the speculative arm (0..1)", lambda s: s.weight_percent / 100),
    ("specfleet_serving_pods", "Pods that serve, over all arms", lambda s: s.replicas),
    ("specfleet_gain_ratio", "Realised gain of speculation (0.2: 20 %)", lambda s: s.realised_gain_ratio),
    (
        "specfleet_revision_refused",
        "1: a changed model or engine was refused, what served before serves on",
        lambda s: float(s.revision_refused is not None and s.revision_refused == s.revision),
    ),
)
_WINDOW_GAUGES: tuple[tuple[str, str, str], ...] = (
    ("specfleet_acceptance_rate", "Accepted / drafted tokens of the speculative arm (0..1)", "acceptance_rate"),
    ("specfleet_accepted_length_tokens", "Tokens per engine step of the speculative arm", "accepted_length"),
)


class FleetCollector(Collector):
    """Written by the event loop, read by the scrape's thread: whole dictionaries are swapped, never changed."""

    def __init__(self) -> None:
        self._statuses: dict[Key, DeploymentStatus] = {}
        self._reports: Mapping[Key, WatchReport] = {}
        self._decisions: dict[Key, Counter[_Decision]] = {}
        self._queries = 0
        self.writes: Callable[[], Mapping[tuple[str, str], int]] = dict
        self.alert_failures: Callable[[], int] = int

    def show_fleet(self, deployments: Iterable[SpeculativeDeployment]) -> None:
        """Replace what is known of the fleet."""
        self._statuses = {(one.namespace, one.name): one.status for one in deployments if one.status is not None}

    def show_reports(self, reports: Mapping[Key, WatchReport], queries: int) -> None:
        """Replace what telemetry says."""
        self._reports = dict(reports)
        self._queries = queries

    def count_decision(self, key: Key, decision: DecisionRecord) -> None:
        """One more decision of this kind."""
        kind = (decision.action, decision.reason, decision.verdict.value if decision.verdict else "")
        counts = self._decisions.get(key, Counter())
        self._decisions = {**self._decisions, key: counts + Counter([kind])}

    def forget(self, key: Key) -> None:
        """Drop all series of a deployment."""
        self._statuses = {one: value for one, value in self._statuses.items() if one != key}
        self._reports = {one: value for one, value in self._reports.items() if one != key}
        self._decisions = {one: value for one, value in self._decisions.items() if one != key}

    def collect(self) -> Iterator[Metric]:
        """All families of this scrape."""
        statuses, reports = self._statuses, self._reports
        yield from _status_families(statuses)
        yield from _report_families({key: report for key, report in reports.items() if key in statuses})
        yield from _decision_families(self._decisions)
        yield from self._process_families()

    def _process_families(self) -> Iterator[Metric]:
        writes = CounterMetricFamily(
            "specfleet_api_writes", "Requests to the API server that change something", labels=("verb", "kind")
        )
        for (verb, kind), count in sorted(self.writes().items()):
            writes.add_metric((verb, kind), count)
        yield writes
        yield CounterMetricFamily("specfleet_telemetry_queries", "Requests to metrics servers", value=self._queries)
        yield CounterMetricFamily(
            "specfleet_alert_failures", "Rounds of alerts that a receiver did not take", value=self.alert_failures()
        )


def _status_families(statuses: Mapping[Key, DeploymentStatus]) -> Iterator[Metric]:
    phase = GaugeMetricFamily("specfleet_phase", "1 for the present phase", labels=(*OWNER, "phase"))
    hours = CounterMetricFamily("specfleet_gpu_hours", "GPU hours spent on benchmarks", labels=OWNER)
    for key, status in statuses.items():
        phase.add_metric((*key, status.phase.value), 1)
        hours.add_metric(key, status.gpu_hours_spent)
    yield phase
    yield hours
    for name, documentation, read in _STATUS_GAUGES:
        yield _gauge(name, documentation, ((key, read(status)) for key, status in statuses.items()))
    for name, type_, documentation in _CONDITIONS:
        yield _gauge(name, documentation, ((key, _truth(status, type_)) for key, status in statuses.items()))


def _truth(status: DeploymentStatus, type_: ConditionType) -> float | None:
    """1, 0, or None (no series) when it is not known."""
    found = find_condition(status.conditions, type_)
    if found is None or found.status is ConditionStatus.UNKNOWN:
        return None
    return float(found.status is ConditionStatus.TRUE)


def _report_families(reports: Mapping[Key, WatchReport]) -> Iterator[Metric]:
    for name, documentation, field in _WINDOW_GAUGES:
        windows = ((key, report.last.get(ArmRole.SPECULATIVE)) for key, report in reports.items())
        yield _gauge(name, documentation, ((key, getattr(one, field)) for key, one in windows if one is not None))
    detectors = {
        field: GaugeMetricFamily(f"specfleet_detector_{field}", documentation, labels=(*OWNER, "signal"))
        for field, documentation in (
            ("statistic", "Statistic of a detector that has a suspicion"),
            ("threshold", "Threshold of that detector, from the false-alarm budget"),
        )
    }
    for key, report in reports.items():
        worst = {one.signal: one for one in sorted(report.suspicions, key=_urgency)}
        for signal, one in worst.items():
            for field, family in detectors.items():
                family.add_metric((*key, signal.value), getattr(one, field))
    yield from detectors.values()


def _urgency(suspicion: Suspicion) -> float:
    return suspicion.statistic / suspicion.threshold if suspicion.threshold > 0 else suspicion.statistic


def _decision_families(decisions: Mapping[Key, Counter[_Decision]]) -> Iterator[Metric]:
    made = CounterMetricFamily("specfleet_decisions", "Decisions", labels=(*OWNER, "action", "reason", "verdict"))
    rolled = CounterMetricFamily("specfleet_rollbacks", "Roll-backs decided", labels=(*OWNER, "reason"))
    for key, counts in decisions.items():
        rollbacks: Counter[str] = Counter()
        for (action, reason, verdict), count in counts.items():
            made.add_metric((*key, action, reason, verdict), count)
            if action == ROLL_BACK:
                rollbacks[reason] += count
        for reason, count in rollbacks.items():
            rolled.add_metric((*key, reason), count)
    yield made
    yield rolled


def _gauge(name: str, documentation: str, values: Iterable[tuple[Key, float | None]]) -> GaugeMetricFamily:
    """A family with a series only where there is a number: no data is no series, never 0."""
    family = GaugeMetricFamily(name, documentation, labels=OWNER)
    for key, value in values:
        if value is not None:
            family.add_metric(key, value)
    return family
