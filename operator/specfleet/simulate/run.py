"""Runs a scenario on the production core (watch and decide) and says whether what happened is what had to."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.status import ArmRole, Phase
from specfleet.decide.counters import TargetFeed
from specfleet.decide.observation import JobView
from specfleet.decide.watch import Watch
from specfleet.decide.watch_report import Answer, Stage, Suspicion
from specfleet.decide.watch_scope import watch_target
from specfleet.simulate.cluster import DEFAULT_SPEC, JOB_SECONDS, KEY, START, Cluster, merged
from specfleet.simulate.engines import Active, Engines, window
from specfleet.simulate.scenario import FaultKind, Outcome, Scenario

ROAD_SECONDS = 3 * 86400.0
"""Longest time to reach the anchor."""
SHORT_STEP_SECONDS = 10.0
RESYNC_SECONDS = 600.0
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


class Simulation:
    """One scenario in virtual time."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.cluster = Cluster(merged(DEFAULT_SPEC, scenario.spec))
        spec = DeploymentSpec.model_validate(self.cluster.spec)
        self.window_seconds = float(spec.window_seconds)
        self.engines = Engines(scenario, self.window_seconds, spec.replicas)
        self.watch = Watch()
        self.result = Result(scenario)
        self.anchor: datetime | None = START if scenario.anchor == "start" else None
        self._windows = 0
        self._began: dict[int, datetime] = {}
        self._done: set[int] = set()
        self._findings: set[tuple[str, Stage]] = set()
        self._phase: Phase | None = None
        self._seen: object = None
        self._wake = START

    def run(self) -> Result:
        """Go to the anchor, then through the timeline, then judge."""
        end = START + timedelta(seconds=ROAD_SECONDS)
        while self.cluster.now < end:
            wait = self._turn()
            if self.anchor is None and self._phase is _ANCHORS.get(self.scenario.anchor):
                self.anchor = self.cluster.now
                before = self._elapsed(START)
                self.result.happenings = [replace(one, seconds=one.seconds - before) for one in self.result.happenings]
            if self.anchor is not None:
                end = self.anchor + timedelta(seconds=self.scenario.duration)
            self._pass(wait)
        self._judge()
        return self.result

    def _turn(self) -> float:
        """Reconcile where the real operator would: on news, on its own timer, every ten minutes. Returns the wait."""
        gist, now = self._gist(), self.cluster.now
        if gist == self._seen and now < self._wake:
            return min(self.window_seconds, (self._wake - now).total_seconds())
        plan = self.cluster.reconcile()
        for one in plan.decisions:
            self._note(action=one.action, reason=one.reason, message=one.message)
        if plan.status.phase is not self._phase:
            self._phase = plan.status.phase
            self._note(phase=self._phase, reason=plan.status.phase_reason)
        after = self._gist()
        changed = after != gist
        wait = SHORT_STEP_SECONDS if changed else max(SHORT_STEP_SECONDS, plan.requeue_seconds or RESYNC_SECONDS)
        self._seen, self._wake = after, self.cluster.now + timedelta(seconds=wait)
        return min(self.window_seconds, wait)

    def _gist(self) -> object:
        """What wakes the operator: pods, the route, the Job, the spec, and what the report means."""
        cluster, report = self.cluster, self.cluster.report
        pods = [
            (pod.uid, pod.serves(cluster.now), pod.restarts, pod.deleting_until is None)
            for arm in cluster.arms.values()
            for pod in arm.pods
        ]
        slower = report.comparison is not None and (report.comparison.tpot_ratio_lower or 0.0) > 1.0
        findings = tuple((one.signal, one.stage, one.attribution, one.pod) for one in report.suspicions)
        moving = cluster.status is not None and cluster.status.phase in (Phase.CANARY, Phase.INVESTIGATING)
        tick = self._windows if moving else 0
        read = (report.answer, findings, slower, report.calibration is not None, tick)
        return pods, tuple(cluster.weights.items()), cluster.job_view, cluster.generation, read

    def _pass(self, seconds: float) -> None:
        """Time passes up to the next window edge or for `seconds`, whichever is first."""
        edge = START + timedelta(seconds=(self._windows + 1) * self.window_seconds)
        step = min(seconds, (edge - self.cluster.now).total_seconds())
        self.cluster.crashing = frozenset(self._roles(FaultKind.CRASH))
        self.cluster.advance(step)
        self._once()
        self._work()
        if self.cluster.now >= edge:
            self._close_window()

    def _close_window(self) -> None:
        pods = self.engines.pods(self.cluster, self._windows, list(self._active()))
        self._windows += 1
        status = self.cluster.status
        if status is None or status.stable is None:
            return
        target = watch_target(self.cluster.observation(), status, self.cluster.now)
        broken = next((one.fault.answer for one in self._active() if one.fault.kind is FaultKind.METRICS), None)
        end = START.timestamp() + self._windows * self.window_seconds
        start = end - self.window_seconds
        shifted = {role: (window(target, role, start, end, pods),) for role in target.arms}
        if broken is None:
            answers = dict.fromkeys(target.arms, (Answer.OK, ""))
        else:
            shifted, answers = {}, dict.fromkeys(target.arms, (Answer(broken), f"scripted: {broken}"))
        self.watch.observe(self.cluster.now, {KEY: TargetFeed(target, shifted, answers)})
        self.cluster.report = self.watch.report(KEY)
        self._note_findings(self.cluster.report.suspicions)

    def _work(self) -> None:
        """The benchmark Job ends."""
        cluster = self.cluster
        if cluster.job is None or cluster.job_view is None or cluster.job_view.finished is not None:
            return
        finished = cluster.job_started + timedelta(seconds=JOB_SECONDS)
        if cluster.now >= finished:
            job, runs = cluster.job, self.engines.runs(cluster.job, self._active())
            cluster.job_view = JobView(job.benchmark, job.unit, cluster.job_started, finished, True, runs=runs)

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

    def _active(self) -> Iterator[Active]:
        if self.anchor is None:
            return
        elapsed = self._elapsed(self.anchor)
        for fault in self.scenario.timeline:
            if fault.at <= elapsed < fault.at + fault.lasts:
                part = 1.0 if fault.ramp <= 0 else min(1.0, (elapsed - fault.at) / fault.ramp)
                yield Active(fault, part, self.anchor + timedelta(seconds=fault.at))

    def _roles(self, kind: FaultKind) -> set[ArmRole]:
        found: set[ArmRole] = set()
        for one in self._active():
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

    def _judge(self) -> None:
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


def simulate(scenario: Scenario) -> Result:
    """Run one scenario."""
    return Simulation(scenario).run()
