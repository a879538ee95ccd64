"""Going back to the plain arm, and what is remembered of it."""

from specfleet.api.status import ArmRole, Phase, Verdict
from specfleet.decide.turn import Turn


def start_rollback(
    turn: Turn, reason: str, message: str, counts: bool = True, verdict: Verdict | None = Verdict.FAIL
) -> None:
    """Decide the roll-back now; traffic follows as fast as plain pods come up. `counts`: it uses up an attempt."""
    turn.decide("RollBack", reason, message, verdict, tuple(_evidence(turn)))
    turn.act()
    turn.enter(
        Phase.ROLLING_BACK,
        reason,
        benchmark=None,
        step=None,
        step_since=None,
        investigation=None,
        realised_gain_ratio=None,
        rollback_counts=counts,
    )


def rollback_allowed(turn: Turn) -> bool:
    """spec.remedies.rollback; when it is off the finding is only told."""
    return turn.spec.remedies.rollback and not turn.spec.paused


def _evidence(turn: Turn) -> list[str]:
    progress = turn.status.benchmark
    if progress is None:
        return []
    name = turn.obs.deployment.name
    return [f"{name}-{progress.id}-{one.unit}" for one in turn.obs.evidence if one.benchmark == progress.id]


def plain_serves(turn: Turn) -> bool:
    """Whether the stable plain arm carries the full load."""
    stable = turn.status.stable
    arm = turn.obs.arm(stable.baseline) if stable else None
    return arm is not None and arm.role is ArmRole.BASELINE and len(arm.serving) >= turn.spec.replicas
