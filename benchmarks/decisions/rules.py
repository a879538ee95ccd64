"""The rules of other controllers and textbooks, ported from their published descriptions, on acceptance windows.

Each takes accepted and drafted tokens per 60-s window, (T, R) for R fleets, and what it needs of a calibrated healthy
week; it returns the windows at which it alarms, (T, R) booleans, one per episode. Empty windows are no data for all of
them (a courtesy: several would count them as failures).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Reference:
    """A healthy week: pooled rate (R,), standard deviation of 60-s rates (R,)."""

    rate: Floats
    spread: Floats


Rule = Callable[[Floats, Floats, Reference], Bools]


def episodes(bad: Bools, quiet: int) -> Bools:
    """First alarm of each episode; the next counts only `quiet` windows later."""
    out = np.zeros_like(bad)
    blocked = np.full(bad.shape[1], -1)
    for at in np.flatnonzero(bad.any(axis=1)):
        fresh = bad[at] & (at >= blocked)
        out[at, fresh] = True
        blocked[fresh] = at + quiet
    return out


def _merged(accepted: Floats, drafted: Floats, size: int) -> tuple[Floats, Floats]:
    blocks = accepted.shape[0] // size
    shape = (blocks, size, accepted.shape[1])
    return accepted[: blocks * size].reshape(shape).sum(axis=1), drafted[: blocks * size].reshape(shape).sum(axis=1)


def _counting(size: int, failures: int, of: int, drop: float) -> Rule:
    """More than `failures` bad measurements of the last `of`; a measurement pools `size` windows."""

    def rule(accepted: Floats, drafted: Floats, reference: Reference) -> Bools:
        a, d = _merged(accepted, drafted, size)
        with np.errstate(divide="ignore", invalid="ignore"):
            bad = (d > 0) & (a / d < (1 - drop) * reference.rate)
        total = np.cumsum(bad, axis=0, dtype=np.int64)
        recent = total.copy()
        recent[of:] -= total[:-of]
        found = episodes(bad & (recent > failures), of)
        out = np.zeros(accepted.shape, bool)
        out[size - 1 : found.shape[0] * size : size] = found
        return out

    return rule


argo_15 = _counting(5, 3, 12, 0.15)
argo_30 = _counting(5, 3, 12, 0.30)
flagger_20 = _counting(1, 5, 30, 0.20)


def naive_cusum(accepted: Floats, drafted: Floats, reference: Reference) -> Bools:
    """Binomial CUSUM: every drafted token counted as independent; same null, alternative and threshold as ours."""
    p = reference.rate
    null, shift = 0.97 * p, 0.12 * p
    spread = np.sqrt(np.maximum(drafted * p * (1 - p), 1e-9))
    z = (null * drafted - accepted) / spread
    delta = shift * drafted / spread
    return _cusum(np.where(drafted > 0, delta * z - delta * delta / 2, 0.0), np.log(43_200))


def page_hinkley(accepted: Floats, drafted: Floats, reference: Reference) -> Bools:
    """Page-Hinkley on standardised window rates, unweighted; delta 0.5 standard deviations.

    lambda 10 is one alarm in 43,200 independent windows (30 days), by exp(2 delta lambda) / (2 delta^2).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.clip((reference.rate - accepted / drafted) / reference.spread, -10, 10)
    return _cusum(np.where(drafted > 0, z - 0.5, 0.0), np.float64(10.0))


def _cusum(increments: Floats, threshold: np.floating) -> Bools:
    level = np.zeros(increments.shape[1])
    out = np.zeros(increments.shape, bool)
    for at, more in enumerate(increments):
        level = np.maximum(level + more, 0.0)
        hit = level > threshold
        if hit.any():
            out[at] = hit
            level[hit] = 0.0
    return out


CHECK = 32
ADWIN_DELTA = 0.002
_CUTS = np.array([32 * part * 2**power for power in range(9) for part in (2, 3)] + [32])


