"""Which draft tokens are accepted."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from vllm_sim.profile import ProposerProfile


@dataclass(frozen=True)
class AcceptanceFault:
    """What a fault does to acceptance: multiply each conditional probability, or replace them."""

    factor: float = 1.0
    rates: tuple[float, ...] | None = None


HEALTHY = AcceptanceFault()


class RequestAcceptance:
    """The drafts of one request: its own level around the proposer's, position by position."""

    __slots__ = ("_draw", "_fault", "_match_share", "_own", "_rates", "_shift", "_width")

    def __init__(self, proposer: ProposerProfile, seed: int, width: int, temperature: float) -> None:
        source = random.Random(seed)  # noqa: S311
        self._draw = source.random
        self._shift = proposer.between_request_sd * source.gauss(0.0, 1.0)
        self._match_share = proposer.match_share
        self._width = width
        loss = 1.0 - proposer.temperature_loss * min(max(temperature, 0.0), 1.0)
        self._own = tuple(rate * loss for rate in proposer.acceptance)
        self._fault: AcceptanceFault | None = None
        self._rates: Sequence[float] = ()

    def _apply(self, fault: AcceptanceFault) -> None:
        base = fault.rates if fault.rates is not None else self._own
        levels = [base[min(place, len(base) - 1)] for place in range(self._width)]
        # A rate of exactly 0 or 1 is a statement ("never", "always") and stays so for every request.
        self._rates = [
            (rate if rate in (0.0, 1.0) else min(0.995, max(0.0, rate + self._shift))) * fault.factor for rate in levels
        ]
        self._fault = fault

    def has_draft(self) -> bool:
        """Whether the proposer finds something to propose for the next step."""
        return self._match_share >= 1.0 or self._draw() < self._match_share

    def accepted(self, drafted: int, fault: AcceptanceFault) -> int:
        """How many of `drafted` tokens are accepted: the first refusal ends it."""
        if fault is not self._fault:
            self._apply(fault)
        rates, draw = self._rates, self._draw
        for place in range(drafted):
            if draw() >= rates[place]:
                return place
        return drafted
