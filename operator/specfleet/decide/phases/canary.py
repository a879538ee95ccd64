"""Canary: traffic moves step by step; each step is judged at matched load, with a minimum of requests."""

from specfleet.api.status import ArmRole, Calibration, Phase, RevisionStatus, Verdict
from specfleet.decide.conclusions import sum_up
from specfleet.decide.exchange import exchange
from specfleet.decide.faults import crash_fault, engine_mismatch, lone_fault, no_room, start_fault, straggler
from specfleet.decide.gates import first_unmet, fruitless_seconds, least_requests, step_gates
from specfleet.decide.observation import ArmView
from specfleet.decide.phases.resting import hold
from specfleet.decide.phases.speculative import guard_beside_trial
from specfleet.decide.replacement import replace_lone, replace_once
from specfleet.decide.resume import resume
from specfleet.decide.rollback import rollback_allowed, start_rollback
from specfleet.decide.stranded import NOTHING_ELSE_SERVES, rescue, stranded
from specfleet.decide.targets import room, target
from specfleet.decide.turn import Turn
from specfleet.decide.watch_report import USABLE_ANSWERS, Answer, Attribution, Severity, Signal, Stage

INCOMPATIBLE = Signal.CLIENT_ERRORS.value
INCOMPATIBLE_HOLD_SECONDS = 86400.0
"""Each new attempt costs users refused requests: once a day, or when a person says retry."""


def canary(turn: Turn) -> None:
    """Abort on a fault, wait for the pods, then for the evidence, then take the next step or promote."""
    if turn.status.candidate is None or turn.status.step is None or turn.status.stable is None:
        resume(turn, "CandidateGone")
        return
    if guard_beside_trial(turn) or _rescued(turn) or _aborted(turn) or turn.spec.paused:
        return
    if turn.obs.fleet.breaker_open:
        turn.look_again(30)
        return
    move = exchange(target(turn.obs, turn.status), turn.obs.arms, turn.obs.route, room(turn.obs), turn.obs.now)
    if turn.status.step_since is None:
        if move.done:
            turn.set(step_since=turn.now)
            turn.look_again(3)
        return
    _judge_step(turn)


def _rescued(turn: Turn) -> bool:
    """The changed engine takes over without a comparison where nothing else answers."""
    if not _is_revision_trial(turn) or turn.spec.paused:
        return False
    lost, candidate = stranded(turn.obs, turn.status), turn.obs.arm(turn.status.candidate)
    if candidate is None or not candidate.serving or crash_fault(candidate, turn.obs.now) is not None:
        return False
    if lost is None and not rescue(turn.obs, turn.status):
        return False
    why = f": {lost.message}" if lost is not None else ""
    promote(turn, f"no pod of the stable arms answers any more, and this one does{why}", None)
    return True


def _aborted(turn: Turn) -> bool:
    candidate = turn.obs.arm(turn.status.candidate)
    stable = turn.status.stable
    assert stable is not None
    reference = turn.obs.arm(stable.speculative or stable.baseline)
    now = turn.obs.now
    fault = crash_fault(candidate, now) or start_fault(candidate, now, turn.spec.engine.startup_timeout_seconds)
    if fault is not None and crash_fault(reference, now) is None:
        start_rollback(turn, fault.reason, fault.message)
        return True
    same = None if _is_revision_trial(turn) else engine_mismatch(candidate, reference)
    full = no_room(candidate, now) or same
    if full is not None:
        hold(turn, full.reason, full.message)
        return True
    hard = next(
        (
            one
            for one in turn.obs.watch_of(turn.status.candidate).suspicions
            if one.severity is Severity.HARD
            and one.stage is Stage.CONFIRMED
            and one.attribution is Attribution.SPECULATION
        ),
        None,
    )
    if hard is not None and rollback_allowed(turn):
        start_rollback(turn, hard.signal.value, hard.message)
        return True
    return _incomplete(turn, candidate)


def _incomplete(turn: Turn, candidate: ArmView | None) -> bool:
    """One pod of a larger candidate does not come up: its step is never reached. One that loops is replaced first."""
    stable = turn.status.stable
    assert stable is not None
    replace_lone(turn, turn.obs.arm(stable.baseline))
    ends = lone_fault(candidate, turn.obs.now)
    if candidate is not None and ends is not None and replace_once(turn, candidate, ends):
        return False
    lone = straggler(candidate, turn.obs.now, turn.spec.engine.startup_timeout_seconds)
    if lone is None or turn.status.step_since is not None:
        return False
    hold(turn, lone.reason, f"step {(turn.status.step or 0) + 1} needs every pod of its arm: {lone.message}")
    return True


def _is_revision_trial(turn: Turn) -> bool:
    """A changed model or engine is under trial rather than a proposer."""
    return turn.status.candidate == turn.obs.baseline.fingerprint


