"""The work queue: keys are deduplicated, one worker at a time per key, failures back off, wake-ups can be delayed."""

import asyncio
from collections import deque

from specfleet.kube.cache import Key

FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 120.0


class KeyQueue:
    """Like client-go's work queue, on one event loop."""

    def __init__(self) -> None:
        self._ready: deque[Key] = deque()
        self._queued: set[Key] = set()
        self._active: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._queued)

    def add(self, key: Key) -> None:
        """Ask for a reconcile. While one of the same key runs, it is run again afterwards."""
        if key in self._queued:
            return
        self._queued.add(key)
        if key not in self._active:
            self._ready.append(key)
            self._arrived.set()

    def add_after(self, key: Key, seconds: float) -> None:
        """Ask for a reconcile later; the earliest of several wishes counts."""
        loop = asyncio.get_running_loop()
        pending = self._timers.get(key)
        if pending is not None:
            if pending.when() <= loop.time() + seconds:
                return
            pending.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    def retry(self, key: Key) -> float:
        """Ask again after a failure; the wait doubles with each one. Returns it, in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        seconds = min(FIRST_RETRY_SECONDS * 2.0**failures, LAST_RETRY_SECONDS)
        self.add_after(key, seconds)
        return seconds

    def succeeded(self, key: Key) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)

    def forget(self, key: Key) -> None:
        """Forget everything about a key that is gone."""
        self.succeeded(key)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def get(self) -> Key:
        """The next key; `done` must follow."""
        while not self._ready:
            self._arrived.clear()
            await self._arrived.wait()
        key = self._ready.popleft()
        self._queued.discard(key)
        self._active.add(key)
        return key

    def done(self, key: Key) -> None:
        """The worker is through with a key."""
        self._active.discard(key)
        if key in self._queued:
            self._ready.append(key)
            self._arrived.set()

    def _due(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.add(key)
