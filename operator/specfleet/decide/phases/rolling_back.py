"""RollingBack: the decision is made; traffic follows as fast as plain pods come up."""

from specfleet.api.reasons import ABORTED
from specfleet.api.status import DeploymentStatus, Phase
from specfleet.decide import budget
from specfleet.decide.exchange import exchange
from specfleet.decide.phases.speculative import hard_fault
from specfleet.decide.replacement import replace_lone
from specfleet.decide.resume import resume
from specfleet.decide.targets import room, target
from specfleet.decide.turn import Turn


def without_failed(status: DeploymentStatus) -> DeploymentStatus:
    """The arm that failed is promoted no more, and what was normal for it is forgotten."""
    stable = status.stable
    if stable is None or stable.speculative is None or stable.speculative != status.candidate:
        return status
    return status.model_copy(update={"stable": stable.model_copy(update={"speculative": None}), "calibration": None})


def rolling_back(turn: Turn) -> None:
    """Forget the arm that failed (the candidate), exchange the pods, then rest or go on with what is asked for."""
    turn.status = without_failed(turn.status)
    stable, failed = turn.status.stable, turn.status.candidate
    other_engine = stable is not None and stable.baseline != turn.obs.baseline.fingerprint
    engine_failed = other_engine and failed == turn.obs.baseline.fingerprint
    still_promoted = stable is not None and stable.speculative is not None
    if engine_failed and still_promoted and _promoted_fails_too(turn):
        return
    move = exchange(target(turn.obs, turn.status), turn.obs.arms, turn.obs.route, room(turn.obs), turn.obs.now)
    if not move.done:
        names = (stable.baseline, stable.speculative) if stable is not None else ()
        replace_lone(turn, *(turn.obs.arm(name) for name in names if name != failed))
        return
    reason = turn.status.phase_reason or "RolledBack"
    turn.decide("RolledBack", reason, "the stable arm carries all traffic again")
    if engine_failed:
        turn.set(revision_refused=turn.status.revision)
    if other_engine or not turn.status.rollback_counts:
        resume(turn, reason)
        return
    revision = turn.status.revision or ""
    attempts = budget.after_rollback(turn.status.attempts, revision, turn.spec.remedies, turn.now)
    # A person who aborts does not want the next attempt to start by itself.
    done = reason == ABORTED or budget.exhausted(attempts, revision, turn.spec.remedies)
    turn.enter(Phase.EXHAUSTED if done else Phase.ROLLED_BACK, reason, candidate=None, attempts=attempts)


def _promoted_fails_too(turn: Turn) -> bool:
    """A changed engine failed, and what takes the traffic back may not answer either: then the plain arm has to."""
    before = turn.status
    turn.set(revision_refused=before.revision)
    if hard_fault(turn):
        return True
    turn.status = before
    return False
