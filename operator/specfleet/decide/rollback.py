"""Going back to the plain arm, and what is remembered of it."""

from specfleet.api import names
from specfleet.api.status import Phase, Verdict
from specfleet.decide.difference import engine_in_words
from specfleet.decide.faults import crash_fault, start_fault
from specfleet.decide.turn import Turn


def start_rollback(
    turn: Turn,
    reason: str,
    message: str,
    counts: bool = True,
    verdict: Verdict | None = Verdict.FAIL,
    arm: str | None = None,
) -> None:
    """Decide the roll-back now; traffic follows as fast as plain pods come up.

    `arm`: fingerprint of the arm that loses its traffic; default the candidate of a canary, else the promoted one.
    `counts`: it uses up an attempt.
    """
    stable = turn.status.stable
    promoted = stable.speculative if stable is not None else None
    trial = turn.status.candidate if turn.status.phase is Phase.CANARY else None
    what = engine_in_words(turn.obs, turn.status) if trial == turn.obs.baseline.fingerprint else ""
    said = f"{message}{f' (changed: {what})' if what else ''}"
    turn.decide("RollBack", reason, said, verdict, tuple(_evidence(turn)))
    turn.act()
    turn.enter(
        Phase.ROLLING_BACK,
        reason,
        candidate=arm or trial or promoted,
        benchmark=None,
        step=None,
        step_since=None,
        investigation=None,
        hold_until=None,
        realised_gain_ratio=None,
        rollback_counts=counts,
    )


def promoted_fault(turn: Turn) -> bool:
    """Roll back a promoted arm that crashes or that nobody can reach, whatever else is in flight.

    Seen through Kubernetes alone. Not when the plain arm fails as well: then the one that still answers is kept. Where
    roll-backs are switched off, not while any of its pods answers: the route must still lead to somebody.
    """
    stable = turn.status.stable
    if stable is None or stable.speculative is None:
        return False
    arm, now = turn.obs.arm(stable.speculative), turn.obs.now
    answers = arm is not None and bool(arm.serving)
    fault = crash_fault(arm, now) if turn.spec.remedies.rollback or not answers else None
    if fault is None and not answers:
        fault = start_fault(arm, now, turn.spec.engine.startup_timeout_seconds)
    if fault is None or crash_fault(turn.obs.arm(stable.baseline), now) is not None:
        return False
    start_promoted_rollback(turn, fault.reason, fault.message)
    return True


def start_promoted_rollback(turn: Turn, reason: str, message: str) -> None:
    """Take the traffic off the promoted arm. One of an earlier spec uses up no attempt of what is asked for now."""
    stable = turn.status.stable
    assert stable is not None
    own = turn.obs.wanted(stable.speculative) is not None
    start_rollback(turn, reason, message, counts=own, arm=stable.speculative)


def rollback_allowed(turn: Turn) -> bool:
    """spec.remedies.rollback; when it is off the finding is only told."""
    return turn.spec.remedies.rollback and not turn.spec.paused


def _evidence(turn: Turn) -> list[str]:
    progress = turn.status.benchmark
    if progress is None:
        return []
    name = turn.obs.deployment.name
    return [
        names.unit(name, progress.id, one.unit)
        for one in (*turn.obs.evidence, *turn.record)
        if one.benchmark == progress.id
    ]
