"""Room: with none the stable arm serves and nothing waits for ever; with one spare pod the arms take turns."""

from __future__ import annotations

import time
from typing import Any

import pytest

from e2e.road.access import Access
from e2e.scenarios.conftest import GPU, Gpus
from e2e.scenarios.stage import Stage, on_stage

ONE_GPU_EACH: dict[str, Any] = {
    "replicas": 1,
    "capacity": {"maxExtraReplicas": 1},
    "template": {"resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {GPU: 1}}},
    "rollout": {"steps": [{"weightPercent": 50, "minDurationSeconds": 15, "minRequests": 20}]},
}
HELD_SECONDS = 240.0


def engines(stage: Stage) -> list[str]:
    """Phases of the engine pods."""
    return [str(pod["status"]["phase"]) for pod in stage.pods("specfleet.dev/role in (serving,benchmark)")]


def test_no_extra_replica_allowed_serves_and_is_held(access: Access, space: str) -> None:
    with on_stage(access, space, "no-extra", {"replicas": 1, "capacity": {"maxExtraReplicas": 0}}) as stage:
        stage.until_phase("Held", seconds=90)
        stage.follow("it serves", lambda: stage.condition("Ready").get("status") == "True", 30)
        assert stage.status["phaseReason"] == "InsufficientCapacity"
        assert engines(stage) == ["Running"]


def test_no_room_in_the_cluster_serves_and_is_held_and_nothing_stays_pending(
    access: Access, space: str, gpus: Gpus
) -> None:
    gpus.set(1)
    with on_stage(access, space, "no-room", ONE_GPU_EACH) as stage:
        stage.until_phase("Held", seconds=HELD_SECONDS)
        assert stage.status["phaseReason"] == "InsufficientCapacity"
        stage.follow("nothing is Pending", lambda: engines(stage) == ["Running"], 30)
        assert stage.condition("Ready")["status"] == "True"
        assert stage.condition("SpeculationActive")["reason"] == "InsufficientCapacity"
        message = stage.status["lastDecision"]["message"]
        assert GPU in message or "cannot be scheduled" in message


@pytest.mark.long
def test_one_extra_replica_takes_turns_and_completes_the_road(access: Access, space: str, gpus: Gpus) -> None:
    gpus.set(2)
    with on_stage(access, space, "one-extra", ONE_GPU_EACH, rate=3.0) as stage:
        stage.start_traffic()
        most = 0

        def promoted() -> bool:
            nonlocal most
            most = max(most, len(engines(stage)))
            return stage.phase == "Speculative"

        stage.follow("promoted", promoted, 1200)
        assert most <= 2, f"{most} engine pods at once with replicas 1 and maxExtraReplicas 1"
        halves = [
            body["spec"]["unit"]
            for body in access.list("speculativebenchmarks.specfleet.dev", space)
            if body["spec"]["deployment"] == "one-extra"
        ]
        assert sorted(halves) == ["p0a", "p0b", "p1a", "p1b", "p2a", "p2b"]
        ends = time.monotonic() + 60
        stage.follow("one pod serves", lambda: len(engines(stage)) == 1 or time.monotonic() > ends, 90)
        assert len(engines(stage)) == 1
        totals = stage.end_traffic()
        assert totals.failed == 0, totals.faults
