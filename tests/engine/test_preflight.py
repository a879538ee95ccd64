"""The comparison of both models' files: the same text in lint and in the preflight pod."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from specfleet.api.speculation import Method
from specfleet.cli.linting import locate_below
from specfleet.engine.findings import Severity
from specfleet.engine.preflight import (
    VARIABLE,
    preflight_command,
    preflight_findings,
    preflight_key,
    preflight_plan,
    read_answer,
    script_text,
)

from tests.engine.specs import spec_of

TARGET: dict[str, Any] = {"model_type": "llama", "vocab_size": 512, "hidden_size": 256, "num_hidden_layers": 16}
TARGET |= {"num_attention_heads": 4, "max_position_embeddings": 4096}


def model(folder: Path, name: str, config: dict[str, Any] | str, vocabulary: dict[str, int] | None = None) -> None:
    place = folder / "models" / name
    place.mkdir(parents=True)
    (place / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    if vocabulary is not None:
        (place / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, "added_tokens": []}))


DRAFTS: list[tuple[str, Method, dict[str, Any], dict[str, Any], dict[str, Any], str, Severity | None, str]] = [
    ("the same vocabulary", Method.DRAFT_MODEL, {}, TARGET, {}, "", None, ""),
    ("another vocabulary", Method.DRAFT_MODEL, {}, {**TARGET, "vocab_size": 640}, {}, "VocabularyDiffers",
     Severity.REFUSE, "512"),
    ("another vocabulary on purpose", Method.DRAFT_MODEL, {"draft__heterogeneousVocabulary": True},
     {**TARGET, "vocab_size": 640}, {}, "", None, ""),
    ("a nested vocabulary", Method.DRAFT_MODEL, {}, {"text_config": {**TARGET, "vocab_size": 640}}, {},
     "VocabularyDiffers", Severity.REFUSE, "640"),
    ("a short draft", Method.DRAFT_MODEL, {}, {**TARGET, "max_position_embeddings": 512}, {}, "DraftContextShort",
     Severity.WARN, "512"),
    ("a draft context above its positions", Method.DRAFT_MODEL, {"draft__maxModelLen": 1024},
     {**TARGET, "max_position_embeddings": 512}, {}, "DraftContextTooLong", Severity.REFUSE, "1024"),
    ("a head of another width", Method.EAGLE, {}, {**TARGET, "hidden_size": 128}, {}, "HiddenSizeDiffers",
     Severity.WARN, "128"),
    ("a head that declares the target's width", Method.EAGLE3, {},
     {**TARGET, "hidden_size": 128, "target_hidden_size": 256}, {}, "", None, ""),
    ("layers that the target does not have", Method.EAGLE3, {},
     {**TARGET, "eagle_aux_hidden_state_layer_ids": [2, 16, 29]}, {}, "AuxiliaryLayersMissing", Severity.REFUSE,
     "with 16"),
    ("layers that the target has", Method.EAGLE3, {}, {**TARGET, "eagle_aux_hidden_state_layer_ids": [1, 2, 3]}, {}, "",
     None, ""),
    ("more tokens than heads", Method.MEDUSA, {}, {"num_heads": 5}, {}, "MedusaHeadsDiffer", Severity.WARN, "5 heads"),
    ("heads that do not divide", Method.DRAFT_MODEL, {}, {**TARGET, "num_attention_heads": 3},
     {"engine.tensorParallelSize": 2}, "DraftHeadsDoNotDivide", Severity.REFUSE, "3 attention heads"),
    ("a parallel draft without a mask token", Method.EAGLE, {"draft__parallelDrafting": True}, TARGET, {},
     "ParallelDraftingTokenMissing", Severity.REFUSE, "in parallel"),
    ("a parallel draft with a mask token", Method.DFLASH, {}, {**TARGET, "dflash_config": {"mask_token_id": 7}}, {}, "",
     None, ""),
    ("a draft that is no JSON", Method.DRAFT_MODEL, {}, "{", {}, "ConfigUnreadable", Severity.REFUSE, "config.json"),  # type: ignore[list-item]
    ("a draft that is no object", Method.DRAFT_MODEL, {}, "[]", {}, "ConfigUnreadable", Severity.REFUSE, "object"),  # type: ignore[list-item]
]  # fmt: skip


@pytest.mark.parametrize(
    ("sentence", "method", "fields", "config", "changes", "rule", "severity", "words"),
    DRAFTS,
    ids=[row[0] for row in DRAFTS],
)
def test_the_files_of_target_and_draft_are_compared(
    tmp_path: Path,
    sentence: str,
    method: Method,
    fields: dict[str, Any],
    config: dict[str, Any],
    changes: dict[str, Any],
    rule: str,
    severity: Severity | None,
    words: str,
) -> None:
    model(tmp_path, "target", TARGET)
    model(tmp_path, "draft", config)
    plan = preflight_plan(spec_of(method, changes, draft__model="/models/draft", **fields), locate_below(tmp_path))
    assert plan is not None
    findings = preflight_findings(plan)
    assert [one.rule_id for one in findings] == ([rule] if rule else [])
    if rule:
        assert findings[0].severity is severity
        assert words in findings[0].message
        assert findings[0].field_path.startswith("spec.speculation.")


def test_a_missing_draft_folder_is_refused_by_name(tmp_path: Path) -> None:
    model(tmp_path, "target", TARGET)
    plan = preflight_plan(spec_of(Method.EAGLE, draft__model="/models/nowhere"), locate_below(tmp_path))
    (found,) = preflight_findings(plan or {})
    assert (found.rule_id, found.severity) == ("DraftMissing", Severity.REFUSE)
    assert "/models/nowhere does not exist" in found.message
    assert found.field_path == "spec.speculation.draft.model"


def test_the_default_layers_of_a_head_collide_in_a_shallow_target(tmp_path: Path) -> None:
    model(tmp_path, "target", {**TARGET, "num_hidden_layers": 6})
    model(tmp_path, "head", {**TARGET, "num_hidden_layers": 1})
    (found,) = preflight_findings(preflight_plan(spec_of(Method.EAGLE3), locate_below(tmp_path)) or {})
    assert found.rule_id == "AuxiliaryLayersMissing"
    assert "[2, 3, 3] (the default)" in found.message


def test_one_file_that_holds_the_whole_model_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "target").write_bytes(b"GGUF")
    assert preflight_findings(preflight_plan(spec_of(), locate_below(tmp_path)) or {}) == ()


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        ({"vocab_size": 512}, "ArchitectureMissing"),
        ({"architectures": ["LlamaForCausalLM"]}, ""),
        ({"architectures": ["Llama9ForCausalLM"], "model_type": "llama"}, "ArchitectureUnknown"),
        ({"architectures": ["Llama9ForCausalLM", "LlamaForCausalLM"]}, ""),
        ({"text_config": {"model_type": "llama"}}, ""),
    ],
)
def test_the_architecture_is_held_against_the_engine_in_whose_image_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], rule: str
) -> None:
    registry = tmp_path / "packages" / "vllm" / "model_executor" / "models" / "registry.py"
    registry.parent.mkdir(parents=True)
    registry.write_text('_TEXT_GENERATION_MODELS = {"LlamaForCausalLM": ("llama", "LlamaForCausalLM")}')
    (tmp_path / "packages" / "vllm" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    model(tmp_path, "target", config)
    found = preflight_findings(preflight_plan(spec_of(), locate_below(tmp_path)) or {})
    assert [one.rule_id for one in found] == ([rule] if rule else [])


def test_without_an_engine_beside_it_no_architecture_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    model(tmp_path, "target", {"architectures": ["Llama9ForCausalLM"], "model_type": "llama"})
    assert preflight_findings(preflight_plan(spec_of(), locate_below(tmp_path)) or {}) == ()


def test_mistrals_own_format_names_no_architecture(tmp_path: Path) -> None:
    place = tmp_path / "models" / "target"
    place.mkdir(parents=True)
    (place / "params.json").write_text(json.dumps({"dim": 4096, "vocab_size": 32000}))
    assert preflight_findings(preflight_plan(spec_of(), locate_below(tmp_path)) or {}) == ()


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "models" / "target").mkdir(parents=True)
    (found,) = preflight_findings(preflight_plan(spec_of(), locate_below(tmp_path)) or {})
    assert found.rule_id == "ModelMissing"
    assert "has no config.json" in found.message


@pytest.mark.parametrize(
    ("config", "tokens", "rule"),
    [
        ({**TARGET, "num_nextn_predict_layers": 1}, 1, ""),
        ({**TARGET, "num_nextn_predict_layers": 1}, 2, "PredictionLayersReused"),
        ({**TARGET, "num_nextn_predict_layers": 2}, 3, "TokensDoNotDivide"),
        ({"text_config": {**TARGET, "mtp_num_hidden_layers": 2}}, 2, ""),
        (TARGET, 1, "PredictionLayersUnknown"),
        ({**TARGET, "model_type": "deepseek_v41"}, 1, "ModelHasNoPredictionLayers"),
    ],
)
def test_mtp_is_checked_against_the_targets_own_layers(
    tmp_path: Path, config: dict[str, Any], tokens: int, rule: str
) -> None:
    model(tmp_path, "target", config)
    plan = preflight_plan(spec_of(Method.MTP, numSpeculativeTokens=tokens), locate_below(tmp_path))
    assert [one.rule_id for one in preflight_findings(plan or {})] == ([rule] if rule else [])


def test_tokenizers_of_equal_size_and_other_numbers_are_warned_about(tmp_path: Path) -> None:
    model(tmp_path, "target", TARGET, {"a": 0, "b": 1})
    model(tmp_path, "draft", TARGET, {"a": 1, "b": 0})
    plan = preflight_plan(spec_of(Method.DRAFT_MODEL, draft__model="/models/draft"), locate_below(tmp_path))
    assert [one.rule_id for one in preflight_findings(plan or {})] == ["TokenizersDiffer"]


def test_attention_heads_of_the_target_have_to_divide_over_the_ranks(tmp_path: Path) -> None:
    model(tmp_path, "target", TARGET)
    plan = preflight_plan(spec_of(None, {"engine.tensorParallelSize": 3}), locate_below(tmp_path))
    assert [one.rule_id for one in preflight_findings(plan or {})] == ["HeadsDoNotDivide"]


def test_models_are_found_by_path_by_name_and_in_a_hub_cache(tmp_path: Path) -> None:
    (tmp_path / "models" / "a").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    for commit in ("c1", "c2"):
        (tmp_path / "models--org--c" / "snapshots" / commit).mkdir(parents=True)
    (tmp_path / "models--org--d" / "snapshots" / "d1").mkdir(parents=True)
    locate = locate_below(tmp_path)
    assert locate("/models/a", None) == str(tmp_path / "models" / "a")
    assert locate("/elsewhere/b", None) == str(tmp_path / "b")
    assert locate("org/c", "c2") == str(tmp_path / "models--org--c" / "snapshots" / "c2")
    assert locate("org/c", None) is None
    assert locate("org/d", None) == str(tmp_path / "models--org--d" / "snapshots" / "d1")
    assert locate("org/unknown", None) is None


def test_there_is_no_plan_where_only_repositories_are_named() -> None:
    spec = spec_of(Method.EAGLE3, {"model.name": "org/model"}, draft__model="org/head")
    assert preflight_plan(spec) is None


def run_script(plan: Any, log: Path, script: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, VARIABLE: json.dumps(plan), "SPECFLEET_TERMINATION_LOG": str(log), "PYTHONPATH": ""}
    command = [sys.executable, "-I", *script[1:]]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_the_program_runs_alone_and_answers_in_the_termination_message(tmp_path: Path) -> None:
    model(tmp_path, "target", TARGET)
    model(tmp_path, "draft", {**TARGET, "vocab_size": 640})
    plan = preflight_plan(spec_of(Method.DRAFT_MODEL, draft__model="/models/draft"), locate_below(tmp_path))
    log = tmp_path / "termination-log"
    log.touch()
    done = run_script(plan, log, preflight_command())
    assert done.returncode == 1, done.stderr
    assert read_answer(log.read_text()) == preflight_findings(plan or {})


def test_files_that_it_may_not_read_are_told_and_refuse_nothing(tmp_path: Path) -> None:
    model(tmp_path, "target", TARGET)
    plan = preflight_plan(spec_of(), locate_below(tmp_path)) or {}
    (tmp_path / "models").chmod(0)
    before = os.geteuid()
    try:
        if before == 0:
            os.seteuid(65532)
        (found,) = preflight_findings(plan)
    finally:
        os.seteuid(before)
        (tmp_path / "models").chmod(0o755)
    assert (found.rule_id, found.severity) == ("ConfigNotReadable", Severity.WARN)


def test_a_draft_that_lies_elsewhere_is_not_taken_for_the_target(tmp_path: Path) -> None:
    model(tmp_path, "target", {**TARGET, "num_hidden_layers": 4})
    spec = spec_of(Method.DFLASH, draft__model="org/draft")
    assert preflight_findings(preflight_plan(spec, locate_below(tmp_path)) or {"target": {}, "drafts": []}) == ()
    assert preflight_key(spec) is None


def test_a_finding_about_a_depth_names_the_depth(tmp_path: Path) -> None:
    model(tmp_path, "target", {**TARGET, "num_nextn_predict_layers": 2})
    plan = preflight_plan(spec_of(Method.MTP, numSpeculativeTokens=3), locate_below(tmp_path))
    assert [one.tokens for one in preflight_findings(plan or {})] == [3]


@pytest.mark.parametrize(
    ("volume", "readable"),
    [
        ({"persistentVolumeClaim": {"claimName": "models"}}, True),
        ({"hostPath": {"path": "/data"}}, True),
        ({"emptyDir": {}}, False),
        ({"ephemeral": {"volumeClaimTemplate": {}}}, False),
    ],
)
def test_only_volumes_that_every_pod_sees_alike_are_looked_into(volume: dict[str, Any], readable: bool) -> None:
    changes = {
        "template.volumes": [{"name": "models", **volume}, {"name": "scratch", "emptyDir": {}}],
        "template.volumeMounts": [
            {"name": "scratch", "mountPath": "/"},
            {"name": "models", "mountPath": "/models"},
        ],
    }
    spec = spec_of(Method.DRAFT_MODEL, changes, draft__model="/models/draft")
    assert (preflight_key(spec) is not None) is readable
    assert preflight_key(spec_of(Method.DRAFT_MODEL, changes, draft__model="/scratch/draft")) is None or readable


def test_the_same_question_has_the_same_key_and_another_image_or_folder_another_one() -> None:
    one, again = (spec_of(Method.DRAFT_MODEL, draft__model="/models/draft") for _ in range(2))
    assert preflight_key(one) == preflight_key(again)
    others = [
        spec_of(Method.DRAFT_MODEL, draft__model="/models/other"),
        spec_of(Method.DRAFT_MODEL, {"engine.image": "vllm/vllm-openai:v0.31.0"}, draft__model="/models/draft"),
        spec_of(Method.DRAFT_MODEL, {"engine.args": ["--seed=1"]}, draft__model="/models/draft"),
    ]
    keys = [preflight_key(other) for other in others]
    assert preflight_key(one) not in keys[:2]
    assert keys[2] == preflight_key(one), "what the files are compared by did not change"


def test_the_program_exits_with_zero_when_nothing_is_refused(tmp_path: Path) -> None:
    model(tmp_path, "target", TARGET)
    done = run_script(preflight_plan(spec_of(), locate_below(tmp_path)), tmp_path / "absent", preflight_command())
    assert (done.returncode, done.stdout.strip()) == (0, "[]")


def test_a_long_answer_keeps_its_refusals_within_a_termination_message(tmp_path: Path) -> None:
    drafts = [
        {
            "method": "draft_model",
            "field": f"spec.speculation.candidates[{i}]",
            "model": "/m/x",
            "directory": "/nowhere/x",
        }
        for i in range(60)
    ]
    log = tmp_path / "log"
    log.touch()
    plan = {"target": {"model": "/m/t", "directory": "/nowhere"}, "drafts": drafts}
    assert run_script(plan, log, preflight_command()).returncode == 1
    answer = read_answer(log.read_text())
    assert len(log.read_bytes()) <= 4096
    assert answer
    assert answer[0].severity is Severity.REFUSE


@pytest.mark.parametrize("text", ["", "Killed", "{}x", '{"a": 1}', '[{"rule": "x"}]'])
def test_what_is_no_answer_is_no_verdict(text: str) -> None:
    assert read_answer(text) is None


def test_the_program_uses_the_standard_library_only() -> None:
    names = {
        line.split()[1].split(".")[0] for line in script_text().splitlines() if line.startswith(("import", "from"))
    }
    assert names <= set(sys.stdlib_module_names)
