"""explain --replay: decisions of an operator with real telemetry, taken again from what is stored."""

import json
import os
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Phase_
from hypothesis import strategies as st
from specfleet.api.status import Phase
from specfleet.cli.asking import metrics_server
from specfleet.cli.main import main
from specfleet.cli.picture import picture
from specfleet.cli.replay import Outcome, replay

from tests.cli.measured_world import DECAYED, GOOD, MeasuredWorld, measured_spec
from tests.decide.test_road import NEW_ENGINE
from tests.decide.world import spec_of
from tests.telemetry.fake_server import FakePrometheus, fake_prometheus

Objects = list[dict[str, Any]]


@dataclass(frozen=True)
class Life:
    """A life that has been lived: its objects, and the Prometheus that scraped it."""

    objects: Objects
    fake: FakePrometheus
    world: MeasuredWorld


def promoted(fake: FakePrometheus, **changes: Any) -> MeasuredWorld:
    """A world whose proposer serves and has been watched for ten minutes."""
    world = MeasuredWorld(fake=fake, spec=measured_spec(**changes), requests_per_second=12.0)
    world.run_to(Phase.SPECULATIVE)
    world.run(600)
    return world


def decays(fake: FakePrometheus) -> MeasuredWorld:
    world = promoted(fake)
    world.acceptance, world.gain = DECAYED, lambda tier, piece: 0.8
    world.run_to(Phase.ROLLED_BACK)
    return world


def steps_slow_down(fake: FakePrometheus) -> MeasuredWorld:
    """Acceptance is as it was."""
    world = promoted(fake)
    world.speculative_step_seconds *= 1.6
    world.run_to(Phase.ROLLED_BACK)
    return world


def everything_slows_down(fake: FakePrometheus) -> MeasuredWorld:
    world = promoted(fake)
    world.speculative_step_seconds *= 1.6
    world.plain_step_seconds *= 1.6
    world.run_to(Phase.INVESTIGATING)
    world.run_to(Phase.SPECULATIVE)
    return world


def never_was_faster(fake: FakePrometheus) -> MeasuredWorld:
    world = MeasuredWorld(fake=fake, requests_per_second=12.0, speculative_step_seconds=0.12)
    world.run_to(Phase.ROLLED_BACK)
    return world


def nobody_asks(fake: FakePrometheus) -> MeasuredWorld:
    rollout = {**spec_of()["rollout"], "noTrafficTimeoutSeconds": 300}
    world = MeasuredWorld(fake=fake, spec=measured_spec(rollout=rollout), requests_per_second=0.1)
    world.run_to(Phase.HELD)
    return world


def the_engine_is_changed(fake: FakePrometheus) -> MeasuredWorld:
    world = promoted(fake)
    world.change(engine=NEW_ENGINE)
    world.run_to(Phase.CANARY)
    world.run_to(Phase.BASELINE)
    return world


def a_slow_engine_is_tried(fake: FakePrometheus) -> MeasuredWorld:
    world = MeasuredWorld(fake=fake, spec=measured_spec(speculation=None), requests_per_second=12.0)
    world.run_to(Phase.BASELINE)
    world.run(120)
    world.change(engine=NEW_ENGINE)
    world.slow_fingerprint = world.plain
    world.run_to(Phase.ROLLING_BACK)
    return world


def told(world: MeasuredWorld) -> Life:
    world.collector.close()
    return Life(world.objects(), world.fake, world)


@pytest.fixture(scope="module")
def decayed() -> Iterator[Life]:
    with fake_prometheus() as fake:
        yield told(decays(fake))


