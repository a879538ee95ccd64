"""What stored evidence says about step time and acceptance, and the gain that follows: beside the measured one it
tells whether acceptance or step time explains a result."""

from collections.abc import Iterable
from dataclasses import dataclass

from specfleet.api.evidence import BenchmarkEvidenceSpec, RunSummary
from specfleet.api.status import ArmRole
from specfleet.predict.acceptance import accepted_length, conditional_rates
from specfleet.predict.step_time import mean_batch


@dataclass(frozen=True, slots=True)
class TierPrediction:
    """One tier, all slices and pairs together."""

    tier: str
    batch: float
    """Mean number of requests that decode at once in the plain arm."""
    accepted_length: float
    step_time_ratio: float
    """Speculative step / plain step: also the accepted length at which the tier breaks even."""
    gain_ratio: float
    """accepted_length / step_time_ratio - 1, with accepted length from the counters. A large distance to the measured
    gain means that steps without a draft, or phantom drafts, are not in the counters."""


def tier_predictions(evidence: Iterable[BenchmarkEvidenceSpec]) -> list[TierPrediction]:
    """One prediction per tier in which both arms were measured and something was drafted."""
    runs: dict[str, dict[ArmRole, list[RunSummary]]] = {}
    for one in evidence:
        for run in one.runs:
            if run.valid and run.engine_tpot_seconds:
                runs.setdefault(run.tier, {}).setdefault(run.arm, []).append(run)
    found = []
    for tier, arms in runs.items():
        plain, drafted = arms.get(ArmRole.BASELINE, []), arms.get(ArmRole.SPECULATIVE, [])
        drafts = sum(run.drafts for run in drafted)
        if not plain or not drafts:
            continue
        depth = max(len(run.accepted_per_position) for run in drafted)
        positions = [
            sum(run.accepted_per_position[i] for run in drafted if i < len(run.accepted_per_position))
            for i in range(depth)
        ]
        rates = conditional_rates(positions, drafts)
        length = accepted_length(rates) if rates else 1 + sum(run.accepted_tokens for run in drafted) / drafts
        plain_step = _mean_tpot(plain)
        # A step yields `length` tokens per request, so it lasts that many times the time per token.
        ratio = _mean_tpot(drafted) * _tokens_per_step(drafted, length) / plain_step
        batch = sum(_batch(run) for run in plain) / len(plain)
        found.append(TierPrediction(tier, batch, length, ratio, length / ratio - 1))
    return found


def _mean_tpot(runs: list[RunSummary]) -> float:
    tokens = sum(run.output_tokens for run in runs)
    return sum((run.engine_tpot_seconds or 0.0) * run.output_tokens for run in runs) / tokens


def _tokens_per_step(runs: list[RunSummary], length: float) -> float:
    """Tokens per step with the steps that drafted nothing counted: accepted tokens over all tokens says how many."""
    tokens = sum(run.output_tokens for run in runs)
    accepted = sum(run.accepted_tokens for run in runs)
    steps = tokens - accepted
    return min(length, tokens / steps) if steps > 0 else length


def _batch(run: RunSummary) -> float:
    per_request = run.output_tokens / max(run.completed_requests, 1)
    return mean_batch(run.completed_requests_per_second, (run.engine_tpot_seconds or 0.0) * per_request)
