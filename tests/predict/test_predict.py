"""The predictor against published tables and against the evidence generator's truth."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specfleet.predict.acceptance import accepted_length, conditional_rates, extended
from specfleet.predict.schedule import suggest_schedule
from specfleet.predict.step_time import (
    PUBLISHED_H100_8B,
    LinearTime,
    StepModel,
    TooFewPointsError,
    fit_target,
    mean_batch,
)

GSM8K = [0.673, 0.653, 0.640]
CONTEXT = 400


@settings(deadline=None)
@given(st.floats(0, 0.99), st.integers(1, 10))
def test_a_constant_rate_gives_the_closed_form(rate: float, depth: int) -> None:
    closed = (1 - rate ** (depth + 1)) / (1 - rate)
    assert accepted_length([rate] * depth) == pytest.approx(closed)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), max_size=10))
def test_accepted_length_lies_between_one_and_depth_plus_one(rates: list[float]) -> None:
    assert 1 <= accepted_length(rates) <= len(rates) + 1


def test_a_rate_outside_zero_to_one_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        accepted_length([0.5, 1.2])


def test_counters_of_a_real_run_give_its_accepted_length() -> None:
    # vLLM 0.32, draft model, k = 3: 552 drafts, 399 accepted tokens, accepted length 1.7228 as the bench printed it.
    rates = conditional_rates([217, 117, 65], 552)
    assert accepted_length(rates) == pytest.approx(1.7228260869565217)
    assert conditional_rates([], 0) == []
    assert conditional_rates([0, 0], 10) == [0.0]


@pytest.mark.parametrize(
    ("batch", "published"), [(1, 1.31), (8, 1.36), (32, 1.51), (64, 1.66), (128, 1.88), (256, 2.12), (512, 2.35)]
)
def test_break_even_lengths_are_the_published_ones(batch: int, published: float) -> None:
    assert PUBLISHED_H100_8B.break_even(batch, 3, CONTEXT) == pytest.approx(published, abs=0.03)


def test_the_best_depth_falls_with_the_batch() -> None:
    depths = [PUBLISHED_H100_8B.best_depth(batch, GSM8K, 3, CONTEXT) for batch in (1, 8, 32, 128, 512)]
    assert depths == sorted(depths, reverse=True)
    assert (depths[0], depths[-1]) == (3, 1)


def test_depth_zero_is_plain_decoding() -> None:
    assert PUBLISHED_H100_8B.speedup(16, [], CONTEXT) == 1.0


def test_a_useless_draft_is_never_worth_a_token() -> None:
    assert PUBLISHED_H100_8B.best_depth(4, [0.02, 0.0, 0.0], 3) == 0
    rules = suggest_schedule(PUBLISHED_H100_8B, [0.02], 3, 64)
    assert [(rule.min_batch_size, rule.max_batch_size, rule.tokens) for rule in rules] == [(1, 64, 0)]


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 200))
def test_a_schedule_covers_every_batch_once_and_only_goes_down(rates: list[float], depth: int, largest: int) -> None:
    rules = suggest_schedule(PUBLISHED_H100_8B, rates, depth, largest)
    assert rules[0].min_batch_size == 1
    assert rules[-1].max_batch_size == largest
    for before, after in itertools.pairwise(rules):
        assert after.min_batch_size == before.max_batch_size + 1
        assert after.tokens < before.tokens
    assert max(rule.tokens for rule in rules) <= depth


@settings(deadline=None)
@given(st.floats(1e-3, 0.05), st.floats(1e-6, 1e-3))
def test_the_fit_finds_the_line_that_made_the_points(constant: float, slope: float) -> None:
    truth = LinearTime(constant, slope)
    batches = [1.0, 4.0, 16.0, 48.0]
    found = fit_target(batches, [truth.seconds(batch) for batch in batches])
    assert found.constant == pytest.approx(constant, rel=1e-6)
    assert found.per_token == pytest.approx(slope, rel=1e-6, abs=1e-9)


def test_one_load_is_not_a_line() -> None:
    with pytest.raises(TooFewPointsError, match="two different loads"):
        fit_target([4.0, 4.0], [0.01, 0.011])


def test_unknown_positions_are_continued_with_the_mean() -> None:
    assert extended([0.6, 0.4], 4) == [0.6, 0.4, 0.5, 0.5]
    assert extended([0.6, 0.4], 1) == [0.6]
    assert extended([], 2) == [0.0, 0.0]


def test_littles_law() -> None:
    assert mean_batch(4.0, 2.5) == 10.0


@settings(deadline=None)
@given(st.floats(1, 300), st.integers(1, 8))
def test_speculation_breaks_even_only_above_one_token_per_step(batch: float, depth: int) -> None:
    model = StepModel(LinearTime(0.005, 1e-5), LinearTime(0.001))
    assert model.break_even(batch, depth) > 1
    assert not math.isnan(model.speedup(batch, [0.5] * depth))
