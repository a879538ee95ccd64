"""explain against a real API server, and against a real Prometheus."""

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python import Chart
from specfleet.api import labels, names
from specfleet.api.base import API_VERSION
from specfleet.api.status import Phase
from specfleet.cli.main import main
from specfleet.controller.wanted import WantedArms
from specfleet.resources.evidence import speculative_benchmark
from specfleet.resources.workloads import arm_workload

from e2e.cluster.wheels import kubectl_binary
from tests.decide.test_road import promoted
from tests.decide.world import World, spec_of
from tests.integration.conftest import Object, Server
from tests.telemetry.fleet import EngineModel
from tests.telemetry.test_real_prometheus import BINARY, exposed, prometheus, until

pytestmark = pytest.mark.integration

NAMESPACE = "explained"
CHART = Path(__file__).parents[2] / "charts" / "specfleet"
RBAC_GROUP = "rbac.authorization.k8s.io"
RBAC = f"{RBAC_GROUP}/v1"


@pytest.fixture(scope="module")
def world() -> World:
    """Promoted, with evidence."""
    return promoted()


@pytest.fixture(scope="module")
def stored(server: Server, world: World) -> Iterator[Object]:
    """The deployment, its evidence, its promoted arm and a ready pod of it, as an operator leaves them."""
    for manifest in (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}},
        _deployment(world, None),
    ):
        assert server.create(manifest) == ""
    body = server.get("sd", world.name, "-n", NAMESPACE)
    assert world.status is not None
    body["status"] = {**world.status.to_wire(), "observedGeneration": 1}
    done = server.run("replace", "--subresource=status", "-f", "-", stdin=body)
    assert done.returncode == 0, done.stderr
    owner = world.deployment().model_copy(update={"metadata": body["metadata"]})
    for one in world.evidence:
        assert server.create(speculative_benchmark(owner, one)) == ""
    engine = WantedArms(owner.spec, {}).engines[world.drafted]
    role = world.arms[world.drafted, False].role
    assert server.create(arm_workload(owner, owner.spec, engine, role, 4, False)) == ""
    yield body
    server.run("delete", "namespace", NAMESPACE, "--wait=false")


def _deployment(world: World, status: Any) -> Object:
    kind = {"apiVersion": API_VERSION, "kind": "SpeculativeDeployment"}
    body = {**kind, "metadata": {"name": world.name, "namespace": NAMESPACE}, "spec": world.spec}
    return body if status is None else {**body, "status": status}


