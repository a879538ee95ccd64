"""From a step model to num_speculative_tokens_per_batch_size: a suggestion that has to be benchmarked too."""

from collections.abc import Sequence

from specfleet.api.speculation import BatchSizeRule
from specfleet.predict.acceptance import extended
from specfleet.predict.step_time import StepModel

MINIMUM_SPEEDUP = 1.05
"""Below that a deeper schedule is not worth its switches."""


def suggest_schedule(
    model: StepModel, rates: Sequence[float], depth: int, largest_batch: int, context: float = 0.0
) -> list[BatchSizeRule]:
    """Depth per batch size, both ends inclusive, starting at 1; neighbours with the same depth are one rule.

    Depth never grows with the batch: drafting costs more there, and a schedule that goes up again is noise.
    """
    rules: list[BatchSizeRule] = []
    start, current = 1, depth
    for batch in range(1, largest_batch + 1):
        wanted = min(current, model.best_depth(batch, rates, depth, context))
        if model.speedup(batch, extended(rates, wanted), context) < MINIMUM_SPEEDUP:
            wanted = 0
        if wanted != current and batch > 1:
            rules.append(BatchSizeRule(min_batch_size=start, max_batch_size=batch - 1, tokens=current))
            start = batch
        current = wanted
    rules.append(BatchSizeRule(min_batch_size=start, max_batch_size=largest_batch, tokens=current))
    return rules
