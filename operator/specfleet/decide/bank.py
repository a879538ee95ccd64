"""All detectors of all deployments as arrays: one row per deployment, one plane per detector.

`step` is called once per closed window with the counters of many rows at once, in production by decide/watch.py and in
virtual time by specfleet.simulate: the same code.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from specfleet.decide.counters import COUNTERS, Counter, Floats
from specfleet.decide.drift import (
    CONFIRM_RATIO,
    NULL_RATIO,
    PRIOR_DISPERSION,
    SLOW_CONFIRM_RATIO,
    SLOW_NULL_RATIO,
    level_increment,
    rate_increment,
)

Rows = NDArray[np.intp] | slice


class Detector(IntEnum):
    """Planes of the bank."""

    ACCEPTANCE = 0
    POSITION_ZERO = 1
    ACCEPTANCE_SLOW = 2
    POSITION_ZERO_SLOW = 3
    TPOT = 4
    TTFT = 5
    LOST_GAIN = 6


class Stage(IntEnum):
    """Of one detector in one row."""

    QUIET = 0
    SUSPECT = 1
    CONFIRMED = 2


DETECTORS = len(Detector)
SLOW_WINDOWS = 30
"""The slow detectors look at blocks of so many windows: decay over hours, below what one window can show."""
LOAD_BINS = 14
"""Load is generated tokens per second and pod (what users ask for, not what the engine makes of it), in octaves."""
FIRST_LOAD_OCTAVE = 1.0
TPOT_SPREAD = 0.35
"""Prior log-sd of one request's TPOT: 0.2 between requests, times the square root of a dispersion of 3."""
TTFT_SPREAD = 1.4
LEVEL_FLOOR = 0.02
"""No window's mean is trusted to better than 2 %."""
LEVEL_NULL = (0.03, 0.10)
"""TPOT, TTFT: log excess that is nothing; the reference and the load are not known better."""
LEAST_SHIFT = 0.02
LEAST_THRESHOLD_PART = 0.5
LEAST_OVERSHOOT = 1.61
"""2 + ln 2 - 2 ln(2 / 1.166): the least of 1.166 delta + ln(2 / delta^2)."""
GAIN_SHIFT = 0.05
CONFIRM_DISPERSIONS = 20.0
"""Confirmation needs this many dispersions of drafted tokens, or requests for the latency detectors."""
CONFIRM_REQUESTS = 60.0
VOLUME_SECONDS = (1800.0, 86400.0)
"""Over how long the present and the usual volume of drafted tokens are averaged."""
STEADY_PART = 0.5
"""Of the dispersion: what does not depend on the volume. Tuned on other seeds than the ones that are scored."""
LOAD_MEMORY = 0.8
LENGTH_MEMORY = 0.98
MATCHED_LOAD_RATIO = 1.33

_ACCEPTANCE = (Detector.ACCEPTANCE, Detector.POSITION_ZERO)
_SLOW = (Detector.ACCEPTANCE_SLOW, Detector.POSITION_ZERO_SLOW)
_LEVELS = (Detector.TPOT, Detector.TTFT)
_TRIALS = (Counter.DRAFT_TOKENS, Counter.DRAFTS)
_SUCCESSES = (Counter.ACCEPTED_TOKENS, Counter.ACCEPTED_FIRST)


