"""Pods in the shapes that the kubelet and the scheduler give them."""

from typing import Any

import pytest
from specfleet.api.status import ArmRole
from specfleet.controller.pods import pod_view
from specfleet.decide.faults import start_fault
from specfleet.decide.observation import ArmView, PodView, Proof

from tests.controller.objects import NOW, not_ready, pod, stamp


def view(body: dict[str, Any], proof: Proof = Proof.PROVEN) -> PodView:
    return pod_view(body, proof, "", "0.32.0")


def ended(code: int, reason: str, message: str = "", started: float = 60, finished: float = 5) -> dict[str, Any]:
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "message": message,
            "startedAt": stamp(started),
            "finishedAt": stamp(finished),
        }
    }


def test_a_ready_and_proven_pod_serves() -> None:
    seen = view(pod("f1"))
    assert seen.serves
    assert seen.ip == "10.0.0.7"
    assert seen.image_digest == "sha256:abc"
    assert (NOW - seen.ready_since).total_seconds() == 60 if seen.ready_since else False
    assert seen.failure is None


def test_a_pod_that_is_ready_but_not_proven_does_not_serve() -> None:
    assert not view(pod("f1"), Proof.PENDING).serves
    assert not view(pod("f1"), Proof.CONTRADICTED).serves


def test_a_pod_on_its_way_out_does_not_serve() -> None:
    body = pod("f1")
    body["metadata"]["deletionTimestamp"] = stamp()
    assert not view(body).serves
    assert view(body).deleting


def test_the_oom_killer_is_recognised_after_the_restart_too() -> None:
    seen = view(pod("f1", **not_ready(restartCount=1, lastState=ended(137, "OOMKilled"))))
    assert seen.out_of_memory
    assert seen.restarts == 1
    assert seen.last_restart is not None
    assert seen.last_run_started is not None


@pytest.mark.parametrize(
    "last_words",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "ValueError: No available memory for the cache blocks. Try increasing gpu_memory_utilization",
    ],
)
def test_an_engine_that_runs_out_of_gpu_memory_is_out_of_memory(last_words: str) -> None:
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}}
    body = pod("f1", **not_ready(state=state, restartCount=2, lastState=ended(1, "Error", last_words)))
    assert view(body).out_of_memory


def test_a_crash_loop_says_the_exit_code_and_the_last_line() -> None:
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}}
    last = ended(2, "Error", "usage: vllm serve\nvllm: error: unrecognized arguments: --speculate")
    seen = view(pod("f1", **not_ready(state=state, restartCount=3, lastState=last)))
    assert seen.failure is not None
    assert "CrashLoopBackOff" in seen.failure
    assert "last exit 2 (Error)" in seen.failure
    assert "unrecognized arguments: --speculate" in seen.failure
    assert not seen.out_of_memory


@pytest.mark.parametrize(
    "reason", ["ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "InvalidImageName"]
)
def test_a_container_that_cannot_start_says_why(reason: str) -> None:
    seen = view(pod("f1", **not_ready(reason)))
    assert seen.failure == f"{reason}; {reason} was scripted"
    assert seen.ready_since is None


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing"])
def test_a_container_on_its_way_up_is_no_failure(reason: str) -> None:
    assert view(pod("f1", **not_ready(reason))).failure is None


def test_a_pod_without_a_place_says_what_the_scheduler_says() -> None:
    blocked = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        "lastTransitionTime": stamp(130),
    }
    seen = view(pod("f1", phase="Pending", podIP=None, conditions=[blocked], containerStatuses=[]))
    assert seen.unschedulable_since is not None
    assert "nvidia.com/gpu" in seen.unschedulable_message
    assert seen.ready_since is None


def test_a_pod_held_back_by_a_scheduling_gate_is_not_without_a_place() -> None:
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastTransitionTime": stamp(130)}
    seen = view(pod("f1", phase="Pending", conditions=[gated]))
    assert seen.unschedulable_since is None
    assert seen.gated


def test_a_pod_that_the_kubelet_has_not_touched_yet_is_readable() -> None:
    body = pod("f1")
    body["status"] = {"phase": "Pending"}
    seen = view(body)
    assert not seen.serves
    assert seen.restarts == 0


def test_sidecars_do_not_speak_for_the_engine() -> None:
    body = pod("f1")
    sidecar = {"name": "proxy", "restartCount": 9, "state": {}, "lastState": ended(137, "OOMKilled")}
    body["status"]["containerStatuses"].insert(0, sidecar)
    seen = view(body)
    assert seen.restarts == 0
    assert not seen.out_of_memory


def test_falling_out_of_readiness_is_dated() -> None:
    seen = view(pod("f1", **not_ready()))
    assert seen.unready_since is not None
    assert (NOW - seen.unready_since).total_seconds() == 100


def test_a_pod_that_has_just_left_a_long_queue_is_not_overdue() -> None:
    """The scheduler has bound it, the kubelet has not said a word yet: that moment looks like a start of an hour."""
    body = pod("f1", phase="Pending", containerStatuses=[])
    body["metadata"]["creationTimestamp"] = stamp(3500)
    body["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(1)}]
    queued = ArmView("a", ArmRole.SPECULATIVE, "f1", 1, (view(body, Proof.PENDING),))
    assert start_fault(queued, NOW, 600) is None
    body["status"]["conditions"][0]["lastTransitionTime"] = stamp(601)
    late = ArmView("a", ArmRole.SPECULATIVE, "f1", 1, (view(body, Proof.PENDING),))
    fault = start_fault(late, NOW, 600)
    assert fault is not None
    assert fault.reason == "StartTimeout"