@pytest.fixture
def explain(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs the command against the API server; its kubectl is on the PATH."""
    monkeypatch.setenv("PATH", f"{kubectl_binary().parent}:{os.environ['PATH']}")
    monkeypatch.delenv("KUBECONFIG", raising=False)

    def run(*words: str, kubeconfig: Path = server.plane.kubeconfig) -> tuple[int, str, str]:
        code = main(["explain", *words, "--kubeconfig", str(kubeconfig)])
        return (code, *capsys.readouterr())

    return run


def test_a_deployment_is_explained_from_the_cluster(
    stored: Object, world: World, explain: Callable[..., tuple[int, str, str]]
) -> None:
    code, told, said = explain(world.name, "-n", NAMESPACE, "-o", "json", "--decisions", "20")
    assert code == 0, said
    one = json.loads(told)
    assert (one["phase"], one["namespace"]) == ("Speculative", NAMESPACE)
    gates = {gate["name"]: gate for gate in one["gates"]}
    assert gates["fleet breaker closed"]["met"] is True, "all namespaces were read"
    assert gates["a finding to act on"]["met"] is None, "nobody asked Prometheus"
    assert [record["action"] for record in one["decisions"]] == [decision.action for decision in world.decisions()][
        ::-1
    ]
    commands = " ".join(act["command"] for act in one["acts"])
    assert f"kubectl annotate sd {world.name} -n {NAMESPACE}" in commands
    assert not any("were not given" in note for note in one["notes"]), "the objects themselves were read"


def test_the_command_that_is_shown_is_taken_by_the_api_server(
    stored: Object, world: World, server: Server, explain: Callable[..., tuple[int, str, str]]
) -> None:
    _, told, _ = explain(world.name, "-n", NAMESPACE, "-o", "json")
    act = next(act for act in json.loads(told)["acts"] if "abort" in act["command"])
    words = act["command"].replace('"', "").replace("$(date +%s)", "1").split()
    annotation = words.pop(words.index(f"{labels.COMMAND}=abort")) + " " + words.pop()
    done = server.run(*words[1:], annotation)
    assert done.returncode == 0, done.stderr
    live = server.get("sd", world.name, "-n", NAMESPACE)
    assert live["metadata"]["annotations"][labels.COMMAND] == "abort 1"
    server.run("annotate", "sd", world.name, "-n", NAMESPACE, f"{labels.COMMAND}-")


def test_past_verdicts_are_recomputed_from_the_evidence_in_the_cluster(
    stored: Object, world: World, explain: Callable[..., tuple[int, str, str]]
) -> None:
    code, told, said = explain(world.name, "-n", NAMESPACE, "--replay", "-o", "json")
    assert code == 0, said
    found = {one["record"]["action"]: one for one in json.loads(told)["decisions"]}
    assert found["Judge"]["outcome"] == "AGREES"
    assert found["StartCanary"]["outcome"] == "AGREES"
    assert found["Promote"]["outcome"] == "CANNOT_TELL"


VIEWER = "viewer@example.com"
MISSING = (
    ("pods", "may not list pods in namespace explained"),
    ("deployments", "may not list deployments.apps in namespace explained"),
    ("jobs", "may not list jobs.batch in namespace explained"),
    ("controllerrevisions", "may not list controllerrevisions.apps in namespace explained"),
    ("speculativebenchmarks", "may not list speculativebenchmarks.specfleet.dev in namespace explained"),
)


def _view_rules() -> list[Object]:
    """What the chart and Kubernetes itself add to the cluster role `view` (no controller of this server joins them)."""
    with Chart.load(CHART) as chart:
        texts = chart.render(values={"image": {"repository": "x"}}, name="specfleet", namespace="operators")
    manifests = [text for path, text in texts.items() if path.endswith(".yaml")]
    rendered = [one for text in manifests for one in yaml.safe_load_all(text) if one and one["kind"] == "ClusterRole"]
    (own,) = [
        one for one in rendered if "rbac.authorization.k8s.io/aggregate-to-view" in one["metadata"].get("labels", {})
    ]
    rules: list[Object] = own["rules"]
    return rules


@pytest.fixture
def viewer(
    stored: Object, server: Server, tmp_path: Path, explain: Callable[..., tuple[int, str, str]]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Runs the command as a user who has the cluster role `view` in the namespace, less what is named."""
    config = yaml.safe_load(server.plane.kubeconfig.read_text())
    for one in config["users"]:
        one["user"]["as"] = VIEWER
    path = tmp_path / "viewer.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    built_in = server.get("clusterrole", "system:aggregate-to-view")["rules"]

    def run(*words: str, less: str = "", everywhere: bool = False) -> tuple[int, str, str]:
        rules = []
        for rule in [*built_in, *_view_rules()]:
            left = [one for one in rule["resources"] if one != less]
            rules += [{**rule, "resources": left}] if left else []
        role = {"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": "as-viewer"}, "rules": rules}
        assert server.run("apply", "-f", "-", stdin=role).returncode == 0
        bound = {"roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "as-viewer"}}
        bound["subjects"] = [{"kind": "User", "name": VIEWER, "apiGroup": RBAC_GROUP}]  # type: ignore[assignment]
        kind = "ClusterRoleBinding" if everywhere else "RoleBinding"
        metadata = {"name": "as-viewer"} if everywhere else {"name": "as-viewer", "namespace": NAMESPACE}
        server.run("delete", "clusterrolebinding", "as-viewer", "--ignore-not-found")
        assert (
            server.run(
                "apply", "-f", "-", stdin={"apiVersion": RBAC, "kind": kind, "metadata": metadata, **bound}
            ).returncode
            == 0
        )
        probe = ["auth", "can-i", "list", less or "pods", "-n", NAMESPACE, f"--as={VIEWER}"]
        until(lambda said: said.strip() == ("no" if less else "yes"), lambda: server.run(*probe).stdout)
        return explain(*words, kubeconfig=path)

    yield run
    for kind in ("clusterrolebinding", "clusterrole"):
        server.run("delete", kind, "as-viewer", "--ignore-not-found")
    server.run("delete", "rolebinding", "as-viewer", "-n", NAMESPACE, "--ignore-not-found")


@pytest.mark.parametrize("everywhere", [False, True], ids=["in one namespace", "in all namespaces"])
def test_who_may_only_view_gets_the_explanation(
    everywhere: bool, world: World, viewer: Callable[..., tuple[int, str, str]]
) -> None:
    code, told, said = viewer(world.name, "-n", NAMESPACE, "-o", "json", everywhere=everywhere)
    assert code == 0, said
    one = json.loads(told)
    assert one["phase"] == "Speculative"
    gates = {gate["name"]: gate for gate in one["gates"]}
    assert gates["fleet breaker closed"]["met"] is (True if everywhere else None)
    refused = [note for note in one["notes"] if "may not" in note]
    wanted = f"{VIEWER} may not list speculativedeployments.specfleet.dev in all namespaces"
    assert [wanted in note for note in refused] == ([] if everywhere else [True])
    code, told, said = viewer(world.name, "-n", NAMESPACE, "--replay", "-o", "json", everywhere=everywhere)
    assert code == 0, said
    assert {one["record"]["action"]: one["outcome"] for one in json.loads(told)["decisions"]}["Judge"] == "AGREES"


@pytest.mark.parametrize(("less", "note"), MISSING, ids=[less for less, _ in MISSING])
def test_a_right_that_is_missing_is_told_in_words_and_the_rest_is_explained(
    less: str, note: str, world: World, viewer: Callable[..., tuple[int, str, str]]
) -> None:
    code, told, said = viewer(world.name, "-n", NAMESPACE, "-o", "json", less=less)
    assert code == 0, said
    one = json.loads(told)
    assert any(note in found for found in one["notes"]), one["notes"]
    assert one["phase"] == "Speculative"
    assert "no pod of any arm answers" not in one["serves"]
    assert viewer(world.name, "-n", NAMESPACE, "--replay", less=less)[0] == 0


def test_who_may_not_read_the_deployment_itself_is_told_which_right_is_missing(
    world: World, viewer: Callable[..., tuple[int, str, str]]
) -> None:
    code, told, said = viewer(world.name, "-n", NAMESPACE, less="speculativedeployments")
    assert (code, told) == (2, "")
    assert f"{VIEWER} may not get speculativedeployments.specfleet.dev in namespace {NAMESPACE}" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("missing", "-n", NAMESPACE), "not found"),
        (("llama", "-n", NAMESPACE, "--context", "nowhere"), 'context "nowhere" does not exist'),
    ],
)
def test_what_kubectl_says_is_passed_on(
    words: tuple[str, ...], said: str, stored: Object, explain: Callable[..., tuple[int, str, str]]
) -> None:
    code, _, error = explain(*words)
    assert code == 2
    assert said in error


