"""Checkpoints on a real API server, with the rights that the chart gives: the next operator goes on with the watch."""

import asyncio
import base64
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from specfleet.api import labels
from specfleet.api.base import API_VERSION
from specfleet.api.deployment import KIND
from specfleet.controller import app as app_module
from specfleet.controller import checkpoints as checkpoints_module
from specfleet.controller.app import App
from specfleet.controller.checkpoints import WRITES_PER_LOOK, Checkpoints
from specfleet.controller.settings import Settings
from specfleet.decide.checkpoint_format import SHARDS, shard_of
from specfleet.decide.checkpoint_schedule import CALM_SECONDS, PERIOD_SECONDS
from specfleet.decide.watch import Watch
from specfleet.decide.watch_target import Key
from specfleet.kube import kinds
from specfleet.kube.aio import AioKubeApi, connect
from specfleet.kube.lease import Lease
from specfleet.kube.port import NotFoundError

from tests.decide.test_checkpoint import START, feed, reports, target
from tests.decide.world import spec_of
from tests.integration.conftest import Object, Server
from tests.integration.test_chart import OPERATORS, TEAM, one_team

__all__ = ["one_team"]

pytestmark = pytest.mark.integration

LEASE = "specfleet-team"
PREFIX = f"{LEASE}-watch"
TARGETS = [target(number) for number in range(3)]
NOW = START + timedelta(minutes=71)


class Operator:
    """One process: its own client with the chart's rights, its Lease, its watch."""

    def __init__(self, api: AioKubeApi, identity: str, prefix: str = PREFIX) -> None:
        self.seconds, self.errors = 0.0, list[str]()
        self.watch = Watch()
        self.lease = Lease(api, OPERATORS, LEASE, identity)
        self.checkpoints = Checkpoints(
            api, self.lease, self.watch, (OPERATORS, prefix), self.errors.append, lambda: self.seconds
        )

    async def lead(self) -> None:
        self._renewal = asyncio.create_task(self.lease.run())
        await asyncio.wait_for(self.lease.wait(), timeout=50)

    def see(self, first: int, end: int, acceptance: float = 0.4) -> None:
        for index in range(first, end):
            feed(self.watch, TARGETS, index, acceptance)


Work = Callable[[AioKubeApi], Awaitable[None]]


@pytest.fixture
def on_server(server: Server, one_team: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[Work], None]:
    """Run something with a client that may do what the operator of one team may."""
    monkeypatch.setenv("KUBECONFIG", str(server.plane.kubeconfig))
    for shard in {shard_of(one.key) for one in TARGETS}:
        server.run("-n", OPERATORS, "delete", "--ignore-not-found", "configmap", f"{PREFIX}-{shard}")

    def run(work: Work) -> None:
        async def bounded() -> None:
            api = await as_user(one_team)
            try:
                await asyncio.wait_for(work(api), timeout=120)
            finally:
                await api.close()

        asyncio.run(bounded())

    return run


async def as_user(user: str) -> AioKubeApi:
    api = await connect()
    api._client.set_default_header("Impersonate-User", user)
    return api


def stored(server: Server) -> dict[str, Object]:
    listed = server.get("-n", OPERATORS, "configmaps", "-l", f"{labels.MANAGED_BY}={labels.MANAGER}")
    return {one["metadata"]["name"]: one for one in listed["items"]}


def test_the_next_operator_goes_on_where_the_last_one_wrote(server: Server, on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi) -> None:
        first = Operator(api, "first")
        first.see(0, 70)
        await first.checkpoints.write_due()
        assert stored(server) == {}, "a stand-by writes nothing"
        await first.lead()
        await first.checkpoints.write_due()
        names = {f"{PREFIX}-{shard_of(key)}" for key, _, _ in first.watch.elevated()}
        assert names
        assert set(stored(server)) == names
        await first.checkpoints.write_all()
        before = stored(server)
        assert set(before) == {f"{PREFIX}-{shard_of(one.key)}" for one in TARGETS}

        second = Operator(api, "second")
        await second.checkpoints.read(NOW)
        assert {second.watch.saved.resumes_at(one) for one in TARGETS} == {START.timestamp() + 70 * 60}
        for operator in (first, second):
            operator.see(70, 90)
        assert reports(second.watch, TARGETS) == reports(first.watch, TARGETS)
        assert first.errors == second.errors == []

    on_server(work)


