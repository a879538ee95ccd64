"""`kubectl specfleet lint` and `render`, as a user and as CI see them."""

import io
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from specfleet.cli.main import main
from specfleet.engine import reference
from specfleet.engine.arguments import build_arm
from specfleet.engine.findings import Severity
from specfleet.engine.rules import check

from tests.engine.specs import raw_spec, spec_of

ROOT = Path(__file__).parents[2]
HEADER = {"apiVersion": "specfleet.dev/v1alpha1", "kind": "SpeculativeDeployment"}


def manifest(spec: dict[str, Any], name: str = "demo", **more: Any) -> dict[str, Any]:
    return {**HEADER, "metadata": {"name": name, "namespace": "ml"}, "spec": spec, **more}


def write(folder: Path, name: str, *objects: dict[str, Any]) -> str:
    file = folder / name
    file.write_text(yaml.safe_dump_all(objects, sort_keys=False))
    return str(file)


def lint(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["lint", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_an_accepted_file_exits_with_zero_and_says_what_was_not_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = lint(capsys, write(tmp_path, "a.yaml", manifest(raw_spec("eagle3"))))
    assert code == 0
    assert "ml/demo: not checked here:" in out
    assert "config.json of /models/target, /models/head" in out
    assert out.endswith("1 object: 0 refused, 0 accepted with warnings, 1 clean\n")


def test_a_refused_file_exits_with_one_and_names_file_line_field_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """apiVersion: specfleet.dev/v1alpha1
kind: SpeculativeDeployment
metadata: {name: demo}
spec:
  model: {name: /models/target}
  engine:
    image: vllm/vllm-openai:v0.32.0
    args:
      - --seed=1
      - --port=9000
"""
    file = tmp_path / "a.yaml"
    file.write_text(text)
    code, out, _ = lint(capsys, str(file))
    assert code == 1
    assert f"{file}:10: refuse [ArgumentHasField] spec.engine.args[1]: --port contradicts spec.engine.port. " in out


def test_warnings_exit_with_zero_unless_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "a.yaml", manifest(raw_spec("suffix")))
    assert lint(capsys, file)[0] == 0
    assert lint(capsys, file, "--strict")[0] == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: [1", "not YAML"),
        ("kind: Deployment\napiVersion: apps/v1\n", "no SpeculativeDeployment"),
        ("", "no SpeculativeDeployment"),
        ("\x00", "not YAML"),
    ],
)
def test_an_unusable_file_exits_with_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: str
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(content)
    code, out, error = lint(capsys, str(file))
    assert (code, out) == (2, "")
    assert words in error


def test_a_missing_file_and_bytes_that_are_no_text_exit_with_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\xff\xfe\xfa")
    assert lint(capsys, str(tmp_path / "absent.yaml"))[0] == 2
    assert lint(capsys, str(binary))[0] == 2
    assert lint(capsys, write(tmp_path, "a.yaml", manifest(raw_spec())), "--models", str(tmp_path / "no"))[0] == 2


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"apiVersion": "specfleet.dev/v9"}, "apiVersion", "is 'specfleet.dev/v9', not specfleet.dev/v1alpha1"),
        ({"sepc": {}}, "sepc", "unknown field. Did you mean 'spec'?"),
        ({"metadata": {"name": "a", "lables": {}}}, "  lables", "unknown field. Did you mean 'labels'?"),
        ({"metadata": {"name": "a", "owner": "me"}}, "  owner", "unknown field. Remove it"),
        ({"kind": "speculativeDeployment"}, "kind", "kinds are spelled exactly. Write SpeculativeDeployment"),
        ({"kind": "SpeculativeDeploymnet"}, "kind", "kinds are spelled exactly. Write SpeculativeDeployment"),
        ({"kind": "SD"}, "kind", "kinds are spelled exactly. Write SpeculativeDeployment"),
        ({"metadata": {}}, "metadata", "is missing"),
        ({"metadata": {"name": "Demo_1"}}, "  name", "is no object name"),
        ({"metadata": {"name": "a" * 64}}, "metadata", "at most 63 characters"),
        ({"spec": None}, "spec", "should be an object"),
        ({"spec": []}, "spec", "should be an object"),
    ],
)
def test_the_object_around_the_spec_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], key: str, words: str
) -> None:
    file = write(tmp_path, "a.yaml", {**manifest(raw_spec()), **change})
    code, out, _ = lint(capsys, file)
    (finding,) = [line for line in out.splitlines() if words in line]
    lines = Path(file).read_text().splitlines()
    assert code == 1
    assert lines[int(finding.split(":")[1]) - 1].startswith(key)


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"replcias": 2}, "spec.replcias", "Did you mean 'replicas'?"),
        ({"engine.arg": []}, "spec.engine.arg", "Did you mean 'args'?"),
        ({"engine.tensor_parallel_size": 2}, "spec.engine.tensor_parallel_size", "Did you mean 'tensorParallelSize'?"),
        ({"numSpeculativeTokens": 3}, "spec.numSpeculativeTokens", "mean spec.speculation.numSpeculativeTokens?"),
        (
            {"speculation": {"method": "eagle3", "model": "m"}},
            "spec.speculation.model",
            "spec.speculation.draft.model?",
        ),
        ({"model.image": "x"}, "spec.model.image", "Did you mean spec.engine.image?"),
        ({"benchmark.tiers": [{"name": "a", "concurency": 1}]}, "spec.benchmark.tiers[0].concurency", "'concurrency'"),
        ({"capacity.zzz": 1}, "spec.capacity.zzz", "the fields here are maxExtraReplicas, control"),
    ],
)
def test_a_misspelt_field_is_answered_with_the_name_that_was_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], path: str, words: str
) -> None:
    code, out, _ = lint(capsys, write(tmp_path, "a.yaml", manifest(raw_spec(None, change))))
    (finding,) = [line for line in out.splitlines() if "unknown field" in line]
    assert code == 1
    assert f" {path}: unknown field" in finding
    assert words in finding


