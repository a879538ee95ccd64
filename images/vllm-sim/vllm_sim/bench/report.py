"""The table that `vllm bench serve` prints."""

from collections.abc import Mapping
from typing import Any

from vllm_sim.bench.arguments import BenchArguments
from vllm_sim.bench.results import percent_word, selected_metrics

_TITLES = {
    "ttft": ("TTFT", "Time to First Token"),
    "tpot": ("TPOT", "Time per Output Token (excl. 1st token)"),
    "itl": ("ITL", "Inter-token Latency"),
    "e2el": ("E2EL", "End-to-end Latency"),
    "client_queue_time": ("Client Queue", "Client Queue Time"),
    "e2el_including_client_queue": ("E2EL+Queue", "End-to-end Latency incl. Client Queue"),
}


def _row(name: str, value: object) -> str:
    shown = f"{value:<10.2f}" if isinstance(value, float) else f"{value:<10}"
    return f"{name:<40} {shown}"


def table(arguments: BenchArguments, result: Mapping[str, Any]) -> str:
    """All lines."""
    lines = [f"{' Serving Benchmark Result ':=^50}"]
    lines.append(_row("Successful requests:", result["completed"]))
    lines.append(_row("Failed requests:", result["failed"]))
    if arguments.max_concurrency is not None:
        lines.append(_row("Maximum request concurrency:", arguments.max_concurrency))
    if isinstance(result["request_rate"], float):
        lines.append(_row("Request rate configured (RPS):", result["request_rate"]))
    lines.append(_row("Benchmark duration (s):", result["duration"]))
    lines.append(_row("Total input tokens:", result["total_input_tokens"]))
    lines.append(_row("Total generated tokens:", result["total_output_tokens"]))
    lines.append(_row("Request throughput (req/s):", result["request_throughput"]))
    if result["request_goodput"] is not None:
        lines.append(_row("Request goodput (req/s):", result["request_goodput"]))
    lines.append(_row("Output token throughput (tok/s):", result["output_throughput"]))
    lines.append(_row("Peak output token throughput (tok/s):", result["max_output_tokens_per_s"]))
    lines.append(_row("Peak concurrent requests:", float(result["max_concurrent_requests"])))
    lines.append(_row("Total token throughput (tok/s):", result["total_token_throughput"]))
    for name in selected_metrics(arguments):
        short, title = _TITLES[name]
        lines.append(f"{title:-^50}")
        lines.append(_row(f"Mean {short} (ms):", result[f"mean_{name}_ms"]))
        lines.append(_row(f"Median {short} (ms):", result[f"median_{name}_ms"]))
        for percent in arguments.metric_percentiles:
            word = percent_word(percent)
            lines.append(_row(f"P{word} {short} (ms):", result[f"p{word}_{name}_ms"]))
    lines += _speculative(result)
    lines.append("=" * 50)
    return "\n".join(lines)


def _speculative(result: Mapping[str, Any]) -> list[str]:
    if "spec_decode_acceptance_rate" not in result:
        return []
    lines = [f"{'Speculative Decoding':-^50}"]
    lines.append(_row("Acceptance rate (%):", result["spec_decode_acceptance_rate"]))
    lines.append(_row("Acceptance length:", float(result["spec_decode_acceptance_length"])))
    lines.append(_row("Drafts:", result["spec_decode_num_drafts"]))
    lines.append(_row("Draft tokens:", result["spec_decode_draft_tokens"]))
    lines.append(_row("Accepted tokens:", result["spec_decode_accepted_tokens"]))
    lines.append("Per-position acceptance (%):")
    lines += [
        _row(f"  Position {place}:", share * 100)
        for place, share in enumerate(result["spec_decode_per_position_acceptance_rates"])
    ]
    return lines
