"""Speculative: promoted and watched for as long as it serves."""

from datetime import timedelta

from specfleet.api.status import Investigation, Phase
from specfleet.decide import budget
from specfleet.decide.gates import action_gates, first_unmet
from specfleet.decide.replacement import RESTART_POD, replace_lone
from specfleet.decide.resume import resume
from specfleet.decide.rollback import promoted_fault, rollback_allowed, start_promoted_rollback
from specfleet.decide.targets import can_attribute
from specfleet.decide.traffic import follow_traffic, measure_the_promoted_again
from specfleet.decide.turn import Turn
from specfleet.decide.watch_report import Answer, Attribution, Severity, Signal, Stage, Suspicion
from specfleet.decide.week import SOURCE as WEEK

STALE_EVIDENCE_SECONDS = 3600.0


def speculative(turn: Turn) -> None:
    """Hard faults roll back at once; a lost gain serves plain first; anything else is investigated."""
    if nothing_promoted(turn) or guard_promoted(turn) or turn.spec.paused:
        return
    _forgive(turn)
    _adopt_calibration(turn)
    if _unwatched_too_long(turn):
        return
    finding = actionable(turn)
    if finding is not None:
        investigate(turn, finding)
        return
    follow_traffic(turn)
    measure_the_promoted_again(turn)


def guard_promoted(turn: Turn) -> bool:
    """What never waits, whatever else is asked for or in flight: hard faults, a hung pod, a gain below zero.

    Also while a changed revision is pending: what serves the users meanwhile is the promoted arm. True: it has acted.
    """
    stable = turn.status.stable
    if stable is None or stable.speculative is None:
        return False
    if hard_fault(turn) or _hung_pod(turn):
        return True
    # Without a case: one bad GPU must not end a trial, nor take an action of the day from what the watch may find.
    replace_lone(turn, turn.obs.arm(stable.speculative))
    return gain_below_zero(turn)


def guard_beside_trial(turn: Turn) -> bool:
    """As guard_promoted while a changed revision is tried or waits, and drift too: most users are served by what is
    promoted.

    A finding ends the trial, which begins again afterwards; the same finding does so once per revision. The change
    may be the very cure, and must not be kept away for ever. True: it has acted.
    """
    turn.about_promoted = True
    acted = guard_promoted(turn) or _drift(turn)
    turn.about_promoted = False
    return acted


def _drift(turn: Turn) -> bool:
    stable = turn.status.stable
    if stable is None or stable.speculative is None or turn.spec.paused:
        return False
    known = turn.status.followed_up
    fresh = [one for one in open_findings(turn) if one.stage is Stage.CONFIRMED and one.signal.value not in known]
    finding = next((one for one in fresh if may_act(turn, one.severity)), None)
    if finding is None:
        return False
    turn.set(followed_up=[*known, finding.signal.value])
    investigate(turn, finding)
    return True


def nothing_promoted(turn: Turn) -> bool:
    """The promoted arm is gone from status (somebody edited it): go on with what serves."""
    stable = turn.status.stable
    if stable is not None and stable.speculative is not None:
        return False
    resume(turn, "NothingPromoted")
    return True


def hard_fault(turn: Turn) -> bool:
    """Crashes and OOM seen through Kubernetes, and hard findings of the watch, when the plain arm is fine."""
    if promoted_fault(turn):
        return True
    for one in turn.promoted_watch.suspicions:
        confirmed = one.severity is Severity.HARD and one.stage is Stage.CONFIRMED
        if (
            confirmed
            and one.attribution in (Attribution.SPECULATION, Attribution.HISTORICAL)
            and rollback_allowed(turn)
        ):
            start_promoted_rollback(turn, one.signal.value, one.message)
            return True
    return False


def _hung_pod(turn: Turn) -> bool:
    """One pod that is alive and does not answer is a dead pod: it is restarted at once, paused or not."""
    for one in turn.promoted_watch.suspicions:
        hung = one.severity is Severity.HARD and one.stage is Stage.CONFIRMED and one.attribution is Attribution.POD
        if hung and _pod_is_there(turn, one.pod):
            investigate(turn, one)
            return True
    return False


def _pod_is_there(turn: Turn, name: str | None) -> bool:
    """Whether the promoted arm still has that pod: a finding outlives the pod that it is about."""
    stable = turn.status.stable
    arm = turn.obs.arm(stable.speculative) if stable is not None else None
    return arm is not None and any(pod.name == name and not pod.deleting for pod in arm.pods)


