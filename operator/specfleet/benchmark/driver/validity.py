"""Whether a finished run may be compared. Exit code 0 of a load generator proves nothing."""

import math
import statistics
from collections.abc import Sequence

from .counters import Delta
from .harness import Json
from .summary import Run


def grows(by_time: Sequence[tuple[float, float]], waiting: Sequence[tuple[float, float]]) -> bool:
    """Whether the queue grew over an open-loop run: TTFT rises with time far beyond noise, and requests wait."""
    if len(by_time) < 12 or not waiting or max(value for _, value in waiting) < 1:
        return False
    times = [time_ for time_, _ in by_time]
    values = [value for _, value in by_time]
    mean_time, mean_value = statistics.fmean(times), statistics.fmean(values)
    spread = sum((time_ - mean_time) ** 2 for time_ in times)
    if spread <= 0 or mean_value <= 0:
        return False
    slope = sum((t - mean_time) * (v - mean_value) for t, v in by_time) / spread
    noise = sum((v - mean_value - slope * (t - mean_time)) ** 2 for t, v in by_time) / (len(by_time) - 2)
    error = math.sqrt(noise / spread)
    rise = slope * (times[-1] - times[0])
    return rise > 1.5 * mean_value and (error == 0 or slope / error > 4)


def starved(plan: Json, summary: Run) -> str | None:
    """Whether the client sent so late that latencies from the intended send say more about it than about the engine.

    The mean goes into the mean TTFT as it is. The tail may reach a share of a request: beyond that, arrivals are no
    longer those that were planned.
    """
    tail, mean = summary["client_lag_p99_seconds"], summary["_lag_mean"]
    if tail is None or mean is None:
        return None
    tail_limit = max(plan["client_lag_limit_seconds"], plan["client_lag_ratio"] * (summary["e2e_mean_seconds"] or 0.0))
    if mean <= plan["client_lag_mean_limit_seconds"] and tail <= tail_limit:
        return None
    return f"ClientLag: send lag mean {1000 * mean:.1f} ms, p99 {1000 * tail:.1f} ms; the client is starved"


def invalid_reason(
    plan: Json, run: Run, summary: Run, delta: Delta, waiting: Sequence[tuple[float, float]]
) -> str | None:
    """Why a finished run must not be compared, None when it may. Exit code 0 of the bench proves nothing."""
    planned, completed = run["requests"], summary["completed_requests"]
    if delta.reset is not None:
        return f"PodRestarted: {delta.reset}"
    if summary["failed_requests"] > 0 or completed != planned:
        shown = " ".join(summary["_first_error"].split())[-60:]
        return f"FailedRequests: {planned - completed} of {planned} failed {shown}".rstrip()
    if completed < plan["minimum_requests"]:
        return f"TooFewRequests: {completed} completed, minimumRequests is {plan['minimum_requests']}"
    if not summary["tpot_mean_seconds"] or summary["tpot_mean_seconds"] <= 0:
        return "NoTokens: no request produced two tokens, so there is no time per output token"
    if delta.finished != planned:
        return f"OtherTraffic: the pod finished {delta.finished} requests, we sent {planned}"
    generated = delta.count("request_generation_tokens_sum")
    if abs(generated - summary["output_tokens"]) > max(2, 0.01 * summary["output_tokens"]):
        return f"TokenMismatch: the pod generated {generated} tokens, the client counted {summary['output_tokens']}"
    engine_seconds = delta.values.get("e2e_request_latency_seconds_sum")
    client_seconds = summary["_latency_sum"]
    # HTTP and tokenisation lie outside the engine's clock: a constant per request, which is no violation.
    slack = plan["little_law_tolerance_ratio"] * client_seconds + 0.05 * planned
    if engine_seconds is not None and abs(client_seconds - engine_seconds) > slack:
        return f"LittlesLaw: {client_seconds:.2f} s in flight at the client, {engine_seconds:.2f} s at the pod"
    if run.get("requests_per_second"):
        late = starved(plan, summary)
        if late is not None:
            return late
        if grows(summary["_by_time"], waiting):
            return "Oversaturated: the queue grew during the run, so its latency depends on the run's length"
    return None
