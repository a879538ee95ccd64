"""The small cluster of tests/decide with real telemetry: its pods count like engines, are scraped into a loopback
Prometheus, and the operator's own collector and watch report to decide()."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
from specfleet.api import names
from specfleet.api.base import API_VERSION
from specfleet.api.status import ArmRole
from specfleet.decide.observation import ArmView
from specfleet.decide.plan import Plan
from specfleet.decide.watch import Watch
from specfleet.decide.watch_report import UNKNOWN_REPORT, WatchReport
from specfleet.decide.watch_scope import watch_target
from specfleet.resources.evidence import speculative_benchmark
from specfleet.telemetry.collector import Collector
from specfleet.telemetry.servers import MetricsServer

from tests.decide.world import Pod, Slot, World, spec_of
from tests.telemetry.fake_server import FakePrometheus
from tests.telemetry.fleet import EngineModel

SCRAPE_SECONDS = 5
MONITORING = {"scrapeIntervalSeconds": SCRAPE_SECONDS, "windowSeconds": 20}
GOOD = (0.7, 0.5, 0.35)
DECAYED = (0.3, 0.1, 0.03)


def measured_spec(**changes: Any) -> dict[str, Any]:
    """Short windows and steps; the metrics of the spec are those of the loopback server."""
    return spec_of(**{"monitoring": MONITORING, **changes})


@dataclass
class MeasuredWorld(World):
    """Every five seconds the pods are scraped and the watch looks."""

    spec: dict[str, Any] = field(default_factory=measured_spec)
    fake: FakePrometheus = field(default_factory=FakePrometheus)
    acceptance: tuple[float, ...] = GOOD
    plain_step_seconds: float = 0.02
    speculative_step_seconds: float = 0.024
    slow_fingerprint: str = ""
    """An arm whose steps take three times as long."""
    engines: dict[str, EngineModel] = field(default_factory=dict)
    collector: Collector = field(default_factory=Collector)
    watch: Watch = field(default_factory=Watch)
    seen: WatchReport = UNKNOWN_REPORT

    def _pod_name(self, fingerprint: str, pod: Pod) -> str:
        return f"{names.arm(self.name, fingerprint)}-rs-{pod.name}"

    def _view(self, slot: Slot, arm: Any) -> ArmView:
        view = super()._view(slot, arm)
        pods = tuple(
            replace(pod, name=self._pod_name(slot[0], one)) for pod, one in zip(view.pods, arm.pods, strict=True)
        )
        return replace(view, pods=pods)

    def _report(self) -> WatchReport:
        return self.seen

    def _next_event(self, plan: Plan, end: datetime) -> float:
        return min(float(SCRAPE_SECONDS), super()._next_event(plan, end))

    def tick(self, seconds: float) -> None:
        """Time passes, in whole seconds: engines work, and at every fifth second they are scraped."""
        end = float(round(self.now.timestamp() + seconds))
        while self.now.timestamp() < end:
            before = self.now.timestamp()
            mark = (before // SCRAPE_SECONDS + 1) * SCRAPE_SECONDS
            super().tick(min(mark, end) - before)
            self._serve(self.now.timestamp() - before)
            if self.now.timestamp() >= mark:
                self._scrape()
                self._look()

    def _serving(self) -> list[tuple[str, ArmRole, Pod]]:
        return [
            (self._pod_name(fingerprint, pod), arm.role, pod)
            for (fingerprint, bench), arm in self.arms.items()
            if not bench
            for pod in arm.pods
            if self._pod(pod).serves
        ]

    def _serve(self, seconds: float) -> None:
        serving = self._serving()
        rng = np.random.default_rng(int(self.now.timestamp()))
        for name, role, pod in serving:
            drafts = role is ArmRole.SPECULATIVE
            engine = self.engines.setdefault(name, EngineModel(start_time=(pod.ready_at or self.now).timestamp()))
            engine.requests_per_second = self.requests_per_second / len(serving)
            engine.acceptance = self.acceptance if drafts else None
            engine.step_seconds = self.speculative_step_seconds if drafts else self.plain_step_seconds
            if self.slow_fingerprint and self.slow_fingerprint in name:
                engine.step_seconds *= 3
            engine.run(seconds, lambda mean: float(rng.poisson(mean)))

    def _scrape(self) -> None:
        for name, _, _ in self._serving():
            self.fake.store.scrape(self.now.timestamp(), "ml", name, self.engines[name])

    def _look(self) -> None:
        """The telemetry tick of the operator."""
        obs = self.observation()
        if obs.status.stable is None:
            return
        target = watch_target(obs, obs.status, self.now)
        server = MetricsServer(self.fake.url, timeout_seconds=5)
        self.watch.observe(self.now, asyncio.run(self.collector.tick({server: [target]}, self.now)))
        self.seen = self.watch.report(target.key)

    def objects(self) -> list[dict[str, Any]]:
        """What `kubectl get sd,sb` would print now."""
        owner = self.deployment()
        assert self.status is not None
        kind = {"apiVersion": API_VERSION, "kind": "SpeculativeDeployment"}
        body = {**kind, "metadata": dict(owner.metadata), "spec": self.spec, "status": self.status.to_wire()}
        return [body, *(speculative_benchmark(owner, one) for one in self.evidence)]
