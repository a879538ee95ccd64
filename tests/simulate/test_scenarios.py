"""Scenarios as data: the schema speaks to the user, and the production core does what a scenario demands."""

from pathlib import Path

import pytest
from specfleet.simulate.__main__ import main
from specfleet.simulate.run import simulate
from specfleet.simulate.scenario import Scenario, ScenarioError, duration_seconds, load

SUITE = sorted((Path(__file__).parents[2] / "benchmarks" / "decisions" / "scenarios").glob("*.yaml"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), (90, 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("14d", 14 * 86400), ("0s", 0)],
)
def test_durations_are_written_as_people_write_them(text, seconds):
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "10 m", "-5m", "5x"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="not a duration"):
        duration_seconds(text)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("name: x\nbanana: 1", "banana"),
        ("name: x\ntimeline: [{at: 1h, kind: melt}]", "timeline.0.kind"),
        ("name: x\nduration: soon", "duration"),
        ("name: x\nmustNot: [{signal: Nonsense}]", "mustNot.0.signal"),
        ("name: [", "not YAML"),
    ],
)
def test_mistakes_in_a_file_are_named_by_file_and_field(tmp_path, body, words):
    path = tmp_path / "mine.yaml"
    path.write_text(body)
    with pytest.raises(ScenarioError, match=r"mine\.yaml") as caught:
        load(path)
    assert words in str(caught.value)
    assert main(["run", str(path)]) == 2


def test_a_matrix_stands_for_every_combination(tmp_path):
    path = tmp_path / "many.yaml"
    path.write_text("name: n ${a} ${b}\nmatrix: {a: [1, 2], b: [x, y, z]}\nseed: ${a}\nwhy: ${b}\n")
    found = load(path)
    assert [one.name for one in found] == ["n 1 x", "n 1 y", "n 1 z", "n 2 x", "n 2 y", "n 2 z"]
    assert [one.seed for one in found] == [1, 1, 1, 2, 2, 2]


def test_the_suite_has_at_least_200_scenarios_with_different_names():
    names = [one.name for path in SUITE for one in load(path)]
    assert len(names) >= 200
    assert len(set(names)) == len(names)


def scenario(**fields) -> Scenario:
    return Scenario.model_validate({"name": "test", "duration": "2h"} | fields)


def test_the_road_reaches_promotion_and_a_crash_rolls_it_back():
    result = simulate(
        scenario(
            timeline=[{"at": "30m", "kind": "crash", "arm": "speculative"}],
            must=[{"action": "RollBack", "after": "30m", "by": "50m"}],
            finallyServes="baseline",
        )
    )
    assert result.passed, result.failures


def test_what_must_not_happen_and_does_is_a_failure_with_its_story(tmp_path, capsys):
    path = tmp_path / "wrong.yaml"
    path.write_text("name: wrong\nduration: 10m\nmustNot: [{action: Promote}]\nmust: [{action: RollBack, by: 5m}]\n")
    assert main(["run", str(path)]) == 1
    said = capsys.readouterr().out
    assert "must not happen" in said
    assert "did not happen" in said
    assert "StartCanary" in said


def test_the_same_seed_gives_the_same_story():
    first, second = (simulate(scenario(seed=5, duration="30m")) for _ in range(2))
    assert [str(one) for one in first.happenings] == [str(one) for one in second.happenings]
