"""What the engines of simulated clusters count in a window, under the faults of a scenario's timeline."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from specfleet.api.evidence import RunSummary
from specfleet.api.status import ArmRole
from specfleet.decide.counters import COUNTERS, GAUGES, Counter, Floats, Gauge
from specfleet.decide.plan import JobIntent
from specfleet.decide.reference import ROLES
from specfleet.decide.shares import STALLED_SHARE
from specfleet.decide.sums import CODES, NO_WINDOW, Batch
from specfleet.decide.watch_report import Answer
from specfleet.decide.watch_target import Target
from specfleet.simulate.cluster import Cluster, Pod
from specfleet.simulate.requests import DEPTH, EAGLE, NGRAM
from specfleet.simulate.scenario import Fault, FaultKind, Scenario
from specfleet.simulate.steps import StepModel
from specfleet.simulate.traffic import Arm, Effect, EngineModel, Generator, Load, TrafficModel, counters

DRAWN_AHEAD = 48_000
"""Windows of pods drawn at once: few calls, and small enough for the cache."""
WARM_SECONDS = 120.0
"""Pods count two minutes after their start (remedies.warmupSeconds of the default spec)."""
PAIR_LOG_SD = 0.02
"""Between the two runs of a benchmark pair."""
TOKENS_PER_REQUEST = 250.0
LONG_STALL_SECONDS = 60.0
"""p95 of a benchmark run in which more than 5 % of the gaps are longer than whatever is the limit."""
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


@dataclass(frozen=True, slots=True)
class Place:
    """One pod that serves, is warm, and is watched."""

    pod: Pod
    role: ArmRole
    """What it runs."""
    arm: int
    """What the watch takes it for: index in ROLES."""
    slot: int
    """Of the watch."""
    share: float
    """Part of a pod's even share of the traffic."""


@dataclass
class Member:
    """One deployment in a window."""

    cluster: Cluster
    number: int
    arms: tuple[bool, bool] = (False, False)
    """Which arms the watch has pods of."""
    drafts: bool = False
    """Whether the first of them is expected to draft."""
    places: list[Place] = field(default_factory=list)
    active: list[Active] = field(default_factory=list)
    first: dict[int, str] = field(default_factory=dict)
    """The one pod that a fault of one pod sits in, by fault."""


class Layout:
    """The pods of all members as columns, in the order that a Batch wants; made anew when a cluster moved."""

    def __init__(self, members: Sequence[Member], columns: int) -> None:
        self.members = members
        found = [
            (index, place)
            for arm in (0, 1)
            for index, member in enumerate(members)
            for place in member.places
            if place.arm == arm
        ]
        self.places = [place for _, place in found]
        self.owner = np.array([index for index, _ in found], np.intp)
        self.group = np.array([place.arm * len(members) + index for index, place in found], np.intp)
        self.slots = np.array([place.slot for place in self.places], np.intp)
        self.share = np.array([place.share for place in self.places])
        self.column = np.array(
            [members[index].number * columns + place.pod.slot % columns for index, place in found], np.intp
        )
        self.speculates = np.array([place.role is ArmRole.SPECULATIVE for place in self.places], bool)
        self.watched = np.array([member.arms for member in members], bool).reshape(len(members), 2).T
        self.drafts = np.array([member.drafts for member in members], bool)


