"""How long one engine step takes."""

import random

from vllm_sim.profile import LinearCost, Profile, ProposerProfile


class StepTimer:
    """Seconds of a step from what is in its batch."""

    def __init__(self, profile: Profile, proposer: ProposerProfile | None) -> None:
        self._scale = profile.time_scale / 1000.0
        self._step = profile.step_milliseconds
        self._draft: LinearCost | None = proposer.draft_milliseconds if proposer is not None else None
        self._noise_sd = profile.step_noise_sd
        self._noise = random.Random()  # noqa: S311

    def expected_seconds(self, batched_tokens: int, kv_tokens: int, draft_positions: int) -> float:
        """Mean time of a step. `draft_positions`: k when the step proposes drafts for the next one, else 0."""
        cost = self._step
        total = cost.constant + cost.per_batched_token * batched_tokens + cost.per_kv_token * kv_tokens
        draft = self._draft
        if draft is not None and draft_positions:
            total += draft.constant + draft.per_position * draft_positions
            total += draft.per_batched_token * batched_tokens + draft.per_kv_token * kv_tokens
        return total * self._scale

    def seconds(self, batched_tokens: int, kv_tokens: int, draft_positions: int, factor: float) -> float:
        """Time of this step: the mean, times a fault's factor, times noise."""
        mean = self.expected_seconds(batched_tokens, kv_tokens, draft_positions) * factor
        if not self._noise_sd:
            return mean
        return mean * max(0.2, 1.0 + self._noise_sd * self._noise.gauss(0.0, 1.0))
