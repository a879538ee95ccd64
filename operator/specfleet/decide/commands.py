"""A person's commands, by annotation with a nonce: each is answered once, in status, whatever happens in between."""

from specfleet.api.preflight import PreflightOutcome
from specfleet.api.reasons import ABORTED
from specfleet.api.status import CommandAnswer, Phase
from specfleet.decide.phases.canary import promote
from specfleet.decide.phases.deploying import refuse
from specfleet.decide.phases.investigating import open_by_command
from specfleet.decide.phases.resting import start_benchmark
from specfleet.decide.resume import resume
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
    refused = turn.status.revision_refused is not None and turn.status.revision_refused == turn.status.revision
    resting = turn.status.phase in (Phase.ROLLED_BACK, Phase.EXHAUSTED, Phase.HELD, Phase.BASELINE)
    if not resting and not (refused and turn.status.phase is Phase.SPECULATIVE):
        return f"retry is for a deployment at rest; this one is {turn.status.phase.value}"
    turn.decide("Retry", "CommandRetry", "a person asked for another attempt")
    turn.set(revision_refused=None, attempts=None, trials=[], search=None, preflight=None, change=None, holds=0)
    resume(turn, "CommandRetry")
    return None


def _promote(turn: Turn) -> str | None:
    if turn.status.phase is not Phase.CANARY:
        return f"promote is for a canary; this deployment is {turn.status.phase.value}"
    promote(turn, "a person asked for promotion without the remaining steps")
    return None


def _abort(turn: Turn) -> str | None:
    if turn.status.phase in (Phase.CANARY, Phase.SPECULATIVE, Phase.INVESTIGATING):
        start_rollback(turn, ABORTED, "a person asked for the plain arm", verdict=None)
        return None
    if turn.status.phase is Phase.BENCHMARKING:
        turn.decide("Abort", ABORTED, "a person ended the benchmark")
        turn.enter(Phase.EXHAUSTED, ABORTED, benchmark=None, candidate=None)
        return None
    stable = turn.status.stable
    if turn.status.phase is Phase.DEPLOYING and stable is not None:
        refuse(turn, ABORTED, "a person ended the trial of the changed model or engine", None)
        return None
    return f"nothing to abort in phase {turn.status.phase.value}"


def _rebenchmark(turn: Turn) -> str | None:
    stable, phase = turn.status.stable, turn.status.phase
    if stable is None or stable.baseline != turn.obs.baseline.fingerprint:
        return "rebenchmark needs the present model and engine to serve; this one is not adopted"
    if turn.spec.capacity.max_extra_replicas == 0:
        return "nothing can be measured beside the serving pods: capacity.maxExtraReplicas is 0"
    if phase is Phase.SPECULATIVE and stable.speculative is not None and turn.obs.wanted(stable.speculative):
        open_by_command(turn)
        return None
    if phase in (Phase.BASELINE, Phase.HELD, Phase.ROLLED_BACK, Phase.EXHAUSTED):
        candidate = next((arm for arm in turn.obs.proposers if not arm.refusals), None)
        if candidate is None:
            known = turn.status.preflight
            again = known is not None and known.outcome is PreflightOutcome.REFUSED
            hint = "; retry looks at the models' files again" if again else ""
            return f"nothing can be measured: no usable proposer in the spec{hint}"
        turn.set(trials=[], search=None, preflight=None)
        start_benchmark(turn, candidate, "Qualify")
        return None
    return f"rebenchmark is not possible in phase {phase.value}"
