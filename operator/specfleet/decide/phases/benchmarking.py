"""Benchmarking: candidates are measured against the plain arm on pods of their own, without user traffic."""

from specfleet.api.status import ArmRole, Phase, TrialStatus, Verdict
from specfleet.decide import measure
from specfleet.decide.evidence import BenchmarkVerdict
from specfleet.decide.observation import WantedArm
from specfleet.decide.phases.resting import hold, next_candidate, start_benchmark
from specfleet.decide.turn import Turn


def benchmarking(turn: Turn) -> None:
    """Go on measuring, or turn the verdict into the next step."""
    progress = turn.status.benchmark
    candidate = turn.obs.wanted(progress.candidate) if progress else None
    if progress is None or candidate is None or candidate.refusals:
        turn.enter(Phase.BASELINE, "CandidateGone", benchmark=None, candidate=None)
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
    names = tuple(
        f"{turn.obs.deployment.name}-{progress.id}-{one.unit}"
        for one in (*turn.obs.evidence, *turn.record)
        if one.benchmark == progress.id
    )
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
    """Note the trial; measure the next candidate, confirm the winner, start its canary, or rest."""
    others = [one for one in turn.status.trials if one.fingerprint != trial.fingerprint]
    turn.set(trials=[*others, trial], benchmark=None)
    following = next_candidate(turn)
    if following is not None:
        start_benchmark(turn, following, "Qualify")
        return
    passed = [one for one in turn.status.trials if one.verdict is Verdict.PASS]
    winner = max(passed, key=lambda one: one.gain_ratio or 0.0, default=None)
    wanted = turn.obs.wanted(winner.fingerprint) if winner else None
    if winner is None or wanted is None:
        turn.enter(Phase.BASELINE, trial.reason, candidate=None)
        return
    if len(turn.status.trials) > 1 and not winner.confirmed:
        start_benchmark(turn, wanted, "Confirm")
        return
    turn.decide("StartCanary", "BenchmarkPassed", f"{winner.proposer} goes to canary", Verdict.PASS)
    turn.act()
    turn.enter(
        Phase.CANARY,
        "BenchmarkPassed",
        candidate=winner.fingerprint,
        step=0,
        step_since=None,
        realised_gain_ratio=winner.gain_ratio,
    )
