"""Sums over windows of many arms and pods at once: one slot each. What the reports are made of.

Columns instead of one object per arm, because a window of ten thousand deployments is taken in by a few array
operations (decide/watch.py).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfleet.decide.counters import COUNTERS, Floats, Gauge
from specfleet.decide.watch_report import Answer
from specfleet.decide.window_view import ArmTotals

Slots = NDArray[np.intp]
ANSWERS = tuple(Answer)
CODES = {answer: code for code, answer in enumerate(ANSWERS)}
NO_WINDOW = -1


@dataclass(frozen=True, slots=True)
class Part:
    """One window of n arms or pods."""

    start: Floats
    end: Floats
    counts: Floats
    """(COUNTERS, n)."""
    pod_seconds: Floats
    running_seconds: Floats
    kv_cache: Floats
    """NaN where not exposed."""
    pods: Slots
    """How many were measured; 0: nothing was."""
    answers: NDArray[np.int8]
    """Index in ANSWERS."""

    def of(self, which: NDArray[np.bool_]) -> "Part":
        """Some of them."""
        names = ("start", "end", "pod_seconds", "running_seconds", "kv_cache", "pods", "answers")
        return Part(counts=self.counts[:, which], **{name: getattr(self, name)[which] for name in names})


class Sums:
    """S slots."""

    def __init__(self, slots: int) -> None:
        self._allocate(slots)

    def __len__(self) -> int:
        return int(self.pods.size)

    def _allocate(self, slots: int) -> None:
        self.start, self.end = np.full(slots, np.nan), np.full(slots, np.nan)
        self.counts = np.zeros((slots, COUNTERS))
        """A slot is one run of memory: slots are picked, counters are not."""
        self.pod_seconds, self.running_seconds = np.zeros(slots), np.zeros(slots)
        self.kv_cache = np.full(slots, np.nan)
        self.pods = np.zeros(slots, np.intp)
        self.answers = np.full(slots, NO_WINDOW, np.int8)

    def grow(self, slots: int) -> None:
        """Make room; the old ones keep their sums."""
        old, count = dict(self.__dict__), len(self)
        self._allocate(slots)
        for name, array in old.items():
            getattr(self, name)[:count] = array

    def clear(self, slots: Slots) -> None:
        """Begin anew."""
        self.start[slots] = self.end[slots] = self.kv_cache[slots] = np.nan
        self.pod_seconds[slots] = self.running_seconds[slots] = 0.0
        self.counts[slots] = 0.0
        self.pods[slots] = 0
        self.answers[slots] = NO_WINDOW

    def state(self, slot: int) -> dict[str, NDArray[np.generic]]:
        """Views of one slot."""
        return {name: array[slot, ...] for name, array in self.__dict__.items()}

    def put(self, slots: Slots, part: Part) -> None:
        """Replace what was there by one window."""
        self.clear(slots)
        self.add(slots, part)

    def add(self, slots: Slots, part: Part) -> None:
        """One window of each slot; no slot twice."""
        self.answers[slots] = part.answers
        seen = part.pods > 0
        if not seen.all():
            slots, part = slots[seen], part.of(seen)
        self.start[slots] = np.where(np.isnan(self.start[slots]), part.start, self.start[slots])
        self.end[slots] = part.end
        self.counts[slots] += part.counts.T
        self.pod_seconds[slots] += part.pod_seconds
        self.running_seconds[slots] += part.running_seconds
        self.kv_cache[slots] = np.fmax(self.kv_cache[slots], part.kv_cache)
        self.pods[slots] = part.pods

    def totals(self, slot: int) -> ArmTotals | None:
        """One slot; None when no window came."""
        if self.answers[slot] == NO_WINDOW:
            return None
        start = float(self.start[slot])
        return ArmTotals(
            start=None if np.isnan(start) else start,
            end=None if np.isnan(start) else float(self.end[slot]),
            counts=self.counts[slot].copy(),
            pod_seconds=float(self.pod_seconds[slot]),
            running_seconds=float(self.running_seconds[slot]),
            kv_cache=float(self.kv_cache[slot]),
            pods=int(self.pods[slot]),
            last_answer=ANSWERS[self.answers[slot]],
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """One closed window of n deployments (columns), and of their m pods."""

    start: Floats
    end: Floats
    answers: NDArray[np.int8]
    """(2, n) index in ANSWERS, speculative and plain; NO_WINDOW where an arm has none."""
    pod_slots: Slots
    """(m,) of the watch (Watch.aim)."""
    pod_group: Slots
    """(m,) arm x n + column, ascending."""
    pod_seconds: Floats
    pod_counts: Floats
    """(COUNTERS, m)."""
    pod_gauges: Floats
    """(GAUGES, m)."""

    def pods(self) -> Part:
        """Every pod by itself."""
        columns = self.pod_group % self.start.size
        running = self.pod_seconds * np.nan_to_num(self.pod_gauges[Gauge.RUNNING])
        one = np.ones(columns.size, np.intp)
        return Part(
            self.start[columns],
            self.end[columns],
            self.pod_counts,
            self.pod_seconds,
            running,
            self.pod_gauges[Gauge.KV_CACHE],
            one,
            np.full(columns.size, CODES[Answer.OK], np.int8),
        )

    def arms(self, pods: Part) -> Part:
        """Sums of the pods of each arm: 2 n parts, the speculative ones first."""
        groups = 2 * self.start.size
        first = np.flatnonzero(np.diff(self.pod_group, prepend=-1))
        filled = self.pod_group[first]
        sums = np.zeros((COUNTERS + 2, groups))
        kv_cache = np.full(groups, np.nan)
        count = np.zeros(groups, np.intp)
        if first.size:
            stacked = np.concatenate([pods.counts, pods.pod_seconds[None], pods.running_seconds[None]])
            sums[:, filled] = np.add.reduceat(np.ascontiguousarray(stacked.T), first, axis=0).T
            kv_cache[filled] = np.fmax.reduceat(pods.kv_cache, first)
            count[filled] = np.diff(first, append=self.pod_group.size)
        return Part(
            np.tile(self.start, 2),
            np.tile(self.end, 2),
            sums[:COUNTERS],
            sums[COUNTERS],
            sums[COUNTERS + 1],
            kv_cache,
            count,
            self.answers.ravel(),
        )
