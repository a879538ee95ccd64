"""How long a benchmark is planned to take, from its spec alone: what the budgets are held against."""

import math

from specfleet.api.benchmark import BenchmarkSpec, LoadTier
from specfleet.api.deployment import DeploymentSpec
from specfleet.decide.gpu_budget import gpus_per_engine

WARMUP_PARTS = 3 / 2
"""The driver warms up in halves of warmupSeconds until two agree: two of them at least, three as a rule."""
BETWEEN_RUNS_SECONDS = 20.0
"""Start of the client, an idle engine, the scrapes."""
START_SECONDS = 120.0
"""From a benchmark pod's creation to its first proven answer, for a model that its node has already."""


def pair_seconds(benchmark: BenchmarkSpec) -> float:
    """Wall-clock time of one pair: a run of each arm in every cell, one after the other."""
    return sum(2 * len(benchmark.slices) * _run_seconds(benchmark, tier) for tier in benchmark.tiers)


def capacity_seconds(benchmark: BenchmarkSpec) -> float:
    """Of the run that measures what a share of the capacity is; 0 where no tier is one."""
    if not benchmark.needs_capacity:
        return 0.0
    return len(benchmark.slices) * (benchmark.run_seconds + _between(benchmark))


def planned_seconds(spec: DeploymentSpec, side_by_side: bool, pairs: int | None = None) -> float:
    """Wall-clock time of so many pairs (default: all), with warm-up, capacity run and the starts of the pods.

    A tier that is a share of the capacity counts with runSeconds: where minimumRequests take longer, so does the pair.
    Without time for runs that have to be repeated, nor for a confirmation: that is a benchmark of its own.
    """
    count = spec.benchmark.pairs if pairs is None else pairs
    # Side by side both start together, and once more half way; taking turns, one arm gives way to the other per pair.
    starts = min(2, count) if side_by_side else count + 1
    return capacity_seconds(spec.benchmark) + count * pair_seconds(spec.benchmark) + starts * START_SECONDS


def pairs_in_time(spec: DeploymentSpec, side_by_side: bool) -> int:
    """Pairs that timeBudgetSeconds has room for, at most the declared ones."""
    fitting = (
        count
        for count in range(spec.benchmark.pairs, 0, -1)
        if planned_seconds(spec, side_by_side, count) <= spec.benchmark.time_budget_seconds
    )
    return next(fitting, 0)


def plan_in_words(spec: DeploymentSpec, side_by_side: bool, pairs: int) -> str:
    """How many pairs, how long they are planned to take, and whether the time budget has room for them."""
    hours, budget = planned_seconds(spec, side_by_side, pairs) / 3600, spec.benchmark.time_budget_seconds / 3600
    said = f"up to {pairs} pairs, about {hours:.2g} of at most {budget:.2g} h"
    fitting = pairs_in_time(spec, side_by_side)
    return said if fitting >= pairs else f"{said}: time for {fitting} of them"


def pair_gpu_hours(spec: DeploymentSpec, side_by_side: bool) -> float:
    """GPU hours of one pair; side by side both arms hold their GPUs all the time."""
    pods = 2 if side_by_side else 1
    return pods * gpus_per_engine(spec) * pair_seconds(spec.benchmark) / 3600


def _run_seconds(benchmark: BenchmarkSpec, tier: LoadTier) -> float:
    seconds = float(benchmark.run_seconds)
    if tier.requests_per_second is not None:
        requests = max(benchmark.minimum_requests, math.ceil(tier.requests_per_second * seconds))
        seconds = requests / tier.requests_per_second
    return seconds + _between(benchmark)


def _between(benchmark: BenchmarkSpec) -> float:
    return WARMUP_PARTS * benchmark.warmup_seconds + BETWEEN_RUNS_SECONDS
