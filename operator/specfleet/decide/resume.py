"""Where a deployment goes on when no trial and no remedy is in flight: by what serves and what is asked for."""

from specfleet.api.status import Phase
from specfleet.decide.turn import Turn


def resume(turn: Turn, reason: str) -> None:
    """Enter the phase that fits what serves; a trial that ended is forgotten, what serves goes on being watched."""
    stable, asked = turn.status.stable, turn.obs.baseline.fingerprint
    refused = turn.status.revision_refused is not None and turn.status.revision_refused == turn.status.revision
    if stable is None:
        phase, candidate = Phase.DEPLOYING, None
    elif stable.baseline != asked and not refused:
        phase, candidate = Phase.DEPLOYING, asked
    elif stable.speculative is not None:
        phase, candidate = Phase.SPECULATIVE, stable.speculative
    elif refused:
        phase, candidate = Phase.ROLLED_BACK, None
    else:
        phase, candidate = Phase.BASELINE, None
    turn.enter(
        phase,
        reason,
        candidate=candidate,
        benchmark=None,
        step=None,
        step_since=None,
        investigation=None,
        hold_until=None,
        rollback_counts=True,
    )
