"""Hard faults as Kubernetes shows them: what counts, and what must not."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from specfleet.api.status import ArmRole
from specfleet.decide.faults import crash_fault, engine_mismatch, no_room, start_fault, stuck_rollout
from specfleet.decide.observation import ArmView, PodView, Proof

NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
TIMEOUT = 600.0


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def pod(name: str = "p1", **fields: Any) -> PodView:
    """A pod that has served for an hour, unless said otherwise."""
    given = {"created": ago(3600), "ready_since": ago(3500), "proof": Proof.PROVEN, **fields}
    return PodView(name, name, "10.0.0.1", **given)


def arm(*pods: PodView) -> ArmView:
    return ArmView("arm", ArmRole.SPECULATIVE, "f1", len(pods), pods)


def dead(name: str = "p1", **fields: Any) -> PodView:
    return pod(name, **{"ready_since": None, "proof": Proof.PENDING, **fields})


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ([pod()], None),
        ([pod(restarts=1, last_restart=ago(5))], None),
        ([pod(restarts=2, last_restart=ago(5), last_run_started=ago(60))], "CrashLoop"),
        ([pod(restarts=9, last_restart=ago(5), last_run_started=ago(86400))], None),
        ([pod(restarts=9, last_restart=ago(601), last_run_started=ago(700))], None),
        ([pod("a", restarts=1, last_restart=ago(5)), pod("b", restarts=1, last_restart=ago(50))], "CrashLoop"),
        ([pod(f"p{n}", restarts=1, last_restart=ago(5 + n) if n < 2 else None) for n in range(9)], None),
        ([pod(f"p{n}", restarts=1, last_restart=ago(5 + n) if n < 3 else None) for n in range(9)], "CrashLoop"),
        (
            [pod("a", restarts=2, last_restart=ago(5), last_run_started=ago(60)), *(pod(f"p{n}") for n in range(9))],
            None,
        ),
        (
            [
                pod(f"p{n}", restarts=2, last_restart=ago(5 + n), last_run_started=ago(60)) if n < 3 else pod(f"p{n}")
                for n in range(9)
            ],
            "CrashLoop",
        ),
        ([pod(restarts=1, last_restart=ago(5), out_of_memory=True)], "OutOfMemory"),
        ([pod(restarts=1, last_restart=ago(3000), out_of_memory=True)], None),
        ([pod("a", restarts=1, last_restart=ago(5), out_of_memory=True), *(pod(f"p{n}") for n in range(27))], None),
        (
            [
                pod(f"p{n}", restarts=n < 7, last_restart=ago(5 + 3000 * n) if n < 7 else None, out_of_memory=n < 7)
                for n in range(28)
            ],
            "OutOfMemory",
        ),
    ],
    ids=[
        "healthy",
        "one crash",
        "twice within a minute",
        "many over weeks and one now",
        "a loop that ended",
        "two pods once each",
        "two of nine pods once each",
        "three of nine pods once each",
        "one of ten pods again and again",
        "three of nine pods again and again",
        "out of memory",
        "out of memory long ago",
        "one of 28 out of memory",
        "seven of 28 out of memory within hours",
    ],
)
def test_an_arm_fails_when_a_quarter_of_its_pods_crashes_or_runs_out_of_memory_and_one_bad_gpu_is_not_its_fault(
    pods: list[PodView], reason: str | None
) -> None:
    fault = crash_fault(arm(*pods), NOW)
    assert (fault.reason if fault else None) == reason


def test_no_arm_has_no_fault() -> None:
    assert crash_fault(None, NOW) is None
    assert start_fault(None, NOW, TIMEOUT) is None
    assert no_room(None, NOW) is None


def test_an_arm_that_never_answers_times_out_with_what_its_pod_said() -> None:
    fault = start_fault(arm(dead(created=ago(601), failure="ImagePullBackOff; no such image")), NOW, TIMEOUT)
    assert fault is not None
    assert fault.reason == "StartTimeout"
    assert "no such image" in fault.message


@pytest.mark.parametrize(
    "waiting",
    [
        dead(created=ago(599)),
        dead(created=ago(86400), unready_since=ago(10)),
        dead(created=ago(86400), deleting=True),
        pod(created=ago(86400), ready_since=ago(20), asked_since=ago(20), proof=Proof.PENDING),
        pod(created=ago(86400), ready_since=ago(86000), proof=Proof.PENDING),
        pod(created=ago(86400), ready_since=ago(86000), asked_since=ago(20), proof=Proof.PENDING),
    ],
    ids=[
        "still starting",
        "fell out of readiness just now",
        "on its way out",
        "ready just now",
        "ready for a day and not asked yet",
        "ready for a day and asked just now",
    ],
)
def test_waiting_is_counted_from_when_the_pod_stopped_serving_not_from_its_birth(waiting: PodView) -> None:
    assert start_fault(arm(waiting), NOW, TIMEOUT) is None


def test_a_ready_pod_that_does_not_answer_times_out_after_its_first_question() -> None:
    silent = pod(asked_since=ago(601), proof=Proof.PENDING, proof_message="HTTP 500")
    fault = start_fault(arm(silent), NOW, TIMEOUT)
    assert fault is not None
    assert "HTTP 500" in fault.message


def test_one_serving_pod_is_enough_for_an_arm_not_to_time_out() -> None:
    assert start_fault(arm(pod("a"), dead("b", created=ago(9999))), NOW, TIMEOUT) is None


def test_a_pod_that_answers_as_something_else_is_named() -> None:
    wrong = pod(proof=Proof.CONTRADICTED, proof_message="answers with fingerprint x, expected f1")
    fault = start_fault(arm(wrong), NOW, TIMEOUT)
    assert fault is not None
    assert fault.reason == "EngineContradictsSpec"
    assert "expected f1" in fault.message


@pytest.mark.parametrize(("seconds", "full"), [(60, False), (121, True)])
def test_a_pod_without_a_place_for_two_minutes_means_no_room(seconds: float, full: bool) -> None:
    waiting = dead(unschedulable_since=ago(seconds), unschedulable_message="insufficient nvidia.com/gpu")
    assert (no_room(arm(waiting), NOW) is not None) == full


def test_two_engines_under_one_tag_are_a_mismatch_and_say_what_to_do() -> None:
    old = pod("a", image_digest="sha256:1", engine_version="0.32.0")
    new = pod("b", image_digest="sha256:2", engine_version="0.32.1")
    fault = engine_mismatch(arm(old), arm(new))
    assert fault is not None
    assert "digest" in fault.message
    assert engine_mismatch(arm(old), arm(old)) is None
    assert engine_mismatch(arm(old), None) is None


def test_pods_on_other_gpus_are_not_compared_and_unknown_ones_are_no_difference() -> None:
    one = pod("a", gpu_type="NVIDIA-H100-80GB-HBM3")
    other = pod("b", gpu_type="NVIDIA-A100-SXM4-80GB")
    fault = engine_mismatch(arm(one), arm(other))
    assert fault is not None
    assert fault.reason == "GpusDiffer"
    assert "nodeSelector" in fault.message
    assert "NVIDIA-A100-SXM4-80GB" in fault.message
    assert engine_mismatch(arm(one), arm(pod("b"))) is None
    assert engine_mismatch(arm(one), arm(one)) is None


@pytest.mark.parametrize(
    ("beside", "replicas", "stuck"),
    [
        (dead("new", created=ago(700), unschedulable_since=ago(690), unschedulable_message="0/3 nodes"), 1, True),
        (dead("new", created=ago(700), failure="ImagePullBackOff"), 1, True),
        (dead("new", created=ago(500), failure="ImagePullBackOff"), 1, False),
        (dead("new", created=ago(700), failure="ImagePullBackOff", deleting=True), 1, False),
        (dead("new", created=ago(700), unschedulable_since=ago(690)), 2, False),
        (pod("new"), 1, False),
    ],
    ids=["no place", "no start", "still starting", "on its way out", "asked for", "serves"],
)
def test_a_roll_out_whose_extra_pod_does_not_come_within_the_start_up_time_is_stuck(
    beside: PodView, replicas: int, stuck: bool
) -> None:
    fault = stuck_rollout(replace(arm(pod("old"), beside), replicas=replicas), NOW, TIMEOUT)
    assert (fault is not None) is stuck
    assert fault is None or fault.reason == "RolloutStuck"


def test_a_pod_in_a_queue_has_neither_failed_to_start_nor_found_no_room_within_the_hour() -> None:
    queued = arm(dead(created=ago(3500), gated=True))
    assert start_fault(queued, NOW, TIMEOUT) is None
    assert no_room(queued, NOW) is None


def test_a_pod_without_a_node_has_not_failed_to_start_and_its_own_arms_worn_pods_may_take_their_time_to_go() -> None:
    blocked = arm(dead(created=ago(3500), unschedulable_since=ago(300)))
    assert start_fault(blocked, NOW, TIMEOUT) is None
    assert no_room(blocked, NOW) is not None
    assert no_room(blocked, NOW, patience=600) is None


def test_a_pod_that_stands_in_a_queue_for_longer_has_no_room_and_still_no_fault_of_its_own() -> None:
    queued = arm(dead(created=ago(3700), gated=True))
    assert start_fault(queued, NOW, TIMEOUT) is None
    found = no_room(queued, NOW)
    assert found is not None
    assert found.reason == "InsufficientCapacity"