class Engines:
    """Draws the traffic of a scenario, for one deployment or many alike, and turns it into windows and runs."""

    def __init__(self, scenario: Scenario, window_seconds: float, replicas: int, copies: int) -> None:
        self.scenario = scenario
        self.window_seconds = window_seconds
        self.replicas = replicas
        self.columns = replicas + 1
        """Per deployment: one for each pod that may serve, and one that a restarted pod begins with."""
        self.copies = copies
        self.ahead = int(np.clip(DRAWN_AHEAD // (self.columns * copies), 24, 240))
        lookup = scenario.traffic.method == "ngram"
        self.engine = EngineModel(
            pods=1, lookup=lookup, steps=StepModel(draft_base=scenario.draft_milliseconds), context_tokens=700.0
        )
        self.datasets = NGRAM if lookup else EAGLE
        self.noise = np.random.default_rng([scenario.seed, 77])
        self._loads: dict[str, tuple[Generator, Load, int]] = {}

    def places(self, member: Member, target: Target, slot_of: dict[str, int], begin: float) -> list[Place]:
        """The pods of a member that served all through the window that begins now."""
        cluster, found = member.cluster, []
        arm_of = {pod.name: arm for arm, role in enumerate(ROLES) for pod in target.arms.get(role, ())}
        for fingerprint, arm in cluster.serving_arms().items():
            pods = [pod for pod in arm.pods if pod.serves(cluster.now)]
            each = cluster.share(fingerprint) * self.replicas / max(1, len(pods))
            for pod in pods:
                if pod.name in arm_of and warm(pod, begin):
                    found.append(Place(pod, arm.role, arm_of[pod.name], slot_of[pod.name], each))
        return found

    def window(self, index: int, layout: Layout, start: float) -> Batch:
        """Window number `index` of all pods of a layout."""
        size, pods = len(layout.members), len(layout.places)
        acceptance, step_time, traffic = np.ones(pods), np.ones(pods), layout.share.copy()
        busy = [index for index, member in enumerate(layout.members) if member.active]
        for number in busy:
            self._effects(layout, number, acceptance, step_time, traffic)
        counts = np.zeros((COUNTERS, pods))
        for speculative in (True, False):
            some = np.flatnonzero(layout.speculates == speculative)
            if some.size:
                load = self._load(index, layout, some)
                effect = Effect(acceptance=acceptance[None, some], shared_step_time=step_time[None, some])
                arm = Arm(speculative, traffic[None, some], 1.0)
                counts[:, some] = counters(load, self.engine, arm, effect, self.noise)[:, 0]
        gauges = np.zeros((GAUGES, pods))
        gauges[Gauge.RUNNING] = counts[Counter.STEP_SECONDS] / self.window_seconds
        gauges[Gauge.KV_CACHE] = 0.3
        for number in busy:
            self._failures(layout, number, counts, gauges)
        return Batch(
            start=np.full(size, start),
            end=np.full(size, start + self.window_seconds),
            answers=_answers(layout, counts),
            pod_slots=layout.slots,
            pod_group=layout.group,
            pod_seconds=np.full(pods, self.window_seconds),
            pod_counts=counts,
            pod_gauges=gauges,
        )

    def runs(self, job: JobIntent, faults: Iterable[Active]) -> tuple[RunSummary, ...]:
        """What the benchmark driver would report for one unit."""
        active = list(faults)
        runs = []
        for index, cell in enumerate(job.cells):
            for place, role in enumerate(job.arms):
                runs.append(self._run(role, cell, 2 * index + place, active))
        return tuple(runs)

    def _load(self, index: int, layout: Layout, some: NDArray[np.intp]) -> Load:
        """One window of the traffic of some pods, (1, pods)."""
        mixes = [_mix(member) for member in layout.members] if any(one.active for one in layout.members) else [""]
        known = {mix: self._span(index, mix) for mix in dict.fromkeys(mixes)}
        parts = {}
        for name in PER_SLOT:
            whole = {mix: getattr(load, name)[index - begin] for mix, (_, load, begin) in known.items()}
            drawn = whole[mixes[0]][layout.column[some]]
            for number, mix in enumerate(mixes) if len(known) > 1 else ():
                mine = layout.owner[some] == number
                drawn[mine] = whole[mix][layout.column[some][mine]]
            parts[name] = drawn[None]
        starts = np.array([index * self.window_seconds])
        return Load(**parts, starts=starts, window_seconds=self.window_seconds)

    def _span(self, index: int, mix: str) -> tuple[Generator, Load, int]:
        known = self._loads.get(mix)
        if known is None or index >= known[2] + self.ahead:
            generator = known[0] if known else self._generator(mix)
            known = (generator, generator.span(index * self.window_seconds, self.ahead), index)
            self._loads[mix] = known
        return known

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
            model = TrafficModel(
                model.requests_per_second,
                self.datasets,
                mix=only,
                diurnal=traffic.diurnal,
                mix_diurnal=0.0,
                mix_concentration=1e9,
                runaways=traffic.runaways,
            )
        columns = self.columns * self.copies
        return Generator(model, columns, self.window_seconds, self.scenario.seed, together=self.columns)

    def _effects(self, layout: Layout, number: int, acceptance: Floats, step_time: Floats, traffic: Floats) -> None:
        member = layout.members[number]
        for column in np.flatnonzero(layout.owner == number):
            place = layout.places[column]
            for one in member.active:
                if one.fault.kind is FaultKind.TRAFFIC:
                    traffic[column] *= one.factor
                elif one.touches(place.role, place.pod, _first_pod(member, one.fault, place)):
                    if one.fault.kind is FaultKind.ACCEPTANCE:
                        acceptance[column] *= one.factor
                    elif one.fault.kind is FaultKind.STEP_TIME:
                        step_time[column] *= one.factor

    def _failures(self, layout: Layout, number: int, counts: Floats, gauges: Floats) -> None:
        member = layout.members[number]
        for column in np.flatnonzero(layout.owner == number):
            place, counted = layout.places[column], counts[:, column]
            for one in member.active:
                if not one.touches(place.role, place.pod, _first_pod(member, one.fault, place)):
                    continue
                requests = counted[Counter.FIRST_TOKENS]
                if one.fault.kind is FaultKind.SERVER_ERRORS:
                    failed = self.noise.binomial(round(requests), one.fault.share)
                    counted[Counter.HTTP_SERVER_ERROR] += failed
                    counted[[Counter.FINISHED, Counter.HTTP_OK]] -= failed
                elif one.fault.kind is FaultKind.CLIENT_ERRORS:
                    counted[Counter.HTTP_CLIENT_ERROR] += self.noise.binomial(round(requests), one.fault.share)
                elif one.fault.kind is FaultKind.STALLS:
                    stalled = one.fault.share * counted[Counter.STEPS] * self.noise.gamma(20, 0.05)
                    counted[Counter.STALLED_STEPS] = min(stalled, counted[Counter.STEPS])
                elif one.fault.kind is FaultKind.TTFT:
                    counted[Counter.TTFT_SECONDS] *= one.factor
                elif one.fault.kind is FaultKind.HANG:
                    counted[:] = 0.0
                    gauges[Gauge.RUNNING, column] = 4.0

    def _run(self, role: ArmRole, cell: tuple[str, str], order: int, active: list[Active]) -> RunSummary:
        speculative = role is ArmRole.SPECULATIVE
        closed = cell[0] == "peak"
        factors = {FaultKind.ACCEPTANCE: 1.0, FaultKind.STEP_TIME: 1.0}
        for one in active:
            if one.fault.kind in factors and one.touches(role, None, None):
                factors[one.fault.kind] *= one.factor
        acceptance = 0.45 * factors[FaultKind.ACCEPTANCE]
        length = 1 + DEPTH * acceptance if speculative else 1.0
        batch = np.array([32.0 if closed else 2.0])
        step = self.engine.steps.step_seconds(batch, DEPTH if speculative else 0, 700.0, self.engine.lookup)[0]
        noise = np.exp(self.noise.normal(0, PAIR_LOG_SD))
        tpot = float(step / length * factors[FaultKind.STEP_TIME] * noise)
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
            stall_p95_seconds=LONG_STALL_SECONDS if _stalls(role, active) else 2 * float(step),
            drafts=steps if speculative else 0,
            draft_tokens=DEPTH * steps if speculative else 0,
            accepted_tokens=int(DEPTH * steps * acceptance) if speculative else 0,
            engine_tpot_seconds=tpot,
            kv_cache_peak_ratio=0.3,
            queue_time_mean_seconds=0.01,
        )


def _stalls(role: ArmRole, active: list[Active]) -> bool:
    found = [one for one in active if one.fault.kind is FaultKind.STALLS and one.touches(role, None, None)]
    return any(one.fault.share > STALLED_SHARE for one in found)


def warm(pod: Pod, begin: float) -> bool:
    """Only pods that served for the whole window count."""
    return pod.ready_at is not None and pod.ready_at.timestamp() + WARM_SECONDS <= begin


def _first_pod(member: Member, fault: Fault, place: Place) -> str | None:
    """The one pod that a fault of one pod sits in: the first of the arm that met it."""
    if fault.pods != "one" or (fault.arm is not None and fault.arm is not place.role):
        return None
    return member.first.setdefault(id(fault), place.pod.uid)


def _mix(member: Member) -> str:
    return next((one.fault.dataset or "" for one in member.active if one.fault.kind is FaultKind.MIX), "")


def _answers(layout: Layout, counts: Floats) -> NDArray[np.int8]:
    """(2, n): what the collector would say of each arm's window."""
    size = len(layout.members)
    present, tokens, drafts = (
        np.bincount(layout.group, weights, 2 * size).reshape(2, size)
        for weights in (None, counts[Counter.GENERATED_TOKENS], counts[Counter.DRAFTS])
    )
    found = np.where(tokens > 0, CODES[Answer.OK], CODES[Answer.NO_TRAFFIC])
    silent = (tokens[0] > 0) & (drafts[0] == 0) & layout.drafts
    found[0] = np.where(silent, CODES[Answer.NOT_SPECULATING], found[0])
    found = np.where(present > 0, found, CODES[Answer.INSUFFICIENT])
    return np.asarray(np.where(layout.watched, found, NO_WINDOW), np.int8)
