"""A benchmark driver without engines: from a Job's plan to the termination message, at a known speed per arm."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from specfleet.benchmark.driver.bench import Bench
from specfleet.benchmark.driver.harness import VllmBenchServe
from specfleet.benchmark.driver.message import encode_message
from specfleet.benchmark.driver.pair import set_capacity
from specfleet.benchmark.driver.session import Session

from tests.benchmark.test_encoding import a_run

Speed = Callable[[str], float]
"""Speed-up over plain decoding by tier."""


def measured(speeds: Mapping[str, Speed]) -> Callable[[dict[str, Any]], str]:
    """Plays the driver; arms by fingerprint, all others as fast as plain ones."""

    def drive(plan: dict[str, Any]) -> str:
        runs = [_run(plan, run, speeds) for run in plan["runs"]]
        session = Session(plan=plan, source=[], bench=Bench(VllmBenchServe()), work=Path(), runs=runs)
        if plan["purpose"] == "Capacity":
            set_capacity(session)
        return encode_message(session)

    return drive


def _run(plan: dict[str, Any], run: dict[str, Any], speeds: Mapping[str, Speed]) -> dict[str, Any]:
    fingerprint = plan["arms"][run["arm"]]["fingerprint"]
    speed = speeds.get(fingerprint, lambda tier: 1.0)(run["tier"])
    closed = run["concurrency"] is not None
    rate = 8.0 * speed if closed else run["requests_per_second"]
    # Arms that agree to the last digit do not exist.
    tpot = 0.02 / speed * (1 + 0.001 * ((run["order"] + plan["pair"]) % 3 - 1))
    return a_run(
        run["order"],
        run["arm"],
        tier=run["tier"],
        slice=run["slice"],
        concurrency=run["concurrency"],
        requests_per_second=run["requests_per_second"],
        completed_requests_per_second=rate,
        output_tokens_per_second=rate * 128,
        tpot_mean_seconds=tpot,
        engine_tpot_seconds=tpot,
        client_lag_p99_seconds=None if closed else 0.002,
        preemptions=0,
        kv_cache_peak_ratio=0.2,
        ttft_over_slo_share=None,
        tpot_over_slo_share=None,
    )
