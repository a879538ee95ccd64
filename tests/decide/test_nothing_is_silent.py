"""No state in which users suffer goes without a condition and an alert, whether or not the operator can do anything."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from specfleet.alerts.derive import alerts_for
from specfleet.api.conditions import ConditionType
from specfleet.api.status import Phase, Verdict
from specfleet.decide.watch_report import Attribution, Severity, Signal

from tests.decide.test_road import NEW_ENGINE, promoted, suspicion
from tests.decide.world import World, spec_of

HANG: dict[str, Any] = {"severity": Severity.HARD}


def plain(**changes: Any) -> World:
    """Plain decoding serves and nothing is left to try."""
    world = World(spec=spec_of(speculation=None, **changes))
    world.run_to(Phase.BASELINE)
    world.run(60)
    return world


def all_plain_pods_hang() -> World:
    world = plain()
    world.suspicions = (suspicion(Signal.NO_PROGRESS, attribution=Attribution.SHARED, **HANG),)
    return world


def one_plain_pod_hangs() -> World:
    world = plain()
    world.suspicions = (suspicion(Signal.NO_PROGRESS, attribution=Attribution.POD, pod="p001", **HANG),)
    return world


def both_arms_hang() -> World:
    world = promoted()
    world.suspicions = (suspicion(Signal.NO_PROGRESS, attribution=Attribution.SHARED, **HANG),)
    return world


def a_plain_pod_crashes_again_and_again() -> World:
    world = plain()
    healthy = next(iter(world.arms.values())).pods[1:]
    world.immune = {pod.uid for pod in healthy}
    world.broken_arms = frozenset({world.plain})
    return world


def a_serving_pod_finds_no_node_any_more() -> World:
    world = plain()
    world.capacity = 3
    world.arms[world.plain, False].pods.pop()
    return world


def drift_beyond_the_days_actions() -> World:
    world = promoted(remedies={**spec_of()["remedies"], "cooldownSeconds": 86400})
    world.suspicions = (suspicion(),)
    return world


def errors_that_may_not_be_rolled_back() -> World:
    world = promoted(remedies={**spec_of()["remedies"], "rollback": False})
    world.suspicions = (suspicion(Signal.SERVER_ERRORS, **HANG),)
    return world


def a_failed_engine_leaves_and_what_was_promoted_finds_no_node() -> World:
    world = promoted()
    world.comparison = Verdict.INCONCLUSIVE
    world.change(engine=NEW_ENGINE)
    world.run_to(Phase.CANARY, seconds=7200)
    world.run(300, until=lambda one: one.status is not None and one.status.step_since is not None)
    world.capacity = len(world.pods())
    world.capacity -= 2
    world.suspicions = (suspicion(Signal.SERVER_ERRORS, **HANG),)
    world.run_to(Phase.ROLLING_BACK)
    world.suspicions = ()
    return world


@pytest.mark.parametrize(
    ("happens", "alert", "reason"),
    [
        (all_plain_pods_hang, "SpecfleetStalled", "NoProgress"),
        (one_plain_pod_hangs, "SpecfleetStalled", "NoProgress"),
        (both_arms_hang, "SpecfleetStalled", "NoProgress"),
        (a_plain_pod_crashes_again_and_again, "SpecfleetStalled", "CrashLoop"),
        (a_serving_pod_finds_no_node_any_more, "SpecfleetStalled", "InsufficientCapacity"),
        (drift_beyond_the_days_actions, "SpecfleetDriftDetected", "AcceptanceDrift"),
        (errors_that_may_not_be_rolled_back, "SpecfleetDriftDetected", "ServerErrors"),
        (a_failed_engine_leaves_and_what_was_promoted_finds_no_node, "SpecfleetStalled", "RollBackBlocked"),
    ],
)
def test_somebody_is_told(happens: Callable[[], World], alert: str, reason: str) -> None:
    world = happens()
    world.run(1200)
    fired = {one.name: one.labels["reason"] for one in alerts_for(world.deployment())}
    assert fired.get(alert) == reason, (world.phase, fired, world.story())


def test_what_is_over_is_not_told_any_more() -> None:
    world = a_serving_pod_finds_no_node_any_more()
    world.run(1200)
    world.capacity = 10
    world.run(300)
    assert alerts_for(world.deployment()) == ()


def test_a_pod_that_restarts_once_wakes_nobody() -> None:
    world = plain()
    pod = next(iter(world.arms.values())).pods[0]
    pod.ready_at, pod.restarts, pod.last_restart = None, 1, world.now
    world.run(120)
    assert alerts_for(world.deployment()) == ()


@pytest.mark.parametrize("happens", [all_plain_pods_hang, one_plain_pod_hangs])
def test_how_long_it_has_lasted_is_not_written_into_status_with_every_window(happens: Callable[[], World]) -> None:
    world = happens()
    lasting(world, 60)
    world.run(60)
    told, writes = world.condition(ConditionType.STALLED), world.writes
    assert told.reason == Signal.NO_PROGRESS.value
    lasting(world, 90)
    world.run(60)
    assert world.condition(ConditionType.STALLED) == told
    assert world.writes == writes


def lasting(world: World, seconds: int) -> None:
    world.suspicions = tuple(replace(one, message=f"no token for {seconds} s") for one in world.suspicions)
