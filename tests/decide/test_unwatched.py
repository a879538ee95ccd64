"""An operator that was away for more than an hour does not act on what it knew before."""

from dataclasses import replace
from datetime import timedelta

from specfleet.api.status import Phase
from specfleet.decide.decide import decide
from specfleet.decide.observation import WatchHistory

from tests.decide.world import World


def promoted() -> World:
    world = World()
    world.run_to(Phase.SPECULATIVE)
    world.run(120)
    return world


def test_after_hours_without_an_operator_the_calibration_is_dropped_and_said_so() -> None:
    world = promoted()
    history = WatchHistory(since=world.now, gap_seconds=3 * 3600)
    plan = decide(replace(world.observation(), history=history))
    assert plan.status.calibration is None
    assert [one.action for one in plan.decisions] == ["Recalibrate"]
    assert plan.status.phase is Phase.SPECULATIVE


def test_a_short_absence_changes_nothing() -> None:
    world = promoted()
    history = WatchHistory(since=world.now, gap_seconds=600)
    plan = decide(replace(world.observation(), history=history))
    assert plan.status.calibration is not None
    assert plan.decisions == ()


def test_a_calibration_made_after_the_absence_is_kept() -> None:
    world = promoted()
    assert world.status is not None
    assert world.status.calibration is not None
    history = WatchHistory(since=world.status.calibration.since - timedelta(seconds=5), gap_seconds=7200)
    plan = decide(replace(world.observation(), history=history))
    assert plan.status.calibration is not None


def test_a_healthy_week_sharpens_the_calibration_once() -> None:
    world = promoted()
    assert world.status is not None
    calibration = world.status.calibration
    assert calibration is not None
    obs = world.observation()
    sharper = calibration.model_copy(update={"source": "Week", "dispersion": 50.0})
    plan = decide(replace(obs, watch=replace(obs.watch, calibration=sharper)))
    assert plan.status.calibration == sharper
    world.status = plan.status
    later = world.observation()
    kept = decide(replace(later, watch=replace(later.watch, calibration=calibration)))
    assert kept.status.calibration == sharper
