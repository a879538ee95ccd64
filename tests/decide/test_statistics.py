"""Distributions and intervals against SciPy, and the pooled estimate against known truth."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from specfleet.decide.statistics import (
    pooled_estimate,
    share_difference,
    student_t_cdf,
    student_t_quantile,
    wilson,
)


@settings(deadline=None)
@given(st.floats(-30, 30), st.floats(1, 500))
def test_t_distribution_is_scipys(value: float, df: float) -> None:
    assert student_t_cdf(value, df) == pytest.approx(stats.t.cdf(value, df), abs=1e-8)


@settings(deadline=None)
@given(st.floats(0.0005, 0.9995), st.floats(1, 500))
def test_t_quantile_is_scipys(probability: float, df: float) -> None:
    assert student_t_quantile(probability, df) == pytest.approx(stats.t.ppf(probability, df), rel=1e-6, abs=1e-8)


@settings(deadline=None)
@given(st.integers(0, 400), st.integers(1, 400), st.sampled_from([0.025, 0.05, 0.2]))
def test_wilson_is_scipys(successes: int, trials: int, alpha: float) -> None:
    successes = min(successes, trials)
    expected = stats.binomtest(successes, trials).proportion_ci(1 - 2 * alpha, method="wilson")
    assert wilson(successes, trials, alpha) == pytest.approx((expected.low, expected.high), abs=1e-8)


def test_a_share_without_trials_can_be_anything() -> None:
    assert wilson(0, 0, 0.05) == (0.0, 1.0)
    assert share_difference((0, 0), (1, 10), 0.05) == (-1.0, 1.0)


def test_one_cell_is_the_ordinary_t_interval() -> None:
    values = [0.01, 0.05, -0.02, 0.03]
    estimate = pooled_estimate([[value] for value in values], [1.0])
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (estimate.lower(0.025), estimate.upper(0.025)) == pytest.approx((expected.low, expected.high))


def test_identical_runs_do_not_give_an_interval_of_no_width() -> None:
    estimate = pooled_estimate([[0.1, 0.1]] * 3, [0.5, 0.5])
    assert estimate.upper(0.05) > estimate.mean > estimate.lower(0.05)


def test_one_pair_is_not_enough() -> None:
    with pytest.raises(ValueError, match="two pairs"):
        pooled_estimate([[0.1, 0.2]], [0.5, 0.5])


@pytest.mark.parametrize(
    ("pair_sd", "noise"),
    [(0.0, (1, 1, 1, 1)), (0.02, (1, 1, 1, 1)), (0.05, (1, 1, 1, 1)), (0.01, (1, 1, 3, 3))],
)
def test_the_interval_covers_the_truth_about_as_often_as_it_says(pair_sd: float, noise: tuple[float, ...]) -> None:
    draw = random.Random(20261129)
    hits, trials = 0, 1500
    for _ in range(trials):
        rows = []
        for _ in range(4):
            shared = draw.gauss(0, pair_sd)
            rows.append([shared + draw.gauss(0, 0.025 * scale) for scale in noise])
        estimate = pooled_estimate(rows, [0.0, 0.0, 0.5, 0.5])
        hits += estimate.lower(0.025) <= 0 <= estimate.upper(0.025)
    assert 0.925 < hits / trials < 0.985


def test_a_noisy_cell_elsewhere_makes_the_interval_wider_and_never_too_narrow() -> None:
    draw = random.Random(3)
    hits, trials = 0, 1500
    for _ in range(trials):
        rows = [[draw.gauss(0, 0.025 * scale) for scale in (1, 3, 1, 1)] for _ in range(4)]
        estimate = pooled_estimate(rows, [0.0, 0.0, 0.5, 0.5])
        hits += estimate.lower(0.025) <= 0 <= estimate.upper(0.025)
    assert hits / trials > 0.94


def test_pooling_over_cells_narrows_the_interval_of_few_pairs() -> None:
    draw = random.Random(7)
    wins = 0
    for _ in range(200):
        rows = [[draw.gauss(0, 0.025) for _ in range(4)] for _ in range(3)]
        alone = pooled_estimate([row[:1] for row in rows], [1.0])
        wins += pooled_estimate(rows, [1.0, 0, 0, 0]).upper(0.05) < alone.upper(0.05)
    assert wins > 140
