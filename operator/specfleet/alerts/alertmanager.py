"""Client of the Alertmanager API v2.

Every round sends all firing alerts again with an end in the near future, as Prometheus does: Alertmanager keeps them
while the operator says so, and they end by themselves if it is gone. An alert that stopped firing is ended at once.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

import aiohttp

from specfleet.alerts.alert import Alert
from specfleet.api.base import RawObject

VALIDITY = timedelta(minutes=5)
"""Longer than a restart of the operator, so that an alert does not flap meanwhile."""
TIMEOUT_SECONDS = 10.0
PATH = "/api/v2/alerts"

log = logging.getLogger(__name__)


class AlertSender:
    """Sends to every Alertmanager in a comma-separated list: each of a cluster has to hear it, it deduplicates."""

    def __init__(self, urls: str) -> None:
        self.endpoints = tuple(_Endpoint(url.strip().rstrip("/")) for url in urls.split(",") if url.strip())
        self.failures = 0
        """Rounds that an Alertmanager did not take, since the start."""
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        self._session = aiohttp.ClientSession(timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, alerts: Sequence[Alert]) -> None:
        """Tell all Alertmanagers. Never raises: a failure is logged once per outage and made good by the next round."""
        if self._session is None:
            raise RuntimeError("AlertSender is used outside of `async with`")
        session, now = self._session, datetime.now(UTC)
        answers = await asyncio.gather(*(endpoint.send(session, alerts, now) for endpoint in self.endpoints))
        self.failures += answers.count(False)


class _Endpoint:
    """One Alertmanager and what it was last told to be firing."""

    def __init__(self, url: str) -> None:
        self._url = url + PATH
        self._told: dict[tuple[tuple[str, str], ...], Alert] = {}
        self._silent = False

    async def send(self, session: aiohttp.ClientSession, alerts: Sequence[Alert], now: datetime) -> bool:
        firing = {alert.identity: alert for alert in alerts}
        ended = [alert for identity, alert in self._told.items() if identity not in firing]
        body = [to_wire(alert, now + VALIDITY) for alert in firing.values()] + [to_wire(alert, now) for alert in ended]
        # What was not delivered as ended stays in `_told` and is ended by a later round.
        self._told |= firing
        if not body:
            return True
        try:
            async with session.post(self._url, json=body) as response:
                text = await response.text()
                if response.status >= 300:
                    return self._failed(f"HTTP {response.status}: {text[:300]}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return self._failed(f"{type(error).__name__}: {error}")
        self._told = firing
        if self._silent:
            log.info("Alertmanager %s takes alerts again", self._url)
        self._silent = False
        return True

    def _failed(self, why: str) -> bool:
        if not self._silent:
            log.warning("Alertmanager %s did not take %d alerts, trying on: %s", self._url, len(self._told), why)
        self._silent = True
        return False


def to_wire(alert: Alert, ends_at: datetime) -> RawObject:
    """One alert as `POST /api/v2/alerts` takes it."""
    return {
        "labels": alert.all_labels(),
        "annotations": alert.annotations(),
        "startsAt": alert.starts_at.astimezone(UTC).isoformat(),
        "endsAt": max(ends_at, alert.starts_at).astimezone(UTC).isoformat(),
    }