def adwin(accepted: Floats, drafted: Floats, _: Reference) -> Bools:
    """ADWIN (delta 0.002) on unweighted window rates, checked every 32 windows at exponentially spaced cuts.

    Only falls count. On a cut the older part is dropped. Rates are in 0..1 as the bound requires.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.where(drafted > 0, accepted / drafted, np.nan)
    some = np.isfinite(rates)
    values = np.where(some, rates, 0.0)
    sums = [
        np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(one, axis=0)]) for one in (some, values, values**2)
    ]
    begin = np.zeros(values.shape[1], int)
    fleets = np.arange(values.shape[1])
    out = np.zeros(values.shape, bool)
    for end in range(CHECK, values.shape[0] + 1, CHECK):
        n, s, q = (one[end] - one[begin, fleets] for one in sums)
        variance = np.maximum(q / np.maximum(n, 1) - (s / np.maximum(n, 1)) ** 2, 0.0)
        confidence = np.log(2 * np.log(np.maximum(n, 3)) / ADWIN_DELTA)
        for cut in np.sort(_CUTS):
            middle = end - cut
            live = middle > begin
            if not live.any():
                break
            at = np.maximum(middle, 0)
            n1, s1 = sums[0][end] - sums[0][at], sums[1][end] - sums[1][at]
            n0, s0 = n - n1, s - s1
            usable = live & (n0 >= 5) & (n1 >= 5)
            with np.errstate(divide="ignore", invalid="ignore"):
                harmonic = 1 / n0 + 1 / n1
                bound = np.sqrt(2 * harmonic * variance * confidence) + 2 / 3 * harmonic * confidence
                change = s0 / n0 - s1 / n1
            hit = usable & (np.abs(change) > bound)
            out[end - 1] |= hit & (change > 0)
            begin = np.where(hit, middle, begin)
    return out


def kayenta(allowed: float) -> Rule:
    """Mann-Whitney of the last 60 one-minute rates against the same hour of the day before, every 30 minutes.

    Confidence 0.98, tolerance 0.25 x |Hodges-Lehmann estimate|, Low only if the ratio of means is below `allowed`
    (effect size allowedDecrease: 1.0 is the default, 0.85 a tuned one). As in the Scala original, counts do not weigh.
    """

    def rule(accepted: Floats, drafted: Floats, _: Reference) -> Bools:
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(drafted > 0, accepted / drafted, np.nan).astype(np.float32)
        out = np.zeros(accepted.shape, bool)
        for end in range(1440 + 60, rates.shape[0] + 1, 30):
            out[end - 1] = _low(rates[end - 1500 : end - 1440], rates[end - 60 : end], allowed)
        return episodes(out, 60)

    return rule


def _low(control: NDArray[np.float32], experiment: NDArray[np.float32], allowed: float) -> Bools:
    n0, n1 = np.isfinite(control).sum(axis=0), np.isfinite(experiment).sum(axis=0)
    enough = (n0 >= 10) & (n1 >= 10)
    out = np.zeros(enough.shape, bool)
    if not enough.any():
        return out
    shifts = experiment[:, None, enough] - control[None, :, enough]
    shifts = np.sort(shifts.reshape(-1, shifts.shape[-1]), axis=0)  # NaN sorts last
    pairs = (n0 * n1)[enough]
    spread = np.sqrt(n0 * n1 * (n0 + n1 + 1) / 12)[enough]
    upper = np.clip(np.ceil(pairs / 2 + 2.326 * spread), 0, pairs - 1).astype(int)
    column = np.arange(shifts.shape[1])
    middle = shifts[(pairs // 2).astype(int), column]
    tolerance = 0.25 * np.abs(middle)
    low = shifts[upper, column] < -tolerance
    ratio = np.nanmean(experiment[:, enough], axis=0) / np.nanmean(control[:, enough], axis=0)
    out[enough] = low & (ratio < allowed)
    return out


RULES: dict[str, Rule] = {
    "Argo-like, 5 min, >3 of 12, -15 %": argo_15,
    "Argo-like, 5 min, >3 of 12, -30 %": argo_30,
    "Flagger-like, 1 min, >5 of 30, -20 %": flagger_20,
    "Kayenta MWU, default effect": kayenta(1.0),
    "Kayenta MWU, allowedDecrease 0.85": kayenta(0.85),
    "naive CUSUM (binomial)": naive_cusum,
    "Page-Hinkley": page_hinkley,
    "ADWIN": adwin,
}
