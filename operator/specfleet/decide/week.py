"""A week of healthy windows makes the calibration of a canary sharp: smaller errors, measured scatter, more loads.

It may not absorb a decay: the week is refused when it is lower than the calibration it would replace, or when its
second half is lower than its first.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from specfleet.api.status import ArmRole, Calibration, LoadPoint
from specfleet.decide.bank import FIRST_LOAD_OCTAVE, LOAD_BINS, decoded_tokens
from specfleet.decide.calibration import load_octave, measured_dispersion
from specfleet.decide.counters import Counter, Floats
from specfleet.decide.drift import CONFIRM_RATIO, NULL_RATIO

HOURS = 168
LEAST_HOURS = 84
"""Hours with drafts that a week must have."""
HOUR_SECONDS = 3600.0
SOURCE = "Week"
_COUNTED = (Counter.ACCEPTED_TOKENS, Counter.DRAFT_TOKENS, Counter.ACCEPTED_FIRST, Counter.DRAFTS)
_ROLES = (ArmRole.SPECULATIVE, ArmRole.BASELINE)
MIN_BIN_REQUESTS = 50.0


@dataclass
class WeekSums:
    """Sums per hour and per load, of one deployment."""

    start: float | None = None
    hours: Floats = field(default_factory=lambda: np.zeros((HOURS, len(_COUNTED))))
    loads: Floats = field(default_factory=lambda: np.zeros((2, LOAD_BINS, 4)))
    """[arm, load bin]: decode seconds, decoded tokens, TTFT seconds, first tokens."""

    def add(self, start: float, counts: Floats, pod_seconds: Floats) -> None:
        """One window of both arms, (2, COUNTERS) deltas and (2,) pod-seconds."""
        self.start = start if self.start is None else self.start
        hour = int((start - self.start) // HOUR_SECONDS)
        if not 0 <= hour < HOURS:
            return
        self.hours[hour] += counts[0, list(_COUNTED)]
        for arm in (0, 1):
            octave = load_octave(counts[arm], float(pod_seconds[arm]))
            if octave is not None:
                one = counts[arm]
                row = (
                    one[Counter.STEP_SECONDS],
                    decoded_tokens(one),
                    one[Counter.TTFT_SECONDS],
                    one[Counter.FIRST_TOKENS],
                )
                self.loads[arm, octave] += np.array([float(value) for value in row])

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
        return [
            LoadPoint(
                role=role,
                tokens_per_second_per_pod=float(2 ** (octave + FIRST_LOAD_OCTAVE)),
                tpot_seconds=float(decode / tokens) if tokens > 0 else None,
                ttft_seconds=float(ttft / first),
                requests=int(first),
            )
            for arm, role in enumerate(_ROLES)
            for octave, (decode, tokens, ttft, first) in enumerate(self.loads[arm])
            if first >= MIN_BIN_REQUESTS
        ]
