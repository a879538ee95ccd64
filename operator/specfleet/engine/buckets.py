"""Latency histogram buckets (`--custom-histogram-buckets`, vLLM 0.32+), the same in both arms.

The built-in buckets start at 10 ms per token, so a fast engine's TPOT falls into one bucket, and a declared SLO rarely
is an edge. Here the edges are fine and every declared SLO is one, so that "share above the SLO" is exact.
"""

from collections.abc import Iterable

from specfleet.api.benchmark import GuardrailsSpec

SINCE = "0.32"

TOKEN_EDGES_SECONDS = (
    0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06,
    0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
FIRST_TOKEN_EDGES_SECONDS = (
    0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 5.0,
    7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
REQUEST_EDGES_SECONDS = (
    0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip


def histogram_buckets(guardrails: GuardrailsSpec) -> dict[str, list[float]]:
    """Edges in seconds by vLLM's bucket group; `inter_token_latency` serves both ITL and per-request TPOT."""
    return {
        "inter_token_latency": _edges(TOKEN_EDGES_SECONDS, guardrails.tpot_slo_seconds, guardrails.stall_slo_seconds),
        "request_latency": list(REQUEST_EDGES_SECONDS),
        "time_to_first_token": _edges(FIRST_TOKEN_EDGES_SECONDS, guardrails.ttft_slo_seconds),
    }


def _edges(base: Iterable[float], *slos: float | None) -> list[float]:
    return sorted({*base, *(slo for slo in slos if slo is not None)})