def replayed(
    objects: Objects, folder: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit code, and the outcome of each decision by `Action Reason`."""
    path = folder / "objects.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    code = main(["explain", "-f", str(path), "--replay", "-o", "json", *words])
    told = json.loads(capsys.readouterr().out)
    return code, {f"{one['record']['action']} {one['record']['reason']}": one for one in told["decisions"]}


def outcomes(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: one["outcome"] for name, one in found.items()}


def test_decisions_of_a_whole_life_come_out_again(
    decayed: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = replayed(decayed.objects, tmp_path, capsys, "--prometheus", decayed.fake.url)
    assert code == 0
    assert {name for name, one in found.items() if one["outcome"] == "AGREES"} == {
        "Judge GainProven",
        "StartCanary BenchmarkPassed",
        "NextStep CanaryStepPassed",
        "Promote CanaryPassed",
        "Investigate AcceptanceDrift",
        "RestartProbe AcceptanceDrift",
        "RestartProbeFailed AcceptanceDrift",
        "Judge TimePerOutputToken",
        "RollBack AcceptanceDrift",
    }
    assert "DISAGREES" not in outcomes(found).values()
    assert "not from evidence" in found["ServeBaseline BaselineReady"]["why"]
    recorded = {f"{one.action} {one.reason}": one for one in decayed.world.decisions()}
    for name in ("NextStep CanaryStepPassed", "Promote CanaryPassed", "RestartProbeFailed AcceptanceDrift"):
        assert recorded[name].message in found[name]["why"], "the very figures that the operator had"


@pytest.mark.parametrize(
    ("happens", "expected"),
    [
        (steps_slow_down, ["Investigate TimePerOutputTokenRegression", "RollBack TimePerOutputTokenRegression"]),
        (everything_slows_down, ["Investigate TimePerOutputTokenRegression", "CloseInvestigation SharedCause"]),
        (never_was_faster, ["RollBack TimePerOutputTokenRegression"]),
        (nobody_asks, ["Hold InsufficientTraffic"]),
        (the_engine_is_changed, ["NextStep CanaryStepPassed", "AdoptRevision RevisionPassed"]),
        (a_slow_engine_is_tried, ["RollBack TimePerOutputTokenRegression"]),
    ],
)
def test_whatever_the_watch_decides_comes_out_again(
    happens: Callable[[FakePrometheus], MeasuredWorld],
    expected: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with fake_prometheus() as fake:
        life = told(happens(fake))
        code, found = replayed(life.objects, tmp_path, capsys, "--prometheus", fake.url)
    assert code == 0, found
    for name in expected:
        assert found[name]["outcome"] == "AGREES", found[name]


def acceptance_falls(world: MeasuredWorld, factor: float) -> None:
    world.acceptance = tuple(share / factor for share in GOOD)
    world.gain = lambda tier, piece: 0.8 if factor > 1.5 else 1.6


def steps_take_longer(world: MeasuredWorld, factor: float) -> None:
    world.speculative_step_seconds *= factor


def both_take_longer(world: MeasuredWorld, factor: float) -> None:
    world.speculative_step_seconds *= factor
    world.plain_step_seconds *= factor


def load_changes(world: MeasuredWorld, factor: float) -> None:
    world.requests_per_second *= factor


def a_pod_dies(world: MeasuredWorld, factor: float) -> None:
    arm = next(arm for arm in world.arms.values() if arm.pods)
    arm.pods.pop(int(10 * factor) % len(arm.pods))


EVENTS = (acceptance_falls, steps_take_longer, both_take_longer, load_changes, a_pod_dies)


@settings(
    max_examples=int(os.environ.get("SPECFLEET_LIVES", "4")),
    deadline=None,
    derandomize=True,
    phases=[Phase_.explicit, Phase_.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    load=st.sampled_from([2.0, 12.0, 30.0]),
    step_seconds=st.sampled_from([0.02, 0.03, 0.05]),
    events=st.lists(
        st.tuples(st.sampled_from(EVENTS), st.floats(1.1, 3.0), st.integers(60, 900)), min_size=1, max_size=3
    ),
)
def test_no_life_is_contradicted_by_its_own_evidence(
    load: float, step_seconds: float, events: list[tuple[Callable[[MeasuredWorld, float], None], float, int]]
) -> None:
    with fake_prometheus() as fake:
        world = MeasuredWorld(fake=fake, requests_per_second=load, speculative_step_seconds=step_seconds)
        world.run(600)
        for happens, factor, seconds in events:
            happens(world, factor)
            world.run(seconds)
        world.collector.close()
        seen = picture(world.objects(), None, None, world.now)
        found = replay(seen, metrics_server(fake.url, world.deployment(), None))
    assert found
    assert [one for one in found if one.outcome is Outcome.DISAGREES] == []


def test_without_prometheus_only_what_rests_on_benchmarks_is_told(
    decayed: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = replayed(decayed.objects, tmp_path, capsys)
    assert code == 0
    assert {name for name, outcome in outcomes(found).items() if outcome == "AGREES"} == {
        "Judge GainProven",
        "StartCanary BenchmarkPassed",
        "Judge TimePerOutputToken",
        "RollBack AcceptanceDrift",
    }
    assert "--prometheus" in found["Promote CanaryPassed"]["why"]


def test_evidence_that_is_gone_is_no_disagreement(
    decayed: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = replayed(decayed.objects[:1], tmp_path, capsys)
    assert code == 0
    assert set(outcomes(found).values()) == {"CANNOT_TELL"}
    assert "evidence is gone: llama-" in found["Judge GainProven"]["why"]


def falsified(objects: Objects, which: str, fields: dict[str, Any]) -> Objects:
    """The history with another decision written into it."""
    changed = deepcopy(objects)
    for record in changed[0]["status"]["history"]:
        if record["action"] == which:
            record.update(fields)
    return changed


@pytest.mark.parametrize(
    ("action", "fields", "named", "instead"),
    [
        ("Promote", {"action": "RollBack", "reason": "ServerErrors", "verdict": "Fail"}, "RollBack", "now Promote"),
        ("NextStep", {"action": "Hold", "reason": "InsufficientTraffic"}, "Hold", "now NextStep"),
        ("Investigate", {"reason": "ServerErrors"}, "Investigate ServerErrors", "now Investigate AcceptanceDrift"),
        (
            "RestartProbeFailed",
            {"action": "RestartRest", "reason": "RestartHeals"},
            "RestartRest",
            "RestartProbeFailed",
        ),
        ("Judge", {"verdict": "Inconclusive", "reason": "GainNotProven"}, "Judge", "recomputed"),
    ],
)
def test_a_history_that_was_edited_is_found_out(
    action: str,
    fields: dict[str, Any],
    named: str,
    instead: str,
    decayed: Life,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changed = falsified(decayed.objects, action, fields)
    code, found = replayed(changed, tmp_path, capsys, "--prometheus", decayed.fake.url)
    assert code == 1
    mine = [one for name, one in found.items() if name.startswith(named)]
    assert any(one["outcome"] == "DISAGREES" and instead in one["why"] for one in mine), mine


def test_other_figures_in_prometheus_are_found_out(
    decayed: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The speculative pods' time per step, three times as long: such an arm would not have been promoted."""
    with fake_prometheus() as fake:
        slow = f"llama-{decayed.world.drafted}"
        for labels, samples in decayed.fake.store.series.items():
            own = dict(labels)
            times = own["__name__"] == "vllm:inter_token_latency_seconds_sum" and own["pod"].startswith(slow)
            fake.store.series[labels] = [(at, value * (3 if times else 1)) for at, value in samples]
        code, found = replayed(decayed.objects, tmp_path, capsys, "--prometheus", fake.url)
    assert code == 1
    assert found["Promote CanaryPassed"]["outcome"] == "DISAGREES"
    assert "TimePerOutputTokenRegression" in found["Promote CanaryPassed"]["why"]


def forgotten_before(life: Life, fake: FakePrometheus, action: str) -> None:
    """A copy of the series whose retention ends shortly before a decision."""
    edge = next(one for one in life.world.decisions() if one.action == action).time.timestamp() - 20
    for labels, samples in life.fake.store.series.items():
        kept = [(at, value) for at, value in samples if at >= edge]
        if kept:
            fake.store.series[labels] = kept


def test_samples_that_are_gone_are_no_disagreement(
    decayed: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_prometheus() as fake:
        forgotten_before(decayed, fake, "Investigate")
        code, found = replayed(decayed.objects, tmp_path, capsys, "--prometheus", fake.url)
        assert code == 0, found
        for name in ("NextStep CanaryStepPassed", "Promote CanaryPassed", "Investigate AcceptanceDrift"):
            assert found[name]["outcome"] == "CANNOT_TELL"
            assert "Prometheus has" in found[name]["why"]
        assert found["Judge GainProven"]["outcome"] == "AGREES"


@pytest.mark.parametrize("status", [500, 401])
def test_a_server_that_refuses_or_fails_is_named(
    status: int, decayed: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_prometheus() as fake:
        fake.status, fake.body = status, b"no"
        code, found = replayed(decayed.objects, tmp_path, capsys, "--prometheus", fake.url)
    assert code == 0
    assert found["Promote CanaryPassed"]["outcome"] == "CANNOT_TELL"
    assert f"HTTP {status}" in found["Promote CanaryPassed"]["why"]


def test_the_token_and_the_tenant_reach_the_server(
    decayed: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    objects = deepcopy(decayed.objects)
    objects[0]["spec"]["monitoring"]["prometheus"] = {"url": "http://prometheus:9090", "tenant": "ml"}
    with fake_prometheus() as fake:
        words = ("--prometheus", fake.url, "--prometheus-token-file", str(tmp_path / "token"))
        replayed(objects, tmp_path, capsys, *words)
        assert {one["Authorization"] for one in fake.headers} == {"Bearer s3cret"}
        assert {one["X-Scope-OrgID"] for one in fake.headers} == {"ml"}


def test_text_and_markdown_have_every_decision(
    decayed: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "objects.json"
    path.write_text(json.dumps(decayed.objects))
    for form in ("text", "markdown"):
        assert main(["explain", "llama", "-f", str(path), "--replay", "-o", form]) == 0
        told = capsys.readouterr().out
        assert "13 decisions: 4 agree, 0 disagree, 9 cannot be told" in told
        for record in decayed.objects[0]["status"]["history"]:
            assert record["action"] in told
