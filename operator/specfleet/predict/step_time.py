"""Time of one engine step, and what speculation makes of it at a given batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specfleet.predict.acceptance import accepted_length, extended


@dataclass(frozen=True, slots=True)
class LinearTime:
    """Seconds = constant + per_token x batched tokens + per_context_token x KV-cache tokens."""

    constant: float
    per_token: float = 0.0
    per_context_token: float = 0.0

    def seconds(self, tokens: float, context_tokens: float = 0.0) -> float:
        """Time in seconds."""
        return self.constant + self.per_token * tokens + self.per_context_token * context_tokens


@dataclass(frozen=True, slots=True)
class StepModel:
    """Target step, draft step and the engine's own overhead per step."""

    target: LinearTime
    draft: LinearTime
    """All k positions of one step together."""
    overhead_seconds: float = 0.0

    def plain_seconds(self, batch: float, context: float = 0.0) -> float:
        """One step without speculation: every request gets one token. `context`: tokens per request."""
        return self.target.seconds(batch, batch * context) + self.overhead_seconds

    def speculative_seconds(self, batch: float, depth: int, context: float = 0.0) -> float:
        """One step that verifies `depth` drafted tokens per request and drafts the next ones."""
        if depth == 0:
            return self.plain_seconds(batch, context)
        verify = self.target.seconds(batch * (depth + 1), batch * context)
        return verify + self.draft.seconds(batch, batch * context) + self.overhead_seconds

    def break_even(self, batch: float, depth: int, context: float = 0.0) -> float:
        """Accepted length (tokens per step) at which speculation neither wins nor loses."""
        return self.speculative_seconds(batch, depth, context) / self.plain_seconds(batch, context)

    def speedup(self, batch: float, rates: Sequence[float], context: float = 0.0) -> float:
        """Plain / speculative time per token at this batch, depth len(rates)."""
        return accepted_length(rates) / self.break_even(batch, len(rates), context)

    def best_depth(self, batch: float, rates: Sequence[float], limit: int, context: float = 0.0) -> int:
        """Depth 0..limit with the largest speed-up; the smallest of equals."""
        return max(range(limit + 1), key=lambda k: (self.speedup(batch, extended(rates, k), context), -k))


PUBLISHED_H100_8B = StepModel(
    target=LinearTime(5.886e-3, 2.101e-5, 3.93e-8),
    draft=LinearTime(2.135e-3, 8.4e-7, 2.4e-9),
    overhead_seconds=1.207e-3,
)
"""Fit published with SpecDecode-Bench for Llama-3.1-8B with an EAGLE head on an H100, valid to about batch 64."""


class TooFewPointsError(ValueError):
    """A line needs two different batches."""


def fit_target(batches: Sequence[float], seconds_per_token: Sequence[float]) -> LinearTime:
    """LinearTime of a plain arm from measured (mean batch, TPOT in seconds): without speculation, a step is a token.

    Least squares in relative error; negative coefficients are cut to zero. Raises TooFewPointsError.
    """
    if len(set(batches)) < 2:
        raise TooFewPointsError("step time needs measurements at two different loads at least")
    times = np.asarray(seconds_per_token, dtype=float)
    design = np.column_stack([np.ones(len(batches)), np.asarray(batches, dtype=float)]) / times[:, None]
    constant, slope = np.linalg.lstsq(design, np.ones(len(batches)), rcond=None)[0]
    return LinearTime(max(0.0, float(constant)), max(0.0, float(slope)))


def mean_batch(requests_per_second: float, decode_seconds: float) -> float:
    """Requests that decode at the same time, by Little's law."""
    return requests_per_second * decode_seconds
