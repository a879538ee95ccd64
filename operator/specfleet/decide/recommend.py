"""What serves each load tier best, where that is not the same everywhere: a schedule by batch size, or two pools. Pure.

A recommendation is never carried out by itself: a schedule is a proposer of its own and has to be benchmarked, across
its switch points too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.speculation import BatchSizeRule, Proposer
from specfleet.api.status import CellStatus, Recommendation, ScheduleRule, TierChoice, Verdict
from specfleet.decide.evidence import MINIMUM_PAIRS, judge
from specfleet.decide.evidence_cells import mean_batches
from specfleet.decide.evidence_pairs import arrange
from specfleet.engine.findings import Severity
from specfleet.engine.flags import integer, parse_flags
from specfleet.engine.rules import check_proposer
from specfleet.engine.speculative import proposer_label

LARGEST_BATCH = 1024
"""End of the last rule: vLLM's own default of --max-num-seqs is never above it."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A candidate and its pairs."""

    proposer: Proposer
    evidence: Sequence[BenchmarkEvidenceSpec]

    @property
    def label(self) -> str:
        """Short form."""
        return proposer_label(self.proposer)


@dataclass(frozen=True, slots=True)
class _Choice:
    place: int | None
    """Of the winner among the candidates; None: plain decoding."""
    winner: Measured | None
    gain_ratio: float | None


def recommend(spec: DeploymentSpec, measured: Sequence[Measured], now: datetime) -> Recommendation | None:
    """One winner per tier where the tiers disagree for sure; None where one serves all or nothing is known."""
    known = [one for one in measured if arrange(one.evidence).count >= MINIMUM_PAIRS]
    cells = [judge(spec, one.evidence, budget_spent=True).cells for one in known]
    choices = _choices(spec, known, cells)
    if len({choice.place for choice in choices.values()}) < 2:
        return None
    batches = _batches(known)
    tiers = [
        TierChoice(
            tier=tier,
            proposer=choice.winner.label if choice.winner else "none",
            gain_ratio=choice.gain_ratio,
            batch=batches.get(tier),
        )
        for tier, choice in choices.items()
    ]
    schedule, why = _schedule(spec, choices, batches)
    best = "; ".join(f"{one.tier}: {one.proposer if one.proposer != 'none' else 'plain decoding'}" for one in tiers)
    if schedule:
        rules = ", ".join(f"{one.min_batch_size}-{one.max_batch_size}: {one.tokens}" for one in schedule)
        advice = f"benchmark tokensPerBatchSize ({rules}) as a proposer of its own"
    else:
        advice = f"run two pools and route by load ({why})"
    return Recommendation(
        time=now,
        message=f"no proposer is best at every load. {best}. {advice}",
        tiers=tiers,
        tokens_per_batch_size=schedule,
    )


def _choices(
    spec: DeploymentSpec, known: Sequence[Measured], cells: Sequence[Sequence[CellStatus]]
) -> dict[str, _Choice]:
    """Per tier who serves it best. A tier in which nobody wins counts for plain decoding only if everybody loses."""
    found: dict[str, _Choice] = {}
    favourite = _favourite(known, cells)
    for tier in (one.name for one in spec.benchmark.tiers):
        own = [[cell for cell in listed if cell.tier == tier] for listed in cells]
        passed = {
            place: min(mine, key=lambda cell: cell.gain_ratio or 0.0)
            for place, mine in enumerate(own)
            if mine and all(cell.verdict is Verdict.PASS for cell in mine)
        }
        if passed:
            place = max(passed, key=lambda one: passed[one].gain_ratio or 0.0)
            # Who is best overall keeps a tier unless another one is better there for sure.
            if favourite in passed and (passed[place].lower or 0.0) <= (passed[favourite].gain_ratio or 0.0):
                place = favourite
            found[tier] = _Choice(place, known[place], passed[place].gain_ratio)
        elif own and all(any(cell.verdict is Verdict.FAIL for cell in mine) for mine in own):
            found[tier] = _Choice(None, None, None)
    return found


