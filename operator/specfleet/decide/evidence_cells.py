"""What a benchmark says about each cell, and what to do where tiers disagree. For people; the verdict is pooled."""

import math
from collections.abc import Mapping, Sequence

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import RunSummary
from specfleet.api.status import CellStatus, Verdict
from specfleet.decide.evidence_guards import GuardResult, tpot
from specfleet.decide.evidence_pairs import OVERSATURATED, Cell, Pairs, Quantity
from specfleet.decide.statistics import pooled_estimate


def cell_statuses(
    spec: DeploymentSpec,
    pairs: Pairs,
    guards: Sequence[GuardResult],
    alpha: float,
    objective: tuple[Quantity, float],
) -> tuple[CellStatus, ...]:
    """One CellStatus per measured cell: the objective's gain there, with an interval that is not corrected for many
    cells, and the tier's violated guard if there is one."""
    quantity, sign = objective
    rows = pairs.log_ratios(quantity, pairs.cells) if pairs.count >= 2 else None
    found = []
    for place, cell in enumerate(pairs.cells):
        bounds: tuple[float, float, float] | None = None
        if rows is not None:
            weights = [1.0 if other == place else 0.0 for other in range(len(pairs.cells))]
            one = pooled_estimate([[sign * value for value in row] for row in rows], weights)
            bounds = math.expm1(one.mean), math.expm1(one.lower(alpha)), math.expm1(one.upper(alpha))
        found.append(_status(spec, pairs, guards, cell, bounds))
    for cell in sorted(pairs.saturated):
        reason = f"{OVERSATURATED}: the plain arm cannot carry this rate"
        found.append(CellStatus(tier=cell[0], slice=cell[1], verdict=Verdict.INCONCLUSIVE, reason=reason))
    for cell in sorted(pairs.overloaded):
        reason = f"{OVERSATURATED}: only the speculative arm cannot carry this rate"
        found.append(CellStatus(tier=cell[0], slice=cell[1], verdict=Verdict.FAIL, reason=reason))
    return tuple(found)


def _status(
    spec: DeploymentSpec,
    pairs: Pairs,
    guards: Sequence[GuardResult],
    cell: Cell,
    bounds: tuple[float, float, float] | None,
) -> CellStatus:
    violated = [guard for guard in guards if guard.verdict is Verdict.FAIL and guard.tier in (None, cell[0])]
    runs = [one.speculative for pair in pairs.complete for one in pair if _cell_of(one.speculative) == cell]
    drafts, draft_tokens = sum(run.drafts for run in runs), sum(run.draft_tokens for run in runs)
    accepted = sum(run.accepted_tokens for run in runs)
    bar = spec.benchmark.objective.minimum_gain_ratio
    if violated:
        verdict, reason = Verdict.FAIL, f"{violated[0].name}: {violated[0].message}"
    elif bounds is None:
        verdict, reason = Verdict.INCONCLUSIVE, "NotMeasured"
    elif bounds[1] > bar:
        verdict, reason = Verdict.PASS, "GainProven"
    elif bounds[2] < bar:
        verdict, reason = Verdict.FAIL, "GainBelowMinimum"
    else:
        verdict, reason = Verdict.INCONCLUSIVE, "GainUncertain"
    return CellStatus(
        tier=cell[0],
        slice=cell[1],
        verdict=verdict,
        gain_ratio=bounds[0] if bounds else None,
        lower=bounds[1] if bounds else None,
        upper=bounds[2] if bounds else None,
        acceptance_rate=accepted / draft_tokens if draft_tokens else None,
        accepted_length=1 + accepted / drafts if drafts else None,
        reason=reason,
    )


def _cell_of(run: RunSummary) -> Cell:
    return run.tier, run.slice


def mean_batches(pairs: Pairs) -> dict[str, float]:
    """Requests that decode at once in the plain arm, per tier, by Little's law."""
    found: dict[str, list[float]] = {}
    for pair in pairs.complete:
        for one in pair:
            run, seconds = one.baseline, tpot(one.baseline)
            if seconds is not None and run.completed_requests:
                length = run.output_tokens / run.completed_requests
                found.setdefault(run.tier, []).append(run.completed_requests_per_second * seconds * length)
    return {tier: sum(batches) / len(batches) for tier, batches in found.items()}


def recommendation(cells: Sequence[CellStatus], batches: Mapping[str, float]) -> str | None:
    """Where some tiers win and others lose: name them and say what serves both. None: the tiers agree."""
    tiers: dict[str, list[CellStatus]] = {}
    for cell in cells:
        tiers.setdefault(cell.tier, []).append(cell)
    wins = [tier for tier, own in tiers.items() if all(cell.verdict is Verdict.PASS for cell in own)]
    loses = [tier for tier, own in tiers.items() if any(cell.verdict is Verdict.FAIL for cell in own)]
    if not wins or not loses:
        return None
    below = max((batches[tier] for tier in wins if tier in batches), default=0.0)
    above = min((batches[tier] for tier in loses if tier in batches), default=0.0)
    where = f"batches above about {math.sqrt(below * above):.0f}" if 0 < below < above else "large batches"
    return (
        f"speculation wins at {', '.join(wins)} and loses at {', '.join(loses)}: use it for the first only, by "
        f"tokensPerBatchSize with 0 tokens for {where} (benchmark that as a proposer of its own), or by two pools"
    )
