"""A past decision of the watch again: pods and figures from Prometheus, judged by the very phase that decided."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import product

from specfleet.api.conditions import Condition, ConditionStatus, ConditionType
from specfleet.api.status import (
    ArmRole,
    Calibration,
    DecisionContext,
    DecisionRecord,
    DeploymentStatus,
    Investigation,
    Phase,
    RevisionStatus,
)
from specfleet.cli.asking import ask_watch
from specfleet.cli.replay_pods import (
    MISSING_SECONDS,
    DataGoneError,
    SeenPod,
    alive_at,
    arm_views,
    check_coverage,
    serving_pods,
)
from specfleet.decide.decide import PHASES
from specfleet.decide.observation import FleetView, Observation, WantedArm
from specfleet.decide.phases.canary import promote
from specfleet.decide.turn import Turn
from specfleet.decide.watch_report import Answer, WatchReport
from specfleet.decide.watch_scope import watch_target
from specfleet.decide.week import HOUR_SECONDS, HOURS
from specfleet.decide.week import SOURCE as WEEK
from specfleet.telemetry.servers import MetricsServer

LONGEST_REPLAY_SECONDS = 7 * 86400.0
"""A watch that was calibrated longer ago is followed over its last week."""
UNKNOWN_ANSWERS = (Answer.UNAVAILABLE, Answer.TARGET_DOWN, Answer.SCHEMA_MISSING)


@dataclass(frozen=True, slots=True)
class Then:
    """What the phase decided when it was asked again."""

    decision: DecisionRecord | None
    report: WatchReport

    def same_as(self, record: DecisionRecord) -> bool:
        """Whether the recorded decision was taken again."""
        return self.decision is not None and (self.decision.action, self.decision.reason, self.decision.verdict) == (
            record.action,
            record.reason,
            record.verdict,
        )


@dataclass
class Replayer:
    """Replays decisions of one deployment. `obs`: what is known of it now (arms of the spec, revisions)."""

    obs: Observation
    server: MetricsServer
    history: Sequence[DecisionRecord]
    known: Mapping[str, WantedArm]
    """Arms per fingerprint, of the present spec and of kept revisions."""
    _calibrations: dict[datetime, Calibration | None] = field(default_factory=dict)

    def replay(self, record: DecisionRecord, context: DecisionContext) -> Then:
        """The phase's decision at the record's time. Raises DataGoneError."""
        if context.phase is Phase.CANARY and context.step is None:
            # The promoted arm, guarded beside the trial of a changed engine: judged as at any other time.
            context = context.model_copy(update={"phase": Phase.SPECULATIVE})
        since, at = (context.since or record.time).timestamp(), record.time.timestamp()
        begin, window = min(since, self._begun(record, context)), self.obs.spec.window_seconds
        pods = self._pods(begin, at + window)
        check_coverage(pods, context, since, at)
        calibration = self._calibration(record, context)
        status = self._status(record, context, calibration, [pod for pod in pods if pod.during(since, at)])
        tries = []
        # The operator looks whenever a window closes; asked again at other moments, a window may end a little later.
        # Where a pod died around then, it may have been seen as alive or not.
        for later, alive in product((1.0, 1.0 + window), alive_at(pods, at)):
            now = record.time + timedelta(seconds=later)
            report = self._report(status, pods, alive, now, begin)
            tries.append(Then(self._decide(status, alive, now, report), report))
            if tries[-1].same_as(record):
                return tries[-1]
        return next((one for one in tries if one.decision is not None), tries[0])

    def _decide(
        self, status: DeploymentStatus, pods: Sequence[SeenPod], now: datetime, report: WatchReport
    ) -> DecisionRecord | None:
        turn = Turn(self._observation(status, pods, now, report), status)
        PHASES[status.phase](turn)
        return next(iter(turn.decisions), None)

    def _report(
        self,
        status: DeploymentStatus,
        pods: Sequence[SeenPod],
        alive: Sequence[SeenPod],
        now: datetime,
        begin: float,
    ) -> WatchReport:
        target, present = (watch_target(self._observation(status, some, now), status, now) for some in (pods, alive))
        report = ask_watch(self.server, target, now, datetime.fromtimestamp(begin, UTC), present)
        if report.answer in UNKNOWN_ANSWERS:
            raise DataGoneError(f"{report.answer.value}: {report.message}")
        return report

    def _begun(self, record: DecisionRecord, context: DecisionContext) -> float:
        """Since when the arm was watched: from its canary on before, from its promotion on after; a week at most."""
        since = (context.since or record.time).timestamp()
        if context.phase is Phase.CANARY:
            begun = self._last(record, ("StartCanary", "TryRevision")) or record
            return max(min(since, begun.time.timestamp()), since - LONGEST_REPLAY_SECONDS)
        promoted = self._promotion(record, context)
        known = self.obs.status.calibration
        moment = promoted.time if promoted is not None else known.since if known is not None else record.time
        return max(min(since, moment.timestamp()), record.time.timestamp() - LONGEST_REPLAY_SECONDS)

    def _last(self, record: DecisionRecord, actions: tuple[str, ...]) -> DecisionRecord | None:
        """The last decision of these kinds up to a record."""
        found = [one for one in self.history if one.action in actions and one.time <= record.time]
        return found[-1] if found else None

    def _promotion(self, record: DecisionRecord, context: DecisionContext) -> DecisionRecord | None:
        """The decision that promoted the arm which was watched."""
        found = [
            one
            for one in self.history
            if one.action == "Promote" and one.time <= record.time and one.context and one.context.arm == context.arm
        ]
        return found[-1] if found else None

    def _calibration(self, record: DecisionRecord, context: DecisionContext) -> Calibration | None:
        """What was normal then: as status still has it, or worked out again from the last canary step."""
        if context.phase is Phase.CANARY:
            return None
        known = self.obs.status.calibration
        if known is not None and known.fingerprint == context.arm and _in_force(known) <= record.time:
            return known
        promoted = self._promotion(record, context)
        if promoted is None or promoted.context is None:
            raise DataGoneError("what was normal for the arm is not known any more: its promotion is not in history")
        if promoted.time not in self._calibrations:
            self._calibrations[promoted.time] = self._of_canary(promoted, promoted.context)
        found = self._calibrations[promoted.time]
        if found is None:
            raise DataGoneError("the canary had no figures to calibrate with, and later ones are not recorded")
        return found

    def _of_canary(self, promoted: DecisionRecord, context: DecisionContext) -> Calibration | None:
        """As promote() wrote it down."""
        since, at = (context.since or promoted.time).timestamp(), promoted.time.timestamp()
        begin = self._begun(promoted, context)
        pods = self._pods(begin, at)
        check_coverage(pods, context, since, at)
        if min(pod.first for pod in pods) > begin + MISSING_SECONDS:
            raise DataGoneError("what was normal for the arm cannot be worked out again: Prometheus lacks its canary")
        status = self._status(promoted, context, None, [pod for pod in pods if pod.during(since, at)])
        report = self._report(status, pods, alive_at(pods, at)[0], promoted.time + timedelta(seconds=1), begin)
        turn = Turn(self._observation(status, pods, promoted.time, report), status)
        promote(turn, "")
        return turn.status.calibration

    def _status(
        self,
        record: DecisionRecord,
        context: DecisionContext,
        calibration: Calibration | None,
        pods: Iterable[SeenPod],
    ) -> DeploymentStatus:
        """Status as it was, as far as a phase asks it."""
        since = context.since or record.time
        trial = context.phase is Phase.CANARY
        plain = self._plain(pods, context.arm if trial else None)
        answered = Condition(
            type=ConditionType.METRICS_AVAILABLE,
            status=ConditionStatus.TRUE,
            reason="Answered",
            last_transition_time=since,
            observed_generation=0,
        )
        return DeploymentStatus(
            conditions=[answered],
            phase=context.phase,
            phase_since=since,
            revision=self.obs.status.revision,
            step=context.step if trial else None,
            step_since=since if trial else None,
            candidate=context.arm,
            stable=RevisionStatus(name="then", baseline=plain, speculative=None if trial else context.arm),
            calibration=calibration,
            investigation=self._investigation(record, since) if context.phase is Phase.INVESTIGATING else None,
            last_change=since if context.phase is Phase.SPECULATIVE else None,
        )

    def _plain(self, pods: Iterable[SeenPod], candidate: str | None) -> str:
        """Fingerprint of the plain arm that stood beside; the present one when no pod of any is seen."""
        seen = [
            pod.fingerprint
            for pod in pods
            if pod.fingerprint != candidate and self._role(pod.fingerprint, candidate) is ArmRole.BASELINE
        ]
        stable = self.obs.status.stable
        if stable is not None and stable.baseline in seen:
            return stable.baseline
        return seen[0] if seen else self.obs.baseline.fingerprint

    def _investigation(self, record: DecisionRecord, since: datetime) -> Investigation:
        """The case as it stood: its opening, and the stage that this kind of decision belongs to."""
        opened = self._last(record, ("Investigate",))
        if opened is None:
            raise DataGoneError("the decision that opened the investigation is not in history any more")
        stage = _STAGES.get(record.action, "Attribute")
        probe = self._last(record, ("RestartProbe",))
        measured = record.action in ("RestartRest", "RestartProbeFailed")
        named = re.search(r"pod (\S+)", probe.message) if probe is not None and measured else None
        return Investigation(
            since=opened.time,
            signal=opened.reason,
            stage=stage,
            message=opened.message,
            stage_since=since,
            restarted_at=since if measured else None,
            restarted_pod=named[1] if named else None,
        )

    def _observation(
        self,
        status: DeploymentStatus,
        pods: Sequence[SeenPod],
        now: datetime,
        report: WatchReport | None = None,
    ) -> Observation:
        views = arm_views(self.obs.deployment.name, pods, lambda one: self._role(one, status.candidate))
        owner = self.obs.deployment.model_copy(update={"status": status})
        judged = self.known.get(status.candidate or "")
        earlier = (judged,) if judged is not None and self.obs.wanted(judged.fingerprint) is None else ()
        fresh = replace(self.obs, now=now, deployment=owner, arms=views, bench=(), route=None, job=None)
        fresh = replace(fresh, fleet=FleetView(), command=None, problems=(), baseline=self._wanted_plain(status))
        fresh = replace(fresh, proposers=(*self.obs.proposers, *earlier))
        return fresh if report is None else replace(fresh, watch=report)

    def _wanted_plain(self, status: DeploymentStatus) -> WantedArm:
        """In the trial of another engine the candidate is the plain arm that was asked for; else the stable one is."""
        assert status.stable is not None
        judged = self.known.get(status.candidate or "")
        if status.phase is Phase.CANARY and judged is not None and judged.role is ArmRole.BASELINE:
            return judged
        return replace(self.obs.baseline, fingerprint=status.stable.baseline)

    def _role(self, fingerprint: str, judged: str | None) -> ArmRole:
        if fingerprint in self.known:
            return self.known[fingerprint].role
        return ArmRole.SPECULATIVE if fingerprint == judged else ArmRole.BASELINE

    def _pods(self, begin: float, end: float) -> list[SeenPod]:
        return serving_pods(self.server, self.obs, begin, end)


_STAGES = {
    "RestartProbe": "RestartProbe",
    "RestartRest": "RestartProbe",
    "RestartProbeFailed": "RestartProbe",
}


def _in_force(known: Calibration) -> datetime:
    """Since when a calibration counts: that of a week is taken when the week is over."""
    return known.since + timedelta(seconds=HOURS * HOUR_SECONDS) if known.source == WEEK else known.since
