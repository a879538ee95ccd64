"""LeaderWorkerSets: one group of pods per replica, of which only the leader is chosen by anything that serves."""

from typing import Any

import pytest
from hypothesis import given
from specfleet.api import labels, names
from specfleet.api.base import RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import ArmRole
from specfleet.resources import monitoring, workloads
from specfleet.resources.groups import EXCLUSIVE, arm_group_set
from specfleet.resources.identity import BUILDER, ArmIdentity
from specfleet.resources.pods import HOST_IP, QUEUE

from tests.controller.objects import deployment, wanted
from tests.resources.test_manifests import object_names

NODES: dict[str, Any] = {
    "multiNode": {"size": 2},
    "resources": {"limits": {"nvidia.com/gpu": "8"}},
    "sharedMemorySize": "8Gi",
}


def spanning(name: str = "llama", **template: Any) -> SpeculativeDeployment:
    engine = {"image": "vllm/vllm-openai:v0.32.0", "tensorParallelSize": 8, "pipelineParallelSize": 2}
    return deployment(name, engine=engine, template={**NODES, **template})


def group_set(
    owner: SpeculativeDeployment, drafted: bool = False, benchmark: bool = False, **how: Any
) -> dict[str, Any]:
    arms = wanted(owner)
    arm = arms.proposers[0] if drafted else arms.baseline
    engine = arms.engines[arm.fingerprint]
    return workloads.arm_workload(owner, owner.spec, engine, arm.role, 2, benchmark, **how)


def templates(made: RawObject) -> tuple[RawObject, RawObject]:
    group = made["spec"]["leaderWorkerTemplate"]
    return group["leaderTemplate"], group["workerTemplate"]


def engine_of(template: RawObject) -> RawObject:
    (container,) = template["spec"]["containers"]
    return dict(container)


