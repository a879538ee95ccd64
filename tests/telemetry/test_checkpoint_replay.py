"""After a restart only the windows since the checkpoint are asked for, and the reports are those of before."""

import dataclasses
import re
from collections.abc import Iterator

import pytest
from specfleet.decide.checkpoint_format import decode, encode
from specfleet.decide.watch import Watch
from specfleet.decide.watch_report import Answer
from specfleet.telemetry.collector import Collector

from tests.telemetry.fake_server import FakePrometheus, fake_prometheus
from tests.telemetry.test_collector_and_watch import KEY, T0, Scene

LOOK_BACK_SECONDS = 4 * 60.0
"""Of every first request: how often is scraped is not known yet."""


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    with fake_prometheus() as server:
        yield server


def restarted(scene: Scene) -> Watch:
    """What a fresh process begins with."""
    found = scene.watch.checkpoint(KEY)
    assert found is not None
    watch = Watch()
    watch.saved.add(decode(encode([found])[0]))
    return watch


def spans(fake: FakePrometheus) -> list[float]:
    """Seconds that each request looked back."""
    return [int(found[1]) / 1000 for one in fake.requests if (found := re.search(r"\[(\d+)ms\]", one["query"]))]


def told(scene: Scene) -> str:
    return repr(dataclasses.asdict(scene.tick()))


def test_a_restarted_operator_reads_the_windows_since_its_checkpoint_and_reports_the_same(fake: FakePrometheus) -> None:
    scene = Scene(fake)
    scene.run(400)
    scene.calibrate()
    for engine in scene.spec:
        engine.acceptance = (0.4, 0.2, 0.1)
    scene.run(200)
    watch = restarted(scene)
    scene.run(40)
    steady = told(scene)
    assert scene.watch.report(KEY).suspicions
    scene.watch, scene.collector = watch, Collector(resumes_at=watch.saved.resumes_at)
    fake.requests.clear()
    assert told(scene) == steady
    assert max(spans(fake)) < LOOK_BACK_SECONDS + 80, "not from the start of the step"


def test_with_its_metrics_server_away_a_restarted_operator_accuses_nobody_of_what_was_hours_ago(
    fake: FakePrometheus,
) -> None:
    scene = Scene(fake)
    scene.run(400)
    scene.calibrate()
    for engine in scene.spec:
        engine.acceptance = (0.4, 0.2, 0.1)
    found = scene.run(200).suspicions
    assert found
    watch = restarted(scene)
    scene.watch, scene.collector = watch, Collector(resumes_at=watch.saved.resumes_at)
    scene.now += 3 * 3600
    fake.status = 503
    report = scene.tick()
    assert (report.answer, report.suspicions) == (Answer.UNAVAILABLE, ())
    assert "nothing has been measured since" in report.message
    fake.status = 200
    report = scene.run(60)
    assert {one.signal for one in report.suspicions} >= {one.signal for one in found}


@pytest.mark.parametrize(("replay", "begins"), [(16.0, True), (6 * 3600.0, False)])
def test_no_further_back_than_it_may_read(fake: FakePrometheus, replay: float, begins: bool) -> None:
    scene = Scene(fake)
    scene.run(80)
    watch = restarted(scene)
    scene.run(80)
    scene.watch, scene.collector = watch, Collector(replay, watch.saved.resumes_at)
    fake.requests.clear()
    scene.tick()
    assert (max(spans(fake)) < LOOK_BACK_SECONDS + 60) is begins
    assert scene.watch.report(KEY).last
    assert scene.now > T0
