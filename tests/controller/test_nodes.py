"""Engines over several nodes on a real API server with the CRD of LeaderWorkerSet, whose controller this test plays."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.api.status import Phase
from specfleet.kube import kinds
from specfleet.kube.port import ForbiddenError
from specfleet.resources.groups import GROUP_INDEX, SET_NAME, WORKER_INDEX

from e2e.cluster.controlplane import ControlPlane
from tests.controller.played_driver import measured
from tests.controller.test_reconcile import (
    OTHER_IMAGE,
    Operator,
    Stage,
    adopted,
    in_phase,
    live,
    on_stage,
    settle,
    staged,
)
from tests.integration.conftest import ROOT

pytestmark = pytest.mark.integration
__all__ = ["on_stage"]

CRD = ROOT / "tests" / "integration" / "crds" / "leaderworkersets.json"
SETS = frozenset({"LeaderWorkerSet"})
GROUP = "leaderworkerset.x-k8s.io"
SPANNING: dict[str, Any] = {
    "multiNode": {"size": 2, "exclusiveTopologyKey": "rack"},
    "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "0.5"}},
    "sharedMemorySize": "8Gi",
}


@pytest.fixture(scope="session")
def plane_with_sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("plane-with-sets"), controller_manager=True) as plane:
        plane.install_crds(ROOT / "crds", CRD)
        yield plane


@pytest.fixture
def on_sets(plane_with_sets: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run something where LeaderWorkerSet is installed."""
    return staged(plane_with_sets, monkeypatch)


class StageWithSets(Stage):
    """A stage whose kubelet gets its pods from LeaderWorkerSets too."""

    async def kubelet(self) -> None:
        # A namespace is a moment old before it has the service account that every pod needs.
        with suppress(ForbiddenError):
            await play_sets(self)
        await super().kubelet()


async def play_sets(stage: Stage) -> None:
    """What the controller of LeaderWorkerSet does: groups up to the replicas, a whole group anew when a pod goes."""
    pods = {pod["metadata"]["name"]: pod for pod in await stage.children(kinds.POD)}
    wanted: set[str] = set()
    for body in await stage.children(kinds.LEADER_WORKER_SET):
        name, group = body["metadata"]["name"], body["spec"]["leaderWorkerTemplate"]
        for index in range(body["spec"]["replicas"]):
            leader = f"{name}-{index}"
            members = [leader, *(f"{leader}-{rank}" for rank in range(1, group["size"]))]
            wanted |= set(members)
            if leader not in pods:
                await make_group(stage, body, index)
            elif not all(one in pods for one in members):
                await stage.api.delete(kinds.POD, stage.key[0], leader, pods[leader]["metadata"]["uid"])
    for name, pod in pods.items():
        if SET_NAME in pod["metadata"]["labels"] and name not in wanted and WORKER_INDEX in pod["metadata"]["labels"]:
            await stage.api.delete(kinds.POD, stage.key[0], name, pod["metadata"]["uid"])


async def make_group(stage: Stage, body: RawObject, index: int) -> None:
    """Leader first; the others belong to it, as the StatefulSet between them does."""
    name, group = body["metadata"]["name"], body["spec"]["leaderWorkerTemplate"]
    owner = {"apiVersion": body["apiVersion"], "kind": body["kind"], "name": name, "uid": body["metadata"]["uid"]}
    for rank in range(group["size"]):
        template = group["leaderTemplate"] if rank == 0 else group["workerTemplate"]
        own = {SET_NAME: name, GROUP_INDEX: str(index), WORKER_INDEX: str(rank)}
        metadata = {
            "namespace": stage.key[0],
            "name": f"{name}-{index}" + (f"-{rank}" if rank else ""),
            "labels": {**template["metadata"]["labels"], **own},
            "ownerReferences": [owner],
        }
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": with_variables(template["spec"], rank)}
        await stage.api.create(made)
        if rank == 0:
            leader = await stage.api.get(kinds.POD, stage.key[0], metadata["name"])
            owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": leader["metadata"]["uid"]}


