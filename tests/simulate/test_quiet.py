"""Many deployments in lock-step: what is left out while nothing can happen changes no story."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from specfleet.api.status import ArmRole
from specfleet.decide.counters import COUNTERS, GAUGES, Counter, PodWindow, TargetFeed, Window
from specfleet.decide.watch import Watch
from specfleet.decide.watch_report import Answer, Signal, gist
from specfleet.decide.watch_target import Target, TargetPod
from specfleet.simulate import story
from specfleet.simulate.run import Simulation, simulate
from specfleet.simulate.scenario import Scenario, load

SUITE = Path(__file__).parents[2] / "benchmarks" / "decisions" / "scenarios"
START = datetime(2026, 11, 2, tzinfo=UTC)


def happenings(scenario: Scenario) -> list[str]:
    return [str(one) for one in simulate(scenario).happenings]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("drift", "decay over 3h to 0.6 that a restart heals, seed 28"),
        ("faults", "the speculative engines hang, seed 72"),
        ("healthy", "traffic stops for 10m, seed 13"),
        ("metrics", ""),
    ],
)
def test_asking_every_ten_minutes_or_only_on_news_tells_the_same_story(monkeypatch, file, name):
    scenario = next(one for one in load(SUITE / f"{file}.yaml") if name in one.name)
    on_news = happenings(scenario)
    monkeypatch.setattr(story, "QUIET_RESYNC_SECONDS", story.RESYNC_SECONDS)
    assert happenings(scenario) == on_news


def test_copies_have_fates_of_their_own_and_all_are_judged():
    scenario = Scenario.model_validate(
        {
            "name": "copies",
            "duration": "90m",
            "timeline": [{"at": "20m", "kind": "crash", "arm": "speculative"}],
            "must": [{"action": "RollBack", "after": "20m", "by": "50m"}],
            "finallyServes": "baseline",
        }
    )
    found = Simulation(scenario, copies=4).run()
    assert [one.failures for one in found] == [[]] * 4
    said = {next(h.message for h in one.happenings if h.action == "Promote") for one in found}
    assert len(said) == 4, "each has traffic of its own"


def feeds(names: list[str], index: int, rng: dict[str, np.random.Generator]) -> dict:
    found = {}
    for name in names:
        pods = {role: (TargetPod(f"{name}-{role}", "u", START),) for role in ArmRole}
        target = Target(("ns", name, name), pods, since=START, window_seconds=60, fingerprint="f")
        windows = {}
        for role, (pod,) in pods.items():
            counts = np.zeros(COUNTERS)
            counts[Counter.GENERATED_TOKENS], counts[Counter.STEP_SECONDS] = 9000, 90 * rng[name].uniform(0.9, 1.1)
            counts[Counter.FIRST_TOKENS] = counts[Counter.FINISHED] = 30
            counts[Counter.TTFT_SECONDS] = 3.0
            if role is ArmRole.SPECULATIVE:
                counts[Counter.DRAFTS], counts[Counter.DRAFT_TOKENS] = 4000, 12_000
                counts[Counter.ACCEPTED_TOKENS] = 12_000 * rng[name].uniform(0.4, 0.5)
                counts[Counter.ACCEPTED_FIRST] = 2500
            begin = START.timestamp() + 60 * index
            one = PodWindow(60.0, counts, np.zeros(GAUGES))
            windows[role] = (Window(begin, begin + 60, Answer.OK, "", {pod.name: one}),)
        found[target.key] = TargetFeed(target, windows, dict.fromkeys(pods, (Answer.OK, "")))
    return found


def test_a_deployment_is_reported_alike_alone_and_among_many():
    """More than the rows and pods that there is room for at first."""
    names = [f"d{number}" for number in range(90)]
    among, alone = Watch(), Watch()
    generators = {name: np.random.default_rng(number) for number, name in enumerate(names)}
    lonely = {"d71": np.random.default_rng(71)}
    for index in range(12):
        now = datetime.fromtimestamp(START.timestamp() + 60 * (index + 1), UTC)
        among.observe(now, feeds(names, index, generators))
        alone.observe(now, feeds(["d71"], index, lonely))
    key = ("ns", "d71", "d71")
    assert among.report(key) == alone.report(key)
    among.forget(("ns", "d3", "d3"))
    fresh = feeds(["new"], 12, {"new": np.random.default_rng(5)})
    other = feeds(["new"], 12, {"new": np.random.default_rng(5)})
    now = datetime.fromtimestamp(START.timestamp() + 60 * 13, UTC)
    among.observe(now, fresh)
    alone.observe(now, other)
    assert among.report(("ns", "new", "new")) == alone.report(("ns", "new", "new")), "nothing is left of its place"


def test_what_is_not_stirred_has_nothing_to_say():
    """Wherever a report holds a finding or an offer, the row is stirred: no news is lost."""
    watch, names = Watch(), ["a", "b"]
    generators = {name: np.random.default_rng(number) for number, name in enumerate(names)}
    for index in range(30):
        now = datetime.fromtimestamp(START.timestamp() + 60 * (index + 1), UTC)
        found = feeds(names, index, generators)
        for feed in found.values():
            record = watch.aim(feed.target, feed.answers)
            window = feed.windows[ArmRole.SPECULATIVE][0]
            if feed.target.key[1] == "b" and index >= 20:
                next(iter(window.pods.values())).counts[Counter.HTTP_SERVER_ERROR] = 30
            del record
        watch.observe(now, found)
    bad, good = (watch.report(("ns", name, name)) for name in ("b", "a"))
    assert {one.signal for one in bad.suspicions} == {Signal.SERVER_ERRORS}
    assert gist(bad) != gist(good)
    rows = np.array([watch.aim(found[("ns", "b", "b")].target, {}).row])
    assert watch.stirred(rows).all()
