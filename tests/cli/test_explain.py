"""explain: what a person reads, by phase, from stored objects and from Prometheus."""

import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant
from specfleet.api.base import API_VERSION
from specfleet.api.conditions import Condition, ConditionStatus, ConditionType
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import Phase
from specfleet.cli import advice, explain_output
from specfleet.cli.explaining import explain
from specfleet.cli.main import main
from specfleet.cli.picture import picture
from specfleet.controller.wanted import WantedArms
from specfleet.decide.gates import GateName, Source
from specfleet.decide.outlook import phase_gates
from specfleet.decide.revisions import revision_name
from specfleet.resources.workloads import arm_workload

from tests.cli.measured_world import MeasuredWorld, measured_spec
from tests.controller.objects import as_stored, deployment, pod
from tests.decide.test_machine import Life
from tests.decide.test_road import promoted, suspicion
from tests.decide.world import World, spec_of
from tests.telemetry.fake_server import FakePrometheus, fake_prometheus

GOLDEN = Path(__file__).parent / "golden"
Told = dict[str, Any]


def stored(world: World, folder: Path, **metadata: Any) -> Path:
    """The deployment as kubectl prints it."""
    path = folder / "deployment.json"
    path.write_text(json.dumps(body(world, **metadata)))
    return path


def body(world: World, **metadata: Any) -> dict[str, Any]:
    owner = world.deployment()
    status = {"status": world.status.to_wire()} if world.status is not None else {}
    kind = {"apiVersion": API_VERSION, "kind": "SpeculativeDeployment"}
    return {**kind, "metadata": {**owner.metadata, **metadata}, "spec": world.spec, **status}


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["explain", *words]) == code
    out, err = capsys.readouterr()
    return out if code == 0 else err


def at(world: World) -> str:
    return world.now.isoformat()


def in_step(world: World, seconds: float) -> None:
    """Into a canary step, so many seconds after its pods were in place."""
    world.run_to(Phase.CANARY)
    world.run(300, until=lambda one: one.status is not None and one.status.step_since is not None)
    world.tick(seconds)


@pytest.fixture
def measured() -> Iterator[tuple[MeasuredWorld, FakePrometheus]]:
    with fake_prometheus() as fake:
        steps = [{"weightPercent": 25, "minDurationSeconds": 600, "minRequests": 50}, {"weightPercent": 50}]
        world = MeasuredWorld(fake=fake, spec=measured_spec(rollout={"steps": steps}), requests_per_second=3.0)
        in_step(world, 75)
        yield world, fake
        world.collector.close()


RECORDED = Path(__file__).parent / "recorded"
MARKS = ("PLAIN-FINGERPRINT", "DRAFTED-FINGERPRINT", "REVISION")


def record(world: MeasuredWorld) -> None:
    """Keep a canary and its series, with marks in place of what follows from the engine rules of today."""
    assert world.status is not None
    names = zip((world.plain, world.drafted, str(world.status.revision)), MARKS, strict=True)
    edge = world.now.timestamp() - 120
    series = [
        [dict(labels), [(at, round(value, 4)) for at, value in samples if at >= edge]]
        for labels, samples in world.fake.store.series.items()
    ]
    text = json.dumps({"now": world.now.isoformat(), "deployment": body(world), "series": series})
    for name, mark in names:
        text = text.replace(name, mark)
    (RECORDED / "canary.json").write_text(text + "\n")


def recall(fake: FakePrometheus, folder: Path) -> tuple[Path, str]:
    """The recorded canary as of today's rules: its deployment as a file, its series in `fake`, and its moment."""
    text = (RECORDED / "canary.json").read_text()
    raw = json.loads(text)["deployment"]
    owner = SpeculativeDeployment.model_validate({**raw, "status": None})
    seen = picture([{**raw, "status": None}], None, None, World().now)
    wanted = WantedArms(owner.spec, {})
    today = (wanted.baseline.fingerprint, wanted.proposers[0].fingerprint, revision_name(seen.obs))
    for name, mark in zip(today, MARKS, strict=True):
        text = text.replace(mark, name)
    found = json.loads(text)
    for labels, samples in found["series"]:
        fake.store.series[tuple(sorted(labels.items()))] = [(at, value) for at, value in samples]
    path = folder / "canary.json"
    path.write_text(json.dumps(found["deployment"]))
    return path, found["now"]


