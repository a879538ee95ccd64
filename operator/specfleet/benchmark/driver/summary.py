"""One run in numbers: what the client saw, and what the pod counted."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from .counters import Delta, Sampler, decode_seconds_per_token, mean_of
from .harness import ClientRecord, Json

Run = dict[str, Any]


def send_lags(starts: Sequence[float], intended: Sequence[float]) -> list[float] | None:
    """How late each request left, in seconds, against the most punctual one. None: unknown (no start times)."""
    if len(starts) != len(intended) or not starts or any(start <= 0 for start in starts):
        return None
    late = [start - due for start, due in zip(starts, intended, strict=True)]
    earliest = min(late)
    return [value - earliest for value in late]


def quantile(values: Sequence[float], share: float) -> float | None:
    """Linear-interpolation quantile; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summarise(seen: ClientRecord, intended: Sequence[float] | None, slo: Json) -> Run:
    """The client's side of a run. Latencies count from the intended send."""
    lags = send_lags(seen.starts, intended) if intended is not None else None
    ttfts, lengths, errors, latencies = seen.ttfts, seen.output_lens, seen.errors, seen.latencies
    good = [i for i in range(min(len(ttfts), len(lengths))) if lengths[i] > 0 and not (i < len(errors) and errors[i])]
    late = [lags[i] if lags is not None and i < len(lags) else 0.0 for i in range(len(ttfts))]
    tpots = [(latencies[i] - ttfts[i]) / (lengths[i] - 1) for i in good if lengths[i] > 1]
    waits = [ttfts[i] + late[i] for i in good]
    timed = len(seen.starts) == len(ttfts)
    seconds = seen.duration_seconds
    return {
        "duration_seconds": seconds,
        "completed_requests": seen.completed,
        "failed_requests": seen.failed,
        "completed_requests_per_second": seen.completed / seconds if seconds > 0 else 0.0,
        "prompt_tokens": seen.prompt_tokens,
        "output_tokens": seen.output_tokens,
        "output_tokens_per_second": seen.output_tokens / seconds if seconds > 0 else 0.0,
        "tpot_mean_seconds": statistics.fmean(tpots) if tpots else None,
        "tpot_p95_seconds": quantile(tpots, 0.95),
        "ttft_mean_seconds": statistics.fmean(waits) if waits else None,
        "ttft_p95_seconds": quantile(waits, 0.95),
        "e2e_mean_seconds": statistics.fmean(latencies[i] + late[i] for i in good) if good else None,
        "stall_p95_seconds": quantile([gap for gaps in seen.pauses for gap in gaps], 0.95),
        "ttft_over_slo_share": _share_over(waits, slo.get("ttft_slo_seconds")),
        "tpot_over_slo_share": _share_over(tpots, slo.get("tpot_slo_seconds")),
        "client_lag_p99_seconds": quantile(lags, 0.99) if lags is not None else None,
        "_lag_mean": statistics.fmean(lags) if lags else None,
        "_latency_sum": sum(latencies[i] for i in good),
        "_by_time": sorted((seen.starts[i], ttfts[i]) for i in good) if timed else [],
        "_first_error": next((error for error in errors if error), ""),
    }


def _share_over(values: Sequence[float], limit: float | None) -> float | None:
    return sum(value > limit for value in values) / len(values) if limit is not None and values else None


def engine_side(delta: Delta, sampler: Sampler) -> Run:
    """The pod's side of a run, from its own counters."""
    answered = delta.http
    return {
        "drafts": delta.count("spec_decode_num_drafts"),
        "draft_tokens": delta.count("spec_decode_num_draft_tokens"),
        "accepted_tokens": delta.count("spec_decode_num_accepted_tokens"),
        "accepted_per_position": [round(delta.per_position[place]) for place in sorted(delta.per_position)],
        "engine_tpot_seconds": decode_seconds_per_token(delta),
        "preemptions": delta.count("num_preemptions"),
        "kv_cache_peak_ratio": sampler.kv_cache_peak_ratio,
        "queue_time_mean_seconds": mean_of(delta, "request_queue_time_seconds"),
        "client_errors": round(sum(value for status, value in answered.items() if status.startswith("4"))),
        "server_errors": round(sum(value for status, value in answered.items() if status.startswith("5")))
        + delta.count("finished_abort")
        + delta.count("finished_error"),
    }
