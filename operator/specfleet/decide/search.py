"""Which candidate to measure next, and for how many pairs: successive halving under a budget. Pure.

Every round gives each candidate that is left the same number of further pairs and keeps the better half, so that most
of the budget goes to the few that may win. Rounds before the last only choose; they never promote. A candidate that
fails for sure leaves at once. The winner's verdict comes from its complete evidence (judge), with the error shared
over the candidates as Holm does it, and one confirmatory run on fresh pairs removes the winner's curse.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import TrialStatus
from specfleet.decide.evidence import MINIMUM_PAIRS, objective_cells, quantity_of
from specfleet.decide.evidence_guards import cell_weights
from specfleet.decide.evidence_pairs import arrange

KEEP_RATIO = 0.5
Evidence = Mapping[str, Sequence[BenchmarkEvidenceSpec]]
"""Measured pairs by fingerprint of the candidate."""


@dataclass(frozen=True, slots=True)
class NextPairs:
    """Measure this candidate until it has `pairs` valid pairs."""

    candidate: str
    pairs: int
    alive: tuple[str, ...]
    """Candidates that are still in the race, this one included."""


@dataclass(frozen=True, slots=True)
class SearchDone:
    """Every round is measured; `finalists` have all their pairs, best first."""

    finalists: tuple[str, ...]


def planned_pairs(candidates: int, pairs: int) -> int:
    """Pairs that a whole search costs at most, the finalist's included, without its confirmation."""
    total, alive, done = 0, candidates, 0
    for target in _targets(candidates, pairs):
        total += alive * (target - done)
        done, alive = target, max(1, math.ceil(alive * KEEP_RATIO))
    return total


def _targets(candidates: int, pairs: int) -> list[int]:
    """Pairs per candidate at the end of each round; the last is `pairs`."""
    if candidates <= 1:
        return [pairs]
    rounds = math.ceil(math.log2(candidates)) + 1
    first = min(MINIMUM_PAIRS, pairs)
    return sorted({first + round((pairs - first) * step / (rounds - 1)) for step in range(rounds)})


def next_step(
    spec: DeploymentSpec,
    candidates: Sequence[str],
    evidence: Evidence,
    affordable_pairs: float = math.inf,
    passed: Collection[str] = (),
) -> NextPairs | SearchDone:
    """What to measure next. `candidates`: fingerprints in spec order, without those that have lost already.

    `passed`: those with a verdict of Pass, which need no further pairs (it may come at a look, or as the budget ends).
    `affordable_pairs`: what the budget still pays for. Where that does not carry every candidate through the round,
    the finalist through its pairs and the winner through its confirmation, those not yet measured wait behind.
    """
    pairs = spec.benchmark.pairs
    counts = {one: pairs if one in passed else arrange(evidence.get(one, ())).count for one in candidates}
    alive = list(candidates)
    for target in _targets(len(candidates), pairs):
        if len(alive) == 1 and target < pairs:
            continue
        measured = [one for one in alive if counts[one] >= target]
        missing = [one for one in alive if counts[one] < target]
        left = affordable_pairs - (pairs - target) - (pairs if len(candidates) > 1 else 0)
        while missing and (measured or len(missing) > 1) and sum(target - counts[one] for one in missing) > left:
            missing.pop()
        if missing:
            return NextPairs(missing[0], target, (*measured, *missing))
        ranked = _ranked(spec, measured, evidence, target)
        alive = ranked if target >= pairs else ranked[: max(1, math.ceil(len(ranked) * KEEP_RATIO))]
    return SearchDone(tuple(alive))


def _ranked(spec: DeploymentSpec, alive: Sequence[str], evidence: Evidence, target: int) -> list[str]:
    scores = {one: score(spec, evidence.get(one, ()), target) for one in alive}
    return sorted(alive, key=lambda one: (-scores[one], alive.index(one)))


def score(spec: DeploymentSpec, evidence: Sequence[BenchmarkEvidenceSpec], pairs: int) -> float:
    """Mean log gain over the objective's cells in the first `pairs` pairs; minus infinity when it was not measured."""
    arranged = arrange(evidence)
    quantity, sign = quantity_of(spec)
    members = objective_cells(spec, arranged.cells)
    rows = arranged.log_ratios(quantity, members)
    if not rows:
        return -math.inf
    weights = cell_weights(spec, members, members)
    chosen = rows[:pairs]
    return sum(sign * w * value for row in chosen for w, value in zip(weights, row, strict=True)) / len(chosen)


def gain_so_far(spec: DeploymentSpec, evidence: Sequence[BenchmarkEvidenceSpec]) -> float | None:
    """The score as a ratio, over all pairs; None when nothing was measured."""
    found = score(spec, evidence, len(evidence))
    return math.expm1(found) if math.isfinite(found) else None


def affordable(gpu_hours: float, spent_hours: float, evidence: Evidence) -> float:
    """Further pairs that a budget pays for at the mean cost of those measured; infinite before the first."""
    hours = sum(one.gpu_seconds for found in evidence.values() for one in found) / 3600
    pairs = sum(arrange(found).attempted for found in evidence.values())
    return max(0.0, gpu_hours - spent_hours) * pairs / hours if hours > 0 else math.inf


def error_shares(spec: DeploymentSpec, candidates: int, trials: Iterable[TrialStatus]) -> int:
    """Among how many the next verdict shares the error of the search.

    Holm's step-down procedure: all candidates, less those whose gain is proven already (also where a guard then failed
    them). Any order of testing keeps the family-wise error, because each test is at alpha / hypotheses not yet
    rejected.
    """
    bar = spec.benchmark.objective.minimum_gain_ratio
    proven = sum(one.lower is not None and one.lower > bar for one in trials)
    return max(1, candidates - proven)
