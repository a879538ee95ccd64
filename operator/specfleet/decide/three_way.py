"""A change of model or engine: old stable arm, new plain arm, new speculative arm. Two questions, kept apart.

Is the new plain arm as good as what serves (judge_change)? Does speculation gain on top of it (judge)? A bad engine is
refused even when speculation is fine, and the reverse.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import Verdict
from specfleet.decide.evidence import BenchmarkVerdict, judge


class Serve(StrEnum):
    """Who should serve after the comparison."""

    OLD = "OldStable"
    NEW_PLAIN = "NewBaseline"
    NEW_SPECULATIVE = "NewSpeculative"


@dataclass(frozen=True, slots=True)
class ThreeWay:
    """The outcome and why."""

    serve: Serve
    reason: str
    message: str


def judge_change(
    spec: DeploymentSpec, evidence: Sequence[BenchmarkEvidenceSpec], budget_spent: bool = False
) -> BenchmarkVerdict:
    """Verdict on the new plain arm against the old stable one: every guard, and no gain asked for.

    In this evidence `baseline` is the old arm and `speculative` the new plain one. Not slower by more than the bar
    that speculation itself would have to clear is good enough.
    """
    objective = spec.benchmark.objective
    bar = -objective.minimum_gain_ratio / (1 + objective.minimum_gain_ratio)
    # The bar of a change is below zero, which the API does not offer to users: a copy is not validated again.
    lenient = objective.model_copy(update={"minimum_gain_ratio": bar})
    changed = spec.model_copy(
        update={"benchmark": spec.benchmark.model_copy(update={"objective": lenient}), "speculation": None}
    )
    return judge(changed, evidence, budget_spent)


def compare_three(change: BenchmarkVerdict, speculation: BenchmarkVerdict | None) -> ThreeWay:
    """Who serves. `speculation` None: the new revision does not speculate, or it was not measured."""
    if change.verdict is not Verdict.PASS:
        return ThreeWay(Serve.OLD, f"Change{change.verdict.value}", f"the new engine or model: {change.message}")
    if speculation is None or speculation.verdict is not Verdict.PASS:
        why = speculation.message if speculation else "no speculation was measured"
        reason = speculation.reason if speculation else "NotSpeculating"
        return ThreeWay(Serve.NEW_PLAIN, reason, f"the change holds; speculation does not pass: {why}")
    return ThreeWay(Serve.NEW_SPECULATIVE, "GainProven", f"the change holds; {speculation.message}")
