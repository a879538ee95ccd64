"""One deployment of a scenario: its cluster, its operator's turns, and the timeline of its faults."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from specfleet.api.status import ArmRole, Phase
from specfleet.decide.observation import JobView
from specfleet.decide.watch_report import Stage, Suspicion, WatchReport, gist
from specfleet.simulate.cluster import DEFAULT_SPEC, JOB_SECONDS, START, Cluster, merged
from specfleet.simulate.engines import Active, Engines, Member, warm
from specfleet.simulate.scenario import FaultKind, Outcome, Scenario

ROAD_SECONDS = 3 * 86400.0
"""Longest time to reach the anchor."""
SHORT_STEP_SECONDS = 10.0
RESYNC_SECONDS = 600.0
QUIET_RESYNC_SECONDS = 86400.0
"""Production asks every RESYNC_SECONDS; tests/simulate/test_quiet.py shows that it changes no story."""
_ANCHORS = {"canary": Phase.CANARY, "promoted": Phase.SPECULATIVE}


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happened: a decision, a phase entered, or a finding that reached a stage."""

    seconds: float
    """Since the anchor (negative before it)."""
    action: str | None = None
    reason: str | None = None
    phase: Phase | None = None
    signal: str | None = None
    stage: Stage | None = None
    message: str = ""

    def matches(self, outcome: Outcome) -> bool:
        """Whether this is what the outcome describes (times apart)."""
        pairs = (
            (outcome.action, self.action),
            (outcome.reason, self.reason),
            (outcome.phase, self.phase),
            (outcome.signal, self.signal),
            (outcome.stage, self.stage),
        )
        return all(wanted is None or wanted == seen for wanted, seen in pairs)

    def __str__(self) -> str:
        what = self.action or (self.phase and f"phase {self.phase.value}") or f"{self.signal} {self.stage}"
        return f"{self.seconds / 60:8.1f} min  {what}{f' ({self.reason})' if self.reason else ''}  {self.message}"


