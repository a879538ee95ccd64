"""What the API server takes and refuses: every rule of one object, judged by the real validation and the real CEL."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.conftest import Object, Server

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))

Change = Callable[[Object], Any]


def _valid() -> Object:
    return {
        "apiVersion": "specfleet.dev/v1alpha1",
        "kind": "SpeculativeDeployment",
        "metadata": {"name": "llama", "namespace": "default"},
        "spec": {
            "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
            "engine": {"image": "vllm/vllm-openai:v0.32.0"},
            "speculation": {"method": "eagle3", "draft": {"model": "yuhuili/EAGLE3"}, "numSpeculativeTokens": 3},
        },
    }


def _set(path: str, value: Any) -> Change:
    """Set spec.<path>; a value of None removes it."""

    def change(spec: Object) -> None:
        *parents, last = path.split(".")
        for parent in parents:
            spec = spec.setdefault(parent, {})
        if value is None:
            spec.pop(last)
        else:
            spec[last] = copy.deepcopy(value)

    return change


def _changed(*changes: Change) -> Object:
    manifest = _valid()
    for change in changes:
        change(manifest["spec"])
    return manifest


STEP = {"weightPercent": 50}
PARENT = {"name": "gateway"}

REFUSED: dict[str, tuple[list[Change], str]] = {
    "ranks that do not divide over the nodes": (
        [_set("template.multiNode", {"size": 2}), _set("engine.tensorParallelSize", 3)],
        "every pod of an engine holds the same number of ranks",
    ),
    "an engine on one node, said in a roundabout way": (
        [_set("template.multiNode", {"size": 1})],
        "spec.template.multiNode.size",
    ),
    "an unknown field": ([_set("replica", 3)], 'unknown field "spec.replica"'),
    "an unknown field deep inside": ([_set("rollout.steps", [{**STEP, "weight": 5}])], "spec.rollout.steps[0].weight"),
    "no model": ([_set("model", None)], "spec.model"),
    "no image": ([_set("engine", {})], "spec.engine.image"),
    "no replicas": ([_set("replicas", 0)], "spec.replicas"),
    "a negative weight": ([_set("rollout.steps", [{"weightPercent": -5}])], "spec.rollout.steps[0].weightPercent"),
    "a weight of 100, which is promotion": (
        [_set("rollout.steps", [{"weightPercent": 100}])],
        "spec.rollout.steps[0].weightPercent",
    ),
    "steps that go down": (
        [_set("rollout.steps", [{"weightPercent": 50}, {"weightPercent": 25}])],
        "spec.rollout.steps: Invalid value",
    ),
    "no step at all": ([_set("rollout.steps", [])], "spec.rollout.steps"),
    "k = 0": ([_set("speculation.numSpeculativeTokens", 0)], "spec.speculation.numSpeculativeTokens"),
    "k above what vLLM asserts": (
        [_set("speculation.numSpeculativeTokens", 129)],
        "spec.speculation.numSpeculativeTokens",
    ),
    "no k where the method needs one": (
        [_set("speculation.numSpeculativeTokens", None)],
        "spec.speculation.numSpeculativeTokens",
    ),
    "k and a range of k": (
        [_set("speculation.numSpeculativeTokensRange", {"min": 1, "max": 3})],
        "spec.speculation.numSpeculativeTokensRange",
    ),
    "a range that goes down": (
        [
            _set("speculation.numSpeculativeTokens", None),
            _set("speculation.numSpeculativeTokensRange", {"min": 5, "max": 3}),
        ],
        "spec.speculation.numSpeculativeTokensRange.min",
    ),
    "a range too wide to benchmark": (
        [
            _set("speculation.numSpeculativeTokens", None),
            _set("speculation.numSpeculativeTokensRange", {"min": 1, "max": 20}),
        ],
        "spec.speculation.numSpeculativeTokensRange.max",
    ),
    "an unknown method": ([_set("speculation.method", "lookahead")], "spec.speculation.method"),
    "a method without its draft model": ([_set("speculation.draft", None)], "spec.speculation.draft"),
    "a draft for a method that has none": ([_set("speculation.method", "ngram")], "spec.speculation.draft"),
    "medusa without an agreement floor": ([_set("speculation.method", "medusa")], "spec.guardrails"),
    "a medusa candidate without an agreement floor": (
        [
            _set(
                "speculation",
                {"candidates": [{"method": "medusa", "draft": {"model": "heads"}, "numSpeculativeTokens": 3}]},
            )
        ],
        "spec.guardrails",
    ),
    "a candidate without its draft": (
        [_set("speculation", {"candidates": [{"method": "eagle3", "numSpeculativeTokens": 3}]})],
        "spec.speculation.candidates[0].draft",
    ),
    "a method and candidates": (
        [_set("speculation.candidates", [{"method": "ngram", "numSpeculativeTokens": 3}])],
        "spec.speculation.method",
    ),
    "neither method nor candidates": ([_set("speculation", {})], "spec.speculation.method"),
    "settings of another method": ([_set("speculation.suffix", {"maxTreeDepth": 8})], "spec.speculation.suffix"),
    "a schedule that does not start at 1": (
        [_set("speculation.tokensPerBatchSize", [{"minBatchSize": 4, "maxBatchSize": 8, "tokens": 2}])],
        "spec.speculation.tokensPerBatchSize",
    ),
    "a schedule above k": (
        [_set("speculation.tokensPerBatchSize", [{"minBatchSize": 1, "maxBatchSize": 8, "tokens": 5}])],
        "spec.speculation.tokensPerBatchSize",
    ),
    "speculation in the arguments": (
        [_set("engine.args", ["--max-num-seqs=64", "--speculative-config={}"])],
        "spec.engine.args",
    ),
    "statistics switched off": ([_set("engine.args", ["--disable-log-stats"])], "spec.engine.args"),
    "a version that is none": ([_set("engine.version", "latest")], "spec.engine.version"),
    "a route of one's own, which is not offered": (
        [_set("traffic.parentRefs", [PARENT]), _set("traffic.routeRef", {"name": "mine"})],
        "spec.traffic.routeRef",
    ),
    "a tier without a load": ([_set("benchmark.tiers", [{"name": "low"}])], "spec.benchmark.tiers[0]"),
    "a tier with two loads": (
        [_set("benchmark.tiers", [{"name": "low", "requestsPerSecond": 1, "concurrency": 4}])],
        "spec.benchmark.tiers[0]",
    ),
    "two tiers of one name": (
        [_set("benchmark.tiers", [{"name": "low", "concurrency": 1}, {"name": "low", "concurrency": 4}])],
        "spec.benchmark.tiers: Invalid value",
    ),
    "two slices of one name": (
        [_set("benchmark.slices", [{"name": "chat"}, {"name": "chat"}])],
        "spec.benchmark.slices: Invalid value",
    ),
    "an objective for a tier that is not there": (
        [_set("benchmark.objective", {"tier": "noon"})],
        "spec.benchmark.objective",
    ),
    "a look after the last pair": ([_set("benchmark.looks", [4, 9])], "spec.benchmark.looks"),
    "a look before the third pair": ([_set("benchmark.looks", [2])], "spec.benchmark.looks"),
    "a guardrail that is no share": (
        [_set("guardrails.maxThroughputLossRatio", 3)],
        "spec.guardrails.maxThroughputLossRatio",
    ),
    "a margin of nothing": ([_set("guardrails.maxTpotIncreaseRatio", 0)], "spec.guardrails.maxTpotIncreaseRatio"),
    "a Prometheus address without a scheme": (
        [_set("monitoring.prometheus", {"url": "prometheus:9090"})],
        "spec.monitoring.prometheus.url",
    ),
    "a scrape interval that hides drift": ([_set("monitoring.scrapeIntervalSeconds", 120)], "scrapeIntervalSeconds"),
    "a maintenance window at 25:00": (
        [_set("remedies.maintenanceWindows", [{"start": "25:00", "durationSeconds": 600}])],
        "spec.remedies.maintenanceWindows[0].start",
    ),
}

TAKEN: dict[str, list[Change]] = {
    "the least that is valid": [],
    "no speculation": [_set("speculation", None)],
    "an n-gram proposer": [_set("speculation", {"method": "ngram", "numSpeculativeTokens": 4})],
    "suffix without k": [_set("speculation", {"method": "suffix"})],
    "several candidates": [
        _set(
            "speculation",
            {
                "candidates": [
                    {"method": "ngram", "numSpeculativeTokensRange": {"min": 2, "max": 5}},
                    {"method": "mtp", "numSpeculativeTokens": 1},
                ]
            },
        )
    ],
    "medusa with an agreement floor": [
        _set("speculation.method", "medusa"),
        _set("guardrails.minAgreementRatio", 0.99),
    ],
    "equal steps": [_set("rollout.steps", [STEP, STEP, {"weightPercent": 75}])],
    "pod settings as the ecosystem writes them": [
        _set("template.resources", {"limits": {"nvidia.com/gpu": 1}}),
        _set("template.tolerations", [{"key": "nvidia.com/gpu", "operator": "Exists"}]),
        _set("template.volumes", [{"name": "cache", "hostPath": {"path": "/models", "type": "Directory"}}]),
        _set("engine.env", [{"name": "OMP_NUM_THREADS", "value": "1"}]),
    ],
    "a route of one's own with a filter": [
        _set("traffic.parentRefs", [PARENT]),
        _set("traffic.routeTemplate", {"timeouts": {"request": "0s"}}),
    ],
    "an objective for a default tier": [_set("benchmark.objective", {"tier": "peak"})],
    "looks within the default pairs": [_set("benchmark.looks", [4, 6])],
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_message_that_names_the_field(case: str, server: Server) -> None:
    changes, named = REFUSED[case]
    said = server.dry_run(_changed(*changes))
    assert named in said, said or "it was taken"


@pytest.mark.parametrize("case", TAKEN)
def test_taken(case: str, server: Server) -> None:
    assert server.dry_run(_changed(*TAKEN[case])) == ""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_taken(path: Path, server: Server) -> None:
    for manifest in yaml.safe_load_all(path.read_text()):
        if manifest and manifest["apiVersion"].startswith("specfleet.dev/"):
            manifest["metadata"]["namespace"] = "default"
            assert server.dry_run(manifest) == ""


def test_admission_adds_nothing_to_the_users_spec_but_replicas(server: Server) -> None:
    manifest = _valid()
    manifest["metadata"]["name"] = "unchanged"
    assert server.create(manifest) == ""
    stored = server.get("sd", "unchanged")["spec"]
    assert stored == {**manifest["spec"], "replicas": 1}


def test_the_scale_subresource_reads_and_writes_replicas(server: Server) -> None:
    manifest = _valid()
    manifest["metadata"]["name"] = "scaled"
    assert server.create(manifest) == ""
    done = server.run("scale", "sd/scaled", "--replicas=5")
    assert done.returncode == 0, done.stderr
    assert server.get("sd", "scaled")["spec"]["replicas"] == 5


def test_status_is_written_through_its_subresource_only(server: Server) -> None:
    manifest = _valid() | {"status": {"phase": "Speculative"}}
    manifest["metadata"]["name"] = "status"
    assert server.create(manifest) == ""
    assert "status" not in server.get("sd", "status")
    patch = '{"status":{"phase":"Canary","weightPercent":25,"servingArm":"baseline"}}'
    done = server.run("patch", "sd", "status", "--subresource=status", "--type=merge", "-p", patch)
    assert done.returncode == 0, done.stderr
    shown = server.run("get", "sd", "status").stdout
    assert shown.split("\n")[0].split() == ["NAME", "PHASE", "ARM", "SPECULATIVE%", "PROPOSER", "READY", "WHY", "AGE"]
    assert shown.split("\n")[1].split()[:4] == ["status", "Canary", "baseline", "25"]


def _evidence() -> Object:
    return {
        "apiVersion": "specfleet.dev/v1alpha1",
        "kind": "SpeculativeBenchmark",
        "metadata": {"name": "llama-b1-p0", "namespace": "default"},
        "spec": {
            "deployment": "llama",
            "benchmark": "b1",
            "purpose": "Qualify",
            "unit": "p0",
            "pair": 0,
            "baseline": "aaaa",
            "candidate": "bbbb",
            "proposer": "eagle3 k=3",
            "started": "2026-01-01T00:00:00Z",
            "finished": "2026-01-01T00:10:00Z",
            "gpuSeconds": 1200.0,
            "runs": [],
        },
    }


@pytest.mark.parametrize(
    "patch",
    ['{"spec":{"gpuSeconds":1}}', '{"spec":{"error":"it was not so"}}', '{"spec":null}'],
    ids=["changed", "added", "removed"],
)
def test_evidence_cannot_be_changed(patch: str, server: Server) -> None:
    server.run("delete", "sb", "llama-b1-p0", "--ignore-not-found")
    assert server.create(_evidence()) == ""
    done = server.run("patch", "sb", "llama-b1-p0", "--type=merge", "-p", patch)
    assert done.returncode != 0
    assert "evidence is immutable" in done.stderr or "spec: Required value" in done.stderr


def test_labels_of_evidence_can_be_changed(server: Server) -> None:
    server.run("delete", "sb", "llama-b1-p0", "--ignore-not-found")
    assert server.create(_evidence()) == ""
    assert server.run("label", "sb", "llama-b1-p0", "kept=for-the-report").returncode == 0
