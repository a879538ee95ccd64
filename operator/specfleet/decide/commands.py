"""A person's commands, by annotation with a nonce: each is answered once, in status, whatever happens in between."""

from specfleet.api.status import CommandAnswer, Phase
from specfleet.decide.phases.canary import promote
from specfleet.decide.phases.investigating import open_by_command
from specfleet.decide.phases.resting import start_benchmark
from specfleet.decide.rollback import start_rollback
from specfleet.decide.turn import Turn

VERBS = ("retry", "promote", "abort", "rebenchmark")


def answer_command(turn: Turn) -> None:
    """Carry out a command that has not been answered yet."""
    command = turn.obs.command
    if command is None or (turn.status.command is not None and turn.status.command.nonce == command.nonce):
        return
    handler = {"retry": _retry, "promote": _promote, "abort": _abort, "rebenchmark": _rebenchmark}.get(command.verb)
    refusal = f"unknown command: use one of {', '.join(VERBS)}" if handler is None else handler(turn)
    accepted = refusal is None
    message = refusal or f"{command.verb} accepted in phase {turn.status.phase.value}"
    turn.set(
        command=CommandAnswer(
            nonce=command.nonce, command=command.verb, accepted=accepted, message=message, time=turn.now
        )
    )


def _retry(turn: Turn) -> str | None:
    if turn.status.phase not in (Phase.ROLLED_BACK, Phase.EXHAUSTED, Phase.HELD, Phase.BASELINE):
        return f"retry is for a deployment at rest; this one is {turn.status.phase.value}"
    turn.decide("Retry", "CommandRetry", "a person asked for another attempt")
    if turn.status.stable is not None and turn.status.stable.baseline != turn.obs.baseline.fingerprint:
        turn.enter(Phase.DEPLOYING, "CommandRetry", revision_refused=None, candidate=turn.obs.baseline.fingerprint)
    else:
        turn.enter(Phase.BASELINE, "CommandRetry", attempts=None, trials=[], revision_refused=None, hold_until=None)
    return None


def _promote(turn: Turn) -> str | None:
    if turn.status.phase is not Phase.CANARY:
        return f"promote is for a canary; this deployment is {turn.status.phase.value}"
    promote(turn, "a person asked for promotion without the remaining steps")
    return None


def _abort(turn: Turn) -> str | None:
    if turn.status.phase in (Phase.CANARY, Phase.SPECULATIVE, Phase.INVESTIGATING):
        start_rollback(turn, "CommandAbort", "a person asked for the plain arm", verdict=None)
        return None
    if turn.status.phase is Phase.BENCHMARKING:
        turn.decide("Abort", "CommandAbort", "a person ended the benchmark")
        turn.enter(Phase.EXHAUSTED, "CommandAbort", benchmark=None, candidate=None)
        return None
    return f"nothing to abort in phase {turn.status.phase.value}"


def _rebenchmark(turn: Turn) -> str | None:
    if turn.status.phase is Phase.SPECULATIVE and turn.status.stable and turn.status.stable.speculative:
        wanted = turn.obs.wanted(turn.status.stable.speculative)
        if wanted is None or turn.spec.capacity.max_extra_replicas == 0:
            return "a re-benchmark needs capacity.maxExtraReplicas of at least 1"
        open_by_command(turn)
        return None
    if turn.status.phase in (Phase.BASELINE, Phase.HELD, Phase.ROLLED_BACK, Phase.EXHAUSTED):
        candidates = [arm for arm in turn.obs.proposers if not arm.refusals]
        if not candidates or turn.spec.capacity.max_extra_replicas == 0:
            return "nothing can be measured: no usable proposer, or capacity.maxExtraReplicas is 0"
        turn.set(trials=[])
        start_benchmark(turn, candidates[0], "Qualify")
        return None
    return f"rebenchmark is not possible in phase {turn.status.phase.value}"
