"""A calibration, written into the columns of the detectors."""

from collections.abc import Sequence

import numpy as np

from specfleet.api.status import ArmRole, Calibration, LoadPoint
from specfleet.decide.bank import FIRST_LOAD_OCTAVE, LOAD_BINS, TPOT_SPREAD, TTFT_SPREAD, DetectorBank
from specfleet.decide.calibration import LOOKUP_METHODS, prior_dispersion, rate_error
from specfleet.decide.drift import SLOW_DISPERSION
from specfleet.decide.watch_target import Target
from specfleet.decide.week import SOURCE as WEEK

ROLES = (ArmRole.SPECULATIVE, ArmRole.BASELINE)
"""The planes of the arms: 0 and 1."""


def set_reference(bank: DetectorBank, row: int, calibration: Calibration | None, target: Target) -> None:
    """Write a calibration into a row; without one the detectors that need it are off."""
    bank.rate[:, row] = np.nan
    bank.curve[..., row] = np.nan
    bank.curve_error[..., row] = 0.0
    bank.length_reference[row] = np.nan
    prior = prior_dispersion(target.method)
    bank.dispersion[row], bank.slow_dispersion[row] = prior, SLOW_DISPERSION * prior
    if calibration is None:
        return
    dispersion = calibration.dispersion or prior
    bank.dispersion[row], bank.slow_dispersion[row] = dispersion, SLOW_DISPERSION * dispersion
    if target.method not in LOOKUP_METHODS:
        bank.length_reference[row] = calibration.accepted_length or np.nan
    length = max((calibration.accepted_length or 1.0) - 1.0, 0.0)
    rate = calibration.acceptance_rate
    depth = length / rate if rate else 1.0
    trials = (calibration.drafted_tokens, calibration.drafted_tokens / max(depth, 1.0))
    for plane, value in enumerate((rate, calibration.position_zero_rate)):
        if value is None or not 0.0 < value < 1.0 or (plane == 0 and target.scheduled_depth):
            continue
        bank.rate[plane, row] = value
        bank.rate_error[plane, row] = rate_error(value, dispersion, trials[plane], calibration.source == WEEK)
    write_load_points(bank, row, calibration.load_points)


def write_load_points(bank: DetectorBank, row: int, points: Sequence[LoadPoint]) -> None:
    """Latency by load as calibrated, into the bins of the bank; TPOT as of the calibrated accepted length."""
    spreads = (TPOT_SPREAD, TTFT_SPREAD)
    for point in points:
        octave = int(np.clip(round(np.log2(point.tokens_per_second_per_pod) - FIRST_LOAD_OCTAVE), 0, LOAD_BINS - 1))
        arm = ROLES.index(point.role)
        length = float(bank.length_reference[row])
        longer = point.accepted_length / length if arm == 0 and point.accepted_length and length > 0 else 1.0
        tpot = None if point.tpot_seconds is None else point.tpot_seconds * longer
        for level, seconds in enumerate((tpot, point.ttft_seconds)):
            if seconds is not None and seconds > 0:
                bank.curve[level, arm, octave, row] = np.log(seconds)
                bank.curve_error[level, arm, octave, row] = spreads[level] / np.sqrt(max(point.requests, 1))
