"""Sequential detectors as arrays: one increment per window, CUSUM, threshold from a false-alarm budget.

Every increment is a winsorised log-likelihood ratio of "worse by an interesting amount" against "as calibrated", with
the variance that was really seen (over-dispersion) instead of the binomial one. No traffic moves nothing. All
arguments may be arrays over deployments. Source of the rule and of its false-alarm figures: benchmarks/decisions.
"""

import math

import numpy as np

from specfleet.decide.counters import Floats

WINSOR = 3.0
"""One window carries at most 4.5 nats: never an alarm by itself."""
PRIOR_DISPERSION = 200.0
PRIOR_DISPERSION_LOOKUP = 1000.0
"""n-gram and suffix: acceptance follows the text, not the engine."""
SLOW_DISPERSION = 4.0
"""Blocks of 30 windows scatter this much more than the dispersion of a calibration says (it counts them in part)."""
NULL_RATIO = 0.97
CONFIRM_RATIO = 0.93
SLOW_NULL_RATIO = 0.985
SLOW_CONFIRM_RATIO = 0.95
MONTH_SECONDS = 30 * 86400.0


def alarm_threshold(window_seconds: float, detectors: int, alarms_per_month: float) -> float:
    """h = ln(windows per month x detectors / alarms per month): the mean run length of a CUSUM is at least e^h windows.

    The budget is per month, so shorter windows (more looks) raise h: 10.7 at 60 s, 13.1 at 5 s for one detector.
    """
    return math.log(max(MONTH_SECONDS / window_seconds * detectors / alarms_per_month, math.e))


def rate_increment(successes: Floats, trials: Floats, null: Floats, alternative: Floats, dispersion: Floats) -> Floats:
    """Increment for a rate that may have fallen from `null` to `alternative` (0..1). 0 where there are no trials."""
    spread = np.sqrt(np.maximum(dispersion * trials * null * (1.0 - null), 1e-9))
    z = np.clip((null * trials - successes) / spread, -WINSOR, WINSOR)
    shift = np.minimum((null - alternative) * trials / spread, WINSOR)
    return np.asarray(np.where(trials > 0, shift * z - 0.5 * shift * shift, 0.0))


def level_increment(excess: Floats, spread: Floats, shift: Floats) -> Floats:
    """Increment for a log level that may have risen by `shift` above its null; `excess` is measured - null."""
    z = np.clip(excess / spread, -WINSOR, WINSOR)
    delta = np.minimum(shift / spread, WINSOR)
    return np.asarray(delta * z - 0.5 * delta * delta)


def wilson_bounds(events: Floats, trials: Floats, z: float, dispersion: float) -> tuple[Floats, Floats]:
    """Wilson bounds of a share with the variance inflated by `dispersion`. (0, 1) without trials."""
    n = np.maximum(trials / dispersion, 1e-9)
    p = np.clip(events / np.maximum(trials, 1e-9), 0.0, 1.0)
    middle = p + z * z / (2 * n)
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return np.maximum((middle - half) / scale, 0.0), np.minimum((middle + half) / scale, 1.0)