def gain_below_zero(turn: Turn) -> bool:
    """Concurrent evidence that speculation is slower than plain decoding: serve plain first, ask afterwards."""
    watch = turn.promoted_watch
    comparison = watch.comparison
    slower = (
        comparison is not None
        and watch.answer is Answer.OK
        and comparison.tpot_ratio_lower is not None
        and comparison.tpot_ratio_lower > 1.0
    )
    if not slower or comparison is None or not may_act(turn) or not rollback_allowed(turn):
        return False
    start_promoted_rollback(turn, "GainBelowZero", comparison.message)
    return True


def actionable(turn: Turn) -> Suspicion | None:
    """The most severe finding that justifies an action now: past the cool-down and within the budgets."""
    return next((one for one in open_findings(turn) if may_act(turn, one.severity)), None)


def open_findings(turn: Turn) -> list[Suspicion]:
    """Findings that ask for an action, the most severe first; whether it may happen now is said by its gates."""
    order = {Severity.HARD: 0, Severity.SLO: 1, Severity.ECONOMIC: 2}
    open_ = [
        one
        for one in turn.promoted_watch.suspicions
        if one.attribution is not Attribution.SHARED
        and (one.stage is Stage.CONFIRMED or one.severity is Severity.SLO)
        and one.signal is not Signal.NO_PROGRESS
        and (one.attribution is not Attribution.POD or _pod_is_there(turn, one.pod))
    ]
    return sorted(open_, key=lambda one: (order[one.severity], one.signal.value))


def may_act(turn: Turn, severity: Severity = Severity.ECONOMIC) -> bool:
    """Cool-down, daily budget, breaker, and a maintenance window where nothing but money is lost meanwhile."""
    return first_unmet(action_gates(turn.obs, turn.status, severity)) is None


def investigate(turn: Turn, finding: Suspicion) -> None:
    """Follow a finding up: an SLO is attributed with a raised control, else down the ladder.

    A restart probe is told by the acceptance: it would call latency, stalls and refused requests healed.
    """
    stage = "Attribute" if finding.severity is Severity.SLO and can_attribute(turn.spec) else "RestartProbe"
    if finding.attribution is Attribution.POD:
        stage = RESTART_POD
    _open_case(turn, finding.signal.value, finding.message, stage, finding.pod)


def _open_case(turn: Turn, signal: str, message: str, stage: str, pod: str | None) -> None:
    turn.decide("Investigate", signal, message)
    turn.enter(
        Phase.INVESTIGATING,
        signal,
        candidate=turn.status.stable.speculative if turn.status.stable is not None else None,
        benchmark=None,
        step=None,
        step_since=None,
        hold_until=None,
        investigation=Investigation(
            since=turn.now,
            signal=signal,
            stage=stage,
            message=message[:2048],
            cells=[],
            restarted_pod=pod,
            stage_since=turn.now,
        ),
    )


def _unwatched_too_long(turn: Turn) -> bool:
    """After an hour without an operator what was normal is not known any more: learn it again, act on hard faults only.

    A new normal is not taken from windows before the gap, and detectors without one stay silent.
    """
    history, calibration = turn.obs.history, turn.status.calibration
    if history.since is None or history.gap_seconds <= STALE_EVIDENCE_SECONDS or calibration is None:
        return False
    if calibration.since >= history.since:
        return False
    said = f"nobody watched for {history.gap_seconds / 3600:.1f} h: calibrating again, only hard faults act meanwhile"
    turn.decide("Recalibrate", "Unwatched", said)
    turn.set(calibration=None, last_change=turn.now)
    return True


def _forgive(turn: Turn) -> None:
    attempts = turn.status.attempts
    healthy = timedelta(seconds=budget.HEALTHY_SECONDS_THAT_FORGIVE)
    if attempts is not None and turn.status.phase_since and turn.obs.now - turn.status.phase_since > healthy:
        turn.set(attempts=None)


def _adopt_calibration(turn: Turn) -> None:
    """Once from the first windows after a promotion that had no usable ones, and once from the first healthy week."""
    stable = turn.status.stable
    proposal = turn.promoted_watch.calibration
    if stable is None or proposal is None:
        return
    present = turn.status.calibration
    sharper = present is not None and proposal.source == WEEK and present.source != WEEK
    if present is None or (sharper and proposal.fingerprint == stable.speculative):
        turn.set(calibration=proposal)