@dataclass
class Result:
    """What became of a scenario."""

    scenario: Scenario
    happenings: list[Happening] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether everything was as expected."""
        return not self.failures


class Story:
    """One deployment in virtual time."""

    def __init__(
        self, scenario: Scenario, engines: Engines, ask: Callable[[tuple[str, str, str]], WatchReport], number: int
    ) -> None:
        self.scenario = scenario
        self.cluster = Cluster(merged(DEFAULT_SPEC, scenario.spec), number)
        self.member = Member(self.cluster, number)
        self.result = Result(scenario)
        self.anchor: datetime | None = START if scenario.anchor == "start" else None
        self.over = False
        self.windows = 0
        self.stirred = True
        """The last report may say something that decide() acts on."""
        self.operator_restarts = False
        """The process that watches is to be replaced at the end of this window."""
        self._engines, self._ask = engines, ask
        self._done: set[int] = set()
        self._findings: set[tuple[str, Stage]] = set()
        self._phase: Phase | None = None
        self._seen: object = None
        self._wake = START
        self._end = START + timedelta(seconds=ROAD_SECONDS)

    @property
    def attentive(self) -> bool:
        """The operator thinks after every window: figures decide in these phases."""
        return self._phase in (Phase.CANARY, Phase.INVESTIGATING)

    def live(self, edge: datetime, window_seconds: float) -> None:
        """Go on to the edge of the window, or to the end."""
        self.sleep(edge - timedelta(seconds=window_seconds))
        while self.cluster.now < edge and not self.over:
            wait = self._turn()
            if self.anchor is None and self._phase is _ANCHORS.get(self.scenario.anchor):
                self.anchor = self.cluster.now
                before = self._elapsed(START)
                self.result.happenings = [replace(one, seconds=one.seconds - before) for one in self.result.happenings]
            if self.anchor is not None:
                self._end = self.anchor + timedelta(seconds=self.scenario.duration)
            self._pass(min(wait, (edge - self.cluster.now).total_seconds()))
            self.over = self.cluster.now >= self._end

    def sleep(self, until: datetime) -> None:
        """Nothing happens until then."""
        seconds = (until - self.cluster.now).total_seconds()
        if seconds > 0:
            self.cluster.advance(seconds)

    def picture(self) -> tuple[object, ...]:
        """What the watch is aimed by: a different one calls for another look."""
        cluster = self.cluster
        pods = tuple((pod.uid, pod.serves(cluster.now)) for arm in cluster.serving_arms().values() for pod in arm.pods)
        return cluster.status, pods, tuple(cluster.weights.items()), cluster.generation

    def sleeps_until(self, window_seconds: float) -> datetime:
        """The next moment at which something may happen by itself; only a stirred report comes earlier."""
        cluster = self.cluster
        awake = cluster.moving or self.attentive or self.stirred or self.cold(window_seconds)
        if awake or self._roles(FaultKind.CRASH) or self._gist() != self._seen:
            return cluster.now
        # What is due at the very edge of a window is done in the next one; faults and the end belong to this one.
        return min(self._wake + timedelta(microseconds=1), self._end, *self._boundaries())

    def cold(self, window_seconds: float) -> bool:
        """Whether a pod did not yet serve for a whole window."""
        begin = self.cluster.now.timestamp() - window_seconds
        return any(not warm(pod, begin) for arm in self.cluster.serving_arms().values() for pod in arm.pods)

    def see(self, report: WatchReport) -> None:
        """What the watch says after a window."""
        self.cluster.report = report
        self._note_findings(report.suspicions)

    def active(self, now: datetime) -> Iterator[Active]:
        """Faults in force."""
        if self.anchor is None:
            return
        elapsed = (now - self.anchor).total_seconds()
        for fault in self.scenario.timeline:
            if fault.at <= elapsed < fault.at + fault.lasts:
                part = 1.0 if fault.ramp <= 0 else min(1.0, (elapsed - fault.at) / fault.ramp)
                yield Active(fault, part, self.anchor + timedelta(seconds=fault.at))

    def _boundaries(self) -> list[datetime]:
        """When faults begin and end."""
        if self.anchor is None:
            return []
        elapsed = self._elapsed(self.anchor)
        moments = [moment for fault in self.scenario.timeline for moment in (fault.at, fault.at + fault.lasts)]
        return [self.anchor + timedelta(seconds=moment) for moment in moments if elapsed < moment < float("inf")]

    def _turn(self) -> float:
        """Reconcile where the real operator would: on news, and when it asked to. Returns the wait."""
        before, now = self._gist(), self.cluster.now
        if before == self._seen and now < self._wake:
            return (self._wake - now).total_seconds()
        self.cluster.report = self._ask(self.cluster.key)
        plan = self.cluster.reconcile()
        for one in plan.decisions:
            self._note(action=one.action, reason=one.reason, message=one.message)
        if plan.status.phase is not self._phase:
            self._phase = plan.status.phase
            self._note(phase=self._phase, reason=plan.status.phase_reason)
        after = self._gist()
        # A promoted deployment of which nothing is suspected has nothing to decide until something is.
        resync = RESYNC_SECONDS if self.stirred or self._phase is not Phase.SPECULATIVE else QUIET_RESYNC_SECONDS
        again = SHORT_STEP_SECONDS if after != before else max(SHORT_STEP_SECONDS, plan.requeue_seconds or resync)
        self._seen, self._wake = after, self.cluster.now + timedelta(seconds=again)
        return again

    def _gist(self) -> object:
        """What wakes the operator: pods, the route, the Job, the spec, and what the report means."""
        cluster, report = self.cluster, self.cluster.report
        pods = [
            (pod.uid, pod.serves(cluster.now), pod.restarts, pod.deleting_until is None)
            for arm in cluster.arms.values()
            for pod in arm.pods
        ]
        tick = self.windows if self.attentive else 0
        return pods, tuple(cluster.weights.items()), cluster.job_view, cluster.generation, gist(report), tick

    def _pass(self, seconds: float) -> None:
        """Time passes."""
        self.cluster.crashing = frozenset(self._roles(FaultKind.CRASH))
        self.cluster.advance(seconds)
        self._once()
        self._work()

    def _work(self) -> None:
        """The benchmark Job ends."""
        cluster = self.cluster
        if cluster.job is None or cluster.job_view is None or cluster.job_view.finished is not None:
            return
        finished = cluster.job_started + timedelta(seconds=JOB_SECONDS)
        if cluster.now >= finished:
            job, runs = cluster.job, self._engines.runs(cluster.job, self.active(self.cluster.now))
            cluster.job_view = JobView(job.benchmark, job.unit, cluster.job_started, finished, runs=runs)

    def _once(self) -> None:
        """Faults that happen at one moment."""
        for index, fault in enumerate(self.scenario.timeline):
            if index in self._done or self.anchor is None or self._elapsed(self.anchor) < fault.at:
                continue
            self._done.add(index)
            if fault.kind is FaultKind.SPEC:
                self.cluster.change(fault.patch)
            elif fault.kind is FaultKind.OUT_OF_MEMORY:
                self.cluster.kill_for_memory(fault.arm or ArmRole.SPECULATIVE)
            elif fault.kind is FaultKind.OPERATOR_RESTART:
                self.operator_restarts = True

    def _roles(self, kind: FaultKind) -> set[ArmRole]:
        found: set[ArmRole] = set()
        for one in self.active(self.cluster.now):
            if one.fault.kind is kind:
                found |= {one.fault.arm} if one.fault.arm is not None else set(ArmRole)
        return found

    def _elapsed(self, since: datetime) -> float:
        return (self.cluster.now - since).total_seconds()

    def _note(self, **fields: object) -> None:
        seconds = self._elapsed(self.anchor if self.anchor is not None else START)
        self.result.happenings.append(Happening(seconds, **fields))  # type: ignore[arg-type]

    def _note_findings(self, suspicions: tuple[Suspicion, ...]) -> None:
        now = {(one.signal.value, one.stage) for one in suspicions}
        for one in suspicions:
            if (one.signal.value, one.stage) not in self._findings:
                self._note(signal=one.signal.value, stage=one.stage, message=f"[{one.attribution}] {one.message}")
        self._findings = now

    def judge(self) -> None:
        """Compare what happened with what had to."""
        result, scenario = self.result, self.scenario
        result.failures += self.cluster.violations[:3]
        if self.anchor is None:
            result.failures.append(f"never reached: {scenario.anchor} (last phase {self._phase})")
            return
        for outcome in scenario.must:
            found = [one for one in result.happenings if one.matches(outcome) and one.seconds >= outcome.after]
            if not found:
                result.failures.append(f"did not happen: {_words(outcome)}")
            elif found[0].seconds > outcome.by:
                result.failures.append(f"too late ({found[0].seconds / 60:.0f} min): {_words(outcome)}")
        for outcome in scenario.must_not:
            found = [
                one for one in result.happenings if one.matches(outcome) and outcome.after <= one.seconds <= outcome.by
            ]
            if found:
                result.failures.append(f"must not happen: {found[0]}")
        served = self.cluster.status.serving_arm if self.cluster.status is not None else None
        if scenario.finally_serves is not None and served is not scenario.finally_serves:
            result.failures.append(f"serves {served} in the end, not {scenario.finally_serves.value}")


def _words(outcome: Outcome) -> str:
    return ", ".join(f"{name}={value}" for name, value in outcome.model_dump(exclude_defaults=True).items())