def with_variables(spec: RawObject, rank: int) -> RawObject:
    """The webhook of LeaderWorkerSet puts its variables in front of the container's own."""
    own = [{"name": "LWS_LEADER_ADDRESS", "value": "leader"}, {"name": "LWS_WORKER_INDEX", "value": str(rank)}]
    containers = [{**one, "env": [*own, *one.get("env", [])]} for one in spec["containers"]]
    return {**spec, "containers": containers}


async def begin(stage: Stage, **changes: Any) -> Operator:
    stage.__class__ = StageWithSets
    await stage.served(kinds.LEADER_WORKER_SET)
    engine = {
        "image": "vllm/vllm-openai:v0.32.0",
        "port": stage.port,
        "startupTimeoutSeconds": 600,
        "tensorParallelSize": 8,
        "pipelineParallelSize": 2,
    }
    await stage.begin(template=SPANNING, engine=engine, **changes)
    return await operator_with_sets(stage)


async def operator_with_sets(stage: Stage) -> Operator:
    operator = await Operator.start(stage)
    operator.fleet.optional = SETS
    operator.fleet.groups = await stage.api.groups()
    return operator


async def groups(stage: Stage, role: str = labels.ROLE_SERVING) -> list[RawObject]:
    """Leaders, by what the Services choose."""
    return [pod for pod in await stage.children(kinds.POD) if pod["metadata"]["labels"][labels.ROLE] == role]


async def until(operator: Operator, holds: Callable[[RawObject], bool], turns: int = 60) -> RawObject:
    return await live(operator, holds, turns, seconds=2)


def replicas(count: int) -> Callable[[RawObject], bool]:
    """Status says that so many serve, and nothing is on its way."""

    def holds(status: RawObject) -> bool:
        said = {one["type"]: one["status"] for one in status.get("conditions", [])}
        arms = [one for one in status.get("arms", []) if one.get("readyReplicas")]
        return said.get("Ready") == "True" and sum(one["readyReplicas"] for one in arms) == count

    return holds


def test_an_engine_over_two_nodes_is_served_scaled_and_left_alone_in_a_steady_state(
    on_sets: Callable[..., None],
) -> None:
    async def work(stage: Stage) -> None:
        operator = await begin(stage)
        await live(operator, in_phase(Phase.BASELINE))
        await settle(operator, 6)
        (made,) = await stage.children(kinds.LEADER_WORKER_SET)
        assert made["spec"]["leaderWorkerTemplate"]["size"] == 2
        assert made["metadata"]["annotations"]["leaderworkerset.sigs.k8s.io/exclusive-topology"] == "rack"
        assert await stage.children(kinds.DEPLOYMENT) == []
        assert len(await groups(stage)) == 2
        assert len(await groups(stage, labels.ROLE_WORKER)) == 2
        (manager,) = [one["operation"] for one in made["metadata"]["managedFields"] if one["manager"] == "specfleet"]
        assert manager == "Apply"
        for service in await stage.children(kinds.SERVICE):
            chosen = ",".join(f"{key}={value}" for key, value in service["spec"]["selector"].items())
            found = await stage.api.list_all(kinds.POD, stage.key[0], chosen)
            assert {pod["metadata"]["labels"][WORKER_INDEX] for pod in found} == {"0"}
            assert len(found) == 2

        written = dict(stage.api.writes)
        for _ in range(8):
            stage.offset += timedelta(minutes=5)
            await operator.turn()
        quiet = {slot: count for slot, count in stage.api.writes.items() if slot[1] not in ("Pod", "Lease")}
        assert quiet == {slot: count for slot, count in written.items() if slot[1] not in ("Pod", "Lease")}

        for count in (3, 1):
            await stage.change(replicas=count)
            await until(operator, replicas(count))
            await settle(operator, 3)
            (scaled,) = await stage.children(kinds.LEADER_WORKER_SET)
            assert scaled["spec"]["replicas"] == count
            assert scaled["metadata"]["uid"] == made["metadata"]["uid"]
            assert len(await groups(stage, labels.ROLE_WORKER)) == count
        await operator.stop()

    on_sets(work)


