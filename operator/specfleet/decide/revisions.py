"""What a changed spec does to the phase: A -> B, A -> B -> A, A -> B -> C at any moment. What serves stays."""

from hashlib import sha256

from specfleet.api.names import shorten
from specfleet.api.status import Phase
from specfleet.decide.difference import engine_in_words, proposer_in_words
from specfleet.decide.observation import Observation
from specfleet.decide.resume import resume
from specfleet.decide.rollback import start_rollback
from specfleet.decide.turn import Turn

RESTING = (Phase.BASELINE, Phase.HELD, Phase.ROLLED_BACK, Phase.EXHAUSTED)
MAX_NAME = 52
"""Leaves room for the hash within 63 characters; two long names with the same start stay two names."""
WATCHED = (Phase.SPECULATIVE, Phase.INVESTIGATING, Phase.ROLLING_BACK)


def revision_name(obs: Observation) -> str:
    """ControllerRevision of the present spec, named by the arms it asks for: A -> B -> A gives A's name again."""
    arms = "/".join(arm.fingerprint for arm in (obs.baseline, *obs.proposers))
    return f"{shorten(obs.deployment.name, MAX_NAME)}-{sha256(arms.encode()).hexdigest()[:10]}"


def follow_spec(turn: Turn) -> None:
    """Notice that the spec asks for something else than the phase works on, and go where that can be done safely."""
    name = revision_name(turn.obs)
    if turn.status.revision == name:
        return
    first = turn.status.revision is None
    turn.set(revision=name, trials=[], search=None, recommendation=None, revision_refused=None, holds=0, followed_up=[])
    if first:
        turn.enter(Phase.DEPLOYING, "NewDeployment")
        return
    stable = turn.status.stable
    if stable is None:
        turn.enter(Phase.DEPLOYING, "SpecChanged", benchmark=None, candidate=None)
    elif stable.baseline != turn.obs.baseline.fingerprint:
        _other_engine(turn)
    else:
        _other_proposers(turn)


def _other_engine(turn: Turn) -> None:
    """A changed model or engine. What serves goes on serving; a trial in flight is drained by the exchange."""
    what = engine_in_words(turn.obs, turn.status) or "model, engine or pods changed"
    turn.decide("NewRevision", "SpecChanged", f"{what}: the new plain arm has to prove itself first")
    turn.enter(
        Phase.DEPLOYING,
        "SpecChanged",
        candidate=turn.obs.baseline.fingerprint,
        benchmark=None,
        step=None,
        step_since=None,
        investigation=None,
        hold_until=None,
        change=None,
        traffic=None,
    )


def _other_proposers(turn: Turn) -> None:
    """Same plain arm. A proposer that is no longer asked for leaves traffic first; nothing else is disturbed."""
    stable = turn.status.stable
    assert stable is not None
    wanted = {arm.fingerprint for arm in turn.obs.proposers}
    promoted, what = stable.speculative, proposer_in_words(turn.obs, turn.status)
    turn.set(stable=stable.model_copy(update={"name": turn.status.revision or stable.name}))
    if promoted is not None and promoted not in wanted:
        said = f"the promoted proposer is no longer in the spec{f' ({what})' if what else ''}"
        start_rollback(turn, "SpecChanged", said, counts=False, verdict=None, arm=promoted)
    elif turn.status.phase is Phase.ROLLING_BACK:
        turn.set(rollback_counts=turn.status.rollback_counts and turn.status.candidate in wanted)
    elif promoted is not None:
        if turn.status.phase not in WATCHED:
            resume(turn, "SpecChangedBack")
    elif turn.status.phase is Phase.CANARY and turn.status.candidate not in wanted:
        start_rollback(turn, "SpecChanged", "the candidate is no longer in the spec", counts=False, verdict=None)
    elif turn.status.phase in (*RESTING, Phase.DEPLOYING) or (
        turn.status.phase is Phase.BENCHMARKING and turn.status.candidate not in wanted
    ):
        resume(turn, "SpecChanged")
