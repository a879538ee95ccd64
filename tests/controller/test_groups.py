"""Groups of pods as replicas: ready with their leader, not ready while any pod keeps them from it, crashes counted."""

from copy import deepcopy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.controller.groups import PODLESS_SECONDS, GroupHistory
from specfleet.controller.observe import Surroundings, observe
from specfleet.controller.probe import Answered, Prober, Question
from specfleet.decide.faults import crash_fault, no_room, start_fault
from specfleet.decide.observation import ArmView, FleetView, Proof
from specfleet.resources import workloads
from specfleet.resources.groups import GROUP_INDEX, SET_NAME, WORKER_INDEX

from tests.controller.objects import KEY, NOW, as_stored, cache_of, deployment, not_ready, pod, stamp, wanted

NODES: dict[str, Any] = {"multiNode": {"size": 2}, "resources": {"limits": {"nvidia.com/gpu": "1"}}}
OWNER = deployment(template=NODES, engine={"image": "vllm/vllm-openai:v0.32.0", "pipelineParallelSize": 2}, replicas=2)
TIMEOUT = 600


class Proven(Prober):
    """Every pod that is asked answers as it should; who was asked is kept."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def answer(self, question: Question) -> Answered:
        self.asked.add(question.uid)
        return Answered(Proof.PROVEN)


class Played:
    """One LeaderWorkerSet at work, seen by one operator."""

    def __init__(self, benchmark: bool = False) -> None:
        arms = wanted(OWNER)
        self.arm = arms.baseline
        engine = arms.engines[self.arm.fingerprint]
        made = workloads.arm_workload(OWNER, OWNER.spec, engine, self.arm.role, 2, benchmark)
        self.body = as_stored(made, "set-1")
        self.around = Surroundings(prober=Proven(), reports={}, gateway_api=True, fleet=FleetView())
        self.benchmark = benchmark

    def member(self, group: int, rank: int, uid: str = "", **status: Any) -> RawObject:
        name = self.body["metadata"]["name"] + f"-{group}" + (f"-{rank}" if rank else "")
        made = pod(self.arm.fingerprint, name, **status)
        role = labels.ROLE_BENCHMARK if self.benchmark else labels.ROLE_SERVING
        made["metadata"]["labels"] |= {
            labels.ROLE: role if rank == 0 else labels.ROLE_WORKER,
            SET_NAME: self.body["metadata"]["name"],
            GROUP_INDEX: str(group),
            WORKER_INDEX: str(rank),
        }
        made["metadata"]["uid"] = uid or f"uid-{name}"
        return made

    def group(self, number: int, **status: Any) -> list[RawObject]:
        return [self.member(number, rank, **status) for rank in (0, 1)]

    def see(self, *pods: RawObject, now: datetime = NOW, owner: SpeculativeDeployment = OWNER) -> ArmView:
        obs = observe(cache_of(owner, self.body, *pods), KEY, owner, wanted(owner), self.around, now)
        (seen,) = obs.bench if self.benchmark else obs.arms
        return seen


def crashed(seconds_ago: float, run: float = 60, **how: Any) -> RawObject:
    """Status of a pod whose engine has just ended and been started again."""
    ended = {
        "exitCode": 1,
        "reason": "Error",
        "message": "RuntimeError: NCCL error",
        "startedAt": stamp(seconds_ago + run),
        "finishedAt": stamp(seconds_ago),
        **how,
    }
    return not_ready("CrashLoopBackOff", restartCount=1, lastState={"terminated": ended})


def test_a_replica_is_a_group_and_only_its_leader_is_asked() -> None:
    played = Played()
    arm = played.see(*played.group(0), *played.group(1))
    name = played.body["metadata"]["name"]
    assert [one.name for one in arm.serving] == [f"{name}-0", f"{name}-1"]
    assert (arm.replicas, arm.occupying) == (2, 2)
    assert played.around.prober.asked == {f"uid-{name}-0", f"uid-{name}-1"}  # type: ignore[attr-defined]


def test_the_groups_of_a_benchmark_are_no_serving_ones() -> None:
    played, serving = Played(benchmark=True), Played()
    bodies = [serving.body, *serving.group(0), *played.group(0)]
    arm = played.see(*bodies)
    assert [one.name for one in arm.serving] == [f"{played.body['metadata']['name']}-0"]


def test_a_leader_that_waits_for_a_worker_without_a_node_says_which() -> None:
    played = Played()
    placed = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    pending = {"phase": "Pending", "conditions": [{**placed, "lastTransitionTime": stamp(300)}]}
    worker = played.member(0, 1, **pending, containerStatuses=[])
    arm = played.see(played.member(0, 0, **not_ready()), worker)
    full = no_room(arm, NOW)
    assert full is not None
    assert f"{played.body['metadata']['name']}-0-1" in full.message
    assert "0/3 nodes" in full.message
    assert start_fault(arm, NOW, TIMEOUT) is None, "nothing of the engine has started"


def test_a_queue_that_holds_a_worker_back_holds_its_group_back() -> None:
    played = Played()
    gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastTransitionTime": stamp(9)}
    worker = played.member(0, 1, phase="Pending", conditions=[gate], containerStatuses=[])
    assert played.see(played.member(0, 0, **not_ready()), worker).pods[0].gated


def test_a_worker_that_cannot_run_is_named_in_the_reason() -> None:
    played = Played()
    worker = played.member(0, 1, **not_ready("ImagePullBackOff"))
    (view,) = played.see(played.member(0, 0, **not_ready()), worker).pods
    assert view.failure is not None
    assert view.failure.startswith(f"pod {view.name}-1: ImagePullBackOff")


def test_what_ends_a_group_twice_within_ten_minutes_is_a_crash_loop_although_its_pods_are_new() -> None:
    played = Played()
    first = played.member(0, 1, **crashed(200))
    assert crash_fault(played.see(played.member(0, 0, "life-1", **not_ready()), first), NOW) is None
    again = [played.member(0, 0, "life-2", **not_ready()), played.member(0, 1, "w-2", **not_ready())]
    assert crash_fault(played.see(*again), NOW) is None, "one end is no loop"
    again[1] = played.member(0, 1, "w-2", **crashed(20))
    fault = crash_fault(played.see(*again), NOW)
    assert fault is not None
    assert fault.reason == "CrashLoop"
    assert "NCCL error" in fault.message
    later = [played.member(0, 0, "life-3", **not_ready()), played.member(0, 1, "w-3", **not_ready())]
    assert crash_fault(played.see(*later), NOW) is not None, "the next life does not wipe it out"


def test_pods_that_end_together_have_crashed_once_and_the_first_one_says_why() -> None:
    played = Played()
    leader = played.member(0, 0, **crashed(19, message="EngineDeadError"))
    worker = played.member(0, 1, **crashed(20))
    (view,) = played.see(leader, worker).pods
    assert view.restarts == 1
    assert view.failure is not None
    gone = [played.member(0, 0, "life-2", **not_ready()), played.member(0, 1, "w-2", **not_ready())]
    (after,) = played.see(*gone).pods
    assert after.restarts == 1
    assert after.failure is not None
    assert "NCCL error" in after.failure


def test_memory_that_ran_out_on_a_worker_is_the_groups() -> None:
    played = Played()
    worker = played.member(0, 1, **crashed(20, reason="OOMKilled"))
    fault = crash_fault(played.see(played.member(0, 0, **not_ready()), worker), NOW)
    assert fault is not None
    assert fault.reason == "OutOfMemory"


def test_a_pod_that_ends_because_it_is_removed_has_not_crashed() -> None:
    played = Played()
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": stamp(99), "finishedAt": stamp(5)}
    worker = played.member(
        0, 1, containerStatuses=[{"name": "engine", "restartCount": 0, "state": {"terminated": ended}}]
    )
    worker["metadata"]["deletionTimestamp"] = stamp(1)
    assert played.see(played.member(0, 0), worker).pods[0].restarts == 0


def test_a_group_that_is_made_anew_again_and_again_does_not_start_for_ever() -> None:
    played = Played()
    for life in range(8):
        now = NOW + timedelta(seconds=100 * life)
        pods = [played.member(0, rank, f"life-{life}-{rank}", **not_ready()) for rank in (0, 1)]
        for one in pods:
            one["metadata"]["creationTimestamp"] = (now - timedelta(seconds=5)).isoformat()
            for condition in one["status"]["conditions"]:
                condition["lastTransitionTime"] = (now - timedelta(seconds=4)).isoformat()
        arm = played.see(*pods, now=now)
    fault = start_fault(arm, now, TIMEOUT)
    assert fault is not None
    assert fault.reason == "StartTimeout"


def test_a_group_that_has_served_has_the_whole_time_for_its_next_start() -> None:
    played = Played()
    played.see(*played.group(0), now=NOW - timedelta(seconds=5000))
    pods = [played.member(0, rank, f"new-{rank}", **not_ready()) for rank in (0, 1)]
    assert start_fault(played.see(*pods), NOW, TIMEOUT) is None


def test_a_group_without_its_leader_still_holds_its_devices() -> None:
    played = Played()
    arm = played.see(*played.group(0), played.member(1, 1))
    assert (len(arm.pods), arm.leaving, arm.occupying) == (1, 1, 2)


def test_a_set_without_any_pod_asks_for_its_controller() -> None:
    played = Played()
    assert no_room(played.see(), NOW) is None
    late = NOW + timedelta(seconds=PODLESS_SECONDS + 121)
    full = no_room(played.see(now=late), late)
    assert full is not None
    assert "lws-system" in full.message
    assert no_room(played.see(*played.group(0), now=late), late) is None
    played.body["spec"]["replicas"] = 0
    much_later = late + timedelta(hours=1)
    assert no_room(played.see(now=much_later), much_later) is None


def test_another_image_on_the_workers_node_is_seen() -> None:
    played = Played()
    leader, worker = played.group(0)
    same = played.see(leader, worker).pods[0].image_digest
    other = deepcopy(worker)
    other["status"]["containerStatuses"][0]["imageID"] = "docker.io/vllm/vllm-openai@sha256:def"
    assert played.see(leader, other).pods[0].image_digest != same


def test_pods_of_another_set_with_the_same_labels_are_not_counted() -> None:
    played = Played()
    stray = played.member(7, 0)
    stray["metadata"]["labels"][SET_NAME] = "somebody-elses"
    assert [one.name for one in played.see(*played.group(0), stray).pods] == [f"{played.body['metadata']['name']}-0"]


def test_what_is_remembered_of_sets_that_are_gone_is_forgotten() -> None:
    history = GroupHistory()
    history.of(KEY, "set-1", "0").was_ready = True
    history.keep_only({"set-1"})
    assert history.of(KEY, "set-1", "0").was_ready
    history.keep_only({"set-2"})
    assert not history.of(KEY, "set-1", "0").was_ready
    history.of(KEY, "set-1", "0").was_ready = True
    history.forget(KEY)
    assert not history.of(KEY, "set-1", "0").was_ready


@pytest.mark.parametrize("rank", [0, 1])
def test_any_pod_on_its_way_out_takes_its_group_out(rank: int) -> None:
    played = Played()
    pods = played.group(0)
    pods[rank]["metadata"]["deletionTimestamp"] = stamp(1)
    (view,) = played.see(*pods).pods
    assert view.deleting
    assert replace(view, deleting=False).serves
