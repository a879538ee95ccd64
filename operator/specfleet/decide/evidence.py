"""The verdict of a benchmark: a pure function of the spec and the stored evidence, so that it can be recomputed."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from specfleet.api.benchmark import ObjectiveMetric
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import CellStatus, Verdict
from specfleet.decide.evidence_cells import cell_statuses, mean_batches, recommendation
from specfleet.decide.evidence_guards import GuardInput, GuardResult, all_guards, cell_weights, tpot
from specfleet.decide.evidence_nodes import node_warning
from specfleet.decide.evidence_pairs import FAILED_REQUESTS, Cell, Pairs, Quantity, arrange, request_probes
from specfleet.decide.looks import alpha_of_look
from specfleet.decide.statistics import Estimate, pooled_estimate

MINIMUM_PAIRS = 3
"""Student's t with one degree of freedom has a half-width of 11 % at 2.5 % noise: two pairs decide nothing."""
GUARD_ALPHA = 0.05
OBJECTIVE_ALPHA = 0.025
"""One side of the 95 % interval."""
MESSAGE_LIMIT = 1500


@dataclass(frozen=True, slots=True)
class BenchmarkVerdict:
    """What a benchmark says, and everything that it is said on."""

    verdict: Verdict
    reason: str
    message: str
    cells: tuple[CellStatus, ...] = ()
    gain_ratio: float | None = None
    lower: float | None = None
    upper: float | None = None
    recommendation: str | None = None
    need_more: bool = False
    """More pairs are wanted: either a later look is declared, or runs were invalid and have to be repeated."""
    pairs: int = 0
    """Complete valid pairs."""
    guards: tuple[GuardResult, ...] = ()
    incompatible_requests: tuple[str, ...] = ()
    """Request kinds that only the speculative arm refused."""


@dataclass(frozen=True, slots=True)
class _Objective:
    estimate: Estimate
    """Of the log gain: above zero is better."""
    alpha: float
    metric: ObjectiveMetric
    tiers: tuple[str, ...]
    """Load tiers over which it is pooled."""

    @property
    def gain(self) -> float:
        return math.expm1(self.estimate.mean)

    @property
    def lower(self) -> float:
        return math.expm1(self.estimate.lower(self.alpha))

    @property
    def upper(self) -> float:
        return math.expm1(self.estimate.upper(self.alpha))

    @property
    def words(self) -> str:
        where = f"tier{'s' if len(self.tiers) > 1 else ''} {', '.join(self.tiers)}"
        return f"{self.metric.value} gain {self.gain:+.1%} [{self.lower:+.1%}, {self.upper:+.1%}] in {where}"


def criteria(spec: DeploymentSpec) -> str:
    """8 hexadecimal digits over everything in the spec that a verdict depends on."""
    judged = spec.benchmark.model_dump(mode="json", include={"tiers", "slices", "pairs", "looks", "objective"})
    text = json.dumps([judged, spec.guardrails.model_dump(mode="json")], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:8]


def judge(
    spec: DeploymentSpec, evidence: Sequence[BenchmarkEvidenceSpec], budget_spent: bool = False
) -> BenchmarkVerdict:
    """Verdict of a Qualify or Confirm benchmark.

    Pass: the lower bound of the gain is above the bar and no guard is open. Fail: the gain is confidently below the
    bar, or a guard is confidently violated. Error: nothing could be compared. Inconclusive: anything else.
    `budget_spent`: no further pair will come, so what is there is judged as the final look.
    """
    return _judge(spec, evidence, budget_spent, suspicion=False)


def judge_suspicion(
    spec: DeploymentSpec, evidence: Sequence[BenchmarkEvidenceSpec], budget_spent: bool = False
) -> BenchmarkVerdict:
    """Verdict of the re-benchmark after a suspicion, over the suspect cells.

    Pass: the gain is still above zero. Fail: it is confidently below the bar that it was promoted for and not above
    zero, or a guard is confidently violated. Inconclusive: neither.
    """
    return _judge(spec, evidence, budget_spent, suspicion=True)


