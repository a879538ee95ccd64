"""Benchmarking: candidates are measured against the plain arm on pods of their own, without user traffic."""

from specfleet.api.status import ArmRole, Phase
from specfleet.decide import measure
from specfleet.decide.conclusions import conclude, refuse_candidate
from specfleet.decide.evidence import BenchmarkVerdict
from specfleet.decide.observation import WantedArm
from specfleet.decide.phases.resting import hold
from specfleet.decide.resume import resume
from specfleet.decide.trials import round_over
from specfleet.decide.turn import Turn

LONGEST_ERROR_HOLD_SECONDS = 86400.0
"""A harness that never works costs GPUs for nothing at each try: once a day in the end."""


def benchmarking(turn: Turn) -> None:
    """Go on measuring, or turn the verdict into the next step. Paused, the pods go and the evidence stays."""
    progress = turn.status.benchmark
    candidate = turn.obs.wanted(progress.candidate) if progress else None
    if progress is None or candidate is None or candidate.refusals:
        resume(turn, "CandidateGone")
        return
    if turn.obs.baseline.refusals:
        # What the cluster begins to refuse can be measured no more; its pods would hold their GPUs for nothing.
        resume(turn, turn.obs.baseline.refusals[0].reason)
        return
    if turn.spec.paused:
        return
    if turn.spec.capacity.max_extra_replicas == 0:
        resume(turn, "NoExtraReplicas")
        return
    outcome = measure.advance(turn)
    if outcome is None:
        turn.look_again(10)
    elif isinstance(outcome, measure.RoundOver):
        round_over(turn)
        turn.enter(Phase.BASELINE, "RoundMeasured", candidate=None, benchmark=None)
    elif isinstance(outcome, measure.Interruption):
        _interrupted(turn, candidate, outcome)
    else:
        _judged(turn, candidate, outcome)


def _interrupted(turn: Turn, candidate: WantedArm, outcome: measure.Interruption) -> None:
    if outcome.role is not ArmRole.SPECULATIVE:
        reason = outcome.fault.reason if outcome.role is None else "BaselineUnstable"
        hold(turn, reason, outcome.fault.message)
        return
    _next_trial(turn, refuse_candidate(turn, candidate, outcome.fault).reason)


def _judged(turn: Turn, candidate: WantedArm, outcome: BenchmarkVerdict) -> None:
    trial = conclude(turn, candidate, outcome)
    if trial is None:
        hold(turn, "BenchmarkError", outcome.message, longest=LONGEST_ERROR_HOLD_SECONDS)
        return
    _next_trial(turn, trial.reason)


def _next_trial(turn: Turn, reason: str) -> None:
    """What follows (another candidate, a confirmation, a canary) starts from Baseline."""
    turn.enter(Phase.BASELINE, reason, candidate=None, benchmark=None)
