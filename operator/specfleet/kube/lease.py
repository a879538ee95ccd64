"""One operator acts at a time: a Lease per shard, its age checked on a monotonic clock before every write."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from specfleet.api.base import RawObject
from specfleet.kube.kinds import LEASE
from specfleet.kube.port import ConflictError, KubeApi, KubeError, NotFoundError

DURATION_SECONDS = 30
RENEW_SECONDS = 10
TRUST_SECONDS = 20
"""Shorter than what others wait before they take the Lease, so that a write on its way is over before they act."""

log = logging.getLogger(__name__)


class LostLeaseError(Exception):
    """Another operator may be acting: nothing may be written."""


class Lease:
    """coordination.k8s.io/v1 Lease, taken before the first write and renewed every 10 s."""

    def __init__(
        self, api: KubeApi, namespace: str, name: str, identity: str, taken: Callable[[], None] = lambda: None
    ) -> None:
        """`taken` is called whenever the Lease is held after it was not, after an outage of the API server too."""
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._taken = taken
        self._renewed = float("-inf")
        self._seen: tuple[str, float] | None = None
        self.unheld_since: datetime | None = None
        """When the last holder before this process renewed; None: there was none (a first installation)."""

    @property
    def held(self) -> bool:
        """Whether this process may write now."""
        return time.monotonic() - self._renewed < TRUST_SECONDS

    def check(self) -> None:
        """Raise LostLeaseError unless the Lease is held."""
        if not self.held:
            raise LostLeaseError(f"the Lease {self._namespace}/{self._name} is not held")

    async def run(self) -> None:
        """Acquire and renew until cancelled."""
        while True:
            # Counted from before the request: its answer may be slow, and others count from when it was written.
            asked, held = time.monotonic(), self.held
            try:
                if await self._try():
                    self._renewed = asked
                    if not held:
                        self._taken()
            except KubeError as error:
                log.warning("lease %s: %s", self._name, error.message)
            await asyncio.sleep(RENEW_SECONDS if self.held else 2)

    async def wait(self) -> None:
        """Wait until the Lease is held."""
        while not self.held:
            await asyncio.sleep(0.1)

    async def release(self) -> None:
        """Give the Lease back so that a successor need not wait for it to expire."""
        try:
            current = await self._api.get(LEASE, self._namespace, self._name)
            if self.held and current["spec"].get("holderIdentity") == self._identity:
                current["spec"]["holderIdentity"] = ""
                await self._api.replace(current)
        except KubeError as error:
            log.warning("lease %s was not given back: %s", self._name, error.message)
        self._renewed = float("-inf")

    async def _try(self) -> bool:
        asked = time.monotonic()
        try:
            current = await self._api.get(LEASE, self._namespace, self._name)
        except NotFoundError:
            return await self._api.create(self._manifest())
        spec = current["spec"]
        if not self._free(current, asked):
            return False
        before = spec.get("renewTime")
        spec.update(self._spec())
        try:
            await self._api.replace(current)
        except ConflictError:
            return False
        if self._renewed == float("-inf") and before is not None:
            self.unheld_since = datetime.fromisoformat(before)
        return True

    def _free(self, current: RawObject, now: float) -> bool:
        """Ours, given back, or not renewed for its whole duration as seen by our own clock (clocks may differ)."""
        holder = current["spec"].get("holderIdentity")
        if holder in (self._identity, "", None):
            return True
        version = str(current["metadata"]["resourceVersion"])
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
            return False
        return now - self._seen[1] > DURATION_SECONDS

    def _spec(self) -> RawObject:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"holderIdentity": self._identity, "leaseDurationSeconds": DURATION_SECONDS, "renewTime": moment}

    def _manifest(self) -> RawObject:
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"namespace": self._namespace, "name": self._name},
            "spec": self._spec(),
        }
