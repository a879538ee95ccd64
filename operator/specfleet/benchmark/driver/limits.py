"""How long a run may take before it is given up. The plan's maker reads it too: a Job's deadline stands above it."""

from .harness import Json


def time_limit_seconds(run: Json, seen_requests_per_second: float | None) -> float:
    """Far beyond what the run was planned to last, which is longer than run_seconds where minimum_requests at a low
    rate take longer. A closed loop's rate is that of its warm-up."""
    rate = run.get("requests_per_second") or seen_requests_per_second
    planned = run["requests"] / rate if rate and run["requests"] else 0.0
    return float(max(3 * run["run_seconds"], 2 * planned) + 180)
