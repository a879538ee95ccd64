"""From outcomes to the result document: the real bench's keys, and what they mean."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vllm_sim.bench.arguments import BenchArguments
from vllm_sim.bench.requests import Outcome

SELECTABLE = ("ttft", "tpot", "itl", "e2el", "client_queue_time", "e2el_including_client_queue")
_NEEDS_TOKENIZER = ("ttft", "tpot", "itl")
DETAIL_KEYS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors")


@dataclass(frozen=True)
class SpeculativeCounters:
    """Counters of one scrape of /metrics."""

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    per_position: dict[int, int]


def parse_speculative_counters(text: str) -> SpeculativeCounters | None:
    """None when the page has no speculative series."""
    totals: dict[str, int] = {}
    per_position: dict[int, int] = {}
    for line in text.splitlines():
        if not line.startswith("vllm:spec_decode_"):
            continue
        head, _, value = line.rpartition(" ")
        name, _, labels = head.removeprefix("vllm:spec_decode_").partition("{")
        if name == "num_accepted_tokens_per_pos_total":
            place = int(labels.partition('position="')[2].partition('"')[0])
            per_position[place] = per_position.get(place, 0) + int(float(value))
        elif name.endswith("_total"):
            totals[name] = totals.get(name, 0) + int(float(value))
    if "num_drafts_total" not in totals:
        return None
    return SpeculativeCounters(
        totals["num_drafts_total"],
        totals.get("num_draft_tokens_total", 0),
        totals.get("num_accepted_tokens_total", 0),
        per_position,
    )


def speculative_results(before: SpeculativeCounters | None, after: SpeculativeCounters | None) -> dict[str, Any]:
    """The spec_decode_* keys (the rate in percent, positions as shares); empty when nothing was drafted."""
    if before is None or after is None:
        return {}
    drafts = after.drafts - before.drafts
    draft_tokens = after.draft_tokens - before.draft_tokens
    accepted = after.accepted_tokens - before.accepted_tokens
    if drafts <= 0 or draft_tokens <= 0:
        return {}
    positions = sorted(after.per_position)
    return {
        "spec_decode_acceptance_rate": accepted / draft_tokens * 100,
        "spec_decode_acceptance_length": 1 + accepted / drafts,
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": draft_tokens,
        "spec_decode_accepted_tokens": accepted,
        "spec_decode_per_position_acceptance_rates": [
            (after.per_position[place] - before.per_position.get(place, 0)) / drafts for place in positions
        ],
    }


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear interpolation, as NumPy does it; 0 without values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = percent / 100 * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def distributions(outcomes: Sequence[Outcome]) -> dict[str, list[float]]:
    """Seconds of each selectable metric over the successful requests."""
    good = [outcome for outcome in outcomes if outcome.success]
    tpots = []
    for outcome in good:
        length = outcome.output_len()
        if length > 1:
            tpots.append((outcome.latency - outcome.ttft) / (length - 1))
    return {
        "ttft": [outcome.ttft for outcome in good],
        "tpot": tpots,
        "itl": [gap for outcome in good for gap in outcome.itl],
        "e2el": [outcome.latency for outcome in good],
        "client_queue_time": [outcome.queue_time for outcome in good],
        "e2el_including_client_queue": [outcome.latency + outcome.queue_time for outcome in good],
    }


def peaks(outcomes: Sequence[Outcome]) -> tuple[float, int]:
    """Most chunks (not tokens) in one second, and most requests active in one second."""
    good = [outcome for outcome in outcomes if outcome.success]
    if not good:
        return 0.0, 0
    first = min(outcome.start_time for outcome in good)
    last = max(outcome.start_time + outcome.latency for outcome in good)
    seconds = math.ceil(last - first) + 1
    chunks, active = [0] * seconds, [0] * seconds
    for outcome in good:
        moment = outcome.start_time + outcome.ttft
        for gap in (0.0, *outcome.itl):
            moment += gap
            second = int(moment - first)
            if 0 <= second < seconds:
                chunks[second] += 1
        stop = int(outcome.start_time + outcome.latency - first)
        for second in range(int(outcome.start_time - first), min(stop, seconds - 1) + 1):
            active[second] += 1
    return float(max(chunks)), max(active)


def goodput(outcomes: Sequence[Outcome], limits: dict[str, float], duration: float) -> float | None:
    """Requests per second within every limit (milliseconds); None without limits."""
    if not limits:
        return None
    count = 0
    for outcome in outcomes:
        length = outcome.output_len()
        tpot = (outcome.latency - outcome.ttft) / (length - 1) if length > 1 else 0.0
        measured = {"ttft": outcome.ttft, "tpot": tpot, "e2el": outcome.latency}
        count += outcome.success and all(measured[name] * 1000 <= limit for name, limit in limits.items())
    return count / duration


def measured(arguments: BenchArguments, outcomes: Sequence[Outcome], duration: float) -> dict[str, Any]:
    """Everything from `duration` to the percentiles, without the speculative keys."""
    lengths = [outcome.output_len() if outcome.success else 0 for outcome in outcomes]
    completed = sum(outcome.success for outcome in outcomes)
    total_in = sum(outcome.prompt_len for outcome in outcomes if outcome.success)
    total_out = sum(lengths)
    top_chunks, top_active = peaks(outcomes)
    return {
        "duration": duration,
        "completed": completed,
        "failed": len(outcomes) - completed,
        "total_input_tokens": total_in,
        "total_output_tokens": total_out,
        "request_throughput": completed / duration,
        "request_goodput": goodput(outcomes, arguments.goodput, duration),
        "output_throughput": total_out / duration,
        "total_token_throughput": (total_in + total_out) / duration,
        "input_lens": [outcome.prompt_len for outcome in outcomes],
        "output_lens": lengths,
        "ttfts": [outcome.ttft for outcome in outcomes],
        "itls": [outcome.itl for outcome in outcomes],
        "latencies": [outcome.latency for outcome in outcomes],
        "start_times": [outcome.start_time for outcome in outcomes],
        "queue_times": [outcome.queue_time for outcome in outcomes],
        "generated_texts": [outcome.text for outcome in outcomes],
        "errors": [outcome.error for outcome in outcomes],
        "max_output_tokens_per_s": top_chunks,
        "max_concurrent_requests": top_active,
        "rtfx": 0.0,
    }


def selected_metrics(arguments: BenchArguments) -> list[str]:
    """The metrics whose statistics are shown, in the real order."""
    chosen = [name for name in SELECTABLE if name in arguments.percentile_metrics]
    return [name for name in chosen if not (arguments.skip_tokenizer_init and name in _NEEDS_TOKENIZER)]


def percent_word(percent: float) -> str:
    """50, 99.9."""
    return str(int(percent)) if percent == int(percent) else str(percent)


def summaries(arguments: BenchArguments, outcomes: Sequence[Outcome]) -> dict[str, float]:
    """mean, median, std and pNN in milliseconds of each selected metric; 0 without values."""
    found: dict[str, float] = {}
    values = distributions(outcomes)
    for name in selected_metrics(arguments):
        series = [value * 1000 for value in values[name]]
        found[f"mean_{name}_ms"] = statistics.fmean(series) if series else 0.0
        found[f"median_{name}_ms"] = percentile(series, 50)
        found[f"std_{name}_ms"] = statistics.pstdev(series) if series else 0.0
        for percent in arguments.metric_percentiles:
            found[f"p{percent_word(percent)}_{name}_ms"] = percentile(series, percent)
    return found
