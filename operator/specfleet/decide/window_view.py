"""From counters to the figures of a report. What was not measured is None."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from specfleet.decide.bank import decoded_tokens
from specfleet.decide.counters import COUNTERS, Counter, Floats
from specfleet.decide.shares import all_requests, server_errors
from specfleet.decide.watch_report import Answer, ArmWindow


@dataclass
class ArmTotals:
    """Sums over windows."""

    start: float | None = None
    end: float | None = None
    counts: Floats = field(default_factory=lambda: np.zeros(COUNTERS))
    pod_seconds: float = 0.0
    running_seconds: float = 0.0
    kv_cache: float = np.nan
    pods: int = 0
    last_answer: Answer = Answer.INSUFFICIENT

    def window(self) -> ArmWindow:
        """As a report carries it. The answer is of the sum: OK as soon as anything was measured."""
        if self.start is None:
            return ArmWindow(self.last_answer if self.last_answer is not Answer.OK else Answer.INSUFFICIENT)
        busy = self.counts[Counter.GENERATED_TOKENS] > 0
        return view(self, Answer.OK if busy else Answer.NO_TRAFFIC)


def view(totals: ArmTotals, answer: Answer) -> ArmWindow:
    """All figures of a sum."""
    counts = totals.counts.tolist()
    decoded, first = float(decoded_tokens(totals.counts)), counts[Counter.FIRST_TOKENS]
    ended = float(all_requests(totals.counts))
    return ArmWindow(
        answer=answer,
        start=_moment(totals.start),
        end=_moment(totals.end),
        pods=totals.pods,
        requests=counts[Counter.FINISHED],
        generated_tokens=counts[Counter.GENERATED_TOKENS],
        drafts=counts[Counter.DRAFTS],
        draft_tokens=counts[Counter.DRAFT_TOKENS],
        accepted_tokens=counts[Counter.ACCEPTED_TOKENS],
        acceptance_rate=_ratio(counts[Counter.ACCEPTED_TOKENS], counts[Counter.DRAFT_TOKENS]),
        position_zero_rate=_ratio(counts[Counter.ACCEPTED_FIRST], counts[Counter.DRAFTS]),
        accepted_length=_plus_one(_ratio(counts[Counter.ACCEPTED_TOKENS], counts[Counter.DRAFTS])),
        tokens_per_step=_ratio(decoded, counts[Counter.STEPS]),
        tpot_seconds=_ratio(counts[Counter.STEP_SECONDS], decoded),
        ttft_seconds=_ratio(counts[Counter.TTFT_SECONDS], first),
        server_error_share=_ratio(float(server_errors(totals.counts)), ended),
        client_error_share=_ratio(counts[Counter.HTTP_CLIENT_ERROR], ended),
        requests_per_second_per_pod=_ratio(first, totals.pod_seconds),
        running_per_pod=_ratio(totals.running_seconds, totals.pod_seconds),
        kv_cache_ratio=None if np.isnan(totals.kv_cache) else totals.kv_cache,
        preemptions_per_request=_ratio(counts[Counter.PREEMPTIONS], first),
    )


def _ratio(over: float, under: float) -> float | None:
    return over / under if under > 0 else None


def _plus_one(value: float | None) -> float | None:
    return None if value is None else 1.0 + value


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
