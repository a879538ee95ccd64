"""A change of model or engine: old stable arm, new plain arm, new speculative arm. Two questions, kept apart.

Is the new plain arm as good as what serves (judge_change)? Does speculation gain on top of it (judge)? A bad engine is
refused even when speculation is fine, and the reverse.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import ChangeStatus, TrialStatus, Verdict
from specfleet.decide.evidence import MINIMUM_PAIRS, BenchmarkVerdict, judge, judge_suspicion

CHANGE_PAIRS = MINIMUM_PAIRS
"""A change is screened: what is slower for sure never meets a user, what is not goes on to the canary, which only Pass
leaves. So few pairs do, and an engine update does not wait a day."""

Rule = Callable[[DeploymentSpec, Sequence[BenchmarkEvidenceSpec], bool], BenchmarkVerdict]


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
    """Verdict on the new plain arm against the old stable one: every guard that plain arms can have, no gain asked for.

    In this evidence `baseline` is the old arm and `speculative` the new plain one. Not slower by more than the bar
    that speculation itself would have to clear is good enough. Greedy texts are not compared: another model may say
    something else.
    """
    objective = spec.benchmark.objective
    bar = -objective.minimum_gain_ratio / (1 + objective.minimum_gain_ratio)
    # The bar of a change is below zero, which the API does not offer to users: a copy is not validated again.
    lenient = objective.model_copy(update={"minimum_gain_ratio": bar})
    benchmark = {"objective": lenient, "pairs": min(CHANGE_PAIRS, spec.benchmark.pairs), "looks": []}
    changed = spec.model_copy(
        update={
            "benchmark": spec.benchmark.model_copy(update=benchmark),
            "guardrails": spec.guardrails.model_copy(update={"min_acceptance_rate": None, "min_agreement_ratio": None}),
        }
    )
    return judge(changed, evidence, budget_spent)


def rule_of(purpose: str) -> Rule:
    """How evidence of that purpose is judged."""
    return {"Suspicion": judge_suspicion, "Change": judge_change}.get(purpose, judge)


def compare_three(change: ChangeStatus, speculation: TrialStatus | None) -> ThreeWay:
    """Who serves. `speculation` None: the new revision does not speculate, or it was not measured.

    Only a Fail keeps the old arm: what could not be decided on a bench is decided by the canary.
    """
    said = _gain("the new plain arm", change.gain_ratio, "the one that served")
    if change.verdict is Verdict.FAIL:
        return ThreeWay(Serve.OLD, change.reason, f"{said}: {change.message}")
    if speculation is None:
        return ThreeWay(Serve.NEW_PLAIN, "NotSpeculating", f"{said}; no speculation was measured on it")
    said = f"{said}; {_gain(speculation.proposer, speculation.gain_ratio, 'the new plain arm')}"
    if speculation.verdict is not Verdict.PASS:
        return ThreeWay(Serve.NEW_PLAIN, speculation.reason, f"{said} ({speculation.verdict.value})")
    return ThreeWay(Serve.NEW_SPECULATIVE, "GainProven", said + _altogether(change, speculation))


def _gain(what: str, ratio: float | None, against: str) -> str:
    return f"{what} {'was not compared with' if ratio is None else f'{ratio:+.1%} against'} {against}"


def _altogether(change: ChangeStatus, speculation: TrialStatus) -> str:
    """New speculative arm against what served the users before, promoted proposer and all."""
    if change.gain_ratio is None or speculation.gain_ratio is None:
        return ""
    before = 1 + (change.replaced_gain_ratio or 0.0)
    total = (1 + change.gain_ratio) * (1 + speculation.gain_ratio) / before - 1
    return f"; together {total:+.1%} against what served before"
