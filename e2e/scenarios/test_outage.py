"""Prometheus is away for two minutes in each phase: no data is no result. Hard faults still count."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.road.access import Access
from e2e.scenarios.stage import SHORT_ROAD, Stage, hold_prometheus, on_stage

OUTAGE_SECONDS = 120.0
pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _prometheus_back() -> Iterator[None]:
    yield
    hold_prometheus(running=True)


def outage(stage: Stage) -> None:
    """Two minutes without Prometheus: nothing is promoted or rolled back on what is not known."""
    before = stage.actions
    phase = stage.phase
    stage.narrator.say("OUTAGE", f"Prometheus stops in phase {phase}")
    hold_prometheus(running=False)
    stage.follow("MetricsAvailable=False", lambda: stage.condition("MetricsAvailable").get("status") == "False", 60)
    stage.stay(OUTAGE_SECONDS)
    news = stage.actions[len(before) :]
    assert not {"Promote", "NextStep", "RollBack"} & set(news), f"decided without metrics in phase {phase}: {news}"
    assert stage.condition("MetricsAvailable")["status"] == "False"
    hold_prometheus(running=True)
    stage.narrator.say("OUTAGE", "Prometheus is back")
    stage.follow("MetricsAvailable=True", lambda: stage.condition("MetricsAvailable").get("status") == "True", 90)


def test_two_minutes_in_each_phase_promote_nothing_and_roll_nothing_back(access: Access, space: str) -> None:
    with on_stage(access, space, "outage", SHORT_ROAD) as stage:
        stage.start_traffic()
        stage.until_phase("Benchmarking", seconds=60)
        outage(stage)
        stage.until_phase("Canary", seconds=600)
        outage(stage)
        stage.until_promoted()
        outage(stage)
        assert stage.phase == "Speculative"
        stage.decay()
        stage.until_phase("Investigating", seconds=300)
        outage(stage)
        stage.until_rolled_back()
        totals = stage.end_traffic()
        assert totals.failed == 0, totals.faults


def test_a_crash_looping_speculative_arm_is_rolled_back_without_prometheus(access: Access, space: str) -> None:
    with on_stage(access, space, "crashing", SHORT_ROAD, long_streams=0) as stage:
        stage.start_traffic()
        stage.until_promoted()
        hold_prometheus(running=False)
        stage.follow("MetricsAvailable=False", lambda: stage.condition("MetricsAvailable").get("status") == "False", 60)
        stage.faults([{"id": "crash", "kind": "crash_on_request", "arms": {"speculation": True}}])
        stage.follow("roll-back decided", lambda: "RollBack" in stage.actions, 120)
        decision = stage.decision("RollBack")
        assert decision is not None
        assert decision["reason"] in ("CrashLoop", "OutOfMemory")
        stage.until_rolled_back(seconds=180)
        assert stage.condition("MetricsAvailable")["status"] == "False"
        stage.follow("the plain arm serves", lambda: stage.condition("Ready").get("status") == "True", 60)
