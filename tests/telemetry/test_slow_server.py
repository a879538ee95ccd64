"""A metrics server that is slow, or far behind, holds neither the others nor the operator's sign of life."""

import asyncio
from dataclasses import replace

import pytest
from specfleet.decide.counters import TargetFeed
from specfleet.decide.watch_report import Answer
from specfleet.decide.watch_target import Key, Target
from specfleet.telemetry import collector as collectors
from specfleet.telemetry.collector import Collector
from specfleet.telemetry.servers import MetricsServer

from tests.telemetry.fake_server import fake_prometheus
from tests.telemetry.fleet import play
from tests.telemetry.test_collector_and_watch import T0, Scene

OTHER = ("ns", "other", "uid-2")


def windows(feed: TargetFeed) -> int:
    return sum(len(found) for found in feed.windows.values())


def test_a_slow_server_does_not_hold_what_the_others_say_and_is_heard_when_it_answers() -> None:
    with fake_prometheus() as fast, fake_prometheus() as slow:
        scenes = Scene(fast), Scene(slow)
        for scene in scenes:
            scene.now = play(scene.fake.store, scene.engines, T0, 40.0, scene.interval, 0.0, 1)
        slow.hold.clear()
        asked: dict[MetricsServer, list[Target]] = {
            MetricsServer(fast.url, timeout_seconds=20): [scenes[0].target()],
            MetricsServer(slow.url, timeout_seconds=20): [replace(scenes[1].target(), key=OTHER)],
        }
        now = scenes[0].moment(T0 + 40)

        async def work() -> tuple[dict[Key, TargetFeed], dict[Key, TargetFeed]]:
            collector = Collector(patience_seconds=2.0)
            first = await collector.tick(asked, now)
            slow.hold.set()
            async with asyncio.timeout(60):
                while OTHER not in (second := await collector.tick(asked, now)):
                    assert set(second) == {scenes[0].target().key}
                    await asyncio.sleep(0.01)
            collector.close()
            return first, second

        first, second = asyncio.run(work())
    assert list(first) == [scenes[0].target().key]
    assert windows(first[scenes[0].target().key]) > 0
    assert windows(second[OTHER]) == windows(first[scenes[0].target().key])
    assert {answer for answer, _ in second[OTHER].answers.values()} == {Answer.OK}


@pytest.mark.parametrize("status", [200, 500], ids=["answers late", "fails late"])
def test_a_deployment_whose_server_changes_is_not_read_from_two_at_once(status: int) -> None:
    with fake_prometheus() as wrong, fake_prometheus() as right:
        scene = Scene(right)
        now = scene.moment(play(right.store, scene.engines, T0, 40.0, scene.interval, 0.0, 1))
        target, wrong.status = scene.target(), status
        wrong.hold.clear()

        async def work() -> list[TargetFeed]:
            collector, feeds = Collector(patience_seconds=2.0), []
            before = MetricsServer(wrong.url, timeout_seconds=20)
            corrected = {MetricsServer(right.url, timeout_seconds=20): [target]}
            while not wrong.requests:
                assert await collector.tick({before: [target]}, now) == {}
            assert await collector.tick(corrected, now) == {}
            assert not right.requests, "the read before still holds the cursor"
            wrong.hold.set()
            async with asyncio.timeout(60):
                while not any(map(windows, feeds)):
                    feeds += (await collector.tick(corrected, now)).values()
                    await asyncio.sleep(0.01)
            collector.close()
            return feeds

        feeds = asyncio.run(work())
    assert {answer for feed in feeds for answer, _ in feed.answers.values()} == {Answer.OK}


def test_a_deployment_that_goes_while_its_server_is_waited_for_is_forgotten() -> None:
    with fake_prometheus() as slow:
        scene = Scene(slow)
        slow.hold.clear()
        now = scene.moment(T0 + 40)

        async def work() -> None:
            collector = Collector(patience_seconds=0.2)
            assert await collector.tick({MetricsServer(slow.url, timeout_seconds=20): [scene.target()]}, now) == {}
            assert await collector.tick({}, now) == {}
            slow.hold.set()
            async with asyncio.timeout(60):
                while collector._reading:
                    await collector.tick({}, now)
                    await asyncio.sleep(0.01)
            await collector.tick({}, now)
            assert not collector._cursors
            assert not collector._clients

        asyncio.run(work())


def test_a_replay_that_takes_longer_than_a_tick_goes_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectors, "SAMPLES_PER_SLICE", 1)
    with fake_prometheus() as fake:
        scene = Scene(fake)
        play(fake.store, scene.engines, T0, 80.0, scene.interval, 0.0, 1)
        now = scene.moment(T0 + 80)

        async def work(enough: int, patience_seconds: float | None) -> list[int]:
            collector = Collector(patience_seconds=patience_seconds)
            told: list[int] = []
            async with asyncio.timeout(60):
                while sum(told) < enough:
                    for feed in (await collector.tick({scene.server: [scene.target()]}, now)).values():
                        told += [windows(feed)] if windows(feed) else []
                    await asyncio.sleep(0.01)
            collector.close()
            return told

        (whole,) = asyncio.run(work(1, None))
        parts = asyncio.run(work(whole, 0.0))
    assert sum(parts) == whole
    assert len(parts) > 1


def test_who_asks_once_waits_for_a_slow_server() -> None:
    with fake_prometheus() as slow:
        scene = Scene(slow)
        play(slow.store, scene.engines, T0, 40.0, scene.interval, 0.0, 1)
        slow.hold.clear()

        async def work() -> dict[Key, TargetFeed]:
            collector = Collector(patience_seconds=None)
            asked = {MetricsServer(slow.url, timeout_seconds=20): [scene.target()]}
            tick = asyncio.get_running_loop().create_task(collector.tick(asked, scene.moment(T0 + 40)))
            async with asyncio.timeout(60):
                while not slow.requests:
                    await asyncio.sleep(0.01)
            slow.hold.set()
            feeds = await tick
            collector.close()
            return feeds

        feeds = asyncio.run(work())
    assert windows(feeds[scene.target().key]) > 0
