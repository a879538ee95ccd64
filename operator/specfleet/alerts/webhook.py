"""Generic JSON webhook for places without Alertmanager: told once when an alert starts and once when it ends."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import aiohttp

from specfleet.alerts.alert import Alert
from specfleet.api.base import RawObject

TIMEOUT_SECONDS = 10.0
SCHEMA = "specfleet.dev/alerts/v1"

log = logging.getLogger(__name__)


class WebhookSender:
    """Posts changes only. After a restart of the operator whatever fires is told again: receivers go by `labels`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._told: dict[tuple[tuple[str, str], ...], Alert] = {}
        self._session: aiohttp.ClientSession | None = None
        self._silent = False
        self.failures = 0

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, alerts: Sequence[Alert]) -> None:
        """Post what started and what ended since the last post that was taken. Never raises."""
        if self._session is None:
            raise RuntimeError("WebhookSender is used outside of `async with`")
        firing = {alert.identity: alert for alert in alerts}
        started = [alert for identity, alert in firing.items() if identity not in self._told]
        ended = [alert for identity, alert in self._told.items() if identity not in firing]
        if not started and not ended:
            return
        try:
            async with self._session.post(self._url, json=body(started, ended, datetime.now(UTC))) as response:
                taken, why = response.status < 300, f"HTTP {response.status}"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            taken, why = False, f"{type(error).__name__}: {error}"
        if taken:
            self._told = firing
        else:
            self.failures += 1
            if not self._silent:
                log.warning("the webhook did not take %d changes, trying on: %s", len(started) + len(ended), why)
        self._silent = not taken


def body(started: Sequence[Alert], ended: Sequence[Alert], now: datetime) -> RawObject:
    """The JSON document of one post."""
    return {
        "schema": SCHEMA,
        "alerts": [
            *(_one(alert, "firing", None) for alert in started),
            *(_one(alert, "resolved", now) for alert in ended),
        ],
    }


def _one(alert: Alert, state: str, ends_at: datetime | None) -> RawObject:
    return {
        "status": state,
        "labels": alert.all_labels(),
        "annotations": alert.annotations(),
        "startsAt": alert.starts_at.astimezone(UTC).isoformat(),
        "endsAt": None if ends_at is None else ends_at.isoformat(),
    }
