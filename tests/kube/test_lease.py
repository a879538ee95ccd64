"""The Lease between operators, on a real API server: never two that act, and a quick hand-over."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest
from specfleet.kube import lease as leases
from specfleet.kube.aio import AioKubeApi, connect
from specfleet.kube.kinds import LEASE
from specfleet.kube.lease import Lease, LostLeaseError

from e2e.cluster.controlplane import ControlPlane

pytestmark = pytest.mark.integration

Work = Callable[[AioKubeApi, str], Awaitable[None]]


@pytest.fixture
def on_server(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Callable[[Work], None]:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))

    def run(work: Work) -> None:
        async def bounded() -> None:
            api = await connect()
            try:
                await asyncio.wait_for(work(api, f"lease-{uuid.uuid4().hex[:8]}"), timeout=60)
            finally:
                await api.close()

        asyncio.run(bounded())

    return run


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


def shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "DURATION_SECONDS", 3)
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.5)
    monkeypatch.setattr(leases, "TRUST_SECONDS", 2)


def test_the_first_holder_acts_and_the_second_waits(on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi, name: str) -> None:
        one, two = Lease(api, "default", name, "one"), Lease(api, "default", name, "two")
        first = asyncio.create_task(one.run())
        await one.wait()
        second = asyncio.create_task(two.run())
        await until(lambda: two._seen is not None)
        assert one.held
        assert not two.held
        one.check()
        with pytest.raises(LostLeaseError):
            two.check()
        for task in (first, second):
            task.cancel()

    on_server(work)


def test_a_lease_that_is_given_back_is_taken_at_once(on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi, name: str) -> None:
        one, two = Lease(api, "default", name, "one"), Lease(api, "default", name, "two")
        first = asyncio.create_task(one.run())
        await one.wait()
        first.cancel()
        await one.release()
        assert not one.held
        second = asyncio.create_task(two.run())
        await two.wait()
        second.cancel()
        assert (await api.get(LEASE, "default", name))["spec"]["holderIdentity"] == "two"

    on_server(work)


def test_a_holder_that_dies_is_followed_and_never_overlaps_with_its_successor(
    on_server: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shortened(monkeypatch)

    async def work(api: AioKubeApi, name: str) -> None:
        one, two = Lease(api, "default", name, "one"), Lease(api, "default", name, "two")
        first, second = asyncio.create_task(one.run()), None
        await one.wait()
        second = asyncio.create_task(two.run())
        await until(lambda: two._seen is not None)
        first.cancel()
        overlap = False

        def taken() -> bool:
            nonlocal overlap
            overlap = overlap or (one.held and two.held)
            return two.held

        await until(taken)
        assert not overlap
        with pytest.raises(LostLeaseError):
            one.check()
        second.cancel()

    on_server(work)


def test_a_restarted_operator_of_the_same_name_takes_its_own_lease_at_once(on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi, name: str) -> None:
        one = Lease(api, "default", name, "pod-0")
        first = asyncio.create_task(one.run())
        await one.wait()
        first.cancel()
        again = Lease(api, "default", name, "pod-0")
        second = asyncio.create_task(again.run())
        await again.wait()
        second.cancel()

    on_server(work)


def test_a_slow_answer_does_not_lengthen_the_time_in_which_a_holder_trusts_its_lease(
    on_server: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shortened(monkeypatch)

    async def work(api: AioKubeApi, name: str) -> None:
        lease = Lease(api, "default", name, "one")
        answered = asyncio.Event()

        async def slow() -> bool:
            await asyncio.sleep(leases.TRUST_SECONDS + 0.2)
            answered.set()
            return True

        monkeypatch.setattr(lease, "_try", slow)
        task = asyncio.create_task(lease.run())
        await answered.wait()
        await asyncio.sleep(0.05)
        assert not lease.held
        task.cancel()

    on_server(work)
