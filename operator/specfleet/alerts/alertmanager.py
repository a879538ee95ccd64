"""Alerts to Alertmanager (API v2) and, if set, as JSON to a webhook: sent again while they fire, then ended."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

import aiohttp

from specfleet.alerts.derive import Alert

TIMEOUT_SECONDS = 10.0
KEEP_ALIVE = timedelta(minutes=4)
"""endsAt of a firing alert: if the operator dies the alert ends by itself, and a live one sends it again before."""

log = logging.getLogger(__name__)


class AlertSender:
    """Sends what fires. Failures are told in the log and tried again with the next call."""

    def __init__(self, alertmanager_url: str | None, webhook_url: str | None = None) -> None:
        self._alertmanager = alertmanager_url.rstrip("/") if alertmanager_url else None
        self._webhook = webhook_url
        self._firing: dict[tuple[str, ...], Alert] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, alerts: Sequence[Alert], now: datetime) -> bool:
        """Send firing alerts and end those that fired before. False when a receiver did not take them."""
        firing = {_identity(alert): alert for alert in alerts}
        ended = [alert for identity, alert in self._firing.items() if identity not in firing]
        started = [alert for identity, alert in firing.items() if identity not in self._firing]
        body = [_wire(alert, now + KEEP_ALIVE) for alert in alerts] + [_wire(alert, now) for alert in ended]
        taken = True
        if self._alertmanager is not None and body:
            taken = await self._post(f"{self._alertmanager}/api/v2/alerts", body)
        if self._webhook is not None and (started or ended):
            news = {"firing": [_wire(one, None) for one in started], "resolved": [_wire(one, now) for one in ended]}
            taken = await self._post(self._webhook, news) and taken
        if taken:
            self._firing = firing
        return taken

    async def _post(self, url: str, body: Any) -> bool:
        assert self._session is not None, "use it as an async context manager"
        try:
            async with self._session.post(url, json=body) as response:
                if response.status < 300:
                    return True
                log.warning("alerts: %s answered HTTP %s: %s", url, response.status, (await response.text())[:200])
        except (aiohttp.ClientError, TimeoutError) as error:
            log.warning("alerts: %s: %s %s", url, type(error).__name__, error)
        return False


def _identity(alert: Alert) -> tuple[str, ...]:
    return (alert.name, *(f"{key}={value}" for key, value in sorted(alert.labels.items())))


def _wire(alert: Alert, ends: datetime | None) -> dict[str, Any]:
    body: dict[str, Any] = {
        "labels": {"alertname": alert.name, "severity": alert.severity, **alert.labels},
        "annotations": {"summary": alert.summary, "description": alert.description},
        "startsAt": alert.since.isoformat(),
    }
    if ends is not None:
        body["endsAt"] = ends.isoformat()
    return body
