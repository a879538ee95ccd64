"""What a benchmark is planned to take, and that the defaults of the API fit each other."""

from typing import Any

import pytest
from specfleet.api.deployment import DeploymentSpec
from specfleet.decide.duration import (
    capacity_seconds,
    pair_gpu_hours,
    pair_seconds,
    pairs_in_time,
    planned_seconds,
)
from specfleet.decide.gpu_budget import gpu_hour_budget
from specfleet.decide.search import planned_pairs

TURNS, TOGETHER = False, True


def spec(candidates: int = 1, **benchmark: Any) -> DeploymentSpec:
    one = {"method": "ngram", "numSpeculativeTokens": 3}
    speculation: dict[str, Any] = one if candidates == 1 else {"candidates": [one] * candidates}
    return DeploymentSpec.model_validate(
        {
            "model": {"name": "m"},
            "engine": {"image": "vllm:0.32.0"},
            "speculation": speculation,
            "benchmark": benchmark,
        }
    )


@pytest.mark.parametrize("together", [TURNS, TOGETHER], ids=["taking turns", "side by side"])
def test_the_default_benchmark_fits_its_default_budget_with_every_pair(together: bool) -> None:
    default = spec()
    assert planned_seconds(default, together) <= default.benchmark.time_budget_seconds == 8 * 3600
    assert pairs_in_time(default, together) == default.benchmark.pairs
    cost = default.benchmark.pairs * pair_gpu_hours(default, together)
    assert cost <= 2 * 8 <= gpu_hour_budget(default), "8 hours and 2 pods"


def test_a_search_over_several_candidates_and_its_confirmation_fit_the_default_gpu_hours() -> None:
    default = spec()
    pairs = default.benchmark.pairs
    for candidates, together in ((8, TURNS), (4, TOGETHER)):
        total = planned_pairs(candidates, pairs) + pairs
        assert total * pair_gpu_hours(default, together) <= gpu_hour_budget(default), candidates


def test_a_plan_counts_every_run_warm_up_capacity_run_and_start() -> None:
    tiers = [{"name": "low", "requestsPerSecond": 1}, {"name": "peak", "concurrency": 8}]
    given = spec(tiers=tiers, slices=[{"name": "one"}], pairs=4, runSeconds=100, warmupSeconds=20, minimumRequests=200)
    rate, closed = 200 + 30 + 20, 100 + 30 + 20
    assert pair_seconds(given.benchmark) == 2 * (rate + closed), "200 requests at one per second take 200 s, not 100"
    assert capacity_seconds(given.benchmark) == 0
    assert planned_seconds(given, TOGETHER) == 4 * 800 + 2 * 120, "started, and fresh pods half way"
    assert planned_seconds(given, TURNS) == 4 * 800 + 5 * 120, "AB BA AB BA: five times another arm comes up"
    share = spec(tiers=[{"name": "low", "capacityRatio": 0.3}], slices=[{"name": "one"}, {"name": "two"}])
    assert capacity_seconds(share.benchmark) == 2 * (300 + 45 + 20)


def test_a_budget_too_small_for_all_pairs_says_how_many_it_has_time_for() -> None:
    assert pairs_in_time(spec(pairs=8), TURNS) == 6
    assert pairs_in_time(spec(timeBudgetSeconds=60), TURNS) == 0
