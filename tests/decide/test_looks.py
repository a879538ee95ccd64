"""Looking at a benchmark several times keeps the error of looking once."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specfleet.decide.looks import alpha_of_look, crossing


def test_two_even_looks_use_what_pocock_published() -> None:
    # Pocock (1977), table 1: 0.0294 two-sided for 5 % at two looks, 0.0221 at three.
    assert 2 * alpha_of_look(0.025, [5], 10, 5, False) == pytest.approx(0.0294, abs=1e-4)
    assert 2 * alpha_of_look(0.025, [4, 8], 12, 8, False) == pytest.approx(0.0221, abs=1e-4)


def test_a_benchmark_without_looks_uses_the_whole_error() -> None:
    assert alpha_of_look(0.025, [], 6, 6, True) == 0.025


def test_the_last_test_has_what_is_left_where_the_budget_ended_before_a_look() -> None:
    assert alpha_of_look(0.025, [4], 6, 3, True) == 0.025
    left = alpha_of_look(0.025, [3, 4], 6, 4, True)
    each = alpha_of_look(0.025, [3, 4], 6, 3, False)
    assert each < left < 0.025
    assert crossing([3, 4], [each, left]) == pytest.approx(0.025, abs=1e-5)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(3, 11), max_size=3, unique=True), st.sampled_from([0.05, 0.025, 0.003]))
def test_all_looks_together_keep_the_error(looks: list[int], alpha: float) -> None:
    times = [*sorted(looks), 12]
    errors = [alpha_of_look(alpha, looks, 12, time, time == 12) for time in times]
    assert all(alpha / len(times) <= error <= alpha for error in errors)
    assert crossing(times, errors) == pytest.approx(alpha, rel=2e-3)


def test_the_probability_of_crossing_is_that_of_random_walks() -> None:
    draw = random.Random(5)
    times, errors = [3, 4, 6], [0.1, 0.05, 0.08]
    bounds = [1.2816, 1.6449, 1.4051]
    crossed = 0
    for _ in range(40_000):
        walk, done, beyond = 0.0, 0, False
        for time, bound in zip(times, bounds, strict=True):
            walk += draw.gauss(0, (time - done) ** 0.5)
            done = time
            beyond = beyond or walk > bound * time**0.5
        crossed += beyond
    assert crossing(times, errors) == pytest.approx(crossed / 40_000, abs=0.006)