def test_other_kinds_are_named_where_no_deployment_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    code, out, error = lint(capsys, write(tmp_path, "a.yaml", other, other))
    assert (code, out) == (2, "")
    assert "(found: 2 ConfigMap)" in error


def test_one_bad_file_of_a_folder_is_named_and_the_others_are_linted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "a.yaml", manifest(raw_spec(), "one"))
    (tmp_path / "chart.yaml").write_text("metadata: {{ .Values.name }}\nkind: [")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "b.yaml").write_text("a: [1")
    code, out, error = lint(capsys, str(tmp_path))
    assert code == 2
    assert "1 object: 0 refused" in out
    assert "chart.yaml: not YAML" in error
    assert "helm template CHART | kubectl specfleet lint -" in error
    assert ".git" not in error


def test_a_key_written_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.yaml"
    text = yaml.safe_dump(manifest(raw_spec()), sort_keys=False)
    file.write_text(text + "  replicas: 1\n  replicas: 2\n")
    code, out, _ = lint(capsys, str(file))
    assert code == 1
    assert "spec.replicas: is written twice" in out


def test_folders_lists_and_several_documents_are_read_and_other_kinds_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "deep").mkdir()
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    write(tmp_path, "a.yaml", manifest(raw_spec(), "one"), other, manifest(raw_spec(), "two"))
    listed = {"apiVersion": "v1", "kind": "List", "items": [manifest(raw_spec(), "three"), other]}
    write(tmp_path / "deep", "b.yml", listed)
    (tmp_path / "c.json").write_text(json.dumps(manifest(raw_spec(), "four")))
    code, out, _ = lint(capsys, str(tmp_path), "--format", "json")
    assert code == 0
    assert [one["name"] for one in json.loads(out)] == ["ml/one", "ml/two", "ml/four", "ml/three"]


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(yaml.safe_dump(manifest(raw_spec()))))
    assert lint(capsys, "-")[0] == 0


def test_json_holds_every_part_of_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(
        tmp_path,
        "a.yaml",
        manifest(raw_spec("medusa", tokensPerBatchSize=[{"minBatchSize": 1, "maxBatchSize": 2, "tokens": 1}])),
    )
    code, out, _ = lint(capsys, file, "--format", "json")
    (one,) = json.loads(out)
    (finding,) = one["findings"]
    assert code == 1
    assert one["refused"] is True
    assert set(finding) == {"rule", "severity", "line", "path", "message", "remedy", "source"}
    assert finding["rule"] == "ScheduleKillsEngine"
    assert finding["severity"] == Severity.REFUSE.value


