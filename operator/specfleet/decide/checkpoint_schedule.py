"""When checkpoints are written: soon after a suspicion, within the hour after a detector has passed half its threshold,
and else every six hours.
"""

from collections.abc import Set

from specfleet.decide.bank import Stage
from specfleet.decide.checkpoint_format import SHARDS, shard_of
from specfleet.decide.watch_target import Key

PERIOD_SECONDS = 6 * 3600.0
LEAST_SECONDS = 300.0
"""Between two writes of one shard, when a stage has changed: rare while nothing is wrong."""
CALM_SECONDS = 3600.0
"""The same otherwise. A healthy deployment passes a half 1.6 times a day, a shard of 156 of them ten times an hour."""
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 15.0, 600.0

Elevated = Set[tuple[Key, int, int]]
"""Deployment, detector and Stage of the detectors past half their threshold, or with a suspicion."""


class Schedule:
    """Of all shards. The clock is the caller's, seconds; only its differences count."""

    def __init__(self, started: float) -> None:
        # One after the other over the period, not all at once.
        self._written = [started - PERIOD_SECONDS * shard / SHARDS for shard in range(SHARDS)]
        self._stored = [float("-inf")] * SHARDS
        """When this process wrote it: what it finds risen when it begins is kept at once."""
        self._failures = [0] * SHARDS
        self._retry_at = [float("-inf")] * SHARDS
        self._crossed: set[int] = set()
        self._staged: set[int] = set()
        self._elevated: Elevated = frozenset()

    def look(self, elevated: Elevated) -> None:
        """What is past half its threshold now: what was not at the last look, or not in this stage, is to be kept."""
        fresh = elevated - self._elevated
        self._crossed |= {shard_of(key) for key, _, _ in fresh}
        self._staged |= {shard_of(key) for key, _, stage in fresh if stage > Stage.QUIET}
        self._elevated = elevated

    def due(self, now: float) -> list[int]:
        """Shards to be written now, the most urgent first."""
        found = [shard for shard in range(SHARDS) if now >= max(self._retry_at[shard], self._next(shard))]
        return sorted(found, key=lambda shard: (-self._urgency(shard), self._written[shard], shard))

    def _urgency(self, shard: int) -> int:
        return 2 if shard in self._staged else 1 if shard in self._crossed else 0

    def _next(self, shard: int) -> float:
        """When it may be written at the earliest, by what has happened since it was."""
        by_period = self._written[shard] + PERIOD_SECONDS
        wait = LEAST_SECONDS if shard in self._staged else CALM_SECONDS
        return min(by_period, self._stored[shard] + wait) if self._urgency(shard) else by_period

    def written(self, shard: int, now: float) -> None:
        """It is stored (or there is nothing to store)."""
        self._crossed.discard(shard)
        self._staged.discard(shard)
        self._written[shard] = self._stored[shard] = self._retry_at[shard] = now
        self._failures[shard] = 0

    def failed(self, shard: int, now: float) -> float:
        """It is not; returns the seconds until the next try."""
        wait = min(FIRST_RETRY_SECONDS * 2.0 ** self._failures[shard], LAST_RETRY_SECONDS)
        self._failures[shard] += 1
        self._retry_at[shard] = now + wait
        return wait
