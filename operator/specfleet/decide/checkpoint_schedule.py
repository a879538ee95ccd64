"""When checkpoints are written: soon after a detector has passed half its threshold, and else every six hours."""

from collections.abc import Set

from specfleet.decide.checkpoint_format import SHARDS, shard_of
from specfleet.decide.watch_target import Key

PERIOD_SECONDS = 6 * 3600.0
LEAST_SECONDS = 300.0
"""Between two writes of one shard: a statistic that hovers at its half does not write all the time."""
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 15.0, 600.0


class Schedule:
    """Of all shards. The clock is the caller's, seconds; only its differences count."""

    def __init__(self, started: float) -> None:
        # One after the other over the period, not all at once.
        self._written = [started - PERIOD_SECONDS * shard / SHARDS for shard in range(SHARDS)]
        self._not_before = [float("-inf")] * SHARDS
        self._failures = [0] * SHARDS
        self._crossed: set[int] = set()
        self._elevated: Set[tuple[Key, int]] = frozenset()

    def look(self, elevated: Set[tuple[Key, int]]) -> None:
        """Detectors past half their threshold now: those that were below it at the last look make a shard due."""
        self._crossed |= {shard_of(key) for key, _ in elevated - self._elevated}
        self._elevated = elevated

    def due(self, now: float) -> list[int]:
        """Shards to be written now, the most urgent first."""
        late = {shard for shard, written in enumerate(self._written) if now - written >= PERIOD_SECONDS}
        found = [shard for shard in self._crossed | late if now >= self._not_before[shard]]
        return sorted(found, key=lambda shard: (shard not in self._crossed, self._written[shard], shard))

    def written(self, shard: int, now: float) -> None:
        """It is stored (or there is nothing to store)."""
        self._crossed.discard(shard)
        self._written[shard], self._not_before[shard], self._failures[shard] = now, now + LEAST_SECONDS, 0

    def failed(self, shard: int, now: float) -> float:
        """It is not; returns the seconds until the next try."""
        wait = min(FIRST_RETRY_SECONDS * 2.0 ** self._failures[shard], LAST_RETRY_SECONDS)
        self._failures[shard] += 1
        self._not_before[shard] = now + wait
        return wait
