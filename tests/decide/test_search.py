"""The search: most of the budget to the few that may win."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.speculation import Proposer
from specfleet.api.status import CellStatus, Verdict
from specfleet.decide.evidence import BenchmarkVerdict
from specfleet.decide.search import (
    NextPairs,
    SearchDone,
    changes_depth_and_batching,
    next_step,
    pick_winner,
    planned_pairs,
    tier_winners,
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


def search(tpots: dict[str, float], seed: int = 1) -> tuple[tuple[str, ...], dict[str, int]]:
    """Runs the search to its end; finalists and pairs measured per candidate."""
    everything = {
        name: draw_pairs(SPEC, Truth(Effect(tpot=tpot)), Noise(), 8, np.random.default_rng(seed + place))
        for place, (name, tpot) in enumerate(tpots.items())
    }
    measured: dict[str, list[BenchmarkEvidenceSpec]] = {name: [] for name in tpots}
    for _ in range(200):
        step = next_step(SPEC, list(tpots), measured)
        if isinstance(step, SearchDone):
            return step.finalists, {name: len(found) for name, found in measured.items()}
        assert isinstance(step, NextPairs)
        measured[step.candidate] = everything[step.candidate][: len(measured[step.candidate]) + 1]
    raise AssertionError("the search does not end")


def test_the_best_of_eight_is_found_for_less_than_half_of_what_all_would_cost() -> None:
    finalists, pairs = search({f"k{k}": 1 - 0.05 * k if k < 5 else 0.9 for k in range(1, 9)})
    assert finalists[0] == "k4"
    assert pairs["k4"] == 8
    assert sum(pairs.values()) == planned_pairs(8, 8) < 8 * 8 * 0.7
    assert min(pairs.values()) == 3


def test_one_candidate_is_simply_measured() -> None:
    assert search({"only": 0.7}) == (("only",), {"only": 8})


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(3, 32))
def test_a_search_never_costs_more_than_measuring_everything(candidates: int, pairs: int) -> None:
    assert pairs <= planned_pairs(candidates, pairs) <= candidates * pairs


def verdict(gain: float, p_value: float, passed: bool = True) -> BenchmarkVerdict:
    word = Verdict.PASS if passed else Verdict.FAIL
    return BenchmarkVerdict(word, "GainProven", "", gain_ratio=gain, p_value=p_value)


def test_the_winner_passes_and_survives_holm() -> None:
    assert pick_winner({"a": verdict(0.2, 0.001), "b": verdict(0.3, 0.01)}) == "b"
    assert pick_winner({"a": verdict(0.2, 0.001), "b": verdict(0.3, 0.03)}) == "a"
    assert pick_winner({"a": verdict(0.2, 0.001, passed=False)}) is None
    assert pick_winner({}) is None


def cells(**verdicts: tuple[Verdict, float]) -> list[CellStatus]:
    return [
        CellStatus(tier=tier, slice="chat", verdict=word, gain_ratio=gain) for tier, (word, gain) in verdicts.items()
    ]


def test_each_tier_has_its_own_winner_or_plain_decoding() -> None:
    found = tier_winners(
        {
            "deep": cells(low=(Verdict.PASS, 0.8), peak=(Verdict.FAIL, -0.2)),
            "shallow": cells(low=(Verdict.PASS, 0.4), peak=(Verdict.INCONCLUSIVE, 0.02)),
        }
    )
    assert found == {"low": "deep", "peak": None}


def proposer(**fields: Any) -> Proposer:
    return Proposer.model_validate({"method": "ngram", "numSpeculativeTokens": 3, **fields})


RULE = [{"minBatchSize": 1, "maxBatchSize": 8, "tokens": 1}]


@pytest.mark.parametrize(
    ("before", "after", "both"),
    [
        (proposer(), proposer(numSpeculativeTokens=5), False),
        (proposer(), proposer(tokensPerBatchSize=RULE), False),
        (proposer(), proposer(numSpeculativeTokens=5, tokensPerBatchSize=RULE), True),
        (proposer(), Proposer.model_validate({"method": "suffix", "tokensPerBatchSize": RULE}), False),
    ],
)
def test_depth_and_batching_are_not_changed_in_one_step(before: Proposer, after: Proposer, both: bool) -> None:
    assert changes_depth_and_batching(before, after) is both
