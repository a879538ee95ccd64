"""What single requests do: how much they draft and how much of it is accepted. A synthetic stand-in for real traces.

Parameters are published per-position statistics of Llama-3.1-8B with EAGLE-3 and n-gram at k = 3 on four data sets
(benchmarks/decisions/README.md); `length_correlation` is fitted so that the design effect of the pooled rate comes out
as measured. No trace is shipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from specfleet.decide.counters import Floats

DEPTH = 3
RUNAWAY_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Dataset:
    """One kind of traffic."""

    name: str
    drafts_median: float
    drafts_log_sd: float
    acceptance: float
    """accepted / drafted tokens, mean over drafted tokens of ordinary requests."""
    between_request_sd: float
    conditional: tuple[float, float, float]
    """Acceptance at a position given the one before it."""
    design_effect: float | None
    """Measured variance of the pooled rate over the binomial one, without runaways (None: not published)."""
    design_effect_with_runaways: float
    length_correlation: float = 0.0
    """Between a request's acceptance and the logarithm of its drafts."""
    runaway_share: float = 0.0
    """Requests that run to the length limit."""
    runaway_acceptance: tuple[float, ...] = (0.3,)
    """Acceptance of runaway requests, equally likely."""
    lookup: bool = False
    """n-gram: only the first position varies between requests."""


_EAGLE_SHORT, _EAGLE_LONG = (0.673, 0.653, 0.640), (0.634, 0.642, 0.668)
_NGRAM = (0.274, 0.901, 0.912)

EAGLE: tuple[Dataset, ...] = (
    Dataset("gsm8k", 67, 0.32, 0.465, 0.048, _EAGLE_SHORT, 3.9, 3.9),
    Dataset("cnn", 142, 0.35, 0.444, 0.063, _EAGLE_LONG, 9.7, 9.7),
    Dataset("instructcoder", 52, 0.71, 0.556, 0.106, _EAGLE_SHORT, 16.0, 1656.0, 0.0, 4 / 500, (0.13, 0.45)),
    Dataset("sharegpt", 258, 0.82, 0.438, 0.110, _EAGLE_LONG, 102.0, 224.0, 0.0, 3 / 310, (0.28,)),
)
NGRAM: tuple[Dataset, ...] = (
    Dataset("gsm8k", 136, 0.31, 0.055, 0.019, _NGRAM, 6.0, 6.0, -0.4, lookup=True),
    Dataset("cnn", 246, 0.37, 0.111, 0.050, _NGRAM, 24.0, 24.0, -0.4, lookup=True),
    Dataset("instructcoder", 73, 0.78, 0.249, 0.170, _NGRAM, None, 70.0, 0.15, 5 / 500, (0.249,), lookup=True),
    Dataset("sharegpt", 468, 0.86, 0.096, 0.073, _NGRAM, None, 239.0, -0.4, 4 / 310, (0.096,), lookup=True),
)
MIX = (0.30, 0.23, 0.365, 0.105)
"""Requests per data set in mixed traffic: gives the measured dispersions (41 a minute, 140 to 1800 in half an hour)."""

Requests = NDArray[np.float64]
"""(4, n): drafts, accepted at position 0, accepted tokens, generated tokens."""
DRAFTS, FIRST, ACCEPTED, TOKENS = range(4)


def sample(dataset: Dataset, count: int, rng: np.random.Generator, runaways: bool = True) -> Requests:
    """Draw requests of one data set."""
    z = rng.standard_normal((2, count))
    rates = _beta_quantiles(dataset, z[0])
    rho = dataset.length_correlation
    length = rho * z[0] + np.sqrt(1 - rho * rho) * z[1]
    drafts = np.maximum(1.0, np.rint(dataset.drafts_median * np.exp(dataset.drafts_log_sd * length)))
    if runaways and dataset.runaway_share:
        lost = np.flatnonzero(rng.random(count) < dataset.runaway_share)
        rates[lost] = rng.choice(dataset.runaway_acceptance, lost.size)
        drafts[lost] = np.rint(RUNAWAY_TOKENS / (1 + DEPTH * rates[lost]))
    first = rng.binomial(drafts.astype(np.int64), position_rate(dataset, rates, 0))
    second = rng.binomial(first, position_rate(dataset, rates, 1))
    third = rng.binomial(second, position_rate(dataset, rates, 2))
    accepted = (first + second + third).astype(float)
    return np.stack([drafts, first.astype(float), accepted, 1.0 + drafts + accepted])


