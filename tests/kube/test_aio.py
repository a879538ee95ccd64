"""The adapter against a real API server: what its writes do, and which error each refusal becomes."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest
from specfleet.api.base import API_VERSION, RawObject
from specfleet.api.deployment import KIND
from specfleet.kube import kinds
from specfleet.kube.aio import AioKubeApi, connect
from specfleet.kube.kinds import Kind
from specfleet.kube.port import ConflictError, InvalidError, NotFoundError, UnavailableError

from e2e.cluster.controlplane import ControlPlane
from tests.decide.world import spec_of

pytestmark = pytest.mark.integration

Work = Callable[[AioKubeApi], Awaitable[None]]


@pytest.fixture
def on_server(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Callable[[Work], None]:
    """Run something with a client of the real API server."""
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))

    def run(work: Work) -> None:
        async def bounded() -> None:
            api = await connect()
            try:
                await asyncio.wait_for(work(api), timeout=60)
            finally:
                await api.close()

        asyncio.run(bounded())

    return run


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def config_map(name: str, **data: str) -> RawObject:
    meta = {"name": name, "namespace": "default", "labels": {"test": name}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def deployment(name: str) -> RawObject:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec_of(),
    }


async def get(api: AioKubeApi, name: str, kind: Kind = kinds.CONFIG_MAP) -> RawObject:
    return await api.get(kind, "default", name)


def test_apply_makes_an_object_and_applying_it_again_changes_nothing(on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi) -> None:
        name = fresh("applied")
        first = await api.apply(config_map(name, a="1"))
        again = await api.apply(config_map(name, a="1"))
        assert first["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
        assert [one["manager"] for one in again["metadata"]["managedFields"]] == ["specfleet"]

    on_server(work)


def test_apply_removes_what_it_no_longer_asks_for_and_leaves_what_others_wrote(
    on_server: Callable[[Work], None],
) -> None:
    async def work(api: AioKubeApi) -> None:
        name = fresh("mine")
        await api.apply(config_map(name, a="1", b="2"))
        current = await get(api, name)
        await api.replace({**current, "data": {**current["data"], "theirs": "3"}})
        await api.apply(config_map(name, a="1"))
        # The update went out under our own field manager, so it is ours only by Update, which Apply does not take away.
        assert (await get(api, name))["data"] == {"a": "1", "theirs": "3"}

    on_server(work)


def test_apply_takes_back_a_field_that_somebody_else_has_changed(on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi) -> None:
        name = fresh("forced")
        await api.apply(config_map(name, a="1"))
        other = await get(api, name)
        other["data"]["a"] = "theirs"
        await api.replace(other)
        await api.apply(config_map(name, a="1"))
        assert (await get(api, name))["data"]["a"] == "1"

    on_server(work)


def test_creating_twice_is_creating_once(on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi) -> None:
        name = fresh("once")
        assert await api.create(config_map(name, a="1")) is True
        assert await api.create(config_map(name, a="2")) is False
        assert (await get(api, name))["data"] == {"a": "1"}

    on_server(work)


def test_replacing_an_older_version_is_a_conflict(on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi) -> None:
        name = fresh("stale")
        await api.create(config_map(name, a="1"))
        stale = await get(api, name)
        await api.apply(config_map(name, a="2"))
        with pytest.raises(ConflictError):
            await api.replace(stale)

    on_server(work)


def test_a_status_is_replaced_as_a_whole_without_touching_the_spec(on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi) -> None:
        name = fresh("sd")
        await api.create(deployment(name))
        body = await get(api, name, kinds.SPECULATIVE_DEPLOYMENT)
        first = {"phase": "Canary", "step": 1, "candidate": "f1", "history": [], "observedGeneration": 1}
        body = await api.patch_status(kinds.SPECULATIVE_DEPLOYMENT, body, first)
        assert body["status"]["step"] == 1
        second = {"phase": "Speculative", "history": [], "observedGeneration": 1}
        after = await api.patch_status(kinds.SPECULATIVE_DEPLOYMENT, body, second)
        assert "step" not in after["status"]
        assert "candidate" not in after["status"]
        assert after["metadata"]["generation"] == body["metadata"]["generation"]
        assert after["spec"] == body["spec"]

    on_server(work)


def test_a_status_decided_on_an_older_object_is_a_conflict(on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi) -> None:
        name = fresh("sd")
        await api.create(deployment(name))
        stale = await get(api, name, kinds.SPECULATIVE_DEPLOYMENT)
        await api.patch_status(kinds.SPECULATIVE_DEPLOYMENT, stale, {"phase": "Baseline"})
        with pytest.raises(ConflictError):
            await api.patch_status(kinds.SPECULATIVE_DEPLOYMENT, stale, {"phase": "Canary"})

    on_server(work)


def test_a_status_decided_on_a_deleted_namesake_is_refused(on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi) -> None:
        name = fresh("sd")
        await api.create(deployment(name))
        old = await get(api, name, kinds.SPECULATIVE_DEPLOYMENT)
        await api.delete(kinds.SPECULATIVE_DEPLOYMENT, "default", name, old["metadata"]["uid"])
        await api.create(deployment(name))
        with pytest.raises(ConflictError):
            await api.patch_status(kinds.SPECULATIVE_DEPLOYMENT, old, {"phase": "Baseline"})

    on_server(work)


def test_deleting_asks_for_the_uid_and_being_gone_already_is_success(on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi) -> None:
        name = fresh("victim")
        await api.create(config_map(name))
        uid = (await get(api, name))["metadata"]["uid"]
        with pytest.raises(ConflictError):
            await api.delete(kinds.CONFIG_MAP, "default", name, "00000000-0000-0000-0000-000000000000")
        await get(api, name)
        await api.delete(kinds.CONFIG_MAP, "default", name, uid)
        await api.delete(kinds.CONFIG_MAP, "default", name, uid)
        with pytest.raises(NotFoundError):
            await get(api, name)

    on_server(work)


def test_lists_come_in_pages_and_whole_with_kind_and_version(
    on_server: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(api: AioKubeApi) -> None:
        label = fresh("paged")
        monkeypatch.setattr("specfleet.kube.aio.PAGE", 3)
        for number in range(8):
            body = config_map(f"{label}-{number}")
            body["metadata"]["labels"] = {"test": label}
            await api.create(body)
        found = await api.list_all(kinds.CONFIG_MAP, "default", f"test={label}")
        assert [one["metadata"]["name"] for one in found] == [f"{label}-{number}" for number in range(8)]
        assert {(one["apiVersion"], one["kind"]) for one in found} == {("v1", "ConfigMap")}
        everywhere = await api.list_all(kinds.CONFIG_MAP, None, f"test={label}")
        assert len(everywhere) == 8

    on_server(work)


def test_an_object_that_the_api_refuses_says_which_field(on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi) -> None:
        bad = deployment(fresh("bad"))
        bad["spec"]["replicas"] = 0
        with pytest.raises(InvalidError) as caught:
            await api.create(bad)
        assert "spec.replicas" in caught.value.message

    on_server(work)


def test_a_kind_that_is_not_served_is_not_found(on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi) -> None:
        with pytest.raises(NotFoundError):
            await api.list_all(Kind("specfleet.dev/v9", "Nothing", "nothings"), "default")

    on_server(work)


def test_only_writes_are_counted(on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi) -> None:
        name = fresh("counted")
        await api.create(config_map(name))
        await get(api, name)
        await api.list_all(kinds.CONFIG_MAP, "default")
        assert api.writes == {("create", "ConfigMap"): 1}

    on_server(work)


def test_a_server_that_is_not_there_is_unavailable(on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi) -> None:
        api._client.configuration.host = "https://127.0.0.1:1"
        with pytest.raises(UnavailableError):
            await get(api, "anything")

    on_server(work)


def test_the_api_groups_of_the_cluster_are_known_by_name(on_server: Callable[[Work], None]) -> None:
    async def work(api: AioKubeApi) -> None:
        groups = await api.groups()
        assert {"apps", "batch", "specfleet.dev"} <= groups
        assert "kueue.x-k8s.io" not in groups

    on_server(work)
