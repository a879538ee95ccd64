"""The operator's own Prometheus metrics: what it decided, what it sees, and how it works."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from threading import Thread
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, start_http_server

from specfleet import __version__
from specfleet.alerts.fleet_metrics import FleetCollector, Key
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import DecisionRecord
from specfleet.decide.watch_report import WatchReport

RECONCILE_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)

WriteCounts = Mapping[tuple[str, str], int]
"""Requests that change something, by (verb, kind)."""


class _Server(Protocol):
    def shutdown(self) -> None: ...

    def server_close(self) -> None: ...


class OperatorMetrics:
    """All metrics of one operator process. Series of deleted deployments disappear."""

    def __init__(self, lease: str = "default/specfleet") -> None:
        """`lease`: namespace and name of the process's Lease; of several operators each has its own."""
        self.registry = CollectorRegistry()
        self._fleet = FleetCollector()
        self.registry.register(self._fleet)
        ProcessCollector(registry=self.registry)
        Info("specfleet_build", "Version of the operator", registry=self.registry).info({"version": __version__})
        self._duration = Histogram(
            "specfleet_reconcile_duration_seconds",
            "Time of one reconcile, its API requests included",
            buckets=RECONCILE_BUCKETS,
            registry=self.registry,
        )
        self._errors = Counter(
            "specfleet_reconcile_errors",
            "Reconciles and telemetry ticks that failed, by family of error",
            ["error"],
            registry=self.registry,
        )
        self._failing = Gauge(
            "specfleet_reconcile_failing",
            "1 while a deployment cannot be worked on, by family of error",
            ["namespace", "name", "error"],
            registry=self.registry,
        )
        self._failing_with: dict[Key, str] = {}
        self._depth = Gauge("specfleet_queue_depth", "Deployments that wait for a worker", registry=self.registry)
        leader = Gauge("specfleet_leader", "1 while this process holds the Lease", ["lease"], registry=self.registry)
        self._leader = leader.labels(lease)
        self._server: tuple[_Server, Thread] | None = None

    def serve(self, port: int) -> None:
        """Answer /metrics on all addresses, in a thread of its own. Raises OSError when the port is taken."""
        self._server = start_http_server(port, registry=self.registry)

    def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()
            self._server = None

    def follow(
        self,
        queue_depth: Callable[[], int] | None = None,
        leader: Callable[[], bool] | None = None,
        writes: Callable[[], WriteCounts] | None = None,
        alert_failures: Callable[[], int] | None = None,
    ) -> None:
        """Read these at each scrape instead of being told."""
        if queue_depth is not None:
            self._depth.set_function(queue_depth)
        if leader is not None:
            self._leader.set_function(leader)
        if writes is not None:
            self._fleet.writes = writes
        if alert_failures is not None:
            self._fleet.alert_failures = alert_failures

    def reconcile_timer(self) -> AbstractContextManager[object]:
        """Times one reconcile."""
        return self._duration.time()

    def count_error(self, error: str) -> None:
        """A reconcile or a tick failed; `error` is a class name or another fixed word, never a message."""
        self._errors.labels(error).inc()

    def show_failing(self, namespace: str, name: str, error: str | None) -> None:
        """A deployment cannot be worked on because of `error` (a class name); None: it can again, or it is gone."""
        before = self._failing_with.pop((namespace, name), None)
        if before is not None and before != error:
            self._failing.remove(namespace, name, before)
        if error is not None:
            self._failing_with[namespace, name] = error
            self._failing.labels(namespace, name, error).set(1)

    def count_decision(self, namespace: str, name: str, decision: DecisionRecord) -> None:
        """A decision was written into status."""
        self._fleet.count_decision((namespace, name), decision)

    def show_fleet(self, deployments: Iterable[SpeculativeDeployment]) -> None:
        """The deployments as they are now; one that is missing is gone."""
        self._fleet.show_fleet(deployments)

    def show_reports(self, reports: Mapping[Key, WatchReport], queries: int) -> None:
        """What telemetry says now, and how many requests it has sent to metrics servers since the start."""
        self._fleet.show_reports(reports, queries)

    def forget(self, namespace: str, name: str) -> None:
        """A deployment is gone."""
        self._fleet.forget((namespace, name))
        self.show_failing(namespace, name, None)