def _judge_step(turn: Turn) -> None:
    """Only Pass moves on and only Fail goes back; with too little traffic the step waits, then gives up."""
    step = turn.spec.rollout.steps[turn.spec.rollout.step_index(turn.status.step)]
    comparison = turn.obs.watch_of(turn.status.candidate).comparison
    stayed = turn.seconds_since(turn.status.step_since)
    if comparison is not None and comparison.verdict is Verdict.FAIL and comparison.reason == INCOMPATIBLE:
        hold(turn, INCOMPATIBLE, comparison.message, INCOMPATIBLE_HOLD_SECONDS)
        return
    if comparison is not None and comparison.verdict is Verdict.FAIL and rollback_allowed(turn):
        start_rollback(turn, comparison.reason, comparison.message)
        return
    least = least_requests(turn.obs.watch)
    if first_unmet(step_gates(turn.obs, turn.status)) is None and comparison is not None:
        _next_step(turn, f"step {(turn.status.step or 0) + 1}: {least:.0f} requests per arm; {comparison.message}")
        return
    if fruitless_seconds(turn.obs, turn.status) > turn.spec.rollout.no_traffic_timeout_seconds:
        _give_up(turn, least, step.min_requests)
        return
    turn.look_again(max(2.0, min(30.0, step.min_duration_seconds - stayed)))


def _give_up(turn: Turn, least: float, needed: int) -> None:
    """Too little traffic, or enough and still no Pass, or no figures at all: different things to tell a person."""
    place, comparison = f"step {(turn.status.step or 0) + 1}", turn.obs.watch.comparison
    hours = turn.seconds_since(turn.status.step_since) / 3600
    if least >= needed and comparison is not None:
        said = f"{place}: no verdict after {least:.0f} requests per arm in {hours:.1f} h: {comparison.message}"
        hold(turn, "CanaryInconclusive" if comparison.verdict is not Verdict.FAIL else comparison.reason, said)
        return
    answer = turn.obs.watch.answer
    if answer not in USABLE_ANSWERS:
        said = f"{place}: nothing can be said of an arm for {hours:.1f} h ({answer.value}): {turn.obs.watch.message}"
        hold(turn, "MetricsMissing", said)
        return
    said = f"{place} had {least:.0f} of {needed} requests per arm in {hours:.1f} h ({answer.value})"
    hold(turn, "InsufficientTraffic", said)


def _next_step(turn: Turn, message: str) -> None:
    following = (turn.status.step or 0) + 1
    if following < len(turn.spec.rollout.steps):
        turn.decide("NextStep", "CanaryStepPassed", message, Verdict.PASS)
        turn.set(step=following, step_since=None, last_change=turn.now)
        return
    promote(turn, message)


def promote(turn: Turn, message: str, verdict: Verdict | None = Verdict.PASS) -> None:
    """The candidate becomes stable. What is normal for it is written down once, from the canary."""
    stable, candidate = turn.status.stable, turn.status.candidate
    assert stable is not None
    assert candidate is not None
    wanted = turn.obs.wanted(candidate)
    turn.set(holds=0)
    if wanted is not None and wanted.role is ArmRole.BASELINE:
        reason = "RevisionPassed" if verdict is Verdict.PASS else NOTHING_ELSE_SERVES
        turn.decide("AdoptRevision", reason, message, verdict)
        adopted = RevisionStatus(name=turn.status.revision or "", baseline=candidate)
        turn.set(stable=adopted)
        turn.enter(Phase.BASELINE, reason, candidate=None, step=None, step_since=None, calibration=None, benchmark=None)
        if not turn.obs.proposers:
            sum_up(turn, None, final=True)
        return
    turn.decide("Promote", "CanaryPassed", message, verdict)
    turn.cool_down()
    turn.set(
        stable=RevisionStatus(name=turn.status.revision or "", baseline=stable.baseline, speculative=candidate),
        calibration=_calibration(turn, candidate),
    )
    turn.enter(Phase.SPECULATIVE, "CanaryPassed", step=None, step_since=None)


def _calibration(turn: Turn, candidate: str) -> Calibration | None:
    if turn.obs.watch.calibration is not None and turn.obs.watch.calibration.fingerprint == candidate:
        return turn.obs.watch.calibration
    window = turn.obs.watch.step.get(ArmRole.SPECULATIVE)
    if window is None or window.answer is not Answer.OK:
        return None
    return Calibration(
        fingerprint=candidate,
        since=turn.now,
        acceptance_rate=window.acceptance_rate,
        position_zero_rate=window.position_zero_rate,
        accepted_length=window.accepted_length,
        tpot_seconds=window.tpot_seconds,
        drafted_tokens=int(window.draft_tokens),
        source="Canary",
    )
