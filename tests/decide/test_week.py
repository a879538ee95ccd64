"""A week of windows sharpens a calibration; a week of decay does not become normal."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from specfleet.api.speculation import Method
from specfleet.api.status import ArmRole, Calibration
from specfleet.decide.counters import COUNTERS, GAUGES, Counter, PodWindow, TargetFeed, Window
from specfleet.decide.watch import Watch
from specfleet.decide.watch_report import Answer
from specfleet.decide.watch_target import Target, TargetPod

START = datetime(2026, 11, 2, tzinfo=UTC)
KEY = ("ns", "n", "u")
CANARY = Calibration(
    fingerprint="f",
    since=START,
    acceptance_rate=0.5,
    position_zero_rate=0.7,
    accepted_length=2.5,
    drafted_tokens=20_000,
)


def run(watch: Watch, days: float, acceptance, calibration: Calibration = CANARY, start: datetime = START):
    """Windows of ten minutes; `acceptance` is a function of the day."""
    rng = np.random.default_rng(1)
    target = Target(
        KEY,
        {ArmRole.SPECULATIVE: (TargetPod("p", "p", START),)},
        since=START,
        window_seconds=600,
        fingerprint="f",
        calibration=calibration,
        method=Method.EAGLE3,
    )
    for index in range(round(days * 144)):
        at = start + timedelta(seconds=600 * index)
        counts = np.zeros(COUNTERS)
        counts[Counter.DRAFTS], counts[Counter.DRAFT_TOKENS] = 4000, 12_000
        rate = acceptance(index / 144) * (1 + 0.02 * rng.standard_normal())
        counts[Counter.ACCEPTED_TOKENS], counts[Counter.ACCEPTED_FIRST] = 12_000 * rate, 4000 * 1.4 * rate
        counts[Counter.FIRST_TOKENS] = counts[Counter.FINISHED] = 100
        counts[Counter.GENERATED_TOKENS] = 100 + 4000 * (1 + 3 * rate)
        counts[Counter.STEP_SECONDS], counts[Counter.TTFT_SECONDS] = 80.0, 10.0
        begin = at.timestamp()
        window = Window(begin, begin + 600, Answer.OK, "", {"p": PodWindow(600.0, counts, np.zeros(GAUGES))})
        feed = TargetFeed(target, {ArmRole.SPECULATIVE: (window,)}, {ArmRole.SPECULATIVE: (Answer.OK, "")})
        watch.observe(at + timedelta(seconds=600), {KEY: feed})
    return watch.report(KEY)


def test_nothing_is_offered_before_the_week_is_over():
    assert run(Watch(), 6.5, lambda _: 0.5).calibration is None


def test_a_healthy_week_is_offered_with_measured_scatter_and_load():
    offered = run(Watch(), 7.1, lambda _: 0.5).calibration
    assert offered is not None
    assert offered.source == "Week"
    assert offered.acceptance_rate == pytest.approx(0.5, rel=0.01)
    assert offered.drafted_tokens > 100 * CANARY.drafted_tokens / 2
    assert offered.dispersion is not None
    assert offered.load_points
    assert offered.load_points[0].tpot_seconds == pytest.approx(80 / 10_000, rel=0.05)


def test_once_adopted_it_is_not_offered_again():
    watch = Watch()
    offered = run(watch, 7.1, lambda _: 0.5).calibration
    assert offered is not None
    later = run(watch, 8, lambda _: 0.5, offered, START + timedelta(days=8))
    assert later.calibration is None


@pytest.mark.parametrize("decay", [lambda day: 0.5 * (1 - 0.01 * day), lambda day: 0.45 - 0.002 * day])
def test_a_week_of_decay_does_not_become_normal(decay):
    assert run(Watch(), 7.1, decay).calibration is None