def _judge(
    spec: DeploymentSpec, evidence: Sequence[BenchmarkEvidenceSpec], budget_spent: bool, suspicion: bool
) -> BenchmarkVerdict:
    pairs = arrange(evidence)
    broken = tuple(sorted({probe.name for probe in request_probes(evidence) if probe.broken}))
    early = _without_pairs(spec, pairs, evidence, budget_spent)
    if early is not None:
        return early
    final = budget_spent or pairs.count >= spec.benchmark.pairs or pairs.attempted >= 2 * spec.benchmark.pairs
    if not final and pairs.count not in spec.benchmark.looks:
        # A test at any other moment would be one more look than was declared.
        text = f"{pairs.count} valid pairs, the next look is later{_problems(pairs)}"
        return BenchmarkVerdict(
            Verdict.INCONCLUSIVE, "MorePairsNeeded", text[:MESSAGE_LIMIT], need_more=True, pairs=pairs.count
        )
    plan = spec.benchmark

    def at_this_look(alpha: float) -> float:
        return alpha_of_look(alpha, plan.looks, plan.pairs, pairs.count, final)

    guards = all_guards(GuardInput(spec, pairs, evidence, at_this_look(GUARD_ALPHA)))
    candidates = _candidates(evidence)
    objective = _objective(spec, pairs, at_this_look(OBJECTIVE_ALPHA / candidates))
    verdict, reason, message = _decide(spec, objective, guards, suspicion)
    if objective and verdict is not Verdict.INCONCLUSIVE and not final and pairs.count == min(plan.looks):
        # What ends at its first look has been looked at once: by the stage-wise order of outcomes (Tsiatis, Rosner
        # and Mehta 1984) its interval is that of a single test. It lies inside the one that decided, so the verdict
        # stays.
        objective = replace(objective, alpha=OBJECTIVE_ALPHA / candidates)
        verdict, reason, message = _decide(spec, objective, guards, suspicion)
    cells = cell_statuses(spec, pairs, guards, OBJECTIVE_ALPHA / candidates, quantity_of(spec))
    advice = recommendation(cells, mean_batches(pairs))
    need_more = verdict is Verdict.INCONCLUSIVE and not final
    if broken:
        message += f"; only the speculative arm refuses requests with {', '.join(broken)}"
    if advice and verdict is not Verdict.PASS:
        message += f"; {advice}"
    uneven = node_warning(evidence)
    if uneven:
        message += f"; {uneven}"
    return BenchmarkVerdict(
        verdict=verdict,
        reason=reason,
        message=f"{message} ({pairs.count} pairs)"[:MESSAGE_LIMIT],
        cells=cells,
        gain_ratio=objective.gain if objective else None,
        lower=objective.lower if objective else None,
        upper=objective.upper if objective else None,
        recommendation=advice,
        need_more=need_more,
        pairs=pairs.count,
        guards=guards,
        incompatible_requests=broken,
    )


def _without_pairs(
    spec: DeploymentSpec, pairs: Pairs, evidence: Sequence[BenchmarkEvidenceSpec], budget_spent: bool
) -> BenchmarkVerdict | None:
    """Fewer complete pairs than a test needs: a hard fault, an Error, or more pairs."""
    if pairs.count >= MINIMUM_PAIRS:
        return None
    guards = all_guards(GuardInput(spec, pairs, evidence, GUARD_ALPHA))
    hard = [
        guard
        for guard in guards
        if guard.verdict is Verdict.FAIL and guard.name in ("ServerErrors", "EngineRestarts", "ThroughputLoss")
    ]
    if hard and pairs.attempted >= MINIMUM_PAIRS:
        return BenchmarkVerdict(Verdict.FAIL, hard[0].name, hard[0].message, pairs=pairs.count, guards=guards)
    why = _problems(pairs)
    exhausted = budget_spent or pairs.attempted >= 2 * spec.benchmark.pairs
    suspect = next((guard for guard in guards if guard.verdict is not Verdict.PASS), None)
    if exhausted and suspect is not None:
        return BenchmarkVerdict(
            Verdict.INCONCLUSIVE,
            suspect.name,
            f"{suspect.message}{why}"[:MESSAGE_LIMIT],
            pairs=pairs.count,
            guards=guards,
        )
    harness = pairs.comparable == 0 and pairs.attempted >= MINIMUM_PAIRS
    if exhausted or harness:
        reason = "HarnessFailed" if harness else "TooFewPairs"
        text = f"{pairs.count} of {pairs.attempted} pairs can be compared, {MINIMUM_PAIRS} are needed{why}"
        return BenchmarkVerdict(Verdict.ERROR, reason, text[:MESSAGE_LIMIT], pairs=pairs.count, guards=guards)
    text = f"{pairs.count} valid pairs, {MINIMUM_PAIRS} are needed{why}"
    return BenchmarkVerdict(
        Verdict.INCONCLUSIVE, "MorePairsNeeded", text[:MESSAGE_LIMIT], need_more=True, pairs=pairs.count, guards=guards
    )


