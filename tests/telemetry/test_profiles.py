"""Lengths of production requests from the engine's histograms."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from specfleet.api.status import ArmRole
from specfleet.decide.traffic_profile import TrafficLook
from specfleet.decide.watch_target import Target, TargetPod
from specfleet.telemetry.profiles import OUTPUT, PROMPT, RUNNING, Profiles
from specfleet.telemetry.servers import MetricsServer

from tests.telemetry.fake_server import FakePrometheus, fake_prometheus

NOW = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
WINDOW = 3600.0
KEY = ("ml", "llama", "u")


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    with fake_prometheus() as server:
        yield server


def target(*pods: str, key: tuple[str, str, str] = KEY, window: float = WINDOW) -> Target:
    arms = {ArmRole.BASELINE: tuple(TargetPod(name, name, None) for name in pods)}
    return Target(key=key, arms=arms, since=NOW, window_seconds=60, traffic_window_seconds=window)


def count(fake: FakePrometheus, at: float, pod: str, prompts: dict[str, float], outputs: dict[str, float]) -> None:
    for metric, buckets in ((PROMPT, prompts), (OUTPUT, outputs)):
        for edge, value in buckets.items():
            fake.store.add(at, value, metric, namespace="ml", pod=pod, le=edge)


def read(fake: FakePrometheus, targets: list[Target], profiles: Profiles | None = None, at: datetime = NOW) -> dict:
    own = profiles or Profiles()
    try:
        return asyncio.run(own.read({MetricsServer(fake.url, timeout_seconds=5): targets}, at))
    finally:
        if profiles is None:
            own.close()


START, END = NOW.timestamp() - WINDOW - 5, NOW.timestamp() - 5


def test_a_window_counts_what_came_in_it_over_all_pods(fake: FakePrometheus) -> None:
    for pod in ("a", "b"):
        count(fake, START, pod, {"100": 10, "200": 30, "+Inf": 30}, {"50": 30, "+Inf": 30})
        count(fake, END, pod, {"100": 10, "200": 330, "+Inf": 430}, {"50": 430, "+Inf": 430})
    look = read(fake, [target("a", "b")])[KEY]
    assert isinstance(look, TrafficLook)
    assert look.profile.prompt_tokens == {100.0: 0, 200.0: 600, float("inf"): 200}
    assert look.profile.output_tokens == {50.0: 800, float("inf"): 0}
    assert look.profile.requests == 800


def test_a_young_or_restarted_pod_counts_from_its_start(fake: FakePrometheus) -> None:
    count(fake, START, "restarted", {"100": 500, "+Inf": 500}, {"50": 500, "+Inf": 500})
    for pod in ("restarted", "young"):
        count(fake, END, pod, {"100": 40, "+Inf": 50}, {"50": 50, "+Inf": 50})
    look = read(fake, [target("restarted", "young")])[KEY]
    assert look.profile.prompt_tokens == {100.0: 80, float("inf"): 20}


def test_engines_of_one_pod_are_summed(fake: FakePrometheus) -> None:
    for engine in ("0", "1"):
        for metric in (PROMPT, OUTPUT):
            fake.store.add(END, 7, metric, namespace="ml", pod="a", le="+Inf", engine=engine)
    assert read(fake, [target("a")])[KEY].profile.requests == 14


def test_a_pod_that_two_jobs_scrape_counts_once(fake: FakePrometheus) -> None:
    for job in ("engines", "all-pods"):
        for metric in (PROMPT, OUTPUT):
            fake.store.add(END, 7, metric, namespace="ml", pod="a", le="+Inf", job=job)
        for engine in ("0", "1"):
            fake.store.add(END, 20, RUNNING, namespace="ml", pod="a", engine=engine, job=job)
    profile = read(fake, [target("a")])[KEY].profile
    assert profile.requests == 7
    assert profile.peak_batch == pytest.approx(40), "both engines of the pod, each once"


def test_of_two_scrapes_the_one_with_all_engines_counts(fake: FakePrometheus) -> None:
    for job, engines in (("a-new-job", ("0",)), ("engines", ("0", "1"))):
        for engine in engines:
            for metric in (PROMPT, OUTPUT):
                fake.store.add(END, 7, metric, namespace="ml", pod="a", le="+Inf", engine=engine, job=job)
    assert read(fake, [target("a")])[KEY].profile.requests == 14


def test_without_the_histograms_or_without_pods_nothing_is_said(fake: FakePrometheus) -> None:
    assert read(fake, [target("a")]) == {}
    count(fake, END, "other", {"+Inf": 9}, {"+Inf": 9})
    assert read(fake, [target("a"), target(key=("ml", "empty", "v"))]) == {}


def test_nonsense_is_no_profile(fake: FakePrometheus) -> None:
    count(fake, END, "a", {"100": 50, "200": 20, "+Inf": 60}, {"+Inf": 60})
    fake.store.add(END, float("nan"), PROMPT, namespace="ml", pod="a", le="nonsense")
    assert read(fake, [target("a")]) == {}


def test_the_peak_is_what_is_exceeded_for_a_hundredth_of_the_window_in_the_busier_arm(fake: FakePrometheus) -> None:
    count(fake, END, "plain", {"+Inf": 9}, {"+Inf": 9})
    for second in range(1000):
        busy = second >= 980
        at = NOW.timestamp() - second
        fake.store.add(at, 90 if busy else 10, RUNNING, namespace="ml", pod="plain")
        fake.store.add(at, 70 if busy else 10, RUNNING, namespace="ml", pod="plain-2")
        fake.store.add(at, 400 if second == 5 else 20, RUNNING, namespace="ml", pod="drafted")
    arms = {
        ArmRole.BASELINE: (TargetPod("plain", "plain", None), TargetPod("plain-2", "plain-2", None)),
        ArmRole.SPECULATIVE: (TargetPod("drafted", "drafted", None),),
    }
    both = Target(key=KEY, arms=arms, since=NOW, window_seconds=60, traffic_window_seconds=WINDOW)
    assert read(fake, [both])[KEY].profile.peak_batch == pytest.approx(80), "a burst of a second is no peak"


def test_an_engine_without_that_gauge_has_a_profile_without_a_peak(fake: FakePrometheus) -> None:
    count(fake, END, "a", {"+Inf": 9}, {"+Inf": 9})
    assert read(fake, [target("a")])[KEY].profile.peak_batch is None


def test_it_asks_four_times_per_window_with_three_requests_each_whatever_the_fleet_s_size(fake: FakePrometheus) -> None:
    fleet = []
    for number in range(20):
        count(fake, END, f"p{number}", {"+Inf": 9}, {"+Inf": 9})
        fleet.append(target(f"p{number}", key=("ml", f"d{number}", "u")))
    profiles = Profiles()
    try:
        for minute in range(60):
            read(fake, fleet, profiles, datetime.fromtimestamp(NOW.timestamp() + 60 * minute, UTC))
        assert profiles.queries == 12
    finally:
        profiles.close()


def test_a_server_that_fails_gives_no_look_and_no_error(fake: FakePrometheus) -> None:
    fake.status = 500
    assert read(fake, [target("a")]) == {}
