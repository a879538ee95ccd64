"""A week of healthy windows makes the calibration of a canary sharp: smaller errors, measured scatter, more loads.

It may not absorb a decay: the week is refused when it is lower than the calibration it would replace, or when its
second half is lower than its first.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from specfleet.api.status import ArmRole, Calibration, LoadPoint
from specfleet.decide.bank import FIRST_LOAD_OCTAVE, LOAD_BINS
from specfleet.decide.calibration import accepted_length, measured_dispersion
from specfleet.decide.counters import Counter, Floats
from specfleet.decide.drift import CONFIRM_RATIO, NULL_RATIO

HOURS = 168
LEAST_HOURS = 84
"""Hours with drafts that a week must have."""
HOUR_SECONDS = 3600.0
SOURCE = "Week"
_COUNTED = (Counter.ACCEPTED_TOKENS, Counter.DRAFT_TOKENS, Counter.ACCEPTED_FIRST, Counter.DRAFTS)
_ROLES = (ArmRole.SPECULATIVE, ArmRole.BASELINE)
_BY_LOAD = (
    Counter.STEP_SECONDS,
    Counter.GENERATED_TOKENS,
    Counter.TTFT_SECONDS,
    Counter.FIRST_TOKENS,
    Counter.ACCEPTED_TOKENS,
    Counter.DRAFTS,
)
MIN_BIN_REQUESTS = 50.0


@dataclass(frozen=True, slots=True)
class WeekSums:
    """Sums per hour and per load, of one deployment."""

    start: float | None
    hours: Floats
    loads: Floats
    """[arm, load bin, _BY_LOAD]."""

    def complete(self, now: float) -> bool:
        """Whether a whole week has passed and enough of it had traffic."""
        passed = self.start is not None and now - self.start >= HOURS * HOUR_SECONDS
        return passed and int((self.hours[:, 1] > 0).sum()) >= LEAST_HOURS

    def calibration(self, old: Calibration, window_dispersion: float | None) -> Calibration | None:
        """The sharper calibration; None when the week is no better than what it would replace allows."""
        accepted, drafted, first, drafts = self.hours.sum(axis=0)
        if drafted <= 0 or drafts <= 0 or self.start is None:
            return None
        rate = float(accepted / drafted)
        known = old.acceptance_rate
        half = HOURS // 2
        early, late = (float(part[:, 0].sum() / max(part[:, 1].sum(), 1.0)) for part in np.split(self.hours, [half]))
        if (known is not None and rate < CONFIRM_RATIO * known) or late < NULL_RATIO * early:
            return None
        dispersion = max(measured_dispersion(self.hours[:, 0], self.hours[:, 1], rate) / 4, window_dispersion or 1.0)
        return old.model_copy(
            update={
                "since": datetime.fromtimestamp(self.start, UTC),
                "acceptance_rate": rate,
                "position_zero_rate": float(first / drafts),
                "accepted_length": 1.0 + float(accepted / drafts),
                "dispersion": dispersion,
                "drafted_tokens": int(drafted),
                "load_points": self._points() or old.load_points,
                "source": SOURCE,
            }
        )

    def _points(self) -> list[LoadPoint]:
        points = []
        for arm, role in enumerate(_ROLES):
            for octave, (decode, tokens, ttft, first, accepted, drafts) in enumerate(self.loads[arm]):
                if first < MIN_BIN_REQUESTS:
                    continue
                point = LoadPoint(
                    role=role,
                    tokens_per_second_per_pod=float(2 ** (octave + FIRST_LOAD_OCTAVE)),
                    tpot_seconds=float(decode / (tokens - first)) if tokens > first else None,
                    ttft_seconds=float(ttft / first),
                    accepted_length=accepted_length(float(accepted), float(drafts)),
                    requests=int(first),
                )
                points.append(point)
        return points


class WeekColumns:
    """Weeks of many deployments: a slot for each that is still in its first week."""

    def __init__(self, slots: int = 16) -> None:
        self._allocate(slots)
        self._free = list(range(slots))[::-1]

    def _allocate(self, slots: int) -> None:
        self.start = np.full(slots, np.nan)
        self.hours = np.zeros((slots, HOURS, len(_COUNTED)))
        self.loads = np.zeros((slots, 2, LOAD_BINS, len(_BY_LOAD)))

    def take(self) -> int:
        """A slot for a new week."""
        if not self._free:
            old, count = (self.start, self.hours, self.loads), self.start.size
            self._allocate(2 * count)
            for fresh, array in zip((self.start, self.hours, self.loads), old, strict=True):
                fresh[:count] = array
            self._free = list(range(count, 2 * count))[::-1]
        return self._free.pop()

    def give(self, slot: int) -> None:
        """The week is over or void."""
        self.start[slot], self.hours[slot], self.loads[slot] = np.nan, 0.0, 0.0
        self._free.append(slot)

    def begin(self, slot: int, start: float) -> None:
        """Where a week begins of which older hours will follow; once windows were counted it is too late."""
        if np.isnan(self.start[slot]):
            self.start[slot] = start

    def add(self, slots: NDArray[np.intp], starts: Floats, counts: Floats, pod_seconds: Floats) -> None:
        """One window of each slot: (n,) starts, (2, COUNTERS, n) deltas, (2, n) pod-seconds."""
        self.start[slots] = np.where(np.isnan(self.start[slots]), starts, self.start[slots])
        hour = ((starts - self.start[slots]) // HOUR_SECONDS).astype(np.intp)
        inside = (hour >= 0) & (hour < HOURS)
        slots, hour, counts, pod_seconds = slots[inside], hour[inside], counts[..., inside], pod_seconds[:, inside]
        self.hours[slots, hour] += counts[0, list(_COUNTED)].T
        for arm in (0, 1):
            one = counts[arm]
            seen = (one[Counter.GENERATED_TOKENS] > 0) & (pod_seconds[arm] > 0)
            with np.errstate(divide="ignore", invalid="ignore"):
                octave = np.rint(np.log2(one[Counter.GENERATED_TOKENS] / pod_seconds[arm]) - FIRST_LOAD_OCTAVE)
            octave = np.clip(np.where(seen, octave, 0), 0, LOAD_BINS - 1).astype(np.intp)
            sums = one[list(_BY_LOAD)]
            self.loads[slots, arm, octave] += np.where(seen, sums, 0.0).T

    def ended(self, slots: NDArray[np.intp], now: Floats) -> NDArray[np.bool_]:
        """Where a week has passed since its first window."""
        return np.asarray(now - self.start[slots] >= HOURS * HOUR_SECONDS)

    def at(self, slot: int) -> WeekSums:
        """One deployment's."""
        start = float(self.start[slot])
        return WeekSums(None if np.isnan(start) else start, self.hours[slot], self.loads[slot])
