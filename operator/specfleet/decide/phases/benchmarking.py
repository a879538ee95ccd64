"""Benchmarking: candidates are measured against the plain arm on pods of their own, without user traffic."""

from specfleet.api.status import ArmRole, Phase, TrialStatus, Verdict
from specfleet.decide import measure
from specfleet.decide.evidence import BenchmarkVerdict
from specfleet.decide.observation import WantedArm
from specfleet.decide.phases.resting import hold
from specfleet.decide.resume import resume
from specfleet.decide.turn import Turn


def benchmarking(turn: Turn) -> None:
    """Go on measuring, or turn the verdict into the next step. Paused, the pods go and the evidence stays."""
    progress = turn.status.benchmark
    candidate = turn.obs.wanted(progress.candidate) if progress else None
    if progress is None or candidate is None or candidate.refusals:
        resume(turn, "CandidateGone")
        return
    if turn.spec.paused:
        return
    outcome = measure.advance(turn)
    if outcome is None:
        turn.look_again(10)
    elif isinstance(outcome, measure.Interruption):
        _interrupted(turn, candidate, outcome)
    else:
        _judged(turn, candidate, outcome)


def _interrupted(turn: Turn, candidate: WantedArm, outcome: measure.Interruption) -> None:
    if outcome.role is not ArmRole.SPECULATIVE:
        reason = outcome.fault.reason if outcome.role is None else "BaselineUnstable"
        hold(turn, reason, outcome.fault.message)
        return
    turn.decide("RefuseCandidate", outcome.fault.reason, f"{candidate.label}: {outcome.fault.message}", Verdict.FAIL)
    _close(
        turn,
        TrialStatus(
            fingerprint=candidate.fingerprint,
            proposer=candidate.label,
            verdict=Verdict.FAIL,
            reason=outcome.fault.reason,
        ),
    )


def _judged(turn: Turn, candidate: WantedArm, outcome: BenchmarkVerdict) -> None:
    progress = turn.status.benchmark
    assert progress is not None
    names = measure.evidence_names(turn)
    turn.set(cells=list(outcome.cells))
    turn.decide("Judge", outcome.reason, f"{candidate.label}: {outcome.message}", outcome.verdict, names)
    if outcome.verdict is Verdict.ERROR:
        hold(turn, "BenchmarkError", outcome.message)
        return
    trial = TrialStatus(
        fingerprint=candidate.fingerprint,
        proposer=candidate.label,
        verdict=outcome.verdict,
        reason=outcome.reason,
        gain_ratio=outcome.gain_ratio,
        confirmed=progress.purpose == "Confirm",
    )
    _close(turn, trial)


def _close(turn: Turn, trial: TrialStatus) -> None:
    """Note the trial; the next one (another candidate, a confirmation, a canary) starts from Baseline."""
    others = [one for one in turn.status.trials if one.fingerprint != trial.fingerprint]
    turn.set(trials=[*others, trial], holds=0)
    turn.enter(Phase.BASELINE, trial.reason, candidate=None, benchmark=None)