def position_rate(dataset: Dataset, rates: Floats, position: int) -> Floats:
    """Conditional acceptance at a position for requests whose overall acceptance is `rates`."""
    shifts, overall = _shift_table(dataset)
    if dataset.lookup and position > 0:
        return np.full(rates.shape, dataset.conditional[position])
    return _shifted(dataset.conditional[position], np.interp(rates, overall, shifts))


def design_effect(requests: Requests) -> float:
    """Variance of the pooled acceptance over the binomial variance per drafted token, requests being the clusters."""
    drafted = DEPTH * requests[DRAFTS]
    rate = requests[ACCEPTED].sum() / drafted.sum()
    residual = requests[ACCEPTED] - rate * drafted
    return float((residual**2).sum() / (drafted.sum() * rate * (1 - rate)))


@cache
def pool(dataset: Dataset, samples: int = 200_000) -> Requests:
    """Ordinary requests of one data set, drawn once: windows draw from them with replacement."""
    return sample(dataset, samples, np.random.default_rng(20_26), runaways=False)


@cache
def moments(datasets: tuple[Dataset, ...]) -> tuple[Floats, Floats]:
    """Mean (4, m) and Cholesky factor of the covariance (4, 4, m) of one ordinary request, per data set."""
    drawn = [pool(dataset) for dataset in datasets]
    means = np.stack([requests.mean(axis=1) for requests in drawn], axis=-1)
    factors = np.stack([np.linalg.cholesky(np.cov(requests) + 1e-9 * np.eye(4)) for requests in drawn], axis=-1)
    return means, factors


@cache
def _shift_table(dataset: Dataset) -> tuple[Floats, Floats]:
    shifts = np.linspace(-14, 14, 1401)
    first = _shifted(dataset.conditional[0], shifts)
    later = [
        np.full(shifts.shape, rate) if dataset.lookup else _shifted(rate, shifts) for rate in dataset.conditional[1:]
    ]
    overall = (first + first * later[0] + first * later[0] * later[1]) / DEPTH
    return shifts, overall


def _shifted(rate: float, shift: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-(np.log(rate / (1 - rate)) + shift))))


@cache
def _beta_table(dataset: Dataset) -> tuple[Floats, Floats]:
    """Normal scores and quantiles of the Beta distribution with the data set's mean and standard deviation."""
    mean, spread = dataset.acceptance, dataset.between_request_sd
    size = mean * (1 - mean) / spread**2 - 1
    rng = np.random.default_rng(7)
    values = np.sort(rng.beta(mean * size, (1 - mean) * size, 200_000))
    scores = np.sort(rng.standard_normal(200_000))
    # Drafts follow the score through the correlation, so the mean that counts is weighted by them.
    weights = np.exp(dataset.drafts_log_sd * dataset.length_correlation * scores)
    values = np.minimum(values * mean * weights.sum() / (values * weights).sum(), 0.999)
    pick = np.linspace(0, values.size - 1, 4001).astype(int)
    return scores[pick], values[pick]


def _beta_quantiles(dataset: Dataset, scores: Floats) -> Floats:
    table, values = _beta_table(dataset)
    return np.interp(scores, table, values)


def pooled(drawn: Sequence[Requests]) -> Requests:
    """All requests in one array."""
    return np.concatenate(drawn, axis=1)
