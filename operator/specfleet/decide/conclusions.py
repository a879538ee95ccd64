"""What is written down when a candidate has its verdict, wherever it was measured."""

from specfleet.api.status import TrialStatus, Verdict
from specfleet.decide import measure
from specfleet.decide.evidence import BenchmarkVerdict
from specfleet.decide.faults import Fault
from specfleet.decide.observation import WantedArm
from specfleet.decide.recommend import Measured, recommend
from specfleet.decide.spending import gpu_hours_used_up
from specfleet.decide.three_way import compare_three
from specfleet.decide.trials import is_search, measure_anew, measured_pairs, next_candidate, round_over
from specfleet.decide.turn import Turn


def conclude(turn: Turn, candidate: WantedArm, outcome: BenchmarkVerdict) -> TrialStatus | None:
    """Note the verdict on a candidate. None: an Error, which is no verdict; it has to be measured anew."""
    progress = turn.status.benchmark
    assert progress is not None
    names = measure.evidence_names(turn)
    turn.set(cells=list(outcome.cells))
    turn.decide("Judge", outcome.reason, f"{candidate.label}: {outcome.message}", outcome.verdict, names)
    in_search = turn.status.search is not None
    no_budget = in_search and gpu_hours_used_up(turn, progress, measure.side_by_side(turn.obs))
    if outcome.verdict is Verdict.ERROR and not no_budget:
        measure_anew(turn)
        return None
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
    return _noted(turn, trial)


def refuse_candidate(turn: Turn, candidate: WantedArm, fault: Fault) -> TrialStatus:
    """Its engine does not run: that is a verdict too."""
    turn.decide("RefuseCandidate", fault.reason, f"{candidate.label}: {fault.message}", Verdict.FAIL)
    label, reason = candidate.label, fault.reason
    trial = TrialStatus(fingerprint=candidate.fingerprint, proposer=label, verdict=Verdict.FAIL, reason=reason)
    return _noted(turn, trial)


def _noted(turn: Turn, trial: TrialStatus) -> TrialStatus:
    others = [one for one in turn.status.trials if one.fingerprint != trial.fingerprint]
    turn.set(trials=[*others, trial], holds=0)
    sum_up(turn, trial, trial.verdict is Verdict.PASS and (trial.confirmed or not is_search(turn)))
    return trial


def sum_up(turn: Turn, trial: TrialStatus | None, final: bool) -> None:
    """The three-way comparison, once it is known what speculation does on the changed engine.

    `trial` None: the changed revision does not speculate. `final`: this trial is the last word (the winner, confirmed
    where that is needed).
    """
    change = turn.status.change
    if change is None or change.baseline != turn.obs.baseline.fingerprint:
        return
    if not final and next_candidate(turn) is not None:
        return
    outcome = compare_three(change, trial)
    turn.decide("CompareThree", outcome.reason, f"{outcome.serve.value} serves: {outcome.message}")
    turn.set(change=change.model_copy(update={"serve": outcome.serve.value}))


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
