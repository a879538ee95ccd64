"""What is known of single pods besides the sums of their arm, one slot each."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfleet.api.status import ArmRole
from specfleet.decide.counters import Counter, Floats, Gauge
from specfleet.decide.sums import Part, Slots, Sums

POD_MEMORY = 0.9
FIRST_SLOTS = 128


@dataclass(frozen=True, slots=True)
class PodPlace:
    """Where a pod's sums are."""

    role: ArmRole
    slot: int


@dataclass(frozen=True, slots=True)
class PodRecord:
    """One pod, recently."""

    role: ArmRole
    accepted: float
    drafted: float
    """Decayed: tells a single bad pod from a bad arm."""
    stuck_seconds: float


class PodColumns:
    """All pods of all deployments."""

    def __init__(self) -> None:
        self.step = Sums(FIRST_SLOTS)
        """Since Target.since."""
        self.recent = np.zeros((2, FIRST_SLOTS))
        """Decayed accepted and drafted tokens."""
        self.stuck_seconds = np.zeros(FIRST_SLOTS)
        self.rows = np.zeros(FIRST_SLOTS, np.intp)
        """Which deployment a pod belongs to."""
        self._free = list(range(FIRST_SLOTS))[::-1]

    def take(self, row: int) -> int:
        """A slot for a new pod."""
        if not self._free:
            count = len(self.step)
            self.step.grow(2 * count)
            self.recent = np.concatenate([self.recent, np.zeros((2, count))], axis=1)
            self.stuck_seconds = np.concatenate([self.stuck_seconds, np.zeros(count)])
            self.rows = np.concatenate([self.rows, np.zeros(count, np.intp)])
            self._free = list(range(count, 2 * count))[::-1]
        slot = self._free.pop()
        self.rows[slot] = row
        return slot

    def give(self, slot: int) -> None:
        """The pod is gone."""
        self.step.clear(np.array([slot]))
        self.recent[:, slot] = self.stuck_seconds[slot] = 0.0
        self._free.append(slot)

    def state(self, slot: int) -> dict[str, NDArray[np.generic]]:
        """Views of one slot."""
        recent = {"recent": self.recent[:, slot], "stuck_seconds": self.stuck_seconds[slot, ...]}
        return {**self.step.state(slot), **recent}

    def add(self, slots: Slots, part: Part, gauges: Floats, in_step: NDArray[np.bool_]) -> None:
        """One window of each pod."""
        counts = part.counts
        fresh = counts[[Counter.ACCEPTED_TOKENS, Counter.DRAFT_TOKENS]]
        self.recent[:, slots] = POD_MEMORY * self.recent[:, slots] + fresh
        idle = (counts[Counter.GENERATED_TOKENS] == 0) & (counts[Counter.FINISHED] == 0)
        stuck = idle & (gauges[Gauge.RUNNING] >= 1)
        self.stuck_seconds[slots] = np.where(stuck, self.stuck_seconds[slots] + part.end - part.start, 0.0)
        if in_step.all():
            self.step.add(slots, part)
        elif in_step.any():
            self.step.add(slots[in_step], part.of(in_step))

    def at(self, place: PodPlace) -> PodRecord:
        """One pod."""
        accepted, drafted = (float(value) for value in self.recent[:, place.slot])
        return PodRecord(place.role, accepted, drafted, float(self.stuck_seconds[place.slot]))
