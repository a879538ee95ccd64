"""One request inside the engine."""

from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Protocol

from vllm_sim.acceptance import RequestAcceptance


class TokenSink(Protocol):
    """Receives the tokens of one request, once per engine step."""

    def tokens(self, count: int, finish_reason: str | None) -> bool:
        """`count` new tokens; the reason when the request ends with them. True: a stop string was met, end it."""


@dataclass(slots=True, eq=False)
class Sequence:
    """A request's state. Times are engine seconds (monotonic)."""

    request_id: str
    prompt_tokens: int
    block_hashes: Items[int]
    max_tokens: int
    end_after_tokens: int | None
    """Where the model ends by itself (end-of-text token included); None with ignore_eos."""
    arrival: float
    sink: TokenSink
    acceptance: RequestAcceptance | None
    phantom_drafts: int = 0
    emitted: int = 0
    computed: int = 0
    """Tokens whose KV is there."""
    goal: int = 0
    """Tokens whose KV must be there before the next token can come (grows after a preemption)."""
    blocks: int = 0
    cached_tokens: int = 0
    prefill_computed: int = 0
    first_scheduled: float | None = None
    first_token: float | None = None
    last_token: float = 0.0
    preemptions: int = 0
    planned_drafts: int = 0
    steps: list[tuple[int, int]] = field(default_factory=list)
    """(drafted, accepted) per step with a draft; filled only when the request's metrics are wanted."""

    def limit(self) -> int:
        """Number of tokens after which it ends."""
        return self.max_tokens if self.end_after_tokens is None else min(self.max_tokens, self.end_after_tokens)

    def reason(self) -> str:
        """Why it ends at its limit."""
        return "stop" if self.end_after_tokens is not None and self.end_after_tokens <= self.max_tokens else "length"

    def decoding(self) -> bool:
        """Whether its prompt is computed."""
        return self.computed >= self.goal
