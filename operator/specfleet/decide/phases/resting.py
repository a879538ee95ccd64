"""Phases in which the plain arm serves and the question is only whether a trial may start."""

from datetime import timedelta
from hashlib import sha256

from specfleet.api.status import BenchmarkProgress, Phase, Verdict
from specfleet.decide import budget
from specfleet.decide.observation import WantedArm
from specfleet.decide.rollback import plain_serves
from specfleet.decide.turn import Turn

HOLD_SECONDS = 600.0


def baseline(turn: Turn) -> None:
    """Start the benchmark of the next untried candidate, when everything that it needs is there."""
    candidate = next_candidate(turn)
    if candidate is None or turn.spec.paused or turn.obs.fleet.breaker_open:
        return
    if not plain_serves(turn):
        turn.look_again(10)
        return
    revision = turn.status.revision or ""
    if budget.exhausted(turn.status.attempts, revision, turn.spec.remedies):
        turn.enter(Phase.EXHAUSTED, "AttemptsExhausted")
        return
    wait = budget.seconds_until_attempt(turn.status.attempts, revision, turn.obs.now)
    if wait > 0:
        turn.look_again(wait)
        return
    if not budget.in_maintenance_window(turn.spec.remedies.maintenance_windows, turn.obs.now):
        turn.look_again(300)
        return
    if turn.spec.capacity.max_extra_replicas == 0:
        hold(
            turn,
            "InsufficientCapacity",
            "capacity.maxExtraReplicas is 0: no pod can be measured beside the serving ones",
        )
        return
    start_benchmark(turn, candidate, "Qualify")


def next_candidate(turn: Turn) -> WantedArm | None:
    """The first proposer of the spec that no rule refuses and that has no verdict yet."""
    tried = {trial.fingerprint for trial in turn.status.trials}
    return next((arm for arm in turn.obs.proposers if not arm.refusals and arm.fingerprint not in tried), None)


def start_benchmark(turn: Turn, candidate: WantedArm, purpose: str, cells: tuple[str, ...] = ()) -> None:
    """Begin a benchmark with an id of its own, so that its Jobs and evidence have names before they exist."""
    pairs = turn.spec.benchmark.pairs
    seed = f"{turn.obs.deployment.uid}/{candidate.fingerprint}/{purpose}/{turn.now.isoformat()}"
    progress = BenchmarkProgress(
        id=sha256(seed.encode()).hexdigest()[:8],
        purpose=purpose,
        candidate=candidate.fingerprint,
        started=turn.now,
        pairs_planned=pairs,
        cells=list(cells),
    )
    message = f"{candidate.label} against plain decoding: up to {pairs} pairs"
    if cells:
        message += f" in {', '.join(cells)}"
    turn.decide("StartBenchmark", purpose, message)
    if purpose == "Suspicion":
        turn.set(benchmark=progress)
    else:
        turn.enter(Phase.BENCHMARKING, purpose, benchmark=progress, candidate=candidate.fingerprint)


def hold(turn: Turn, reason: str, message: str, seconds: float = HOLD_SECONDS) -> None:
    """The plain arm serves; what is missing is said, and looked for again later."""
    turn.decide("Hold", reason, message, Verdict.INCONCLUSIVE)
    turn.enter(
        Phase.HELD,
        reason,
        benchmark=None,
        candidate=None,
        step=None,
        step_since=None,
        hold_until=turn.now + timedelta(seconds=seconds),
    )


def held(turn: Turn) -> None:
    """Try again after the hold; a changed spec ends it at once (see revisions.py)."""
    left = (turn.status.hold_until - turn.obs.now).total_seconds() if turn.status.hold_until else 0.0
    if turn.status.phase_reason == "InsufficientCapacity" and turn.spec.capacity.max_extra_replicas == 0:
        return
    if left > 0:
        turn.look_again(left)
        return
    turn.enter(Phase.BASELINE, "HoldEnded", hold_until=None)


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
    turn.enter(Phase.BASELINE, "BackOffEnded", trials=[])


def exhausted(turn: Turn) -> None:
    """Only a changed revision or a person's retry leads out (see revisions.py and commands.py)."""
    del turn