def test_a_steady_state_writes_nothing_and_what_is_gone_is_removed(
    server: Server, on_server: Callable[[Work], None]
) -> None:
    async def work(api: AioKubeApi) -> None:
        operator = Operator(api, "first")
        await operator.lead()
        operator.see(0, 70, 0.5)
        await operator.checkpoints.write_all()
        before = stored(server)
        assert len(before) == len(TARGETS)
        operator.see(70, 80, 0.5)
        assert operator.watch.elevated() == set()
        operator.seconds = CALM_SECONDS + 1
        for _ in range(3):
            await operator.checkpoints.write_due()
        assert stored(server) == before
        for one in TARGETS:
            operator.watch.forget(one.key)
        operator.seconds = PERIOD_SECONDS + CALM_SECONDS + 1
        for _ in range(SHARDS // WRITES_PER_LOOK):
            await operator.checkpoints.write_due()
        assert stored(server) == {}

    on_server(work)


@pytest.mark.parametrize(
    "body",
    [
        {"binaryData": {"watch": base64.b64encode(b"rubbish").decode()}},
        {"binaryData": {}},
        {"data": {"watch": "text"}},
        {"binaryData": {"watch": base64.b64encode(b"rubbish").decode()}, "immutable": True},
    ],
    ids=["rubbish", "nothing", "text", "immutable"],
)
def test_what_was_spoiled_is_left_aside_with_a_warning_and_written_anew(
    server: Server, on_server: Callable[[Work], None], caplog: pytest.LogCaptureFixture, body: Object
) -> None:
    async def work(api: AioKubeApi) -> None:
        first = Operator(api, "first")
        await first.lead()
        first.see(0, 70)
        await first.checkpoints.write_all()
        name = f"{PREFIX}-{shard_of(TARGETS[0].key)}"
        meta = {"name": name, "namespace": OPERATORS}
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **body}
        done = server.run("replace", "-f", "-", stdin=manifest)
        assert done.returncode == 0, done.stderr
        second = Operator(api, "first")
        with caplog.at_level(logging.WARNING):
            await second.checkpoints.read(NOW)
        assert name in caplog.text
        assert "six hours of windows are read again instead" in caplog.text
        spoiled = {one.key for one in TARGETS if shard_of(one.key) == shard_of(TARGETS[0].key)}
        assert second.watch.saved.keys() == {one.key for one in TARGETS} - spoiled
        await second.lead()
        second.see(0, 70)
        await second.checkpoints.write_all()
        third = Operator(api, "first")
        await third.checkpoints.read(NOW)
        assert third.watch.saved.keys() == {one.key for one in TARGETS}

    on_server(work)


def test_what_the_operator_may_not_write_is_counted_and_tried_again_later(
    server: Server, on_server: Callable[[Work], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def work(api: AioKubeApi) -> None:
        stranger = Operator(api, "first", "specfleet-watch")
        await stranger.lead()
        stranger.see(0, 70)
        with caplog.at_level(logging.WARNING):
            await stranger.checkpoints.read(NOW)
            await stranger.checkpoints.write_all()
        assert set(stranger.errors) == {"Checkpoint"}
        assert "forbidden" in caplog.text
        assert stored(server) == {}
        with pytest.raises(NotFoundError):
            await api.get(kinds.CONFIG_MAP, OPERATORS, f"{PREFIX}-0")

    on_server(work)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_whole_operator_that_ends_leaves_its_watch_to_the_next_one(
    server: Server, on_server: Callable[[Work], None], one_team: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two runs of the real process with the chart's rights; the windows alone are played."""
    monkeypatch.setattr(app_module, "connect", lambda: as_user(one_team))
    name = f"llama-{tmp_path.name}".lower().replace("_", "-")[:40]
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name, "namespace": TEAM}, "spec": spec_of()}
    assert server.create(body) == ""
    uid = server.get("-n", TEAM, "speculativedeployment", name)["metadata"]["uid"]
    one = target(0)

    async def run(act: Callable[[App], Awaitable[None]], identity: str) -> None:
        app = App(
            Settings((TEAM,), own_namespace=OPERATORS, identity=identity, lease_name=LEASE, metrics_port=free_port())
        )
        await app.start()
        try:
            async with asyncio.timeout(150):
                while not any(task.get_name() == "telemetry" for task in app._tasks):
                    await asyncio.sleep(0.1)
                await act(app)
        finally:
            await app.stop()

    key: Key = (TEAM, name, uid)

    def watched(app: App) -> Watch:
        assert app._watching is not None
        return app._watching.watch

    async def play(app: App) -> None:
        for index in range(70):
            feed(watched(app), [replace(one, key=key)], index, 0.4)

    async def look(app: App) -> None:
        saved = watched(app).checkpoint(key)
        assert saved is not None
        assert saved.until == START.timestamp() + 70 * 60

    monkeypatch.setattr(app_module, "utc_now", lambda: NOW)
    # A machine that is busy with other things may be slow to answer 64 requests.
    monkeypatch.setattr(checkpoints_module, "READ_SECONDS", 100.0)
    monkeypatch.setattr(checkpoints_module, "LAST_SECONDS", 60.0)
    asyncio.run(run(play, "first"))
    asyncio.run(run(look, "second"))
    server.run("-n", TEAM, "delete", "speculativedeployment", name)