def test_sarif_points_to_file_line_and_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "a.yaml", manifest(raw_spec("suffix", {"engine.args": ["--port=1"]})))
    _, out, _ = lint(capsys, file, "--format", "sarif")
    log = json.loads(out)
    (run,) = log["runs"]
    assert log["version"] == "2.1.0"
    levels = {one["ruleId"]: one["level"] for one in run["results"]}
    assert levels == {"ArgumentHasField": "error", "SuffixNeedsArcticInference": "warning"}
    assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} == set(levels)
    (place,) = run["results"][0]["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == file
    line = place["physicalLocation"]["region"]["startLine"]
    assert "--port=1" in Path(file).read_text().splitlines()[line - 1]
    assert "not checked here" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


def test_models_are_compared_where_a_folder_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, size in {"target": 512, "small": 640}.items():
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": size}))
    file = write(tmp_path, "a.yaml", manifest(raw_spec("draft_model")))
    code, out, _ = lint(capsys, file, "--models", str(tmp_path))
    assert code == 1
    assert "[VocabularyDiffers] spec.speculation.draft.model" in out
    assert "use --models DIR" not in out
    assert lint(capsys, file)[0] == 0


def test_lint_and_the_operator_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = spec_of("eagle3", {"engine.tensorParallelSize": 2}, draft__maxModelLen=9999)
    file = write(tmp_path, "a.yaml", manifest(spec.to_wire()))
    _, out, _ = lint(capsys, file, "--format", "json")
    said = [(one["rule"], one["path"], one["message"]) for one in json.loads(out)[0]["findings"]]
    assert said == [(one.rule_id, one.field_path, one.message) for one in check(spec)]


def test_asking_the_engine_needs_the_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if find_spec("vllm") is not None:
        pytest.skip("vllm is installed")
    code, _, error = lint(capsys, write(tmp_path, "a.yaml", manifest(raw_spec())), "--with-engine")
    assert code == 2
    assert "pip install vllm==0.32.0" in error


def render(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["render", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_render_shows_the_pod_of_every_arm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = spec_of("eagle3")
    code, out, _ = render(capsys, write(tmp_path, "a.yaml", manifest(raw_spec("eagle3"))))
    pods = list(yaml.safe_load_all(out))
    arms = [build_arm(spec, None), build_arm(spec, spec.speculation.proposers()[0])]  # type: ignore[union-attr]
    assert code == 0
    assert [pod["spec"]["containers"][0]["args"] for pod in pods] == [list(arm.args) for arm in arms]
    assert [pod["metadata"]["labels"]["specfleet.dev/fingerprint"] for pod in pods] == [arm.fingerprint for arm in arms]


@pytest.mark.parametrize(("arm", "expected"), [("baseline", 1), ("speculative", 2), ("ngram k=2", 1)])
def test_render_shows_one_arm_by_role_or_proposer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arm: str, expected: int
) -> None:
    candidates = [{"method": "ngram", "numSpeculativeTokensRange": {"min": 2, "max": 3}}]
    file = write(tmp_path, "a.yaml", manifest(raw_spec(None, {"speculation": {"candidates": candidates}})))
    _, out, _ = render(capsys, file, "--arm", arm, "--output", "command")
    assert out.count("vllm serve /models/target") == expected


def test_render_shows_what_a_fingerprint_is_made_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "a.yaml", manifest(raw_spec("eagle3")))
    _, out, _ = render(capsys, file, "--arm", "speculative", "--output", "fingerprint")
    document = yaml.safe_load(out)
    assert document["inputs"]["draft"] == "/models/head"
    assert document["inputs"]["engine"] == "0.32.0"


def test_render_refuses_what_the_schema_refuses_and_an_unknown_arm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = write(tmp_path, "b.yaml", manifest(raw_spec(None, {"replicas": 0})))
    file = write(tmp_path, "a.yaml", manifest(raw_spec("ngram")))
    assert render(capsys, broken)[0] == 1
    code, _, error = render(capsys, file, "--arm", "eagle")
    assert code == 2
    assert "baseline, speculative, none, ngram k=3" in error


def test_config_maps_written_as_folders_enter_the_fingerprint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    volume = {"template.volumes": [{"name": "models", "configMap": {"name": "chat"}}]}
    file = write(tmp_path, "a.yaml", manifest(raw_spec(None, volume)))
    (tmp_path / "maps" / "chat").mkdir(parents=True)
    outputs = []
    for content in ("one", "two"):
        (tmp_path / "maps" / "chat" / "template").write_text(content)
        outputs.append(render(capsys, file, "--config-maps", str(tmp_path / "maps"), "--output", "fingerprint")[1])
    assert outputs[0] != outputs[1]


def test_the_examples_of_known_models_are_clean(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = lint(capsys, str(ROOT / "examples" / "models"), "--strict")
    assert code == 0, out


def test_every_example_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = lint(capsys, str(ROOT / "examples"))
    assert code == 0, out


def test_the_reference_page_is_the_one_that_the_tables_give(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = ROOT / "docs" / "reference" / "engine-rules.md"
    assert reference.main(["--check", str(page)]) == 0
    stale = tmp_path / "stale.md"
    stale.write_text(page.read_text() + "x")
    assert reference.main(["--check", str(stale)]) == 1
    assert "is stale" in capsys.readouterr().err


def test_the_command_starts_without_the_operators_libraries() -> None:
    heavy = ("kopf", "kubernetes", "numpy")
    program = (
        f"import sys; from specfleet.cli.main import parser; parser(); print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