def test_a_context_is_chosen(
    stored: Object, server: Server, world: World, explain: Callable[..., tuple[int, str, str]]
) -> None:
    context = yaml.safe_load(server.plane.kubeconfig.read_text())["current-context"]
    code, told, _ = explain(world.name, "-n", NAMESPACE, "--context", context)
    assert code == 0
    assert "promoted, and watched" in told


@pytest.mark.skipif(not BINARY, reason="no Prometheus binary: run `make cluster-up` once or set SPECFLEET_PROMETHEUS")
def test_a_real_prometheus_tells_how_far_a_canary_step_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two engines that are scraped every second; nothing but status and Prometheus is there."""
    rollout = {"steps": [{"weightPercent": 50, "minDurationSeconds": 3600, "minRequests": 40}]}
    world = World(spec=spec_of(rollout=rollout, monitoring={"scrapeIntervalSeconds": 1, "windowSeconds": 4}))
    world.run_to(Phase.CANARY)
    world.run(300, until=lambda one: one.status is not None and one.status.step_since is not None)
    start = time.time()
    assert world.status is not None
    since = datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {**world.status.to_wire(), "stepSince": since}
    path = tmp_path / "deployment.json"
    path.write_text(json.dumps(_deployment(world, status)).replace(NAMESPACE, "ns"))
    pods = {f"{names.arm(world.name, one)}-rs-a": one for one in (world.drafted, world.plain)}
    drafted = EngineModel(requests_per_second=5.0, start_time=start - 60)
    plain = EngineModel(requests_per_second=5.0, acceptance=None, start_time=start - 60)
    with exposed(drafted) as first, exposed(plain) as second:
        ports = dict(zip(pods, (first, second), strict=True))
        with prometheus(tmp_path, ports) as (url, _):

            def told() -> dict[str, Any]:
                assert main(["explain", "-f", str(path), "--prometheus", url, "-o", "json"]) in (0, 2)
                out = capsys.readouterr().out
                return {one["name"]: one for one in json.loads(out)["gates"]} if out else {}

            gates = until(lambda found: (found.get("requests per arm") or {}).get("has", 0) >= 40, told)
    assert gates["requests per arm"]["met"] is True
    assert gates["metrics answer"]["has"] == "OK"
    assert gates["time on this step"]["met"] is False
