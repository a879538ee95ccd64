"""The rules of others in the benchmark: each finds a clear fall on clean traces and is silent without one."""

import numpy as np
import pytest

from benchmarks.decisions.report import upper
from benchmarks.decisions.rules import RULES, Reference, episodes

DAY = 1440
FLEETS = 3


def traces(fall: float) -> tuple[np.ndarray, np.ndarray]:
    """Three days of independent tokens; the acceptance falls after two."""
    rng = np.random.default_rng(4)
    drafted = np.full((3 * DAY, FLEETS), 4000.0)
    rate = np.where(np.arange(3 * DAY) < 2 * DAY, 0.5, 0.5 * (1 - fall))[:, None]
    return rng.binomial(4000, np.broadcast_to(rate, drafted.shape)).astype(float), drafted


REFERENCE = Reference(np.full(FLEETS, 0.5), np.full(FLEETS, np.sqrt(0.25 / 4000)))


@pytest.mark.parametrize("name", RULES)
def test_a_clear_fall_is_found_and_clean_traces_are_left_alone(name):
    accepted, drafted = traces(0.0)
    quiet = RULES[name](accepted, drafted, REFERENCE)
    noisy = name == "Kayenta MWU, default effect"
    assert quiet.sum() <= (20 if noisy else 1), "independent tokens are easy"
    accepted, drafted = traces(0.4)
    found = RULES[name](accepted, drafted, REFERENCE)
    assert found[2 * DAY :].any(axis=0).all()
    first = found[2 * DAY :].argmax(axis=0)
    assert (first < 300).all()


@pytest.mark.parametrize("name", RULES)
def test_empty_windows_are_no_data_for_anybody(name):
    nothing = np.zeros((2 * DAY, FLEETS))
    assert not RULES[name](nothing, nothing, REFERENCE).any()


def test_an_episode_is_counted_once():
    bad = np.zeros((20, 1), bool)
    bad[[3, 4, 5, 12]] = True
    assert np.flatnonzero(episodes(bad, 6)).tolist() == [3, 12]


@pytest.mark.parametrize(("events", "bound"), [(0, 3.689), (1, 5.572), (10, 18.39), (100, 121.63)])
def test_upper_poisson_bounds_are_those_of_the_tables(events, bound):
    assert upper(events, 1.0) == pytest.approx(bound, rel=0.01)
