"""The operator's own metrics (prefix `specfleet_`). Series of a deployment vanish with it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import ArmRole, DecisionRecord, Phase
from specfleet.decide.watch_report import Answer, WatchReport

Key = tuple[str, str]
LABELS = ("namespace", "name")


class OperatorMetrics:
    """All series of one operator process, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._decisions = Counter(
            "specfleet_decisions",
            "Decisions by action, reason and verdict.",
            (*LABELS, "action", "reason", "verdict"),
            registry=self.registry,
        )
        self._rollbacks = Counter(
            "specfleet_rollbacks", "Roll-backs decided, by reason.", (*LABELS, "reason"), registry=self.registry
        )
        self._errors = Counter(
            "specfleet_reconcile_errors", "Reconciles that failed, by kind.", ("kind",), registry=self.registry
        )
        self._seconds = Histogram(
            "specfleet_reconcile_duration_seconds", "Duration of one reconcile.", registry=self.registry
        )
        self._writes = Gauge(
            "specfleet_api_writes", "Writing API requests of this process.", ("verb", "kind"), registry=self.registry
        )
        self._queries = Gauge(
            "specfleet_metrics_server_requests", "Requests sent to metrics servers.", registry=self.registry
        )
        self._leading = Gauge("specfleet_leading", "1 while the Lease is held.", registry=self.registry)
        self._phase = self._gauge("specfleet_phase", "1 for the present phase.", "phase")
        self._weight = self._gauge("specfleet_speculative_weight_ratio", "Traffic share of the speculative arm.")
        self._gain = self._gauge("specfleet_gain_ratio", "Gain measured for what serves.")
        self._gpu_hours = self._gauge("specfleet_gpu_hours_spent", "GPU hours spent on experiments.")
        self._available = self._gauge("specfleet_metrics_available", "1 while the metrics of the arms can be used.")
        self._acceptance = self._gauge("specfleet_acceptance_rate", "Acceptance rate of the last window.")
        self._length = self._gauge("specfleet_accepted_length", "Accepted length of the last window.")
        self._tpot = self._gauge("specfleet_tpot_seconds", "Decode time per token of the last window.", "arm")
        self._suspicion = self._gauge(
            "specfleet_suspicion_ratio", "Statistic of a finding over its threshold.", "signal"
        )
        self._shown: dict[Key, set[tuple[Gauge, tuple[str, ...]]]] = {}

    def serve(self, port: int) -> None:
        """Answer /metrics on that port (0: nowhere)."""
        if port:
            start_http_server(port, registry=self.registry)

    def count_decision(self, namespace: str, name: str, decision: DecisionRecord) -> None:
        """One decision was written."""
        verdict = decision.verdict.value if decision.verdict else ""
        self._decisions.labels(namespace, name, decision.action, decision.reason, verdict).inc()
        if decision.action == "RollBack":
            self._rollbacks.labels(namespace, name, decision.reason).inc()

    def count_error(self, kind: str) -> None:
        """One reconcile failed."""
        self._errors.labels(kind).inc()

    @contextmanager
    def reconcile_timer(self) -> Iterator[None]:
        """Time one reconcile."""
        with self._seconds.time():
            yield

    def show_process(self, writes: Mapping[tuple[str, str], int], queries: int, leading: bool) -> None:
        """Figures of the process itself."""
        for (verb, kind), count in writes.items():
            self._writes.labels(verb, kind).set(count)
        self._queries.set(queries)
        self._leading.set(leading)

    def show_deployment(self, deployment: SpeculativeDeployment, report: WatchReport | None) -> None:
        """Figures of one deployment; what is not known has no series."""
        key, status = (deployment.namespace, deployment.name), deployment.status
        if status is None:
            return
        before, self._shown[key] = self._shown.get(key, set()), set()
        for phase in Phase:
            self._set(key, self._phase, float(phase is status.phase), phase.value)
        self._set(key, self._weight, status.weight_percent / 100)
        self._set(key, self._gpu_hours, status.gpu_hours_spent)
        self._set(key, self._gain, status.realised_gain_ratio)
        if report is not None:
            self._show_report(key, report)
        for gauge, values in before - self._shown[key]:
            gauge.remove(*values)

    def forget(self, namespace: str, name: str) -> None:
        """A deployment is gone."""
        for gauge, values in self._shown.pop((namespace, name), set()):
            gauge.remove(*values)

    def _show_report(self, key: Key, report: WatchReport) -> None:
        usable = report.answer in (Answer.OK, Answer.NO_TRAFFIC, Answer.INSUFFICIENT)
        self._set(key, self._available, float(usable))
        drafted = report.last.get(ArmRole.SPECULATIVE)
        if drafted is not None:
            self._set(key, self._acceptance, drafted.acceptance_rate)
            self._set(key, self._length, drafted.accepted_length)
        for role, window in report.last.items():
            self._set(key, self._tpot, window.tpot_seconds, role.value)
        for one in report.suspicions:
            self._set(key, self._suspicion, one.statistic / one.threshold if one.threshold else None, one.signal.value)

    def _gauge(self, name: str, text: str, *more: str) -> Gauge:
        return Gauge(name, text, (*LABELS, *more), registry=self.registry)

    def _set(self, key: Key, gauge: Gauge, value: float | None, *more: str) -> None:
        if value is None:
            return
        values = (*key, *more)
        gauge.labels(*values).set(value)
        self._shown[key].add((gauge, values))
