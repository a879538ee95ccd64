"""Which candidate to measure next, and for how many pairs: successive halving under a budget. Pure.

Every round gives each surviving candidate the same number of further pairs and keeps the better half, so that most of
the budget goes to the few that may win. Rounds before the last only choose; they never promote. The winner's verdict
comes from its complete evidence (judge), and one confirmatory run on fresh pairs removes the winner's curse.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.speculation import Proposer
from specfleet.api.status import CellStatus, Verdict
from specfleet.decide.evidence import BenchmarkVerdict, objective_cells, quantity_of
from specfleet.decide.evidence_guards import cell_weights
from specfleet.decide.evidence_pairs import arrange
from specfleet.decide.statistics import holm

FIRST_ROUND_PAIRS = 3
KEEP_RATIO = 0.5


@dataclass(frozen=True, slots=True)
class Round:
    """One round: these candidates are measured until each has so many pairs."""

    candidates: tuple[str, ...]
    pairs: int


@dataclass(frozen=True, slots=True)
class NextPairs:
    """Measure this candidate until it has `pairs` complete pairs."""

    candidate: str
    pairs: int


@dataclass(frozen=True, slots=True)
class SearchDone:
    """Every round is measured; `finalists` are judged, best first."""

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
    rounds = max(1, math.ceil(math.log2(max(candidates, 1))) + 1) if candidates > 1 else 1
    if rounds == 1:
        return [pairs]
    first = min(FIRST_ROUND_PAIRS, pairs)
    steps = [first + round((pairs - first) * step / (rounds - 1)) for step in range(rounds)]
    return sorted(set(steps))


def next_step(
    spec: DeploymentSpec, candidates: Sequence[str], evidence: Mapping[str, Sequence[BenchmarkEvidenceSpec]]
) -> NextPairs | SearchDone:
    """What to measure next. `candidates`: fingerprints in spec order; `evidence`: what each has so far."""
    alive = list(candidates)
    for target in _targets(len(candidates), spec.benchmark.pairs):
        for candidate in alive:
            if arrange(evidence.get(candidate, ())).count < target:
                return NextPairs(candidate, target)
        alive = _better_half(spec, alive, evidence, target)
    return SearchDone(tuple(alive))


def _better_half(
    spec: DeploymentSpec,
    alive: Sequence[str],
    evidence: Mapping[str, Sequence[BenchmarkEvidenceSpec]],
    target: int,
) -> list[str]:
    scores = {one: score(spec, evidence.get(one, ()), target) for one in alive}
    ranked = sorted(alive, key=lambda one: (-scores[one], alive.index(one)))
    return ranked[: max(1, math.ceil(len(ranked) * KEEP_RATIO))]


def score(spec: DeploymentSpec, evidence: Sequence[BenchmarkEvidenceSpec], pairs: int) -> float:
    """Mean log gain over the objective's cells in the first `pairs` pairs; minus infinity when it was not measured.

    The worst tier decides between candidates that gain the same: a compromise is no winner.
    """
    arranged = arrange(evidence)
    quantity, sign = quantity_of(spec)
    members = objective_cells(spec, arranged.cells)
    rows = arranged.log_ratios(quantity, members)
    if not rows:
        return -math.inf
    weights = cell_weights(spec, members, members)
    chosen = rows[:pairs]
    return sum(sign * w * value for row in chosen for w, value in zip(weights, row, strict=True)) / len(chosen)


def pick_winner(verdicts: Mapping[str, BenchmarkVerdict], alpha: float = 0.025) -> str | None:
    """The passing candidate with the largest gain whose p-value survives Holm over all that were judged; else None."""
    tested = {name: one.p_value for name, one in verdicts.items() if one.p_value is not None}
    proven = holm(tested, alpha)
    passed = [name for name, one in verdicts.items() if one.verdict is Verdict.PASS and name in proven]
    return max(passed, key=lambda name: verdicts[name].gain_ratio or 0.0, default=None)


def tier_winners(cells: Mapping[str, Sequence[CellStatus]]) -> dict[str, str | None]:
    """Per tier the candidate that gains most there among those that pass in every slice of it; None: plain decoding."""
    tiers = dict.fromkeys(cell.tier for own in cells.values() for cell in own)
    winners: dict[str, str | None] = {}
    for tier in tiers:
        gains: dict[str, float] = {}
        for name, own in cells.items():
            mine = [cell for cell in own if cell.tier == tier]
            if mine and all(cell.verdict is Verdict.PASS for cell in mine):
                gains[name] = min(cell.gain_ratio or 0.0 for cell in mine)
        winners[tier] = max(gains, key=lambda name: gains[name], default=None)
    return winners


def changes_depth_and_batching(before: Proposer, after: Proposer) -> bool:
    """Whether a step from one proposer to the other changes depth and its batch schedule at once: then a difference
    belongs to neither, and the step has to be taken in two."""
    if before.method is not after.method:
        return False
    depth = before.num_speculative_tokens != after.num_speculative_tokens
    return depth and (before.tokens_per_batch_size or None) != (after.tokens_per_batch_size or None)