@pytest.mark.parametrize(("form", "ending"), [("text", "txt"), ("markdown", "md"), ("json", "json")])
def test_a_canary_step_reads_as_in_the_golden_file(
    form: str,
    ending: str,
    measured: tuple[MeasuredWorld, FakePrometheus],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`SPECFLEET_GOLDEN=write` writes the files anew, `record` the canary too: read the difference first."""
    with fake_prometheus() as fake:
        if os.environ.get("SPECFLEET_GOLDEN") == "record":
            record(measured[0])
        path, now = recall(fake, tmp_path)
        words = ("llama", "-n", "ml", "-f", str(path), "--at", now, "-o", form)
        told = run(capsys, *words, "--prometheus", fake.url).replace(fake.url, "http://prometheus")
    told = re.sub(r"\b[0-9a-f]{12}\b", "FINGERPRINT", told)
    golden = GOLDEN / f"explain-canary.{ending}"
    if os.environ.get("SPECFLEET_GOLDEN") in ("write", "record"):
        golden.write_text(told)
    assert told == golden.read_text()


def gates(told: str) -> dict[str, Told]:
    return {one["name"]: one for one in json.loads(told)["gates"]}


def test_without_prometheus_what_only_the_watch_knows_is_not_known(
    measured: tuple[MeasuredWorld, FakePrometheus], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, fake = measured
    words = ("-f", str(stored(world, tmp_path)), "--at", at(world), "-o", "json")
    blind = gates(run(capsys, *words))
    assert blind["time on this step"] == {
        "name": "time on this step",
        "met": False,
        "has": 75.0,
        "needs": 600,
        "unit": "s",
        "leftSeconds": 525.0,
        "source": "Status",
        "note": None,
        "remedy": None,
    }
    assert {blind[name]["met"] for name in ("requests per arm", "metrics answer", "verdict of the comparison")} == {
        None
    }
    seeing = gates(run(capsys, *words, "--prometheus", fake.url))
    assert seeing["metrics answer"]["met"] is True
    assert 0 < seeing["requests per arm"]["has"] < 200
    assert seeing["requests per arm"]["needs"] == 50


def holding(world: World) -> None:
    world.change(capacity={"maxExtraReplicas": 0})
    world.run_to(Phase.HELD)


def drifting(world: World) -> None:
    world.run_to(Phase.SPECULATIVE)
    world.run(120)
    world.suspicions, world.gain = (suspicion(),), lambda tier, piece: 0.8
    world.pod_acceptance = lambda pod: 0.3


def rolled(world: World) -> None:
    drifting(world)
    world.run_to(Phase.ROLLED_BACK)


def exhausted(world: World) -> None:
    world.change(remedies={**spec_of()["remedies"], "maxAttempts": 1})
    drifting(world)
    world.run_to(Phase.EXHAUSTED)


def investigating(world: World) -> None:
    drifting(world)
    world.run_to(Phase.INVESTIGATING)
    world.run(5)


def paused(world: World) -> None:
    world.run_to(Phase.BENCHMARKING)
    world.change(paused=True)
    world.run(30)


def without_room(world: World) -> None:
    world.capacity = 2
    world.run(300)


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (lambda world: world.run(5), ["Deploying", "pods proven", "of 4 pods", "all 4 plain pods have answered"]),
        (without_room, ["InsufficientCapacity", "free a GPU, or set spec.capacity.maxExtraReplicas"]),
        (
            paused,
            [
                "Benchmarking",
                "not paused",
                "paused",
                """kubectl patch sd llama -n ml --type merge -p '{"spec":{"paused":false}}'""",
                "abort $(date +%s)",
                "then Exhausted",
            ],
        ),
        (
            lambda world: in_step(world, 10),
            ["step 1 of 2, 25 % of traffic and pods", "10 s", "20 s left", "promote $(date +%s)", "then Speculative"],
        ),
        (
            lambda world: (world.run_to(Phase.SPECULATIVE), world.run(10)),
            ["promoted, and watched", "cool-down over", "20 s left", "actions in 24 h", "at most 1", "eagle3 k=3 ("],
        ),
        (investigating, ["Investigating", "stage RestartProbe", "restarted pod measured", "AcceptanceDrift"]),
        (
            rolled,
            [
                "RolledBack",
                "because    RollBack AcceptanceDrift",
                "back-off over",
                "1 h left",
                "attempts used",
                "retry $(date +%s)",
                "measured again",
            ],
        ),
        (exhausted, ["Exhausted", "a person's word", "until a person gives a command or changes the spec", "retry"]),
        (holding, ["Held", "maxExtraReplicas 0", '{"spec":{"capacity":{"maxExtraReplicas":1}}}']),
    ],
)
def test_each_phase_says_what_it_waits_for_and_what_to_do(
    happens: Callable[[World], Any], said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    happens(world)
    told = run(capsys, "-f", str(stored(world, tmp_path)), "--at", at(world), "--decisions", "20")
    for words in said:
        assert words in told, told
    for one in world.decisions()[-20:]:
        assert one.message in told


def test_the_evidence_of_a_verdict_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = promoted()
    told = run(capsys, "-f", str(stored(world, tmp_path)), "--at", at(world))
    names = [f"llama-{one.benchmark}-{one.unit}" for one in world.evidence]
    assert f"[evidence: {', '.join(names)}]" in told


def test_a_deployment_that_no_operator_has_seen_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new.yaml"
    path.write_text(json.dumps(body(World(), uid=None)))
    told = run(capsys, "-f", str(path))
    assert "no operator has looked at this deployment yet" in told
    assert "annotate" not in told


def test_a_spec_that_has_changed_since_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = promoted()
    world.change(engine={"image": "vllm/vllm-openai:v0.33.0"})
    told = run(capsys, "-f", str(stored(world, tmp_path)), "--at", at(world))
    assert "generation 2, status of 1" in told
    assert "the spec has changed since" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-f", "/nowhere.yaml"), "cannot be read"),
        (("other", "-f", "{path}"), "there are: ml/llama"),
        (("llama", "-n", "other", "-f", "{path}"), "there are: ml/llama"),
        (("-f", "{path}", "--prometheus", "http://127.0.0.1:9"), "127.0.0.1:9"),
        (("-f", "{path}", "--prometheus", "http://127.0.0.1:9", "--prometheus-token-file", "/nowhere"), "/nowhere"),
        ((), "name a SpeculativeDeployment"),
    ],
)
def test_what_cannot_be_used_is_said(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = promoted()
    path = stored(world, tmp_path)
    assert said in run(capsys, *(word.format(path=path) for word in words), code=2)


@pytest.mark.parametrize(
    ("text", "good"), [("2026-11-29T16:45:00Z", True), ("2026-11-29T16:45:00", True), ("yesterday", False)]
)
def test_a_moment_is_rfc_3339(text: str, good: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = stored(promoted(), tmp_path)
    if good:
        assert "promoted, and watched" in run(capsys, "-f", str(path), "--at", text)
        return
    with pytest.raises(SystemExit):
        main(["explain", "-f", str(path), "--at", text])
    assert "is no RFC 3339 time" in capsys.readouterr().err


@pytest.mark.parametrize("reason", sorted(advice.ADVICE))
def test_advice_has_no_open_places(reason: str) -> None:
    owner = deployment()
    condition = Condition(
        type=ConditionType.READY,
        status=ConditionStatus.FALSE,
        reason=reason,
        last_transition_time=World().now,
        observed_generation=1,
    )
    told = advice.for_condition(owner, condition)
    assert told
    assert "{" not in told or "paused" in told


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min"), (130, "2 min 10 s"), (3600, "1 h"), (93784, "1 d 2 h"), (-5, "0 s")],
)
def test_durations_have_two_units(seconds: float, said: str) -> None:
    assert explain_output.duration(seconds) == said


class ExplainedLife(Life):
    """The random lives of the state machine: whatever happens, it can be explained, and from status alone."""

    @invariant()
    def every_form_can_be_written_and_says_what_decides(self) -> None:
        if not hasattr(self, "world") or self.world.status is None:
            return
        world = self.world
        seen = picture([body(world)], None, None, world.now)
        one = explain(seen, 20)
        told = json.loads(explain_output.to_json(one))
        assert told["phase"] == world.phase.value
        assert told["phase"] in explain_output.text(one)
        assert told["phase"] in explain_output.markdown(one)
        full = world.observation()
        true = {gate.name.value: gate for gate in phase_gates(full, full.status)}
        shown = {gate["name"]: gate for gate in told["gates"]}
        assert list(shown) == list(true)
        for name, gate in true.items():
            if name == GateName.USABLE.value and world.refusals:
                # Only the cluster shows these; a reader of the object alone goes by the rules of its spec.
                continue
            if gate.source in (Source.STATUS, Source.SPEC) and name != GateName.CANDIDATE.value:
                assert shown[name]["met"] == gate.met, (name, shown[name], gate)
            if gate.source is Source.WATCH:
                assert shown[name]["met"] is None

    def teardown(self) -> None:
        """Recovery is the business of tests/decide."""


TestExplainedLife = ExplainedLife.TestCase
TestExplainedLife.settings = settings(
    max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


def test_a_pod_that_status_does_not_count_is_not_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Objects of the cluster: three pods are ready, but the operator has proven only two of them."""
    world = World(spec=spec_of(traffic=None))
    world.reconcile()
    world.run(25, until=lambda one: one.serving(one.plain) >= 4)
    assert world.status is not None
    owner = world.deployment()
    plain = world.plain
    status = world.status.to_wire()
    status["arms"] = [{**status["arms"][0], "readyReplicas": 2}]
    engine = WantedArms(owner.spec, {}).engines[plain]
    arm = as_stored(arm_workload(owner, owner.spec, engine, world.arms[plain, False].role, 4, False), "d-1")
    pods = []
    for number in range(3):
        one = pod(plain, f"p{number}")
        one["metadata"]["uid"] = f"uid-{number}"
        pods.append({"apiVersion": "v1", "kind": "Pod", **one})
    path = tmp_path / "all.json"
    items = [{**body(world), "status": {**status, "phase": "Deploying", "stable": None}}, arm, *pods]
    path.write_text(json.dumps({"kind": "List", "items": items}))
    told = gates(run(capsys, "-f", str(path), "--at", (world.now + timedelta(seconds=60)).isoformat(), "-o", "json"))
    assert (told["pods proven"]["has"], told["pods proven"]["needs"]) == (2, 4)
    assert "status does not count it" in told["pods proven"]["note"]
