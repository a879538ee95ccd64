"""Benchmarking: candidates are measured against the plain arm on pods of their own, without user traffic."""

from specfleet.api.status import ArmRole, Phase, TrialStatus, Verdict
from specfleet.decide import measure
from specfleet.decide.evidence import BenchmarkVerdict
from specfleet.decide.observation import WantedArm
from specfleet.decide.phases.resting import hold
from specfleet.decide.recommend import Measured, recommend
from specfleet.decide.resume import resume
from specfleet.decide.revision_trial import sum_up
from specfleet.decide.trials import is_search, measure_anew, measured_pairs, round_over
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
    search = turn.status.search
    no_budget = search is not None and search.gpu_hours > turn.spec.benchmark.gpu_hours
    if outcome.verdict is Verdict.ERROR and not no_budget:
        measure_anew(turn)
        hold(turn, "BenchmarkError", outcome.message)
        return
    round_over(turn)
    _advise(turn)
    trial = TrialStatus(
        fingerprint=candidate.fingerprint,
        proposer=candidate.label,
        verdict=outcome.verdict,
        reason="BudgetSpent" if outcome.verdict is Verdict.ERROR else outcome.reason,
        gain_ratio=outcome.gain_ratio,
        lower=outcome.lower,
        upper=outcome.upper,
        confirmed=progress.purpose == "Confirm",
    )
    _close(turn, trial)


def _advise(turn: Turn) -> None:
    """Where the tiers have different winners say so, beside whatever the verdict on this candidate is."""
    measured = [Measured(one, found) for one, found in measured_pairs(turn)]
    advice = recommend(turn.spec, measured, turn.now)
    before = turn.status.recommendation
    if advice is not None and before is not None and advice.message == before.message:
        return
    turn.set(recommendation=advice)
    if advice is not None:
        turn.decide("Recommend", "WinnersDiffer", advice.message)


def _close(turn: Turn, trial: TrialStatus) -> None:
    """Note the trial; the next one (another candidate, a confirmation, a canary) starts from Baseline."""
    others = [one for one in turn.status.trials if one.fingerprint != trial.fingerprint]
    turn.set(trials=[*others, trial], holds=0)
    sum_up(turn, trial, trial.verdict is Verdict.PASS and (trial.confirmed or not is_search(turn)))
    turn.enter(Phase.BASELINE, trial.reason, candidate=None, benchmark=None)