def _problems(pairs: Pairs) -> str:
    if not pairs.problems:
        return ""
    reason, count = pairs.problems.most_common(1)[0]
    return f"; {count} times: {reason}"


def _candidates(evidence: Sequence[BenchmarkEvidenceSpec]) -> int:
    """Among how many candidates the error is shared, as it was when the last pair was measured."""
    return max(evidence, key=lambda one: (one.pair, one.started)).candidates


def quantity_of(spec: DeploymentSpec) -> tuple[Quantity, float]:
    """The objective's quantity and the sign that makes its log-ratio a gain."""
    match spec.benchmark.objective.metric:
        case ObjectiveMetric.OUTPUT_THROUGHPUT:
            return (lambda run: run.output_tokens_per_second or None), 1.0
        case ObjectiveMetric.E2E:
            return (lambda run: run.e2e_mean_seconds), -1.0
        case ObjectiveMetric.TPOT:
            return tpot, -1.0


def objective_cells(spec: DeploymentSpec, cells: Sequence[Cell]) -> list[Cell]:
    """Cells over which the objective is pooled: the declared tier's, else the open-loop tiers' (closed-loop ones for
    a throughput, which in open loop is only the arrival rate); where none of them was measured, all that were."""
    objective = spec.benchmark.objective
    closed = {tier.name for tier in spec.benchmark.tiers if tier.closed_loop}
    if objective.tier is not None:
        chosen = [cell for cell in cells if cell[0] == objective.tier]
    elif objective.metric is ObjectiveMetric.OUTPUT_THROUGHPUT:
        chosen = [cell for cell in cells if cell[0] in closed]
    else:
        chosen = [cell for cell in cells if cell[0] not in closed]
    return chosen or list(cells)


def _objective(spec: DeploymentSpec, pairs: Pairs, alpha: float) -> _Objective | None:
    quantity, sign = quantity_of(spec)
    members = objective_cells(spec, pairs.cells)
    rows = pairs.log_ratios(quantity, pairs.cells)
    weights = cell_weights(spec, pairs.cells, members)
    if rows is None:
        rows = pairs.log_ratios(quantity, members)
        weights = cell_weights(spec, members, members)
    if rows is None:
        return None
    signed = [[sign * value for value in row] for row in rows]
    tiers = tuple(dict.fromkeys(tier for tier, _ in members))
    return _Objective(pooled_estimate(signed, weights), alpha, spec.benchmark.objective.metric, tiers)


def _decide(
    spec: DeploymentSpec, objective: _Objective | None, guards: Sequence[GuardResult], suspicion: bool
) -> tuple[Verdict, str, str]:
    violated = [guard for guard in guards if guard.verdict is Verdict.FAIL]
    if objective is None:
        return Verdict.INCONCLUSIVE, "ObjectiveNotMeasured", "the objective's metric is missing in some runs"
    if violated:
        return Verdict.FAIL, violated[0].name, "; ".join([guard.message for guard in violated[:4]] + [objective.words])
    bar = spec.benchmark.objective.minimum_gain_ratio
    open_guards = [guard for guard in guards if guard.verdict is not Verdict.PASS]
    words = "; ".join([objective.words, *(guard.message for guard in open_guards[:4])])
    if suspicion:
        if objective.lower > 0:
            return Verdict.PASS, "GainConfirmed", words
        if objective.upper < max(bar, 1e-9):
            return Verdict.FAIL, "GainLost", f"{objective.words}: no longer above zero"
        return Verdict.INCONCLUSIVE, "GainUncertain", words
    if objective.upper < bar:
        return Verdict.FAIL, "GainBelowMinimum", f"{objective.words}: below the minimum of {bar:+.1%}"
    if open_guards:
        return Verdict.INCONCLUSIVE, open_guards[0].name, words
    if objective.lower > bar:
        return Verdict.PASS, "GainProven", f"{objective.words}, minimum {bar:+.1%}; {len(guards)} guards hold"
    return Verdict.INCONCLUSIVE, "GainUncertain", f"{objective.words}: the minimum of {bar:+.1%} is inside"


__all__ = [
    "FAILED_REQUESTS",
    "BenchmarkVerdict",
    "criteria",
    "judge",
    "judge_suspicion",
    "objective_cells",
    "quantity_of",
]
