"""The few distributions and intervals that the verdicts need. Pure Python: too few for a run-time dependency."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

_NORMAL = NormalDist()
MINIMUM_LOG_SD = 0.003
"""Runs that agree better than 0.3 % do so by chance or by construction; the interval never gets narrower than that."""
POOL_WEIGHT_DF = 2.0
POOL_GAIN_DF = 1.5
"""Less than its weight: the pool shares pairs with the cells that it helps."""


def student_t_cdf(value: float, df: float) -> float:
    """P(T <= value) for Student's t with `df` > 0 degrees of freedom."""
    square = value * value
    if square < df:
        tail = 0.5 * (1 - _incomplete_beta(0.5, df / 2, square / (df + square)))
    else:
        tail = 0.5 * _incomplete_beta(df / 2, 0.5, df / (df + square))
    return 1 - tail if value > 0 else tail


@lru_cache(maxsize=4096)
def student_t_quantile(probability: float, df: float) -> float:
    """Inverse of student_t_cdf for 0 < probability < 1."""
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -student_t_quantile(1 - probability, df)
    low, high = 0.0, 2.0
    while student_t_cdf(high, df) < probability:
        low, high = high, high * 2
    for _ in range(80):
        middle = (low + high) / 2
        if student_t_cdf(middle, df) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function by its continued fraction (Lentz)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(front) * _beta_fraction(a, b, x) / a
    return 1 - math.exp(front) * _beta_fraction(b, a, 1 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), tiny)
    result = d
    for m in range(1, 300):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / _away_from_zero(1 + even * d, tiny)
        c = _away_from_zero(1 + even / c, tiny)
        result *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / _away_from_zero(1 + odd * d, tiny)
        c = _away_from_zero(1 + odd / c, tiny)
        step = d * c
        result *= step
        if abs(step - 1) < 1e-13:
            break
    return result


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its standard error and degrees of freedom (Student's t)."""

    mean: float
    standard_error: float
    df: float

    def lower(self, alpha: float) -> float:
        """One-sided lower bound: below it with probability `alpha`."""
        return self.mean - student_t_quantile(1 - alpha, self.df) * self.standard_error

    def upper(self, alpha: float) -> float:
        """One-sided upper bound."""
        return self.mean + student_t_quantile(1 - alpha, self.df) * self.standard_error


def pooled_estimate(values: Sequence[Sequence[float]], weights: Sequence[float]) -> Estimate:
    """Weighted mean over cells of paired differences, its variance shrunk towards what all cells say together.

    values[pair][cell], at least two pairs. weights[cell] sum to one; cells with weight zero lend their variance only.
    The pool counts like POOL_WEIGHT_DF degrees of freedom beside the pairs' own: it helps most where there are three
    pairs, and hardly counts where there are eight, so that cells of unequal noise do not spoil the coverage (measured
    0.94 to 0.97 at a noise ratio of three, where full pooling gives 0.88; tests/decide/test_statistics.py).
    What all cells of a pair share is not averaged away by having more cells.
    """
    pairs, cells = len(values), len(values[0])
    if pairs < 2:
        raise ValueError("a variance needs at least two pairs")
    means = [sum(row[c] for row in values) / pairs for c in range(cells)]
    mean = sum(w * m for w, m in zip(weights, means, strict=True))
    residuals = [[row[c] - means[c] for c in range(cells)] for row in values]
    concentration = sum(w * w for w in weights)
    own = sum(sum(w * r for w, r in zip(weights, row, strict=True)) ** 2 for row in residuals) / (pairs - 1)
    own_df = pairs - 1
    if cells == 1:
        variance, df = own, float(own_df)
    else:
        pooled = _pooled_variance(residuals, concentration)
        variance = (own * own_df + pooled * POOL_WEIGHT_DF) / (own_df + POOL_WEIGHT_DF)
        df = own_df + POOL_GAIN_DF
    variance = max(variance, MINIMUM_LOG_SD**2 * concentration)
    return Estimate(mean, math.sqrt(variance / pairs), df)


def _pooled_variance(residuals: Sequence[Sequence[float]], concentration: float) -> float:
    """Variance of one pair's weighted mean if every cell were equally noisy: two-way random effects, pair and rest."""
    pairs, cells = len(residuals), len(residuals[0])
    total = sum(r * r for row in residuals for r in row)
    between = cells * sum((sum(row) / cells) ** 2 for row in residuals)
    mean_pair = between / (pairs - 1)
    mean_error = (total - between) / ((pairs - 1) * (cells - 1))
    if mean_pair <= mean_error:
        return total / (cells * (pairs - 1)) * concentration
    return mean_pair / cells + mean_error * max(0.0, concentration - 1 / cells)


def wilson(successes: float, trials: float, alpha: float) -> tuple[float, float]:
    """Wilson score interval of a share, each side with error `alpha`. No trials: (0, 1)."""
    if trials <= 0:
        return 0.0, 1.0
    z = _NORMAL.inv_cdf(1 - alpha)
    share = min(1.0, successes / trials)
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def share_difference(first: tuple[float, float], second: tuple[float, float], alpha: float) -> tuple[float, float]:
    """Newcombe's interval of share(first) - share(second), each (successes, trials); each side with error `alpha`."""
    if first[1] <= 0 or second[1] <= 0:
        return -1.0, 1.0
    share_one, share_two = min(1.0, first[0] / first[1]), min(1.0, second[0] / second[1])
    low_one, high_one = wilson(*first, alpha)
    low_two, high_two = wilson(*second, alpha)
    difference = share_one - share_two
    return (
        difference - math.hypot(share_one - low_one, high_two - share_two),
        difference + math.hypot(high_one - share_one, share_two - low_two),
    )
