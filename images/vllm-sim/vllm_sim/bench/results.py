"""The result of a run: the real one's JSON keys, units and printed table."""

import argparse
import math
import statistics
import time
from collections.abc import Sequence
from typing import Any

from vllm_sim.bench.client import Outcome
from vllm_sim.bench.datasets import Prompt

Numbers = Sequence[float]
TITLES = {
    "ttft": "Time to First Token",
    "tpot": "Time per Output Token (excl. 1st token)",
    "itl": "Inter-token Latency",
}
SHORT = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2EL"}


def percentile(values: Numbers, share: float) -> float:
    """Linear interpolation, as numpy does; 0 without values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = share / 100 * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summarise(
    options: argparse.Namespace,
    prompts: Sequence[Prompt],
    outcomes: Sequence[Outcome],
    seconds: float,
    speculation: dict[str, Any] | None,
) -> dict[str, Any]:
    """All keys of a result, details included (see `without_details`)."""
    good = [one for one in outcomes if one.success]
    prompt_tokens = sum(prompt.prompt_tokens for prompt, one in zip(prompts, outcomes, strict=True) if one.success)
    output_tokens = sum(one.output_tokens for one in good)
    rate = options.request_rate
    result: dict[str, Any] = {
        "date": time.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": options.backend,
        "backend": options.backend,
        "label": options.label,
        "model_id": options.model,
        "tokenizer_id": options.tokenizer or options.model,
        "num_prompts": options.num_prompts,
        **dict(pair.split("=", 1) for pair in options.metadata),
        "request_rate": "inf" if math.isinf(rate) else rate,
        "burstiness": options.burstiness,
        "max_concurrency": options.max_concurrency,
        "duration": seconds,
        "completed": len(good),
        "failed": len(outcomes) - len(good),
        "total_input_tokens": prompt_tokens,
        "total_output_tokens": output_tokens,
        "request_throughput": len(good) / seconds,
        "request_goodput": _goodput(options, good, seconds),
        "output_throughput": output_tokens / seconds,
        "total_token_throughput": (prompt_tokens + output_tokens) / seconds,
        "input_lens": [prompt.prompt_tokens for prompt in prompts],
        "output_lens": [one.output_tokens for one in outcomes],
        "ttfts": [one.ttft for one in outcomes],
        "itls": [one.itl for one in outcomes],
        "latencies": [one.latency for one in outcomes],
        "start_times": [one.start_time for one in outcomes],
        "queue_times": [one.queue_time for one in outcomes],
        "generated_texts": [one.text for one in outcomes],
        "errors": [one.error for one in outcomes],
        "max_output_tokens_per_s": _most_chunks_per_second(good),
        "max_concurrent_requests": float(_most_at_once(good)),
        "rtfx": 0.0,
    }
    result.update(speculation or {})
    if not options.skip_tokenizer_init:
        result.update(_latencies(options, good))
    return result


def without_details(result: dict[str, Any]) -> dict[str, Any]:
    """What is kept without --save-detailed."""
    detailed = ("input_lens", "output_lens", "start_times", "ttfts", "itls", "generated_texts", "errors")
    return {key: value for key, value in result.items() if key not in detailed}


def _tpots(good: Sequence[Outcome]) -> list[float]:
    return [(one.latency - one.ttft) / (one.output_tokens - 1) for one in good if one.output_tokens > 1]


def _latencies(options: argparse.Namespace, good: Sequence[Outcome]) -> dict[str, float]:
    series = {
        "ttft": [one.ttft for one in good],
        "tpot": _tpots(good),
        "itl": [gap for one in good for gap in one.itl],
        "e2el": [one.latency for one in good],
    }
    chosen = (options.percentile_metrics or "ttft,tpot,itl").split(",")
    shares = [float(text) for text in options.metric_percentiles.split(",")]
    found: dict[str, float] = {}
    for name in (name for name in series if name in chosen):
        values = [value * 1000 for value in series[name]]
        found[f"mean_{name}_ms"] = statistics.fmean(values) if values else 0.0
        found[f"median_{name}_ms"] = statistics.median(values) if values else 0.0
        found[f"std_{name}_ms"] = statistics.pstdev(values) if values else 0.0
        for share in shares:
            found[f"p{share:g}_{name}_ms"] = percentile(values, share)
    return found


def _goodput(options: argparse.Namespace, good: Sequence[Outcome], seconds: float) -> float | None:
    if not options.goodput:
        return None
    limits = {name: float(text) / 1000 for name, text in (pair.split(":") for pair in options.goodput)}
    met = 0
    for one in good:
        tpot = (one.latency - one.ttft) / (one.output_tokens - 1) if one.output_tokens > 1 else 0.0
        values = {"ttft": one.ttft, "tpot": tpot, "e2el": one.latency}
        met += all(values[name] <= limit for name, limit in limits.items())
    return met / seconds


def _most_chunks_per_second(good: Sequence[Outcome]) -> float:
    """The real one counts chunks here, not tokens: useless under speculation, and kept so."""
    counts: dict[int, int] = {}
    for one in good:
        for moment in one.chunk_times:
            counts[int(moment)] = counts.get(int(moment), 0) + 1
    return float(max(counts.values(), default=0))


def _most_at_once(good: Sequence[Outcome]) -> int:
    edges = [(one.start_time, 1) for one in good] + [(one.start_time + one.latency, -1) for one in good]
    most = now = 0
    for _, step in sorted(edges):
        now += step
        most = max(most, now)
    return most


def table(options: argparse.Namespace, result: dict[str, Any]) -> str:
    """What is printed at the end."""
    rows = [
        "============ Serving Benchmark Result ============",
        _row("Successful requests:", result["completed"]),
        _row("Failed requests:", result["failed"]),
    ]
    if options.max_concurrency is not None:
        rows.append(_row("Maximum request concurrency:", options.max_concurrency))
    if not math.isinf(options.request_rate):
        rows.append(_row("Request rate configured (RPS):", options.request_rate))
    rows += [
        _row("Benchmark duration (s):", result["duration"]),
        _row("Total input tokens:", result["total_input_tokens"]),
        _row("Total generated tokens:", result["total_output_tokens"]),
        _row("Request throughput (req/s):", result["request_throughput"]),
        _row("Output token throughput (tok/s):", result["output_throughput"]),
        _row("Peak output token throughput (tok/s):", result["max_output_tokens_per_s"]),
        _row("Peak concurrent requests:", result["max_concurrent_requests"]),
        _row("Total token throughput (tok/s):", result["total_token_throughput"]),
    ]
    for name, title in TITLES.items():
        if f"mean_{name}_ms" in result:
            rows.append(title.center(50, "-"))
            rows.append(_row(f"Mean {SHORT[name]} (ms):", result[f"mean_{name}_ms"]))
            rows.append(_row(f"Median {SHORT[name]} (ms):", result[f"median_{name}_ms"]))
            for share in options.metric_percentiles.split(","):
                key = f"p{float(share):g}_{name}_ms"
                rows.append(_row(f"P{float(share):g} {SHORT[name]} (ms):", result[key]))
    if "spec_decode_acceptance_rate" in result:
        rows.append("Speculative Decoding".center(50, "-"))
        rows.append(_row("Acceptance rate (%):", result["spec_decode_acceptance_rate"]))
        rows.append(_row("Acceptance length:", result["spec_decode_acceptance_length"]))
        for name in ("drafts", "draft_tokens", "accepted_tokens"):
            rows.append(
                _row(
                    f"{name.replace('_', ' ').capitalize()}:",
                    result[f"spec_decode_num_{name}" if name == "drafts" else f"spec_decode_{name}"],
                )
            )
    return "\n".join([*rows, "=" * 50])


def _row(name: str, value: float) -> str:
    shown = f"{value:.2f}" if isinstance(value, float) else str(value)
    return f"{name:<40} {shown:<10}"