class DetectorBank:
    """State of R rows. NaN as a reference switches a detector off for that row."""

    def __init__(self, rows: int) -> None:
        self._allocate(rows)

    def __len__(self) -> int:
        return int(self.threshold.size)

    def _allocate(self, rows: int) -> None:
        # Parameters, written by the watch when a target's spec or calibration changes.
        self.threshold = np.full(rows, np.inf)
        self.confirm_seconds = np.full(rows, 600.0)
        self.rate = np.full((2, rows), np.nan)
        self.rate_error = np.zeros((2, rows))
        self.drop = np.full(rows, 0.15)
        self.dispersion = np.full(rows, PRIOR_DISPERSION)
        self.slow_dispersion = np.full(rows, PRIOR_DISPERSION)
        self.level_shift = np.full((2, rows), np.log(1.15))
        self.level_spread = np.repeat([[TPOT_SPREAD], [TTFT_SPREAD]], rows, axis=1)
        self.curve = np.full((2, 2, LOAD_BINS, rows), np.nan)
        """[TPOT or TTFT, speculative or baseline, load bin, row]: calibrated log seconds."""
        self.curve_error = np.zeros((2, 2, LOAD_BINS, rows))
        self.length_reference = np.full(rows, np.nan)
        """Calibrated accepted length. TPOT is judged as if it had been that: acceptance has detectors of its own, and
        its scatter is most of TPOT's. NaN: TPOT as it is (n-gram and suffix, whose acceptance follows the text)."""
        # State.
        self.level = np.zeros((DETECTORS, rows))
        self.onset = np.full((DETECTORS, rows), np.nan)
        self.stage = np.zeros((DETECTORS, rows), np.int8)
        self.pool = np.zeros((3, DETECTORS, rows))
        """Evidence since Suspect: numerator, denominator, seconds."""
        self.observed = np.full((DETECTORS, rows), np.nan)
        self.control_pool = np.zeros((2, 2, rows))
        """[TPOT or TTFT, numerator or denominator]: the control against its own history since Suspect."""
        self.block = np.zeros((2, 2, rows))
        self.block_windows = np.zeros(rows, np.int32)
        self.volume = np.zeros((2, 2, rows))
        """Decayed sums over VOLUME_SECONDS [half an hour or a day, drafted tokens or seconds]."""
        self.load = np.full((2, rows), np.nan)
        self.length = np.zeros((2, rows))
        """Decayed sums of tokens and requests: their ratio is the tokens of a request."""
        self.arrivals = np.zeros((2, 2, rows))
        """Decayed sums [speculative or baseline, requests or pod-seconds]: is the load matched?"""

    _ARRAYS = (
        "threshold", "confirm_seconds", "rate", "rate_error", "drop", "dispersion", "slow_dispersion", "level_shift",
        "level_spread", "curve", "curve_error", "level", "onset", "stage", "pool", "observed", "control_pool", "block",
        "block_windows", "volume", "load", "length", "arrivals", "length_reference",
    )  # fmt: skip

    _STATE = (
        "level", "onset", "stage", "pool", "observed", "control_pool", "block", "block_windows", "volume", "load",
        "length", "arrivals", "dispersion", "slow_dispersion",
    )  # fmt: skip

    def grow(self, rows: int) -> None:
        """Make room for so many rows; the old ones keep their state."""
        old = {name: getattr(self, name) for name in self._ARRAYS}
        count = len(self)
        self._allocate(rows)
        for name, array in old.items():
            getattr(self, name)[..., :count] = array

    def clear(self, row: int) -> None:
        """Forget one row: parameters and state as of a new one."""
        fresh = DetectorBank(1)
        for name in self._ARRAYS:
            getattr(self, name)[..., row] = getattr(fresh, name)[..., 0]

    def state(self, row: int) -> dict[str, NDArray[np.generic]]:
        """Views of what was learned of one row. The dispersions are in it: the watch may have measured them."""
        return {name: getattr(self, name)[..., row] for name in self._STATE}

    def quiet(self, row: int) -> None:
        """Forget all suspicions of one row: what is normal has changed."""
        for name in ("level", "stage", "pool", "control_pool", "block", "block_windows"):
            getattr(self, name)[..., row] = 0
        self.onset[:, row] = self.observed[:, row] = np.nan

    def step(
        self, rows: Rows, speculative: Floats, baseline: Floats, pod_seconds: Floats, ends: Floats, lengths: Floats
    ) -> None:
        """Take in one window of each row.

        speculative, baseline: (COUNTERS, n) deltas, zeros where an arm had no usable window. pod_seconds: (2, n).
        ends, lengths: (n,) epoch seconds and seconds.
        """
        assert speculative.shape[0] == COUNTERS
        count = ends.size
        increments = np.zeros((DETECTORS, count))
        evidence = np.zeros((2, DETECTORS, count))
        measured = np.where(pod_seconds[0] > 0, lengths, 0.0)
        self._acceptance(rows, speculative, self._dispersion(rows, speculative, measured), increments, evidence)
        self._slow_acceptance(rows, speculative, increments, evidence)
        requests = self._requests(rows, speculative, baseline, pod_seconds)
        self._levels(rows, speculative, baseline, requests, increments, evidence)
        self._lost_gain(rows, speculative, baseline, requests, increments, evidence)
        self._accumulate(rows, increments, evidence, ends, lengths)

    def limits(self, rows: Rows) -> Floats:
        """(DETECTORS, n): what the pooled evidence must pass (acceptance: fall below) to confirm a suspicion."""
        rate, error = self.rate[:, rows], self.rate_error[:, rows]
        levels = [LEVEL_NULL[level] + 0.5 * self._shift(level, rows)[None] for level in (0, 1)]
        fast = CONFIRM_RATIO * rate - 2 * error
        slow = SLOW_CONFIRM_RATIO * rate - 2 * error
        gain = np.full((1, rate.shape[-1]), GAIN_SHIFT / 2)
        return np.concatenate([fast, slow, *levels, gain])

    def thresholds(self, rows: Rows) -> Floats:
        """(DETECTORS, n): what a statistic must pass to be a suspicion.

        TPOT: the null is `LEVEL_NULL` above what is normal, so a healthy arm drifts down faster than the budget of a
        CUSUM reckons with: the exponent of its false alarms is 1 + 2 null / shift (Wald's identity), whatever the
        traffic. Single windows overshoot the threshold besides (Siegmund 1985, (2.57): h + 1.166 delta in place of h,
        and 2 / delta^2 windows to the alarm; the least of it over all delta is taken).
        """
        found = np.repeat(self.threshold[rows][None], DETECTORS, axis=0)
        exponent = 1 + 2 * LEVEL_NULL[0] / self._shift(0, rows)
        overshoot = LEAST_OVERSHOOT + 2 * np.log(exponent)
        part = LEAST_THRESHOLD_PART * found[Detector.TPOT]
        found[Detector.TPOT] = np.maximum((found[Detector.TPOT] - overshoot) / exponent, part)
        return found

    def _shift(self, level: int, rows: Rows) -> Floats:
        """How far above its null a level is when it has risen by as much as is not allowed."""
        allowed = self.level_shift[level, rows]
        return np.asarray(np.maximum(allowed - LEVEL_NULL[0], LEAST_SHIFT)) if level == 0 else allowed

    def _dispersion(self, rows: Rows, counts: Floats, lengths: Floats) -> Floats:
        """(n,): over-dispersion at the present volume; lengths are 0 where nothing was measured.

        Requests scatter alike at any volume; what all of a window's requests share (the mix of the hour) adds a
        variance that grows with the square of the tokens, so a part of the dispersion is proportional to the volume
        (as of clustered counts: 1 + (size - 1) correlation). A quiet hour is judged by fewer tokens than a busy one,
        which is when an alarm would else come latest.
        """
        volume = self.volume[..., rows] * np.exp(-lengths / np.array(VOLUME_SECONDS)[:, None])[:, None]
        volume[:, 0] += counts[Counter.DRAFT_TOKENS]
        volume[:, 1] += lengths
        self.volume[..., rows] = volume
        with np.errstate(divide="ignore", invalid="ignore"):
            busy = volume[0, 0] / volume[0, 1] * volume[1, 1] / volume[1, 0]
        part = STEADY_PART + (1 - STEADY_PART) * np.where(np.isfinite(busy), busy, 1.0)
        return np.asarray(self.dispersion[rows] * part)

    def _acceptance(self, rows: Rows, counts: Floats, dispersion: Floats, increments: Floats, evidence: Floats) -> None:
        for plane, detector in enumerate(_ACCEPTANCE):
            rate, error = self.rate[plane, rows], self.rate_error[plane, rows]
            null = NULL_RATIO * rate - 2 * error
            alternative = np.maximum(null - (self.drop[rows] - (1 - NULL_RATIO)) * rate, 0.0)
            found = rate_increment(counts[_SUCCESSES[plane]], counts[_TRIALS[plane]], null, alternative, dispersion)
            increments[detector] = np.nan_to_num(found)
            evidence[0, detector] = counts[_SUCCESSES[plane]]
            evidence[1, detector] = counts[_TRIALS[plane]]

    def _slow_acceptance(self, rows: Rows, counts: Floats, increments: Floats, evidence: Floats) -> None:
        block = self.block[:, :, rows] + counts[[[_SUCCESSES[0], _TRIALS[0]], [_SUCCESSES[1], _TRIALS[1]]]]
        windows = self.block_windows[rows] + 1
        full = windows >= SLOW_WINDOWS
        for plane, detector in enumerate(_SLOW):
            evidence[:, detector] = evidence[:, _ACCEPTANCE[plane]]
        if full.any():
            for plane, detector in enumerate(_SLOW):
                rate, error = self.rate[plane, rows], self.rate_error[plane, rows]
                null = SLOW_NULL_RATIO * rate - 2 * error
                alternative = np.maximum(null - 0.5 * self.drop[rows] * rate, 0.0)
                found = rate_increment(block[plane, 0], block[plane, 1], null, alternative, self.slow_dispersion[rows])
                increments[detector] = np.where(full, np.nan_to_num(found), 0.0)
            block = np.where(full, 0.0, block)
            windows = np.where(full, 0, windows)
        self.block[:, :, rows] = block
        self.block_windows[rows] = windows

    def _requests(self, rows: Rows, speculative: Floats, baseline: Floats, pod_seconds: Floats) -> Floats:
        """(2, n): how many requests' worth of tokens each arm produced in the window; updates load and length."""
        tokens = np.stack([speculative[Counter.GENERATED_TOKENS], baseline[Counter.GENERATED_TOKENS]])
        started = np.stack([speculative[Counter.FIRST_TOKENS], baseline[Counter.FIRST_TOKENS]])
        length = self.length[:, rows] * LENGTH_MEMORY
        length[0] += tokens.sum(axis=0)
        length[1] += started.sum(axis=0)
        self.length[:, rows] = length
        arrivals = self.arrivals[:, :, rows] * LENGTH_MEMORY
        arrivals[:, 0] += started
        arrivals[:, 1] += pod_seconds
        self.arrivals[:, :, rows] = arrivals
        with np.errstate(divide="ignore", invalid="ignore"):
            now = np.log2(np.maximum(tokens, 1e-9) / pod_seconds)
        old = self.load[:, rows]
        seen = (tokens > 0) & (pod_seconds > 0)
        mixed = np.where(np.isnan(old), now, LOAD_MEMORY * old + (1 - LOAD_MEMORY) * now)
        self.load[:, rows] = np.where(seen, mixed, old)
        per_request = np.maximum(length[0] / np.maximum(length[1], 1e-9), 1.0)
        return np.asarray(tokens / per_request)

    def expected(self, rows: Rows, level: int, arm: int) -> tuple[Floats, Floats]:
        """Calibrated log seconds at the present load of an arm and its standard error; NaN where never calibrated."""
        load = self.load[arm, rows]
        position = np.clip(np.nan_to_num(load - FIRST_LOAD_OCTAVE), 0.0, LOAD_BINS - 1.001)
        low = position.astype(np.intp)
        part = position - low
        index = np.arange(len(self))[rows]
        curve, error = self.curve[level, arm], self.curve_error[level, arm]
        below, above = curve[low, index], curve[low + 1, index]
        value = (1 - part) * below + part * above
        # At the rim of what was calibrated the nearest bin speaks, within three quarters of an octave.
        value = np.where(
            np.isnan(above) & (part <= 0.75), below, np.where(np.isnan(below) & (part >= 0.25), above, value)
        )
        width = np.fmax(error[low, index], error[low + 1, index])
        return np.where(np.isnan(load), np.nan, value), np.nan_to_num(width)

    def _levels(
        self, rows: Rows, speculative: Floats, baseline: Floats, requests: Floats, increments: Floats, evidence: Floats
    ) -> None:
        for level, detector in enumerate(_LEVELS):
            excess, weight, error = self._excess(rows, level, 0, speculative, requests[0])
            spread = np.sqrt(LEVEL_FLOOR**2 + self.level_spread[level, rows] ** 2 / np.maximum(weight, 1e-9))
            null = LEVEL_NULL[level] + 2 * error
            usable = np.isfinite(excess) & (weight > 0)
            found = level_increment(excess - null, spread, self._shift(level, rows))
            increments[detector] = np.where(usable, found, 0.0)
            evidence[0, detector] = np.where(usable, excess * weight, 0.0)
            evidence[1, detector] = np.where(usable, weight, 0.0)
            if (self.stage[detector, rows] > 0).any():
                shift, control, _ = self._excess(rows, level, 1, baseline, requests[1])
                heard = np.isfinite(shift) & (self.stage[detector, rows] > 0)
                self.control_pool[level, 0, rows] += np.where(heard, shift * control, 0.0)
                self.control_pool[level, 1, rows] += np.where(heard, control, 0.0)

    def _excess(
        self, rows: Rows, level: int, arm: int, counts: Floats, requests: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Log of measured over expected, its weight in requests, and the reference's standard error."""
        expected, error = self.expected(rows, level, arm)
        if level == 0:
            seconds, units = counts[Counter.STEP_SECONDS], decoded_tokens(counts)
            weight = requests
        else:
            seconds, units = counts[Counter.TTFT_SECONDS], counts[Counter.FIRST_TOKENS]
            weight = units
        measured = log_ratio(seconds, units)
        if level == 0 and arm == 0:
            measured = measured + self._lengthened(rows, counts)
        return measured - expected, np.where(np.isfinite(measured), weight, 0.0), error

    def _lengthened(self, rows: Rows, counts: Floats) -> Floats:
        """What TPOT gains (log) by steps that drafted having yielded more or fewer tokens than calibrated.

        Steps without a draft are in the decode time and not in this: an engine that ceases to draft is slower.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            length = 1.0 + counts[Counter.ACCEPTED_TOKENS] / counts[Counter.DRAFTS]
            gained = np.log(length / self.length_reference[rows])
        return np.asarray(np.where(np.isfinite(gained), gained, 0.0))

    def _lost_gain(
        self, rows: Rows, speculative: Floats, baseline: Floats, requests: Floats, increments: Floats, evidence: Floats
    ) -> None:
        plain = log_ratio(baseline[Counter.STEP_SECONDS], decoded_tokens(baseline))
        ours = log_ratio(speculative[Counter.STEP_SECONDS], decoded_tokens(speculative))
        excess = ours - plain
        weight = requests[0] * requests[1] / np.maximum(requests[0] + requests[1], 1e-9)
        arrivals = self.arrivals[:, :, rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            per_pod = np.log(arrivals[:, 0] / arrivals[:, 1])
            matched = np.abs(per_pod[0] - per_pod[1]) <= np.log(MATCHED_LOAD_RATIO)
        usable = np.isfinite(excess) & (weight > 0) & matched
        spread = np.sqrt(LEVEL_FLOOR**2 + self.level_spread[0, rows] ** 2 / np.maximum(weight, 1e-9))
        found = level_increment(excess, spread, np.full(excess.shape, GAIN_SHIFT))
        increments[Detector.LOST_GAIN] = np.where(usable, found, 0.0)
        evidence[0, Detector.LOST_GAIN] = np.where(usable, excess * weight, 0.0)
        evidence[1, Detector.LOST_GAIN] = np.where(usable, weight, 0.0)

    def _accumulate(self, rows: Rows, increments: Floats, evidence: Floats, ends: Floats, lengths: Floats) -> None:
        threshold = self.thresholds(rows)
        before = self.level[:, rows]
        level = np.minimum(np.maximum(before + increments, 0.0), threshold * 2)
        onset = np.where((before <= 0) & (level > 0), ends - lengths, self.onset[:, rows])
        stage = self.stage[:, rows]
        found = (stage == Stage.QUIET) & (level > threshold)
        if found.any() or stage.any():
            level, stage = self._confirm(rows, level, stage, found, evidence, lengths)
        self.level[:, rows] = level
        self.onset[:, rows] = onset
        self.stage[:, rows] = stage

    def _confirm(
        self,
        rows: Rows,
        level: Floats,
        stage: NDArray[np.int8],
        found: NDArray[np.bool_],
        evidence: Floats,
        lengths: Floats,
    ) -> tuple[Floats, NDArray[np.int8]]:
        """Fresh windows after a suspicion decide: confirmed, or back to quiet. A confirmed one is asked again."""
        open_ = stage > 0
        pool = self.pool[:, :, rows]
        pool[:2] += np.where(open_, evidence, 0.0)
        pool[2] += np.where(open_ & (evidence[1] > 0), lengths, 0.0)
        need = np.full(level.shape, CONFIRM_REQUESTS)
        need[: Detector.TPOT] = CONFIRM_DISPERSIONS * self.dispersion[rows]
        seconds = np.repeat(self.confirm_seconds[rows][None], DETECTORS, axis=0)
        seconds[[*_SLOW]] *= 3
        full = open_ & (pool[2] >= seconds) & (pool[1] >= need)
        with np.errstate(divide="ignore", invalid="ignore"):
            pooled = pool[0] / pool[1]
        limits = self.limits(rows)
        bad = pooled > limits
        bad[: Detector.TPOT] = pooled[: Detector.TPOT] < limits[: Detector.TPOT]
        self.observed[:, rows] = np.where(open_ & (pool[1] > 0), pooled, self.observed[:, rows])
        stage = np.where(full, np.where(bad, Stage.CONFIRMED, Stage.QUIET), stage).astype(np.int8)
        stage[found] = Stage.SUSPECT
        level = np.where(full & ~bad, 0.0, level)
        self.pool[:, :, rows] = np.where(full | found, 0.0, pool)
        control = self.control_pool[:, :, rows]
        quiet = stage[[*_LEVELS]] == Stage.QUIET
        self.control_pool[:, :, rows] = np.where(quiet[:, None], 0.0, control)
        return level, stage


def decoded_tokens(counts: Floats) -> Floats:
    """Tokens after each request's first one: what the decode time was spent on."""
    return np.asarray(np.maximum(counts[Counter.GENERATED_TOKENS] - counts[Counter.FIRST_TOKENS], 0.0))


def log_ratio(seconds: Floats, units: Floats) -> Floats:
    """log(seconds / units); NaN where either is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(seconds / units)
    return np.asarray(np.where((seconds > 0) & (units > 0), found, np.nan))
