"""How long a decode step takes: the published fit for Llama-3.1-8B on one H100, and the batch that a load leads to."""

from dataclasses import dataclass

import numpy as np

from specfleet.decide.counters import Floats


@dataclass(frozen=True, slots=True)
class StepModel:
    """Milliseconds per step: base + per batched token + per KV token; the draft has its own; overhead per step."""

    base: float = 5.886
    per_token: float = 0.02101
    per_kv_token: float = 3.93e-5
    draft_base: float = 2.135
    draft_per_token: float = 8.4e-4
    draft_per_kv_token: float = 2.4e-6
    overhead: float = 1.207
    lookup_part: float = 0.006
    """n-gram drafting, as a part of the verification."""

    def step_seconds(self, batch: Floats, depth: int, context_tokens: float, lookup: bool = False) -> Floats:
        """Seconds of one step for `batch` running requests; depth 0 is plain decoding."""
        kv = batch * context_tokens
        verify = self.base + self.per_token * batch * (depth + 1) + self.per_kv_token * kv
        if depth == 0:
            draft = np.zeros_like(verify)
        elif lookup:
            draft = self.lookup_part * verify
        else:
            draft = self.draft_base + self.draft_per_token * batch + self.draft_per_kv_token * kv
        return np.asarray((verify + draft + self.overhead) / 1000)

    def loaded(
        self, tokens_per_second: Floats, tokens_per_step: Floats, depth: int, context_tokens: float, lookup: bool
    ) -> tuple[Floats, Floats]:
        """Running requests per pod and TPOT (seconds) that an offered load of tokens/s and pod settles at.

        By Little's law the batch is load x TPOT, and TPOT follows from the batch: the fit is linear in the batch, so
        the fixed point is closed. Beyond saturation the batch stops at 512.
        """
        at0 = self.step_seconds(np.zeros(1), depth, context_tokens, lookup)[0]
        slope = self.step_seconds(np.ones(1), depth, context_tokens, lookup)[0] - at0
        rate = tokens_per_second / tokens_per_step
        with np.errstate(divide="ignore", invalid="ignore"):
            batch = np.where(rate * slope < 1, rate * at0 / (1 - rate * slope), np.inf)
        batch = np.clip(batch, 0.0, 512.0)
        return batch, (at0 + slope * np.maximum(batch, 1.0)) / tokens_per_step
