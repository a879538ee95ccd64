"""RollingBack: the decision is made; traffic follows as fast as plain pods come up."""

from specfleet.api.status import Phase
from specfleet.decide import budget
from specfleet.decide.exchange import exchange
from specfleet.decide.targets import room, target
from specfleet.decide.turn import Turn


def rolling_back(turn: Turn) -> None:
    """Forget the promoted proposer, exchange the pods, then rest in RolledBack (Baseline if no attempt counts)."""
    stable, revision = turn.status.stable, turn.status.revision or ""
    trial_of_revision = turn.status.candidate == turn.obs.baseline.fingerprint and stable is not None
    if stable is not None and stable.speculative is not None and not trial_of_revision:
        turn.set(stable=stable.model_copy(update={"speculative": None}), calibration=None)
    move = exchange(target(turn.obs, turn.status), turn.obs.arms, turn.obs.route, room(turn.obs), turn.obs.now)
    if not move.done:
        turn.look_again(3)
        return
    reason = turn.status.phase_reason or "RolledBack"
    turn.decide("RolledBack", reason, "the stable arm carries all traffic again")
    if trial_of_revision:
        turn.enter(Phase.ROLLED_BACK, reason, candidate=None, revision_refused=revision)
    elif turn.status.rollback_counts:
        attempts = budget.after_rollback(turn.status.attempts, revision, turn.spec.remedies, turn.now)
        done = budget.exhausted(attempts, revision, turn.spec.remedies)
        turn.enter(Phase.EXHAUSTED if done else Phase.ROLLED_BACK, reason, candidate=None, attempts=attempts)
    else:
        turn.enter(Phase.BASELINE, reason, candidate=None, rollback_counts=True)
