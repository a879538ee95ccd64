"""What is normal for a speculative arm, from windows of the canary or the first ones after promotion. Written once."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from specfleet.api.speculation import Method
from specfleet.api.status import ArmRole, Calibration, LoadPoint
from specfleet.decide.bank import FIRST_LOAD_OCTAVE, LOAD_BINS, SLOW_WINDOWS, decoded_tokens
from specfleet.decide.counters import Counter, Floats
from specfleet.decide.drift import PRIOR_DISPERSION, PRIOR_DISPERSION_LOOKUP

MIN_WINDOWS = 5
MIN_DISPERSION_WINDOWS = 200
SHORT_MIX_ERROR = 0.03
"""Relative: how far the mix of a few hours may be from that of the days to come."""
MIN_BLOCKS = 6
BLOCK_PART = 0.25
"""Tuned on other seeds than the ones that are scored."""
MIN_DRAFTED_DISPERSIONS = 10.0
MIN_BIN_WINDOWS = 3
_CHI_SQUARE_MEDIAN = 0.4549
LOOKUP_METHODS = (Method.NGRAM, Method.NGRAM_GPU, Method.SUFFIX)


@dataclass(frozen=True, slots=True)
class WindowPair:
    """One closed window of both arms."""

    start: float
    speculative: Floats
    """(COUNTERS,)."""
    plain: Floats
    pod_seconds: tuple[float, float]


def prior_dispersion(method: Method | None) -> float:
    """Over-dispersion assumed before it can be measured (benchmarks/decisions: mixed traffic shows about 41)."""
    return PRIOR_DISPERSION_LOOKUP if method in LOOKUP_METHODS else PRIOR_DISPERSION


def calibrate(
    fingerprint: str, windows: Sequence[WindowPair], method: Method | None, source: str
) -> Calibration | None:
    """The calibration, or None while the windows do not say enough.

    Dispersion is only given from 200 windows with drafts; until then the inflated prior holds and the watch is slower,
    not blind.
    """
    drafting = [one for one in windows if one.speculative[Counter.DRAFT_TOKENS] > 0]
    total = np.sum([one.speculative for one in drafting], axis=0) if drafting else np.zeros(len(Counter))
    least = MIN_DRAFTED_DISPERSIONS * prior_dispersion(method)
    if len(drafting) < MIN_WINDOWS or total[Counter.DRAFT_TOKENS] < least:
        return None
    rate = float(total[Counter.ACCEPTED_TOKENS] / total[Counter.DRAFT_TOKENS])
    drafts = float(total[Counter.DRAFTS])
    accepted = np.array([one.speculative[Counter.ACCEPTED_TOKENS] for one in drafting])
    drafted = np.array([one.speculative[Counter.DRAFT_TOKENS] for one in drafting])
    decoded = float(decoded_tokens(total))
    return Calibration(
        fingerprint=fingerprint,
        since=datetime.fromtimestamp(min(one.start for one in windows), UTC),
        acceptance_rate=rate,
        position_zero_rate=float(total[Counter.ACCEPTED_FIRST]) / drafts if drafts else None,
        accepted_length=accepted_length(float(total[Counter.ACCEPTED_TOKENS]), drafts),
        tpot_seconds=float(total[Counter.STEP_SECONDS]) / decoded if decoded > 0 else None,
        dispersion=measured_dispersion(accepted, drafted, rate) if len(drafting) >= MIN_DISPERSION_WINDOWS else None,
        drafted_tokens=int(total[Counter.DRAFT_TOKENS]),
        load_points=load_points(windows),
        source=source,
    )


def rate_error(rate: float, dispersion: float, trials: float, whole_week: bool) -> float:
    """Standard error of a calibrated rate. Less than a week has seen one mix of traffic, not all of them."""
    mix = 0.0 if whole_week else SHORT_MIX_ERROR * rate
    return float(np.hypot(np.sqrt(dispersion * rate * (1 - rate) / max(trials, 1.0)), mix))


def measured_dispersion(accepted: Floats, drafted: Floats, rate: float) -> float:
    """Over-dispersion of single windows, and a part of the one of blocks of 30; the larger, at least 1.

    Each is median((a - p d)^2 / (d p q)) / 0.4549. Blocks show what windows hide: runaway requests and the slow change
    of the mix. All of it would make the watch three times slower at the same false alarms (benchmarks/decisions).
    """
    blocks = accepted.size // SLOW_WINDOWS * SLOW_WINDOWS
    found = [_dispersion(accepted, drafted, rate)]
    if blocks >= MIN_BLOCKS * SLOW_WINDOWS:
        summed = [part[:blocks].reshape(-1, SLOW_WINDOWS).sum(axis=1) for part in (accepted, drafted)]
        found.append(BLOCK_PART * _dispersion(summed[0], summed[1], rate))
    return max(1.0, *found)


def _dispersion(accepted: Floats, drafted: Floats, rate: float) -> float:
    some = drafted > 0
    if not some.any():
        return 1.0
    squares = (accepted[some] - rate * drafted[some]) ** 2 / np.maximum(drafted[some] * rate * (1 - rate), 1e-9)
    return float(np.median(squares)) / _CHI_SQUARE_MEDIAN


def load_points(windows: Sequence[WindowPair]) -> list[LoadPoint]:
    """Token-weighted TPOT and mean TTFT per octave of load, per arm; octaves with under three windows are left out."""
    points = []
    for arm, role in enumerate((ArmRole.SPECULATIVE, ArmRole.BASELINE)):
        bins: dict[int, list[Floats]] = {}
        for one in windows:
            counts = one.speculative if arm == 0 else one.plain
            octave = load_octave(counts, one.pod_seconds[arm])
            if octave is not None:
                bins.setdefault(octave, []).append(counts)
        for octave, members in sorted(bins.items()):
            if len(members) >= MIN_BIN_WINDOWS:
                points.append(_point(role, octave, np.sum(members, axis=0)))
    return points


def load_octave(counts: Floats, pod_seconds: float) -> int | None:
    """Index of the load bin; None without tokens."""
    tokens = counts[Counter.GENERATED_TOKENS]
    if tokens <= 0 or pod_seconds <= 0:
        return None
    return int(np.clip(round(float(np.log2(tokens / pod_seconds)) - FIRST_LOAD_OCTAVE), 0, LOAD_BINS - 1))


def _point(role: ArmRole, octave: int, total: Floats) -> LoadPoint:
    decoded, first = float(decoded_tokens(total)), float(total[Counter.FIRST_TOKENS])
    return LoadPoint(
        role=role,
        tokens_per_second_per_pod=float(2 ** (octave + FIRST_LOAD_OCTAVE)),
        tpot_seconds=float(total[Counter.STEP_SECONDS]) / decoded if decoded > 0 else None,
        ttft_seconds=float(total[Counter.TTFT_SECONDS]) / first if first > 0 else None,
        accepted_length=accepted_length(float(total[Counter.ACCEPTED_TOKENS]), float(total[Counter.DRAFTS])),
        requests=int(first),
    )


def accepted_length(accepted: float, drafts: float) -> float | None:
    """Tokens per step that drafted; None without drafts."""
    return 1.0 + accepted / drafts if drafts > 0 else None
