"""The search: most of the budget to the few that may win."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import TrialStatus, Verdict
from specfleet.decide.search import (
    NextPairs,
    SearchDone,
    affordable,
    error_shares,
    next_step,
    planned_pairs,
)

from benchmarks.evidence.truth import Effect, Noise, Truth, draw_pairs

SPEC = DeploymentSpec.model_validate(
    {
        "model": {"name": "m"},
        "engine": {"image": "vllm:0.32.0"},
        "benchmark": {
            "tiers": [{"name": "low", "requestsPerSecond": 2}, {"name": "peak", "concurrency": 16}],
            "slices": [{"name": "chat"}],
            "pairs": 8,
        },
    }
)


def search(
    tpots: dict[str, float], seed: int = 1, budget_pairs: float = math.inf
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Runs the search to its end; finalists and pairs measured per candidate."""
    everything = {
        name: draw_pairs(SPEC, Truth(Effect(tpot=tpot)), Noise(), 8, np.random.default_rng(seed + place))
        for place, (name, tpot) in enumerate(tpots.items())
    }
    measured: dict[str, list[BenchmarkEvidenceSpec]] = {name: [] for name in tpots}
    for _ in range(200):
        left = budget_pairs - sum(len(found) for found in measured.values())
        step = next_step(SPEC, list(tpots), measured, left)
        if isinstance(step, SearchDone):
            return step.finalists, {name: len(found) for name, found in measured.items()}
        assert isinstance(step, NextPairs)
        assert step.candidate in step.alive
        measured[step.candidate] = everything[step.candidate][: len(measured[step.candidate]) + 1]
    raise AssertionError("the search does not end")


def test_the_best_of_eight_is_found_for_less_than_half_of_what_all_would_cost() -> None:
    finalists, pairs = search({f"k{k}": 1 - 0.05 * k if k < 5 else 0.9 for k in range(1, 9)})
    assert finalists == ("k4",)
    assert pairs["k4"] == 8
    assert sum(pairs.values()) == planned_pairs(8, 8) < 8 * 8 * 0.7
    assert min(pairs.values()) == 3


def test_one_candidate_is_simply_measured() -> None:
    assert search({"only": 0.7}) == (("only",), {"only": 8})


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(3, 32))
def test_a_search_never_costs_more_than_measuring_everything(candidates: int, pairs: int) -> None:
    assert pairs <= planned_pairs(candidates, pairs) <= candidates * pairs


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 8), st.integers(20, 60))
def test_the_budget_carries_the_best_to_the_end_and_leaves_its_confirmation(candidates: int, budget: int) -> None:
    finalists, pairs = search({f"k{k}": 1 - 0.05 * k for k in range(candidates)}, budget_pairs=budget)
    assert pairs[finalists[0]] == 8
    assert sum(pairs.values()) + 8 <= budget


def test_with_pairs_for_a_verdict_of_two_the_rest_wait_behind() -> None:
    _, pairs = search({f"k{k}": 0.8 for k in range(8)}, budget_pairs=22)
    assert sorted(pairs.values()) == [0, 0, 0, 0, 0, 3, 3, 8]


def test_without_any_budget_left_one_candidate_is_still_named_so_that_it_gets_a_verdict() -> None:
    step = next_step(SPEC, ["a", "b"], {}, 0.0)
    assert isinstance(step, NextPairs)
    assert step.alive == ("a",)


def test_the_price_of_a_pair_is_what_the_measured_ones_cost() -> None:
    pairs = draw_pairs(SPEC, Truth(), Noise(), 4, np.random.default_rng(1))
    costing = [one.model_copy(update={"gpu_seconds": 1800.0}) for one in pairs]
    assert affordable(64, 14, {"a": costing[:2], "b": costing[2:]}) == pytest.approx(100)
    assert affordable(64, 0, {"a": []}) == math.inf
    assert affordable(64, 70, {"a": costing}) == 0


def trial(name: str, **fields: Any) -> TrialStatus:
    return TrialStatus(fingerprint=name, proposer=name, verdict=Verdict.FAIL, reason="ThroughputLoss", **fields)


def test_the_error_is_shared_among_candidates_whose_gain_is_not_proven_yet() -> None:
    assert error_shares(SPEC, 4, []) == 4
    assert error_shares(SPEC, 4, [trial("a", lower=0.02), trial("b")]) == 4
    assert error_shares(SPEC, 4, [trial("a", lower=0.20)]) == 3, "its gain is proven, though a guard failed it"
    assert error_shares(SPEC, 1, [trial("a", lower=0.20)]) == 1
