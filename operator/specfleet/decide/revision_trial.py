"""A changed model or engine, and what drafts on it, are measured before a user's request meets them."""

from specfleet.api.status import ArmRole, ChangeStatus, Verdict
from specfleet.decide import measure
from specfleet.decide.conclusions import conclude, refuse_candidate
from specfleet.decide.duration import plan_in_words
from specfleet.decide.evidence import BenchmarkVerdict
from specfleet.decide.three_way import CHANGE_PAIRS, Serve
from specfleet.decide.trials import next_run, progress_for, progress_of, round_over
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


def proposers_measured(turn: Turn) -> bool:
    """Whether nothing is left to measure before the changed engine meets users.

    Where a proposer serves now, those of the changed revision are measured before it gives way: else users would have
    plain decoding for as long as a benchmark takes. What keeps that from being measured keeps no engine from its
    canary; it is measured afterwards then.
    """
    stable = turn.status.stable
    if stable is None or stable.speculative is None or turn.spec.remedies.on_change != "Rebenchmark":
        return True
    progress = turn.status.benchmark
    if progress is None:
        return not _start_next(turn)
    candidate = turn.obs.wanted(progress.candidate)
    outcome = measure.advance(turn)
    if candidate is None or candidate.refusals:
        turn.set(benchmark=None)
        return not _start_next(turn)
    if outcome is None:
        turn.look_again(10)
        return False
    if isinstance(outcome, measure.Interruption) and outcome.role is not ArmRole.SPECULATIVE:
        turn.decide("MeasureLater", outcome.fault.reason, f"{candidate.label}: {outcome.fault.message}")
        return True
    if isinstance(outcome, measure.RoundOver):
        round_over(turn)
    elif isinstance(outcome, measure.Interruption):
        refuse_candidate(turn, candidate, outcome.fault)
    elif conclude(turn, candidate, outcome) is None:
        return True
    turn.set(benchmark=None)
    return not _start_next(turn)


def _start_next(turn: Turn) -> bool:
    """Begin what has to be measured next, if anything has."""
    run = next_run(turn)
    if run is None:
        return False
    purpose, candidate = run
    progress = progress_for(turn, candidate, purpose)
    if progress.round_pairs is None and progress.pairs_done == 0:
        plan = plan_in_words(turn.spec, measure.side_by_side(turn.obs), progress.pairs_planned)
        said = f"{candidate.label} on the changed engine against plain decoding: {plan}"
        turn.decide("StartBenchmark", purpose, said)
    turn.set(benchmark=progress)
    turn.look_again(2)
    return True
