"""The resync: what the API server does not answer is not taken for a no, and what is gone is forgotten everywhere."""

import asyncio
from typing import Any

import pytest
from specfleet.alerts.webhook import WebhookSender
from specfleet.api.base import RawObject
from specfleet.controller.app import App
from specfleet.controller.servers import ServerBook
from specfleet.controller.settings import Settings
from specfleet.kube import kinds
from specfleet.kube import lease as leases
from specfleet.kube.kinds import Kind
from specfleet.kube.lease import Lease
from specfleet.kube.port import ForbiddenError, KubeError, NotFoundError, UnavailableError

from tests.controller.objects import deployment


class Lists:
    """An API server with nothing in it that answers for HTTPRoutes as it is told."""

    def __init__(self, routes: KubeError | None = None) -> None:
        self.routes = routes
        self.asked = 0

    async def list_all(self, kind: Kind, namespace: str | None, selector: str | None = None) -> list[RawObject]:
        if kind == kinds.HTTP_ROUTE and self.routes is not None:
            raise self.routes
        return []

    async def groups(self) -> frozenset[str]:
        return frozenset({"apps"})

    async def get(self, kind: Kind, namespace: str, name: str) -> RawObject:
        self.asked += 1
        raise NotFoundError(f"{kind.kind} {name}", 404)


def resynced_app(api: Lists) -> App:
    app = App(Settings())
    app._api = api  # type: ignore[assignment]
    asyncio.run(app._resync_once())
    return app


def test_a_kind_that_the_api_server_could_not_list_is_still_served() -> None:
    api = Lists()
    app = resynced_app(api)
    assert kinds.HTTP_ROUTE.kind in app.fleet.optional
    api.routes = UnavailableError("GET httproutes: 503", 503)
    with pytest.raises(UnavailableError):
        asyncio.run(app._resync_once())
    assert kinds.HTTP_ROUTE.kind in app.fleet.optional, "every route of the fleet would be removed"


def test_a_kind_without_its_crd_or_never_allowed_is_not_served() -> None:
    for error in (NotFoundError("404", 404), ForbiddenError("403", 403)):
        assert kinds.HTTP_ROUTE.kind not in resynced_app(Lists(error)).fleet.optional


def test_a_deployment_whose_deletion_the_watch_missed_is_forgotten_by_the_queue_too() -> None:
    async def work() -> None:
        app = App(Settings())
        app._api = Lists()  # type: ignore[assignment]
        key = app.fleet.cache.put_deployment(dict(deployment().to_wire()))
        app.queue.retry(key)
        await app._resync_once()
        assert app.fleet.cache.known() == []
        assert key not in app.queue._timers

    asyncio.run(work())


def test_a_secret_that_is_missing_is_not_asked_for_on_every_tick() -> None:
    auth: dict[str, Any] = {"url": "http://p", "auth": {"type": "Bearer", "secretName": "token"}}
    app, api = App(Settings()), Lists()
    for name in ("a", "b"):
        app.fleet.cache.put_deployment(dict(deployment(name, monitoring={"prometheus": auth}).to_wire()))
    book = ServerBook(api, Settings())  # type: ignore[arg-type]
    for _ in range(3):
        asyncio.run(book.refresh(app.fleet))
    assert len(app.fleet.readable()) == 2
    assert api.asked == 1


class HeldLease:
    held = True
    unheld_since = None

    async def wait(self) -> None:
        return


def test_a_stand_by_that_takes_over_after_a_long_wait_is_healthy_until_its_first_tick() -> None:
    async def work() -> None:
        app = App(Settings())
        app._lease = HeldLease()  # type: ignore[assignment]
        app._beat = asyncio.get_running_loop().time() - 3600
        assert app.healthy() is not None
        listing = asyncio.Event()

        class Slow(Lists):
            async def list_all(self, kind: Kind, namespace: str | None, selector: str | None = None) -> list[RawObject]:
                listing.set()
                await asyncio.Event().wait()
                return []

        app._api = Slow()  # type: ignore[assignment]
        task = asyncio.create_task(app._lead(None, None))  # type: ignore[arg-type]
        await asyncio.wait_for(listing.wait(), timeout=10)
        assert app.healthy() is None
        task.cancel()

    asyncio.run(work())


def test_rounds_of_alerts_that_no_receiver_took_are_counted_in_the_operators_metrics() -> None:
    app = App(Settings())
    app.follow_itself()
    for rounds in (2, 3):
        sender = WebhookSender("http://127.0.0.1:9")
        sender.failures = rounds
        app._senders.append(sender)
    assert app.metrics.registry.get_sample_value("specfleet_alert_failures_total") == 5


def test_whoever_loses_the_lease_for_a_while_takes_over_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setattr(leases, "TRUST_SECONDS", 0.0)
        taken: list[int] = []
        lease = Lease(Lists(), "default", "one", "operator", lambda: taken.append(len(taken)))  # type: ignore[arg-type]

        async def renewed() -> bool:
            return True

        monkeypatch.setattr(lease, "_try", renewed)
        task = asyncio.create_task(lease.run())
        async with asyncio.timeout(60):
            while len(taken) < 2:
                await asyncio.sleep(0.05)
        task.cancel()

    asyncio.run(work())
