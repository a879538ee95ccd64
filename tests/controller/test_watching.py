"""What is read while a deployment goes is not told of the one that takes its name."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from specfleet.api.status import DeploymentStatus, Phase, RevisionStatus
from specfleet.controller import watching as watchings
from specfleet.controller.fleet import Fleet
from specfleet.controller.probe import Prober
from specfleet.controller.watching import Watching
from specfleet.decide.traffic_profile import TrafficLook, TrafficProfile
from specfleet.decide.watch_target import Key, Target
from specfleet.telemetry.servers import MetricsServer

from tests.controller.objects import KEY, NOW, deployment, wanted
from tests.decide.test_checkpoint import ONE

LOOK = TrafficLook(NOW, TrafficProfile({200.0: 900.0}, {200.0: 900.0}, 900.0))
NOWHERE = MetricsServer("http://127.0.0.1:9", timeout_seconds=1)


class Slow:
    """Profiles whose answer takes long enough for `meanwhile` to happen."""

    queries = 0

    def __init__(self, meanwhile: Any = lambda: None) -> None:
        self._meanwhile = meanwhile

    async def read(self, targets: Mapping[MetricsServer, Sequence[Target]], now: datetime) -> dict[Key, TrafficLook]:
        self._meanwhile()
        return {target.key: LOOK for members in targets.values() for target in members}

    def close(self) -> None:
        return


def fleet() -> Fleet:
    """One deployment whose plain arm serves."""
    owner = deployment()
    stable = RevisionStatus(name="r", baseline=wanted(owner).baseline.fingerprint)
    status = DeploymentStatus(phase=Phase.BASELINE, stable=stable)
    found = Fleet(Prober(lambda key: None, lambda: NOW))
    found.cache.put_deployment({**owner.to_wire(), "status": status.to_wire()})
    return found


def ticked(found: Fleet, profiles: Slow) -> list[tuple[str, str]]:
    """Keys that were woken by one tick."""
    woken: list[tuple[str, str]] = []
    watching = Watching(found, lambda owner: NOWHERE, woken.append)
    watching._profiles = profiles  # type: ignore[assignment]
    try:
        asyncio.run(watching.tick(NOW))
    finally:
        watching.close()
    return woken


def test_a_look_at_the_traffic_wakes_the_deployment() -> None:
    found = fleet()
    assert KEY in ticked(found, Slow())
    assert found.traffic == {KEY: LOOK}


def test_a_namesake_does_not_inherit_the_traffic_of_the_one_that_was_deleted() -> None:
    found = fleet()

    def replaced() -> None:
        body = found.cache.deployments[KEY]
        found.forget(KEY)
        found.cache.put_deployment({**body, "metadata": {**body["metadata"], "uid": "u-2"}})

    ticked(found, Slow(replaced))
    assert found.traffic == {}


@pytest.mark.parametrize(
    ("uid", "serves", "kept"),
    [("u-1", False, True), ("u-1/promoted", False, True), ("u-2", False, False), ("u-1/promoted", True, False)],
    ids=[
        "of one that does not serve yet",
        "of its promoted arm",
        "of a namesake that was deleted",
        "of a trial that is over",
    ],
)
def test_checkpoints_wait_for_their_deployments_and_no_longer(uid: str, serves: bool, kept: bool) -> None:
    found = fleet()
    body = found.cache.deployments[KEY]
    assert body["metadata"]["uid"] == "u-1"
    if not serves:
        found.cache.put_deployment({**body, "status": {}})
    watching = Watching(found, lambda owner: NOWHERE, lambda key: None)
    watching._profiles = Slow()  # type: ignore[assignment]
    key = (*KEY, uid)
    watching.watch.saved.add([replace(ONE, key=key)])
    try:
        asyncio.run(watching.tick(NOW))
    finally:
        watching.close()
    assert watching.watch.saved.keys() == ({key} if kept else set())


def test_nothing_is_kept_of_a_deployment_that_went_meanwhile() -> None:
    found = fleet()
    ticked(found, Slow(lambda: found.forget(KEY)))
    assert (found.traffic, found.reports) == ({}, {})


def test_looks_that_take_long_do_not_hold_the_tick_and_are_taken_in_by_a_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = fleet()
    monkeypatch.setattr(watchings, "LOOK_SECONDS", 0.01)

    async def work() -> None:
        answered = asyncio.Event()

        class Held(Slow):
            async def read(
                self, targets: Mapping[MetricsServer, Sequence[Target]], now: datetime
            ) -> dict[Key, TrafficLook]:
                await answered.wait()
                return await super().read(targets, now)

        watching = Watching(found, lambda owner: NOWHERE, lambda key: None)
        watching._profiles = Held()  # type: ignore[assignment]
        await watching.tick(NOW)
        assert KEY in found.reports
        assert found.traffic == {}
        answered.set()
        async with asyncio.timeout(60):
            while not found.traffic:
                await watching.tick(NOW)
        watching.close()

    asyncio.run(work())
