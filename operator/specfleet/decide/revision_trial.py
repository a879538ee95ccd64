"""A changed model or engine is measured before a user's request meets it, and summed up when its proposer has been."""

from specfleet.api.status import ArmRole, ChangeStatus, Phase, TrialStatus, Verdict
from specfleet.decide import measure
from specfleet.decide.evidence import BenchmarkVerdict
from specfleet.decide.three_way import CHANGE_PAIRS, Serve, compare_three
from specfleet.decide.trials import next_candidate, progress_of
from specfleet.decide.turn import Turn


def screened(turn: Turn) -> bool | None:
    """Whether the new plain arm may go to the canary; None while it is being measured; False: it is slower for sure.

    Where it cannot be measured (no room for the old arm beside it, a harness that only fails) the canary decides.
    """
    change = turn.status.change
    stable, new = turn.status.stable, turn.obs.baseline
    assert stable is not None
    if turn.spec.remedies.on_change != "Rebenchmark":
        return True
    if change is not None and (change.stable, change.baseline) == (stable.baseline, new.fingerprint):
        return change.verdict is not Verdict.FAIL
    if turn.status.benchmark is None:
        progress = progress_of(turn, new, "Change", min(CHANGE_PAIRS, turn.spec.benchmark.pairs))
        turn.decide(
            "StartBenchmark", "Change", f"the new plain arm against the one that serves: {progress.pairs_planned} pairs"
        )
        turn.set(benchmark=progress.model_copy(update={"baseline": stable.baseline}))
        turn.look_again(2)
        return None
    outcome = measure.advance(turn)
    if isinstance(outcome, BenchmarkVerdict):
        return _note(turn, outcome)
    if isinstance(outcome, measure.Interruption):
        failed = outcome.role is ArmRole.SPECULATIVE
        verdict = Verdict.FAIL if failed else Verdict.INCONCLUSIVE
        return _note(turn, BenchmarkVerdict(verdict, outcome.fault.reason, outcome.fault.message))
    turn.look_again(10)
    return None


def _note(turn: Turn, outcome: BenchmarkVerdict) -> bool:
    stable = turn.status.stable
    assert stable is not None
    evidence = measure.evidence_names(turn)
    turn.decide("Judge", outcome.reason, f"changed model or engine: {outcome.message}", outcome.verdict, evidence)
    change = ChangeStatus(
        stable=stable.baseline,
        baseline=turn.obs.baseline.fingerprint,
        verdict=outcome.verdict,
        reason=outcome.reason,
        message=outcome.message[:2048],
        gain_ratio=outcome.gain_ratio,
        lower=outcome.lower,
        upper=outcome.upper,
        replaced_gain_ratio=turn.status.realised_gain_ratio if stable.speculative is not None else None,
    )
    if outcome.verdict is Verdict.FAIL:
        change = change.model_copy(update={"serve": Serve.OLD.value})
    turn.set(change=change, benchmark=None)
    return outcome.verdict is not Verdict.FAIL


def sum_up(turn: Turn, trial: TrialStatus | None, final: bool) -> None:
    """The three-way comparison, once it is known what speculation does on the changed engine.

    `trial` None: the changed revision does not speculate. `final`: this trial is the last word (the winner, confirmed
    where that is needed).
    """
    change = turn.status.change
    stable = turn.status.stable
    if change is None or stable is None or change.baseline != stable.baseline or turn.status.phase is Phase.DEPLOYING:
        return
    if not final and next_candidate(turn) is not None:
        return
    outcome = compare_three(change, trial)
    turn.decide("CompareThree", outcome.reason, f"{outcome.serve.value} serves: {outcome.message}")
    turn.set(change=change.model_copy(update={"serve": outcome.serve.value}))
