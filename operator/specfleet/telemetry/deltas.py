"""What happened between two scrapes of a pod, and whether that may be used."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfleet.decide.counters import COUNTERS, GAUGES, Floats
from specfleet.telemetry.queries import REQUIRED
from specfleet.telemetry.samples import START_ROW, PodSamples

MAX_SCRAPE_INTERVAL_SECONDS = 60.0
JITTER = 0.25
"""A scrape may come this part of an interval early or late."""
GAP_STEPS = 2


@dataclass(frozen=True, slots=True)
class Intervals:
    """n intervals between neighbouring scrapes of one pod."""

    starts: Floats
    ends: Floats
    counts: Floats
    """(COUNTERS, n) increments; where a counter fell, its new value (it began again at 0)."""
    gauges: Floats
    """(GAUGES, n) at the end of each interval."""
    usable: NDArray[np.bool_]
    restarted: NDArray[np.bool_]
    step_seconds: float | None
    """Observed scrape interval (median); None with fewer than two scrapes."""


def intervals(samples: PodSamples, started_at: float | None, warmup_seconds: float) -> Intervals:
    """Increments of one pod. Not usable: restarts, warm-up after a start, gaps of more than two scrapes, and
    intervals in which a required counter is missing or not finite."""
    times, values = samples.times, samples.values
    lengths = np.diff(times)
    step = float(np.median(lengths)) if lengths.size else None
    before, after = values[:COUNTERS, :-1], values[:COUNTERS, 1:]
    with np.errstate(invalid="ignore"):
        fell = after < before
        new_process = np.abs(np.diff(values[START_ROW])) > 1.0
    restarted = fell.any(axis=0) | new_process
    counts = np.where(restarted, after, after - before)
    gap = lengths > (GAP_STEPS + JITTER) * step if step is not None else np.zeros(lengths.shape, bool)
    cold = _cold(times, values[START_ROW], restarted, started_at, warmup_seconds)
    complete = np.isfinite(counts[list(REQUIRED)]).all(axis=0)
    return Intervals(
        starts=times[:-1],
        ends=times[1:],
        counts=counts,
        gauges=values[COUNTERS : COUNTERS + GAUGES, 1:],
        usable=~restarted & ~gap & ~cold & complete,
        restarted=restarted,
        step_seconds=step,
    )


def _cold(
    times: Floats, start_times: Floats, restarted: NDArray[np.bool_], started_at: float | None, warmup_seconds: float
) -> NDArray[np.bool_]:
    """Intervals that begin before the engine has been warm for long enough, by the latest start known at that time."""
    start = np.full(times.size, -np.inf if started_at is None else started_at)
    start = np.fmax(start, np.where(np.isfinite(start_times), start_times, -np.inf))
    seen = np.concatenate([[-np.inf], np.where(restarted, times[1:], -np.inf)])
    start = np.maximum(start, np.maximum.accumulate(seen))
    return np.asarray(times[:-1] < start[1:] + warmup_seconds, bool)
