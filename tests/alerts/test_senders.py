import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from specfleet.alerts.alert import Alert, AlertSeverity
from specfleet.alerts.alertmanager import VALIDITY, AlertSender
from specfleet.alerts.webhook import WebhookSender

from tests.alerts.made import NOON

Posts = list[Any]


class Receiver:
    """An HTTP server that keeps what it is sent and answers as told."""

    def __init__(self) -> None:
        self.posts: Posts = []
        self.status = 200
        self.url = ""

    async def _take(self, request: web.Request) -> web.Response:
        self.posts.append((request.path, await request.json()))
        return web.Response(status=self.status, text="because")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Receiver"]:
        app = web.Application()
        app.router.add_post("/{path:.*}", self._take)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
        try:
            yield self
        finally:
            await runner.cleanup()


def _alert(name: str = "SpecfleetRolledBack") -> Alert:
    return Alert(name, AlertSeverity.WARNING, NOON, "summary", "description", {"namespace": "models", "name": "llama"})


def _ends(post: Any) -> list[datetime]:
    return [datetime.fromisoformat(one["endsAt"]) for one in post]


def _run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 20))  # type: ignore[arg-type]


def test_a_firing_alert_is_sent_again_and_ends_by_itself_if_the_operator_is_gone() -> None:
    async def work() -> None:
        async with Receiver().running() as receiver, AlertSender(receiver.url + "/") as sender:
            for _ in range(2):
                await sender.send([_alert()])
        assert [path for path, _ in receiver.posts] == ["/api/v2/alerts"] * 2
        for _, body in receiver.posts:
            assert body[0]["labels"]["alertname"] == "SpecfleetRolledBack"
            assert body[0]["startsAt"] == NOON.isoformat()
            assert timedelta(0) < _ends(body)[0] - datetime.now(UTC) <= VALIDITY

    _run(work)


def test_an_alert_that_stopped_firing_is_resolved_at_once_and_then_left_alone() -> None:
    async def work() -> None:
        async with Receiver().running() as receiver, AlertSender(receiver.url) as sender:
            await sender.send([_alert()])
            await sender.send([])
            await sender.send([])
        assert len(receiver.posts) == 2
        assert _ends(receiver.posts[1][1])[0] <= datetime.now(UTC)

    _run(work)


def test_an_end_that_was_not_delivered_is_delivered_later() -> None:
    async def work() -> None:
        async with Receiver().running() as receiver, AlertSender(receiver.url) as sender:
            await sender.send([_alert()])
            receiver.status = 500
            await sender.send([])
            receiver.status = 200
            await sender.send([])
        assert len(receiver.posts) == 3
        assert sender.failures == 1
        assert receiver.posts[2][1][0]["labels"]["alertname"] == "SpecfleetRolledBack"

    _run(work)


def test_an_outage_never_raises_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with AlertSender("http://127.0.0.1:1") as sender:
            for _ in range(3):
                await sender.send([_alert()])
        assert sender.failures == 3

    with caplog.at_level("WARNING"):
        _run(work)
    assert len(caplog.records) == 1
    assert "127.0.0.1:1" in caplog.text


def test_every_alertmanager_of_a_cluster_is_told_even_if_one_is_down() -> None:
    async def work() -> None:
        async with Receiver().running() as first, Receiver().running() as second:
            sender = AlertSender(f"{first.url}, http://127.0.0.1:1, {second.url}")
            async with sender:
                await sender.send([_alert()])
        assert len(first.posts) == len(second.posts) == 1

    _run(work)


def test_the_webhook_is_told_changes_only() -> None:
    async def work() -> None:
        async with Receiver().running() as receiver, WebhookSender(receiver.url) as sender:
            await sender.send([_alert()])
            await sender.send([_alert()])
            await sender.send([_alert("SpecfleetExhausted")])
        states = [[(one["labels"]["alertname"], one["status"]) for one in body["alerts"]] for _, body in receiver.posts]
        assert states == [
            [("SpecfleetRolledBack", "firing")],
            [("SpecfleetExhausted", "firing"), ("SpecfleetRolledBack", "resolved")],
        ]
        assert json.dumps(receiver.posts[0][1])

    _run(work)


def test_a_change_that_the_webhook_did_not_take_is_told_again() -> None:
    async def work() -> None:
        async with Receiver().running() as receiver, WebhookSender(receiver.url) as sender:
            receiver.status = 503
            await sender.send([_alert()])
            receiver.status = 204
            await sender.send([_alert()])
            await sender.send([_alert()])
        assert len(receiver.posts) == 2
        assert sender.failures == 1

    _run(work)
