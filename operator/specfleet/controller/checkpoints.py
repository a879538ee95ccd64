"""The watch's checkpoints in ConfigMaps of the operator's own namespace: read before the first tick, written when due.

Nothing waits for them: what cannot be read is read again from Prometheus (six hours), what cannot be written is written
later. Only the holder of the Lease writes.
"""

import asyncio
import base64
import logging
from collections.abc import Callable, Iterable
from datetime import datetime

from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.decide.checkpoint import Checkpoint, refusal
from specfleet.decide.checkpoint_format import SHARDS, CheckpointError, decode, encode, shard_of
from specfleet.decide.checkpoint_schedule import Schedule
from specfleet.decide.watch import Watch
from specfleet.decide.watch_target import Key
from specfleet.kube import kinds
from specfleet.kube.lease import Lease, LostLeaseError
from specfleet.kube.port import InvalidError, KubeApi, KubeError, NotFoundError

LOOK_SECONDS = 15.0
WRITES_PER_LOOK = 4
READ_SECONDS = 20.0
WRITE_SECONDS = 10.0
LAST_SECONDS = 8.0
"""For all shards when the process ends: Kopf waits 20 s, and the Lease is given back after it."""
FIELD = "watch"
AGAIN = "six hours of windows are read again instead"

log = logging.getLogger(__name__)


class Checkpoints:
    """All shards of one operator. `clock`: seconds of which only differences count."""

    def __init__(
        self,
        api: KubeApi,
        lease: Lease,
        watch: Watch,
        place: tuple[str, str],
        count_error: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        """`place`: namespace of the ConfigMaps, and what their names begin with."""
        self._api, self._lease, self._watch = api, lease, watch
        self._namespace, self._prefix = place
        self._count_error = count_error
        self._clock = clock
        self._schedule = Schedule(clock())
        self._stored: dict[int, str] = {}
        """UID of each ConfigMap that is there."""

    async def read(self, now: datetime) -> None:
        """Hand the watch what the last leader knew. Never raises: the log says what is missing, and what it costs."""
        tasks = [asyncio.create_task(self._read(shard, now)) for shard in range(SHARDS)]
        done, late = await asyncio.wait(tasks, timeout=READ_SECONDS)
        for task in late:
            task.cancel()
        if late:
            log.warning("%d of %d checkpoints did not come in %.0f s: %s", len(late), SHARDS, READ_SECONDS, AGAIN)
        for task in done:
            if (error := task.exception()) is not None:
                log.error("a checkpoint cannot be read, %s", AGAIN, exc_info=error)
        found = [one for task in done if task.exception() is None for one in task.result()]
        self._watch.saved.add(found)
        log.info("the watch of %d deployments goes on where the last operator left it", len(found))

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.write_due()
            except Exception:
                self._count_error("Checkpoint")
                log.exception("the checkpoints could not be looked at; again in %.0f s", LOOK_SECONDS)

    async def write_due(self) -> None:
        """A few at a time: a fleet does not write all of its shards at once."""
        if not self._lease.held:
            return
        self._schedule.look(self._watch.elevated())
        for shard in self._schedule.due(self._clock())[:WRITES_PER_LOOK]:
            await self._write(shard)

    async def write_all(self) -> None:
        """Where the process ends in good order: its successor goes on from the last window. Never raises."""
        if not self._lease.held:
            return
        shards = sorted({shard_of(key) for key in self._watch.watched()})
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await asyncio.gather(*(self._write(shard) for shard in shards))
        except TimeoutError:
            log.warning("not all of %d checkpoints were written in %.0f s", len(shards), LAST_SECONDS)
        except Exception:
            log.exception("the last checkpoints could not be written")

    def _name(self, shard: int) -> str:
        return f"{self._prefix}-{shard}"

    async def _read(self, shard: int, now: datetime) -> list[Checkpoint]:
        name = self._name(shard)
        try:
            body = await self._api.get(kinds.CONFIG_MAP, self._namespace, name)
        except NotFoundError:
            return []
        except KubeError as error:
            log.warning("checkpoint %s cannot be read, %s: %s", name, AGAIN, error.message)
            return []
        self._stored[shard] = body["metadata"]["uid"]
        try:
            text = (body.get("binaryData") or {})[FIELD]
            found = await asyncio.to_thread(lambda: decode(base64.b64decode(text, validate=True)))
        except KeyError:
            log.warning("checkpoint %s has no field %r, %s", name, FIELD, AGAIN)
            return []
        except (CheckpointError, ValueError) as error:
            log.warning("checkpoint %s cannot be used, %s: %s", name, AGAIN, error)
            return []
        return list(self._usable(found, now, shard))

    def _usable(self, found: Iterable[Checkpoint], now: datetime, shard: int) -> Iterable[Checkpoint]:
        for one in found:
            why = refusal(one, now.timestamp())
            if why is not None:
                log.warning("the checkpoint of %s/%s cannot be used, %s: %s", *one.key[:2], AGAIN, why)
            elif shard_of(one.key) == shard:
                yield one

    async def _write(self, shard: int) -> None:
        keys = [key for key in sorted(self._watch.watched() | self._watch.saved.keys()) if shard_of(key) == shard]
        found = [one for key in keys if (one := self._watch.checkpoint(key)) is not None]
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await self._store(shard, found)
        except (KubeError, LostLeaseError, TimeoutError) as error:
            wait = self._schedule.failed(shard, self._clock())
            self._count_error("Checkpoint")
            said = str(error) or f"no answer in {WRITE_SECONDS:.0f} s"
            log.warning("checkpoint %s was not written, again in %.0f s: %s", self._name(shard), wait, said)
        else:
            self._schedule.written(shard, self._clock())

    async def _store(self, shard: int, found: list[Checkpoint]) -> None:
        if not found:
            await self._remove(shard)
            return
        data, left_out = await asyncio.to_thread(encode, found)
        if left_out:
            log.warning("checkpoint %s has no room for %s", self._name(shard), _names(left_out))
        self._lease.check()
        manifest = self._manifest(shard, data)
        try:
            body = await self._api.apply(manifest)
        except InvalidError as error:
            # Somebody has made it immutable, or given it a field that excludes ours.
            log.warning("checkpoint %s is made anew: %s", self._name(shard), error.message)
            await self._remove(shard)
            body = await self._api.apply(manifest)
        self._stored[shard] = body["metadata"]["uid"]

    async def _remove(self, shard: int) -> None:
        uid = self._stored.pop(shard, None)
        if uid is not None:
            self._lease.check()
            await self._api.delete(kinds.CONFIG_MAP, self._namespace, self._name(shard), uid)

    def _manifest(self, shard: int, data: bytes) -> RawObject:
        return {
            "apiVersion": kinds.CONFIG_MAP.api_version,
            "kind": kinds.CONFIG_MAP.kind,
            "metadata": {
                "name": self._name(shard),
                "namespace": self._namespace,
                "labels": {labels.MANAGED_BY: labels.MANAGER, "app.kubernetes.io/component": "watch"},
            },
            "binaryData": {FIELD: base64.b64encode(data).decode()},
        }


def _names(keys: list[Key]) -> str:
    shown = ", ".join(f"{namespace}/{name}" for namespace, name, _ in keys[:5])
    return shown if len(keys) <= 5 else f"{shown} and {len(keys) - 5} more"
