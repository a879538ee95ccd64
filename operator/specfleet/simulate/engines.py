"""What the engines of a simulated cluster count in a window, under the faults of a scenario's timeline."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from specfleet.api.evidence import RunSummary
from specfleet.api.status import ArmRole
from specfleet.decide.counters import GAUGES, Counter, Floats, Gauge, PodWindow, Window
from specfleet.decide.plan import JobIntent
from specfleet.decide.watch_report import Answer
from specfleet.decide.watch_target import Target
from specfleet.simulate.cluster import Cluster, Pod
from specfleet.simulate.requests import DEPTH, EAGLE, NGRAM
from specfleet.simulate.scenario import Fault, FaultKind, Scenario
from specfleet.simulate.steps import StepModel
from specfleet.simulate.traffic import Arm, Effect, EngineModel, Generator, Load, TrafficModel, counters

SLOTS = 10
AHEAD_WINDOWS = 240
PAIR_LOG_SD = 0.02
"""Between the two runs of a benchmark pair."""
TOKENS_PER_REQUEST = 250.0
PER_SLOT = ("requests", "drafts", "first", "accepted", "tokens")


@dataclass(frozen=True, slots=True)
class Active:
    """A fault in force, with how far its ramp has come (0..1)."""

    fault: Fault
    part: float
    began: datetime

    @property
    def factor(self) -> float:
        """The factor now."""
        return 1 + (self.fault.factor - 1) * self.part

    def touches(self, role: ArmRole, pod: Pod | None, first: str | None) -> bool:
        """Whether it applies to a pod (None: a benchmark run of that arm)."""
        if self.fault.arm is not None and self.fault.arm is not role:
            return False
        if pod is None:
            return self.fault.pods == "all" and not self.fault.healed_by_restart
        if self.fault.pods == "one" and pod.uid != first:
            return False
        return not (self.fault.healed_by_restart and pod.created > self.began)


class Engines:
    """Draws the traffic of a scenario and turns it into windows and benchmark runs."""

    def __init__(self, scenario: Scenario, window_seconds: float, replicas: int) -> None:
        self.scenario = scenario
        self.window_seconds = window_seconds
        self.replicas = replicas
        lookup = scenario.traffic.method == "ngram"
        self.engine = EngineModel(
            pods=1, lookup=lookup, steps=StepModel(draft_base=scenario.draft_milliseconds), context_tokens=700.0
        )
        self.datasets = NGRAM if lookup else EAGLE
        self.noise = np.random.default_rng([scenario.seed, 77])
        self._loads: dict[str, tuple[Generator, Load, int]] = {}
        self._first: dict[int, str] = {}

    def pods(self, cluster: Cluster, index: int, faults: Iterable[Active]) -> dict[str, PodWindow]:
        """Window number `index` of every pod that served all through it."""
        active = list(faults)
        load = self._load(index, active)
        found: dict[str, PodWindow] = {}
        begin = cluster.now.timestamp() - self.window_seconds
        traffic = float(np.prod([one.factor for one in active if one.fault.kind is FaultKind.TRAFFIC]))
        for fingerprint, arm in cluster.serving_arms().items():
            pods = [pod for pod in arm.pods if pod.serves(cluster.now)]
            each = cluster.share(fingerprint) * self.replicas / max(1, len(pods)) * traffic
            steady = [pod for pod in pods if _steady(pod, begin)]
            found |= {pod.name: self._pod(arm.role, pod, load, each, active) for pod in steady}
        return found

    def runs(self, job: JobIntent, faults: Iterable[Active]) -> tuple[RunSummary, ...]:
        """What the benchmark driver would report for one unit."""
        active = list(faults)
        runs = []
        for index, cell in enumerate(job.cells):
            for place, role in enumerate(job.arms):
                runs.append(self._run(role, cell, 2 * index + place, active))
        return tuple(runs)

    def _load(self, index: int, active: list[Active]) -> Load:
        """One window of the traffic, one column per pod slot."""
        mix = next((one.fault.dataset for one in active if one.fault.kind is FaultKind.MIX), None) or ""
        known = self._loads.get(mix)
        if known is None or index >= known[2] + AHEAD_WINDOWS:
            generator = known[0] if known else self._generator(mix)
            known = (generator, generator.span(index * self.window_seconds, AHEAD_WINDOWS), index)
            self._loads[mix] = known
        at = slice(index - known[2], index - known[2] + 1)
        load = known[1]
        parts = {
            name: getattr(load, name)[at] for name in ("requests", "drafts", "first", "accepted", "tokens", "starts")
        }
        return replace(load, **parts)

    def _generator(self, mix: str) -> Generator:
        traffic = self.scenario.traffic
        model = TrafficModel(
            traffic.requests_per_second / self.replicas,
            self.datasets,
            diurnal=traffic.diurnal,
            mix_concentration=traffic.mix_concentration,
            runaways=traffic.runaways,
        )
        if mix:
            only = tuple(1.0 if dataset.name == mix else 1e-6 for dataset in self.datasets)
            model = replace(model, mix=only, mix_concentration=1e9, mix_diurnal=0.0)
        return Generator(model, SLOTS, self.window_seconds, self.scenario.seed, together=True)

    def _pod(self, role: ArmRole, pod: Pod, load: Load, share: float, active: list[Active]) -> PodWindow:
        place = slice(pod.slot % SLOTS, pod.slot % SLOTS + 1)
        column = {name: getattr(load, name)[:, place] for name in PER_SLOT}
        effect = self._effect(role, pod, active)
        arm = Arm(role is ArmRole.SPECULATIVE, share, 1.0)
        counted = counters(replace(load, **column), self.engine, arm, effect, self.noise)[:, 0, 0]
        gauges = np.zeros(GAUGES)
        gauges[Gauge.RUNNING] = counted[Counter.STEP_SECONDS] / self.window_seconds
        gauges[Gauge.KV_CACHE] = 0.3
        for one in active:
            if not one.touches(role, pod, self._first_pod(one.fault, pod, role)):
                continue
            requests = counted[Counter.FIRST_TOKENS]
            if one.fault.kind is FaultKind.SERVER_ERRORS:
                failed = self.noise.binomial(round(requests), one.fault.share)
                counted[Counter.HTTP_SERVER_ERROR] += failed
                counted[[Counter.FINISHED, Counter.HTTP_OK]] -= failed
            elif one.fault.kind is FaultKind.CLIENT_ERRORS:
                counted[Counter.HTTP_CLIENT_ERROR] += self.noise.binomial(round(requests), one.fault.share)
            elif one.fault.kind is FaultKind.TTFT:
                counted[Counter.TTFT_SECONDS] *= one.factor
            elif one.fault.kind is FaultKind.HANG:
                counted = np.zeros_like(counted)
                gauges[Gauge.RUNNING] = 4.0
        return PodWindow(self.window_seconds, counted, gauges)

    def _effect(self, role: ArmRole, pod: Pod | None, active: list[Active]) -> Effect:
        factors = {FaultKind.ACCEPTANCE: 1.0, FaultKind.STEP_TIME: 1.0}
        for one in active:
            first = None if pod is None else self._first_pod(one.fault, pod, role)
            if one.fault.kind in factors and one.touches(role, pod, first):
                factors[one.fault.kind] *= one.factor
        return Effect(acceptance=factors[FaultKind.ACCEPTANCE], shared_step_time=factors[FaultKind.STEP_TIME])

    def _first_pod(self, fault: Fault, pod: Pod, role: ArmRole) -> str | None:
        """The one pod that a fault of one pod sits in: the first of the arm that met it."""
        if fault.pods != "one" or (fault.arm is not None and fault.arm is not role):
            return None
        return self._first.setdefault(id(fault), pod.uid)

    def _run(self, role: ArmRole, cell: tuple[str, str], order: int, active: list[Active]) -> RunSummary:
        speculative = role is ArmRole.SPECULATIVE
        closed = cell[0] == "peak"
        effect = self._effect(role, None, active)
        acceptance = 0.45 * float(np.asarray(effect.acceptance))
        length = 1 + DEPTH * acceptance if speculative else 1.0
        batch = np.array([32.0 if closed else 2.0])
        step = self.engine.steps.step_seconds(batch, DEPTH if speculative else 0, 700.0, self.engine.lookup)[0]
        noise = np.exp(self.noise.normal(0, PAIR_LOG_SD))
        tpot = float(step / length * float(np.asarray(effect.shared_step_time)) * noise)
        rate = 32.0 / (TOKENS_PER_REQUEST * tpot) if closed else 1.0
        steps = int(300 * TOKENS_PER_REQUEST / length)
        return RunSummary(
            arm=role,
            tier=cell[0],
            slice=cell[1],
            order=order,
            valid=True,
            started=1000.0,
            duration_seconds=300.0,
            planned_requests=300,
            completed_requests=300,
            failed_requests=0,
            requests_per_second=None if closed else 1.0,
            concurrency=32 if closed else None,
            completed_requests_per_second=rate,
            prompt_tokens=300 * 512,
            output_tokens=int(300 * TOKENS_PER_REQUEST),
            output_tokens_per_second=rate * TOKENS_PER_REQUEST,
            tpot_mean_seconds=tpot,
            tpot_p95_seconds=1.3 * tpot,
            ttft_mean_seconds=0.15,
            ttft_p95_seconds=0.3,
            e2e_mean_seconds=0.15 + TOKENS_PER_REQUEST * tpot,
            client_lag_p99_seconds=0.001,
            drafts=steps if speculative else 0,
            draft_tokens=DEPTH * steps if speculative else 0,
            accepted_tokens=int(DEPTH * steps * acceptance) if speculative else 0,
            engine_tpot_seconds=tpot,
            kv_cache_peak_ratio=0.3,
            queue_time_mean_seconds=0.01,
        )


def _steady(pod: Pod, begin: float) -> bool:
    """Only pods that served for the whole window, two minutes after their start (remedies.warmupSeconds)."""
    return pod.ready_at is not None and pod.ready_at.timestamp() + 120 <= begin


def window(target: Target, role: ArmRole, start: float, end: float, pods: Mapping[str, PodWindow]) -> Window:
    """The window of the pods that the watch counts to a role, with its answer."""
    members = {pod.name: pods[pod.name] for pod in target.arms[role] if pod.name in pods}
    if not members:
        return Window(start, end, Answer.INSUFFICIENT, "no pod had an undisturbed window")
    total: Floats = np.sum([pod.counts for pod in members.values()], axis=0)
    if total[Counter.GENERATED_TOKENS] == 0:
        return Window(start, end, Answer.NO_TRAFFIC, "no token was generated", members)
    if role is ArmRole.SPECULATIVE and target.method is not None and total[Counter.DRAFTS] == 0:
        return Window(start, end, Answer.NOT_SPECULATING, "tokens without a draft", members)
    return Window(start, end, Answer.OK, "", members)