def test_an_arm_over_several_nodes_is_a_leader_worker_set_whose_replicas_are_groups() -> None:
    made = group_set(spanning())
    assert (made["apiVersion"], made["kind"]) == ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
    assert made["spec"]["replicas"] == 2
    assert made["spec"]["leaderWorkerTemplate"]["size"] == 2
    assert made["spec"]["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert made["spec"]["startupPolicy"] == "LeaderCreated"
    assert made["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_without_a_spare_group_one_is_replaced_in_its_place() -> None:
    owner = deployment(template=NODES, capacity={"maxExtraReplicas": 0})
    rolling = group_set(owner)["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert rolling == {"maxSurge": 0, "maxUnavailable": 1}


def test_the_pods_of_a_group_differ_only_in_what_the_leader_answers() -> None:
    leader, worker = (engine_of(one) for one in templates(group_set(spanning(), drafted=True)))
    assert worker["args"] == [*leader["args"], "--headless"]
    only_leader = set(leader) - set(worker)
    assert only_leader == {"ports", "startupProbe", "readinessProbe", "livenessProbe"}
    assert all(leader[key] == worker[key] for key in set(worker) - {"args", "env"})
    assert leader["command"] == worker["command"] == ["vllm", "serve"], "no shell"


def test_rank_and_leader_come_from_the_variables_of_leader_worker_set() -> None:
    for template in templates(group_set(spanning())):
        args = engine_of(template)["args"]
        assert args[args.index("--node-rank") + 1] == "$(LWS_WORKER_INDEX)"
        assert args[args.index("--master-addr") + 1] == "$(LWS_LEADER_ADDRESS)"
        assert not [one["name"] for one in engine_of(template)["env"] if one["name"].startswith("LWS_")]


def test_a_worker_leaves_only_when_its_leader_has_no_request_any_more() -> None:
    leader, worker = (engine_of(one) for one in templates(group_set(spanning())))
    told = {one["name"]: one.get("value") for one in worker["env"]}
    assert worker["lifecycle"] == leader["lifecycle"]
    assert told["SPECFLEET_DRAIN_HOST"] == "$(LWS_LEADER_ADDRESS)"
    assert "SPECFLEET_DRAIN_HOST" not in {one["name"] for one in leader["env"]}
    one, other = templates(group_set(spanning()))
    assert one["spec"]["terminationGracePeriodSeconds"] == other["spec"]["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("own", [[], [{"name": HOST_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}]])
def test_every_pod_announces_its_own_address_once(own: list[RawObject]) -> None:
    owner = deployment(template=NODES, engine={"image": "vllm/vllm-openai:v0.32.0", "env": own})
    for template in templates(group_set(owner)):
        given = [one for one in engine_of(template)["env"] if one["name"] == HOST_IP]
        wanted_path = "status.hostIP" if own else "status.podIP"
        assert given == [{"name": HOST_IP, "valueFrom": {"fieldRef": {"fieldPath": wanted_path}}}]


def test_services_and_the_monitor_choose_leaders_and_no_other_pod_of_a_group() -> None:
    owner = spanning()
    fingerprint = wanted(owner).baseline.fingerprint
    leader, worker = (one["metadata"]["labels"] for one in templates(group_set(owner)))
    bench = [one["metadata"]["labels"] for one in templates(group_set(owner, benchmark=True))]
    for chosen in (
        workloads.shared_service(owner, owner.spec)["spec"]["selector"],
        workloads.arm_service(owner, owner.spec, ArmRole.BASELINE, fingerprint)["spec"]["selector"],
        monitoring.pod_monitor(owner)["spec"]["selector"]["matchLabels"],
    ):
        assert chosen.items() <= leader.items()
        assert not any(chosen.items() <= other.items() for other in (worker, *bench))
    assert worker[labels.FINGERPRINT] == fingerprint
    assert worker[labels.DEPLOYMENT] == "llama", "or the operator would not see it"


def test_the_services_do_not_take_the_name_by_which_the_pods_of_a_group_find_each_other() -> None:
    owner = spanning()
    fingerprint = wanted(owner).baseline.fingerprint
    service = workloads.arm_service(owner, owner.spec, ArmRole.BASELINE, fingerprint)["metadata"]["name"]
    sets = {group_set(owner, benchmark=one)["metadata"]["name"] for one in (False, True)}
    assert len(sets) == 2
    assert not sets & {service, names.service(owner.name)}


@given(object_names())
def test_the_name_of_a_group_set_leaves_room_for_what_is_made_of_it(name: str) -> None:
    owner = spanning(name)
    for benchmark in (False, True):
        own = group_set(owner, benchmark=benchmark)["metadata"]["name"]
        assert names.DNS_LABEL.fullmatch(own), "it is the name of a Service"
        # StatefulSets put NAME-GROUP and ten digits into a label of their pods.
        assert len(f"{own}-999") + 11 <= 63


def test_a_queue_admits_the_whole_group_by_the_label_of_its_set() -> None:
    made = group_set(spanning(kueueQueueName="gpus"))
    assert made["metadata"]["labels"][QUEUE] == "gpus"
    assert all(QUEUE not in one["metadata"]["labels"] for one in templates(made))
    single = group_set(deployment(template={"kueueQueueName": "gpus"}))
    assert single["spec"]["template"]["metadata"]["labels"][QUEUE] == "gpus"
    assert QUEUE not in single["metadata"]["labels"]


def test_the_pods_of_an_engine_can_be_kept_in_one_rack() -> None:
    nodes = {"size": 2, "exclusiveTopologyKey": "topology.example.com/rack"}
    made = group_set(spanning(multiNode=nodes))
    assert made["metadata"]["annotations"][EXCLUSIVE] == "topology.example.com/rack"
    assert EXCLUSIVE not in group_set(spanning())["metadata"]["annotations"]


def test_an_arm_is_read_back_from_the_leaders_labels() -> None:
    owner = spanning()
    for drafted, benchmark in ((False, False), (True, True)):
        made = group_set(owner, drafted, benchmark)
        made["metadata"]["labels"] = {}
        arm = workloads.read_arm(made)
        assert arm is not None
        assert (arm.role is ArmRole.SPECULATIVE, arm.benchmark) == (drafted, benchmark)
        assert workloads.arm_workload_name(owner, made["kind"], arm) == made["metadata"]["name"]
    assert workloads.read_arm({"kind": "LeaderWorkerSet", "metadata": {}, "spec": {}}) is None


def test_a_set_of_an_earlier_spec_is_scaled_with_its_templates_queue_and_placement_as_they_are() -> None:
    nodes = {"size": 2, "exclusiveTopologyKey": "rack"}
    live = group_set(spanning(multiNode=nodes, kueueQueueName="gpus"))
    scaled = workloads.rescaled(spanning(), live, 0)
    assert scaled is not None
    assert scaled["spec"]["replicas"] == 0
    assert scaled["spec"]["leaderWorkerTemplate"] == live["spec"]["leaderWorkerTemplate"]
    assert scaled["metadata"] == live["metadata"]


def test_a_set_of_another_builder_keeps_its_templates() -> None:
    live = group_set(spanning())
    live["metadata"]["annotations"][BUILDER] = "0"
    live["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["terminationGracePeriodSeconds"] = 7
    again = group_set(spanning(), live=live)
    assert again["spec"]["leaderWorkerTemplate"] == live["spec"]["leaderWorkerTemplate"]
    assert again["metadata"]["annotations"][BUILDER] == "0"


def test_the_leader_of_a_benchmark_prefers_a_node_and_keeps_it_while_it_runs() -> None:
    owner = spanning()
    first = group_set(owner, benchmark=True, node="node-a")
    leader, worker = templates(first)
    (term,) = leader["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["preference"]["matchFields"][0]["values"] == ["node-a"]
    assert "affinity" not in worker["spec"], "its pods run on other nodes"
    assert templates(group_set(owner, benchmark=True, node="node-b", live=first))[0] == leader


def test_a_set_for_an_engine_in_one_pod_is_a_mistake_of_the_caller() -> None:
    owner = deployment()
    arms = wanted(owner)
    engine = arms.engines[arms.baseline.fingerprint]
    with pytest.raises(ValueError, match="multiNode"):
        arm_group_set(owner, owner.spec, engine, ArmIdentity(ArmRole.BASELINE, engine.fingerprint, False), 1, {})


def test_the_leader_of_an_earlier_spec_prefers_another_node_once_it_has_no_pods() -> None:
    owner = spanning()
    live = group_set(owner, benchmark=True, node="node-a")
    assert workloads.moved(live, owner.spec, "node-b") == live
    live["spec"]["replicas"] = 0
    moved = workloads.moved(live, owner.spec, "node-b")
    assert templates(moved)[0] == templates(group_set(owner, benchmark=True, node="node-b"))[0]
    assert templates(moved)[1] == templates(live)[1], "the others follow their leader"
    assert templates(workloads.moved(live, owner.spec, None))[0] == templates(group_set(owner, benchmark=True))[0]
