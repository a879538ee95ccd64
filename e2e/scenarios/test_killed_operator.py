"""The operator dies by SIGKILL at random moments of the road, five times: the road ends the same."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from e2e.road.access import Access
from e2e.road.install import OPERATOR_NAMESPACE, operator_pods, wait_for_operator
from e2e.road.verify import PROMOTION, first_missing
from e2e.scenarios.stage import Stage, on_stage

KILLS = 5
PROGRAM = b"specfleet.controller.main"


def operator_processes(uid: str) -> list[int]:
    """Processes of a pod's container on this machine, found by its UID in their cgroup."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if PROGRAM in (entry / "cmdline").read_bytes() and uid in (entry / "cgroup").read_text():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def kill(access: Access) -> str:
    """SIGKILL to the operator's process where it runs on this machine; elsewhere its pod is removed without grace."""
    pod = operator_pods(access)[0]
    processes = operator_processes(pod["metadata"]["uid"])
    for pid in processes:
        os.kill(pid, signal.SIGKILL)
    name = pod["metadata"]["name"]
    # Also a new pod each time: a container that is restarted too often waits for minutes (CrashLoopBackOff).
    access.kubectl("delete", "pod", name, "-n", OPERATOR_NAMESPACE, "--force", "--grace-period=0")
    return f"{name} (pid {processes[0]})" if processes else name


def kill_at(stage: Stage, access: Access, moments: list[float]) -> None:
    """Kill when the next moment has come (seconds since the start of the road)."""
    if moments and time.time() - stage.narrator.began >= moments[0]:
        moments.pop(0)
        stage.narrator.say("SIGKILL", kill(access))


@pytest.mark.long
def test_the_road_ends_the_same_after_five_kills(access: Access, space: str) -> None:
    chance = random.Random(os.environ.get("E2E_SEED", "3"))
    with on_stage(access, space, "killed") as stage:
        stage.start_traffic()
        moments = sorted(chance.uniform(10, 330) for _ in range(KILLS - 2))

        def promoted() -> bool:
            kill_at(stage, access, moments)
            return stage.phase == "Speculative" and "Promote" in stage.actions and not moments

        stage.follow("promoted", promoted, 1200)
        assert first_missing(stage.actions, PROMOTION) is None
        wait_for_operator(access)
        stage.stay(20)
        stage.decay()
        began = time.time() - stage.narrator.began
        moments = sorted(began + chance.uniform(20, 200) for _ in range(2))

        def rolled_back() -> bool:
            kill_at(stage, access, moments)
            return stage.phase in ("RolledBack", "Exhausted") and not moments

        stage.follow("rolled back", rolled_back, 1200)
        assert first_missing(stage.actions, ("Promote", "Investigate", "RollBack", "RolledBack")) is None
        assert stage.actions.count("Promote") == 1
        assert stage.actions.count("RollBack") == 1
        totals = stage.end_traffic()
        assert totals.failed == 0, totals.faults
        wait_for_operator(access)