def _favourite(known: Sequence[Measured], cells: Sequence[Sequence[CellStatus]]) -> int:
    """Who wins in most cells, then by the smallest gain."""

    def merit(place: int) -> tuple[int, float]:
        own = cells[place]
        return sum(cell.verdict is Verdict.PASS for cell in own), min(
            (cell.gain_ratio or 0.0 for cell in own), default=0.0
        )

    return max(range(len(known)), key=merit, default=-1)


def _batches(known: Sequence[Measured]) -> dict[str, float]:
    """Batch of the plain arm per tier, averaged over the candidates' benchmarks."""
    found: dict[str, list[float]] = {}
    for one in known:
        for tier, batch in mean_batches(arrange(one.evidence)).items():
            found.setdefault(tier, []).append(batch)
    return {tier: sum(own) / len(own) for tier, own in found.items()}


def _schedule(
    spec: DeploymentSpec, choices: Mapping[str, _Choice], batches: Mapping[str, float]
) -> tuple[list[ScheduleRule], str]:
    """Tokens per batch size, or why there can be none. Only batching changes: the depth is one that was measured."""
    winners = [choice.winner.proposer for choice in choices.values() if choice.winner is not None]
    if len({_without_depth(one) for one in winners}) > 1:
        return [], "one engine has one method"
    if any(one.tokens_per_batch_size for one in winners):
        return [], "a schedule is among the winners already"
    if any(tier not in batches for tier in choices):
        return [], "the batch of a tier is not known"
    ordered = sorted(choices, key=lambda tier: batches[tier])
    tokens = [_depth(choices[tier]) for tier in ordered]
    if None in tokens:
        return [], "the method has no depth of its own"
    largest = integer(parse_flags(spec.engine.args), "--max-num-seqs") or LARGEST_BATCH
    rules: list[BatchSizeRule] = []
    first = 1
    for place, tier in enumerate(ordered):
        last = largest
        if place + 1 < len(ordered):
            last = max(first, round(math.sqrt(batches[tier] * batches[ordered[place + 1]])))
        rules.append(BatchSizeRule(min_batch_size=first, max_batch_size=last, tokens=tokens[place] or 0))
        first = last + 1
    rules = _joined(rules)
    deepest = max(winners, key=lambda one: one.num_speculative_tokens or 0)
    tried = deepest.model_copy(update={"tokens_per_batch_size": rules})
    refusals = [one for one in check_proposer(spec, tried) if one.severity is Severity.REFUSE]
    if refusals:
        return [], refusals[0].message
    return [ScheduleRule(**one.model_dump()) for one in rules], ""


def _joined(rules: Sequence[BatchSizeRule]) -> list[BatchSizeRule]:
    """Neighbours with the same depth are one rule."""
    joined: list[BatchSizeRule] = []
    for rule in rules:
        if joined and joined[-1].tokens == rule.tokens:
            joined[-1] = joined[-1].model_copy(update={"max_batch_size": rule.max_batch_size})
        else:
            joined.append(rule)
    return joined


def _without_depth(proposer: Proposer) -> str:
    return proposer.model_dump_json(exclude={"num_speculative_tokens", "tokens_per_batch_size"})


def _depth(choice: _Choice) -> int | None:
    return 0 if choice.winner is None else choice.winner.proposer.num_speculative_tokens


def mixed_steps(proposers: Sequence[Proposer]) -> tuple[str, ...]:
    """Candidates of one method that differ in depth and batch schedule at once from every other one: what such a
    candidate gains or loses against the others belongs to neither change."""
    said = []
    for one in proposers:
        others = [other for other in proposers if other is not one and _without_depth(other) == _without_depth(one)]
        if others and one.tokens_per_batch_size and all(_both(one, other) for other in others):
            said.append(
                f"candidate {proposer_label(one)} with tokensPerBatchSize differs from the others in depth and in "
                f"batching at once: add one with k={one.num_speculative_tokens} and no schedule to tell them apart"
            )
    return tuple(said)


def _both(one: Proposer, other: Proposer) -> bool:
    depth = one.num_speculative_tokens != other.num_speculative_tokens
    return depth and (one.tokens_per_batch_size or None) != (other.tokens_per_batch_size or None)