def test_a_worker_that_goes_takes_its_group_along_and_the_group_serves_again(on_sets: Callable[..., None]) -> None:
    async def work(stage: Stage) -> None:
        operator = await begin(stage)
        await live(operator, in_phase(Phase.BASELINE))
        before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await groups(stage)}
        worker = (await groups(stage, labels.ROLE_WORKER))[0]["metadata"]
        await stage.api.delete(kinds.POD, stage.key[0], worker["name"], worker["uid"])
        leader = worker["name"].rpartition("-")[0]
        for _ in range(40):
            await operator.turn()
            await stage.kubelet()
            now = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await groups(stage)}
            if now.get(leader) not in (None, before[leader]):
                break
            await asyncio.sleep(0.05)
        await until(operator, replicas(2))
        after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await groups(stage)}
        assert [name for name in before if after[name] != before[name]] == [leader]
        await operator.stop()

    on_sets(work)


def test_a_new_engine_over_two_nodes_takes_over_group_by_group_and_the_old_set_goes(
    on_sets: Callable[..., None],
) -> None:
    async def work(stage: Stage) -> None:
        operator = await begin(stage)
        stage.drive = measured({})
        await live(operator, in_phase(Phase.BASELINE))
        await settle(operator, 3)
        (old,) = await stage.children(kinds.LEADER_WORKER_SET)
        seen: set[str] = set()
        await stage.change(engine={**(await stage.body())["spec"]["engine"], "image": OTHER_IMAGE})

        async def watch() -> None:
            seen.update(one["metadata"]["name"] for one in await stage.children(kinds.LEADER_WORKER_SET))

        for _ in range(300):
            await operator.turn()
            await stage.kubelet()
            await watch()
            if adopted((await stage.body())["status"]):
                break
            stage.offset += timedelta(seconds=8)
            await asyncio.sleep(0.02)
        await settle(operator)
        (new,) = await stage.children(kinds.LEADER_WORKER_SET)
        assert new["metadata"]["name"] != old["metadata"]["name"]
        assert any("-bench-nodes-" in name for name in seen), "it was measured by a group of its own first"
        assert stage.fewest == 2
        assert len(await groups(stage)) == 2
        await operator.stop()

    on_sets(work)


def test_from_one_node_to_two_and_the_deployment_goes(on_sets: Callable[..., None]) -> None:
    async def work(stage: Stage) -> None:
        stage.__class__ = StageWithSets
        await stage.begin()
        stage.drive = measured({})
        operator = await operator_with_sets(stage)
        await live(operator, in_phase(Phase.BASELINE))
        await settle(operator, 3)
        engine = (await stage.body())["spec"]["engine"]
        await stage.change(engine={**engine, "tensorParallelSize": 8, "pipelineParallelSize": 2}, template=SPANNING)
        await live(operator, adopted)
        await settle(operator)
        assert await stage.children(kinds.DEPLOYMENT) == []
        assert len(await stage.children(kinds.LEADER_WORKER_SET)) == 1
        assert stage.fewest == 2
        await operator.stop()

    on_sets(work)


def test_where_leader_worker_set_is_not_installed_nothing_is_made_and_the_condition_says_what_to_do(
    on_stage: Callable[..., None],
) -> None:
    async def work(stage: Stage) -> None:
        engine = {"image": "vllm/vllm-openai:v0.32.0", "port": stage.port, "tensorParallelSize": 16}
        await stage.begin(template=SPANNING, engine=engine)
        operator = await Operator.start(stage)
        operator.fleet.groups = await stage.api.groups()
        assert GROUP not in operator.fleet.groups
        await settle(operator, 4)
        status = (await stage.body())["status"]
        said = {one["type"]: one for one in status["conditions"]}
        assert (said["Stalled"]["status"], said["Stalled"]["reason"]) == ("True", "LeaderWorkerSetMissing")
        assert "spec.template.multiNode" in said["Stalled"]["message"]
        assert "Install LeaderWorkerSet" in said["Stalled"]["message"]
        assert said["Ready"]["status"] == "False"
        for kind in (kinds.DEPLOYMENT, kinds.SERVICE, kinds.POD, kinds.JOB):
            assert await stage.children(kind) == []
        await operator.stop()

    on_stage(work)
