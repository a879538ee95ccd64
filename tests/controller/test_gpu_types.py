"""The GPU of an engine pod: read once from its node, unknown where nobody may, told in the observed fingerprint."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.controller.gpu_types import GpuTypes, gpu_of
from specfleet.controller.observe import Surroundings, observe
from specfleet.controller.probe import Answered, Prober, Question
from specfleet.decide.decide import decide
from specfleet.decide.observation import FleetView, Proof
from specfleet.kube.kinds import Kind
from specfleet.kube.port import ForbiddenError, KubeError, NotFoundError, UnavailableError
from specfleet.resources import workloads

from tests.controller.objects import KEY, NOW, as_stored, cache_of, deployment, not_ready, pod, wanted

H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"
OWNER = deployment()
FINGERPRINT = wanted(OWNER).baseline.fingerprint


class Nodes:
    """The part of the API server that knows nodes."""

    def __init__(self, refusal: KubeError | None = None, **types: str | None) -> None:
        self.types, self.refusal = types, refusal
        self.asked: list[str] = []

    async def get(self, kind: Kind, namespace: str | None, name: str) -> RawObject:
        assert kind.path(namespace, name) == f"/api/v1/nodes/{name}"
        self.asked.append(name)
        if self.refusal is not None:
            raise self.refusal
        kind_of_gpu = self.types[name]
        return {"metadata": {"name": name, "labels": {"nvidia.com/gpu.product": kind_of_gpu} if kind_of_gpu else {}}}


def on_node(node: str | None, name: str) -> dict[str, Any]:
    made = pod(FINGERPRINT, name)
    if node is not None:
        made["spec"]["nodeName"] = node
    return made


def look(types: GpuTypes, nodes: Any, *pods: RawObject) -> dict[str, str]:
    asyncio.run(types.look(KEY, cache_of(OWNER, *pods), nodes))
    return types.by_pod


def test_a_node_is_asked_once_for_all_its_pods_and_again_for_none_that_is_known() -> None:
    types, nodes = GpuTypes(), Nodes(one=H100, two=A100)
    pods = [on_node("one", "a"), on_node("one", "b"), on_node("two", "c"), on_node(None, "d")]
    assert look(types, nodes, *pods) == {"uid-a": H100, "uid-b": H100, "uid-c": A100}
    assert look(types, nodes, *pods) == {"uid-a": H100, "uid-b": H100, "uid-c": A100}
    assert nodes.asked == ["one", "two"]


@pytest.mark.parametrize(
    ("refusal", "asked"),
    [
        (NotFoundError("gone"), ["one", "two"]),
        (ForbiddenError("no"), ["one"]),
        (KubeError("odd"), ["one"]),
        (UnavailableError("no answer"), ["one"]),
    ],
)
def test_what_cannot_be_read_stays_unknown_and_is_not_asked_for_at_every_turn(
    refusal: KubeError, asked: list[str]
) -> None:
    """Nor is every node asked: each question to an API server that hangs would keep a roll-back waiting."""
    types, nodes = GpuTypes(), Nodes(refusal, one=H100, two=H100)
    for _ in range(3):
        assert look(types, nodes, on_node("one", "a"), on_node("two", "b")) == {}
    assert nodes.asked == asked


def test_a_new_node_whose_device_is_not_labelled_yet_is_asked_once_the_engine_is_ready() -> None:
    """Two pods on the same kind of node would else run on two kinds of GPU for life."""
    types, nodes = GpuTypes(), Nodes(one=None)
    waiting = on_node("one", "a")
    waiting["status"] |= not_ready()
    assert look(types, nodes, waiting) == {}
    nodes.types["one"] = H100
    assert look(types, nodes, on_node("one", "a")) == {"uid-a": H100}


def test_the_client_of_a_benchmark_has_no_gpu_to_ask_about() -> None:
    types, nodes = GpuTypes(), Nodes(one=H100)
    driver = on_node("one", "a")
    driver["metadata"]["labels"][labels.ROLE] = labels.ROLE_DRIVER
    assert look(types, nodes, driver) == {}
    assert nodes.asked == []


def test_pods_that_are_gone_are_forgotten() -> None:
    types = GpuTypes()
    look(types, Nodes(one=H100), on_node("one", "a"), on_node("one", "b"))
    types.keep_only({"uid-b"})
    assert types.by_pod == {"uid-b": H100}


def test_what_the_device_says_of_itself_comes_before_what_the_cloud_calls_it() -> None:
    both = {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb", "nvidia.com/gpu.product": H100}
    assert gpu_of({"metadata": {"labels": both}}) == H100
    assert gpu_of({"metadata": {"labels": {"cloud.google.com/gke-accelerator": "nvidia-l4"}}}) == "nvidia-l4"
    assert gpu_of({"metadata": {}}) is None


class Proven(Prober):
    def __init__(self) -> None:
        pass

    def answer(self, question: Question) -> Answered:
        return Answered(Proof.PROVEN, "", "0.32.0")


def test_another_gpu_is_another_observed_fingerprint_in_status() -> None:
    arms = wanted(OWNER)
    engine = arms.engines[FINGERPRINT]
    body = as_stored(workloads.arm_workload(OWNER, OWNER.spec, engine, arms.baseline.role, 1), "d-1")
    around = Surroundings(prober=Proven(), reports={}, gateway_api=True, fleet=FleetView())
    seen = {}
    for kind in (None, H100, A100):
        on = replace(around, gpu_types={"uid-p1": kind} if kind else {})
        obs = observe(cache_of(OWNER, body, pod(FINGERPRINT)), KEY, OWNER, arms, on, NOW)
        assert obs.arms[0].pods[0].gpu_type == kind
        seen[kind] = decide(obs).status.arms[0].observed_fingerprint
    assert None not in seen.values()
    assert len(set(seen.values())) == 3
