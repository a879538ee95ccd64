"""The error that each look at a growing benchmark may use, so that all looks together keep to what one test may."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import NormalDist

_NORMAL = NormalDist()
GRID = 48
"""Intervals of Simpson's rule per look; 48 give four digits of the error."""
REACH = 7.0
"""Standard deviations below zero from which a path is followed."""


def alpha_of_look(alpha: float, looks: Sequence[int], planned: int, pairs: int, final: bool) -> float:
    """One-sided error of the test after `pairs` of `planned` pairs, with tests declared at `looks` before.

    Every declared test uses the same error (Pocock 1977), so that the interval shown where a benchmark ends early is
    hardly wider than it says; the last test uses what those before it have left, also where the budget ended before a
    declared look. The looks see the same pairs: their dependence is that of a random walk (Armitage, McPherson and
    Rowe 1969), with which the nominal errors may add up to more than `alpha` and the whole still keeps it.
    `final`: this is the last test, whatever was planned. 0 < alpha < 0.5.
    """
    before = tuple(sorted({look for look in looks if look < planned}))
    each = _equal_error(alpha, (*before, planned))
    if not final:
        return each
    return _last_error(alpha, each, (*(look for look in before if look < pairs), pairs))


@lru_cache(maxsize=1024)
def _equal_error(alpha: float, times: tuple[int, ...]) -> float:
    """Error of each test, the same at all `times` (pairs), of which any crosses with probability `alpha`."""
    if len(times) == 1:
        return alpha
    return _solve(lambda error: crossing(times, [error] * len(times)), alpha, alpha / len(times), alpha)


@lru_cache(maxsize=1024)
def _last_error(alpha: float, each: float, times: tuple[int, ...]) -> float:
    """Error of the last test where each of those before it used `each`."""
    before = [each] * (len(times) - 1)
    if not before:
        return alpha
    return _solve(lambda error: crossing(times, [*before, error]), alpha, alpha / 1000, alpha)


def _solve(probability: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """The error in [low, high] with that probability, which grows with it; on the safe side."""
    for _ in range(30):
        middle = (low + high) / 2
        if probability(middle) > wanted:
            high = middle
        else:
            low = middle
    return low


def crossing(times: Sequence[int], errors: Sequence[float]) -> float:
    """Probability that a random walk without drift is beyond the bound of any look.

    `times`: pairs at each look, growing. `errors`: the one-sided error of each look's test alone.
    """
    bounds = [_NORMAL.inv_cdf(1 - error) * math.sqrt(time) for time, error in zip(times, errors, strict=True)]
    points, masses = _grid(bounds[0], times[0])
    masses = [mass * _density(point, times[0]) for point, mass in zip(points, masses, strict=True)]
    inside = _NORMAL.cdf(bounds[0] / math.sqrt(times[0]))
    crossed = 1 - inside
    for place in range(1, len(times)):
        step = times[place] - times[place - 1]
        root = math.sqrt(step)
        stays = sum(
            mass * _NORMAL.cdf((bounds[place] - point) / root) for point, mass in zip(points, masses, strict=True)
        )
        crossed += sum(masses) - stays
        following, weights = _grid(bounds[place], times[place])
        masses = [
            weight * sum(mass * _density(target - point, step) for point, mass in zip(points, masses, strict=True))
            for target, weight in zip(following, weights, strict=True)
        ]
        points = following
    return crossed


def _grid(bound: float, time: float) -> tuple[list[float], list[float]]:
    """Simpson's points and weights from far below zero up to `bound`."""
    low = -REACH * math.sqrt(time)
    width = (bound - low) / GRID
    points = [low + width * number for number in range(GRID + 1)]
    weights = [width / 3 * (1 if number in (0, GRID) else 4 if number % 2 else 2) for number in range(GRID + 1)]
    return points, weights


def _density(value: float, variance: float) -> float:
    return math.exp(-value * value / (2 * variance)) / math.sqrt(2 * math.pi * variance)
