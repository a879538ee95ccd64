"""What one reconcile writes when the API server is slow or fails half-way."""

import asyncio
from typing import Any

import pytest
from specfleet.alerts.metrics import OperatorMetrics
from specfleet.api.base import RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import DecisionRecord, DeploymentStatus
from specfleet.controller.changes import Changes
from specfleet.controller.fleet import Fleet
from specfleet.controller.observe import Surroundings, observe
from specfleet.controller.probe import Prober
from specfleet.controller.reconcile import Reconciler
from specfleet.decide.observation import FleetView, Observation
from specfleet.decide.plan import Plan
from specfleet.kube.kinds import Kind
from specfleet.kube.lease import LostLeaseError
from specfleet.kube.port import NotFoundError, UnavailableError

from tests.controller.objects import KEY, NOW, cache_of, deployment, wanted

ARM: RawObject = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"namespace": "ml", "name": "llama-arm", "labels": {}},
    "spec": {},
}

ROLLED_BACK = DecisionRecord(time=NOW, action="RollBack", reason="CrashLoop", message="it crashes")


class OneLease:
    held = True

    def check(self) -> None:
        if not self.held:
            raise LostLeaseError("the Lease is not held")


class Server:
    """Answers as told and notes what is written."""

    def __init__(self, lease: OneLease) -> None:
        self.lease = lease
        self.slow = False
        self.applies = True
        self.events: list[str] = []
        self.applied: list[str] = []

    async def get(self, kind: Kind, namespace: str, name: str) -> RawObject:
        self.lease.held = not self.slow
        raise NotFoundError(f"{kind.kind} {name}", 404)

    async def apply(self, manifest: RawObject) -> RawObject:
        if not self.applies:
            raise UnavailableError("PATCH: 503", 503)
        self.applied.append(manifest["metadata"]["name"])
        return {**manifest, "metadata": {**manifest["metadata"], "uid": "u-2", "resourceVersion": "1"}}

    async def create(self, manifest: RawObject) -> bool:
        self.events.append(manifest["reason"])
        return True

    async def patch_status(self, kind: Kind, current: RawObject, status: RawObject) -> RawObject:
        return {**current, "metadata": {**current["metadata"], "resourceVersion": "11"}, "status": status}


class Desk:
    """A reconciler over a scripted API server, and one plan: a decision and an arm to write."""

    def __init__(self) -> None:
        self.lease = OneLease()
        self.server = Server(self.lease)
        self.owner = deployment()
        self.fleet = Fleet(Prober(lambda key: None, lambda: NOW))
        self.fleet.cache = cache_of(self.owner)
        api: Any = self.server
        lease: Any = self.lease
        self.reconciler = Reconciler(api, self.fleet, lease, OperatorMetrics(), lambda: NOW)

    async def act(self) -> None:
        status = DeploymentStatus(history=[ROLLED_BACK])
        plan = Plan(status=status, decisions=(ROLLED_BACK,))
        await self.reconciler._act(KEY, self.seen(), plan, Changes(status=status.to_wire(), apply=(ARM,)))

    def seen(self) -> Observation:
        around = Surroundings(self.fleet.prober, reports={}, gateway_api=False, fleet=FleetView())
        return observe(self.fleet.cache, KEY, self.owner, wanted(self.owner), around, NOW)

    async def tell_again(self) -> None:
        owner: SpeculativeDeployment = self.fleet.deployment(KEY)
        await self.reconciler._tell_again(owner)


def test_a_lease_that_ran_out_during_the_question_whose_object_it_is_keeps_the_object_from_being_written() -> None:
    desk = Desk()
    desk.server.slow = True
    with pytest.raises(LostLeaseError):
        asyncio.run(desk.act())
    assert desk.server.applied == []


def test_an_event_that_a_failing_write_cut_off_is_told_by_the_next_reconcile_and_only_once() -> None:
    desk = Desk()

    async def work() -> None:
        await desk.tell_again()
        desk.server.applies = False
        with pytest.raises(UnavailableError):
            await desk.act()
        assert desk.server.events == []
        await desk.tell_again()
        await desk.tell_again()

    asyncio.run(work())
    assert desk.server.events == ["CrashLoop"]


def test_an_event_that_was_told_is_not_told_again() -> None:
    desk = Desk()

    async def work() -> None:
        await desk.tell_again()
        await desk.act()
        await desk.tell_again()

    asyncio.run(work())
    assert desk.server.events == ["CrashLoop"]


def test_the_breaker_opens_with_the_roll_back_that_is_too_many_and_does_not_wait_for_the_next_tick() -> None:
    desk = Desk()
    for name in ("other", "third"):
        rolled = DeploymentStatus(history=[ROLLED_BACK]).to_wire()
        body = {**deployment(name).to_wire(), "status": rolled}
        desk.fleet.cache.put_deployment(body)
    desk.fleet.judge_breaker(NOW)
    assert not desk.fleet.surroundings(KEY).fleet.breaker_open
    asyncio.run(desk.act())
    assert desk.fleet.surroundings(("ml", "another")).fleet.breaker_open
