"""An operator that restarts in the first week of a deployment still gets the calibration of the whole week."""

import asyncio
from datetime import timedelta

import pytest
from specfleet.api.status import ArmRole, Calibration
from specfleet.decide.watch import Watch
from specfleet.decide.watch_report import Answer
from specfleet.telemetry.collector import Collector
from specfleet.telemetry.week_replay import WeekReader

from tests.telemetry.fake_server import fake_prometheus
from tests.telemetry.fleet import play
from tests.telemetry.test_collector_and_watch import KEY, T0, Scene

DAY = 86400.0


@pytest.fixture
def scene():
    with fake_prometheus() as fake:
        found = Scene(fake, interval=60.0, window=240.0)
        # Pods as old as the week, scraped once a minute for seven days.
        del found.engines[("ns", "spec-1")], found.engines[("ns", "plain-1")]
        found.calibration = Calibration(
            fingerprint="f1", since=found.moment(T0), acceptance_rate=0.51, position_zero_rate=0.7, accepted_length=2.55
        )
        yield found


def pass_time(scene: Scene, seconds: float, seed: int = 1) -> None:
    """Only the scrapes that may be read are kept: around full hours, and of the last two hours."""
    end = scene.now + seconds

    def unread(at: float) -> bool:
        return (at + 240) % 3600 > 480 and at < end - 7200

    scene.now = play(scene.fake.store, scene.engines, scene.now, seconds, scene.interval, 0.0, seed, unread)


def restart(scene: Scene, replay_seconds: float) -> None:
    scene.collector, scene.watch = Collector(replay_seconds), Watch()


def ticks(scene: Scene, count: int) -> None:
    for _ in range(count):
        scene.now = play(scene.fake.store, scene.engines, scene.now, 5.0, scene.interval, 0.0, int(scene.now))
        scene.tick()


def test_the_week_is_offered_though_the_operator_saw_only_its_last_hours(scene):
    pass_time(scene, 7 * DAY + 7200)
    scene.since = scene.moment(T0)
    restart(scene, 3600)
    before = len(scene.fake.requests)
    ticks(scene, 50)
    offered = scene.watch.report(KEY).calibration
    assert offered is not None
    assert offered.source == "Week"
    assert offered.acceptance_rate == pytest.approx((0.7 + 0.5 + 0.35) / 3, rel=0.02)
    assert offered.accepted_length == pytest.approx(2.55, rel=0.02)
    drafted_per_second = 2.0 * 99 / 2.55 * 3
    assert offered.drafted_tokens == pytest.approx(7 * DAY * drafted_per_second, rel=0.05), "no hour twice, few lost"
    assert {point.role for point in offered.load_points} == set(ArmRole)
    assert len(scene.fake.requests) - before < 400, "a few samples per hour, not a week of them"


def test_half_a_week_is_no_week_and_a_server_that_was_away_is_asked_again(scene):
    pass_time(scene, 3 * DAY)
    scene.since = scene.moment(T0)
    restart(scene, 3600)
    scene.fake.status = 503
    ticks(scene, 3)
    scene.fake.status = 200
    ticks(scene, 25)
    record = scene.watch.aim(scene.target(), {})
    assert scene.watch.report(KEY).calibration is None
    week = scene.watch._weeks.at(record.week)
    assert week.start == T0
    assert (week.hours[1:70, 1] > 0).all(), "the first edge is before the first scrape"


def test_a_restarted_pod_loses_the_hour_of_its_restart_only(scene):
    engine = scene.engines[("ns", "spec-0")]
    pass_time(scene, 5 * 3600 + 600)
    engine.restart(scene.now)
    pass_time(scene, 8 * 3600, 2)
    scene.since = scene.moment(T0)
    restart(scene, 3600)
    ticks(scene, 5)
    record = scene.watch.aim(scene.target(), {})
    drafted = scene.watch._weeks.at(record.week).hours[:12, 1]
    assert [hour for hour in range(1, 12) if drafted[hour] == 0] == [5]


def test_a_calibration_of_a_week_is_not_read_again(scene):
    scene.calibration = scene.calibration.model_copy(update={"source": "Week"})
    pass_time(scene, DAY)
    restart(scene, 3600)
    scene.since = scene.moment(scene.now) - timedelta(hours=1)
    feeds = asyncio.run(scene.collector.tick({scene.server: [scene.target()]}, scene.moment(scene.now)))
    assert feeds[KEY].week_start is None
    assert feeds[KEY].hours == ()


def test_hours_that_cannot_be_used_blind_nobody(scene, monkeypatch):
    def unusable(*arguments):
        raise IndexError("an answer that nobody has thought of")

    pass_time(scene, DAY)
    scene.since = scene.moment(T0)
    restart(scene, 3600)
    monkeypatch.setattr(WeekReader, "_digest", unusable)
    ticks(scene, 3)
    assert scene.watch.report(KEY).answer is Answer.OK
