"""Phases in which nothing is in flight and the question is only whether a trial may start."""

from datetime import timedelta

from specfleet.api.status import Phase, TrialStatus, Verdict
from specfleet.decide import budget
from specfleet.decide.duration import plan_in_words
from specfleet.decide.gates import GateName, first_unmet, hold_gate, queue_gate, trial_gates
from specfleet.decide.measure import side_by_side
from specfleet.decide.observation import WantedArm
from specfleet.decide.phases.speculative import guard_beside_trial
from specfleet.decide.resume import resume
from specfleet.decide.traffic import follow_traffic, try_again_on_other_traffic
from specfleet.decide.trials import best_passed, next_candidate, next_run, progress_for
from specfleet.decide.turn import Turn
from specfleet.decide.units import measured_spec

HOLD_SECONDS = 600.0
QUEUE_SECONDS = 60.0
QUEUED = "BenchmarkQueued"
LONGEST_HOLD_SECONDS = 21600.0


def baseline(turn: Turn) -> None:
    """Start the next trial of the revision, when everything that it needs is there."""
    stable = turn.status.stable
    if stable is None or stable.speculative is not None or stable.baseline != turn.obs.baseline.fingerprint:
        resume(turn, "Resumed")
        return
    follow_traffic(turn)
    try_again_on_other_traffic(turn)
    run, winner = next_run(turn), best_passed(turn)
    if (run is None and winner is None) or turn.spec.paused or turn.obs.fleet.breaker_open:
        return
    if turn.obs.baseline.refusals or not _may_start(turn):
        return
    if run is not None and _queued(turn):
        return
    if run is not None:
        start_benchmark(turn, run[1], run[0])
    elif winner is not None:
        _start_canary(turn, winner[0])


def _may_start(turn: Turn) -> bool:
    """Whether plain pods carry the load, an attempt is due and there is room; else waits, rests or holds."""
    gate = first_unmet(trial_gates(turn.obs, turn.status))
    if gate is None:
        return True
    if gate.name is GateName.ATTEMPTS:
        turn.enter(Phase.EXHAUSTED, "AttemptsExhausted")
    elif gate.name is GateName.ROOM:
        said = "capacity.maxExtraReplicas is 0: no pod can be measured beside the serving ones"
        hold(turn, "InsufficientCapacity", said)
    elif gate.name is GateName.BACKOFF:
        turn.look_again(min(gate.left_seconds or 0.0, 3600.0))
    else:
        turn.look_again(300 if gate.name is GateName.MAINTENANCE else 10)
    return False


def _queued(turn: Turn) -> bool:
    """Whether the next benchmark waits for those of others; told once."""
    gate = queue_gate(turn.obs)
    if gate.met:
        return False
    if turn.status.phase_reason != QUEUED:
        said = f"{gate.has} {gate.unit} run, {gate.needs} are wanted ({gate.note}): this one waits"
        turn.decide("QueueBenchmark", QUEUED, said)
        turn.set(phase_reason=QUEUED)
    turn.look_again(QUEUE_SECONDS)
    return True


def _start_canary(turn: Turn, winner: TrialStatus) -> None:
    turn.decide("StartCanary", "BenchmarkPassed", f"{winner.proposer} goes to canary", Verdict.PASS)
    turn.cool_down()
    turn.enter(
        Phase.CANARY,
        "BenchmarkPassed",
        candidate=winner.fingerprint,
        step=0,
        step_since=None,
        realised_gain_ratio=winner.gain_ratio,
    )


def has_trial(turn: Turn) -> bool:
    """Whether the revision has something left to try: a candidate without a verdict, or one that passed."""
    return next_candidate(turn) is not None or best_passed(turn) is not None


def start_benchmark(turn: Turn, candidate: WantedArm, purpose: str, cells: tuple[str, ...] = ()) -> None:
    """Begin a benchmark, or a candidate's next stretch of a search."""
    progress = progress_for(turn, candidate, purpose).model_copy(update={"cells": list(cells)})
    if progress.round_pairs is None and progress.pairs_done == 0:
        # Stretches of a search are told at the end of each round, not one by one.
        message = f"{candidate.label} against plain decoding: "
        if cells:
            message += f"up to {progress.pairs_planned} pairs in {', '.join(cells)}"
        else:
            message += plan_in_words(measured_spec(turn.spec, progress), side_by_side(turn.obs), progress.pairs_planned)
        turn.decide("StartBenchmark", purpose, message)
    if purpose == "Suspicion":
        turn.set(benchmark=progress)
    else:
        turn.enter(Phase.BENCHMARKING, purpose, benchmark=progress, candidate=candidate.fingerprint)


def hold(
    turn: Turn, reason: str, message: str, seconds: float = HOLD_SECONDS, longest: float = LONGEST_HOLD_SECONDS
) -> None:
    """What serves goes on serving; what is missing is said, and looked for again later, less and less often."""
    seconds = max(seconds, min(seconds * 2.0**turn.status.holds, longest))
    turn.decide("Hold", reason, message, Verdict.INCONCLUSIVE)
    turn.enter(
        Phase.HELD,
        reason,
        benchmark=None,
        candidate=None,
        step=None,
        step_since=None,
        hold_until=turn.now + timedelta(seconds=seconds),
        holds=min(turn.status.holds + 1, 16),
    )


def held(turn: Turn) -> None:
    """Try again after the hold; a changed spec ends it at once (see revisions.py)."""
    if guard_beside_trial(turn):
        return
    gate = hold_gate(turn.obs, turn.status)
    if gate.met:
        resume(turn, "HoldEnded")
    elif gate.left_seconds is not None:
        turn.look_again(gate.left_seconds)


def rolled_back(turn: Turn) -> None:
    """Wait for the back-off; then the same revision is measured again from the start."""
    revision = turn.status.revision or ""
    if turn.status.revision_refused == revision:
        return
    if budget.exhausted(turn.status.attempts, revision, turn.spec.remedies):
        turn.enter(Phase.EXHAUSTED, "AttemptsExhausted")
        return
    wait = budget.seconds_until_attempt(turn.status.attempts, revision, turn.obs.now)
    if wait > 0:
        turn.look_again(min(wait, 3600.0))
        return
    turn.set(trials=[], search=None)
    resume(turn, "BackOffEnded")


def exhausted(turn: Turn) -> None:
    """Only a changed revision or a person's retry leads out (see revisions.py and commands.py)."""
    del turn
