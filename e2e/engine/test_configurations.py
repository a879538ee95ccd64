"""What lint refuses, vLLM refuses too; what lint accepts, vLLM builds a configuration from."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from specfleet.api.deployment import DeploymentSpec
from specfleet.cli.linting import locate_below
from specfleet.engine.arguments import build_arm
from specfleet.engine.findings import Finding, Severity
from specfleet.engine.preflight import preflight_findings, preflight_plan

from e2e.engine.set_up import environment, python
from e2e.engine.specs import ARGS, proposers, read, spec

OPERATOR = Path(__file__).parents[2] / "operator"
Answer = str | None


class Case(NamedTuple):
    """A configuration that a rule refuses, and a part of what the engine says to it."""

    rule: str
    said: str
    change: Callable[[Path, dict[str, dict[str, Any]]], dict[str, Any]]


def draft(models: Path, base: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return spec(models, {**base, "draft": {**base["draft"], **fields}})


REFUSED = {
    "asynchronous scheduling with ngram": Case(
        "AsyncSchedulingUnsupported",
        "async scheduling is only supported",
        lambda m, p: spec(m, p["ngram"], args=[*ARGS, "--async-scheduling"]),
    ),
    "asynchronous scheduling with medusa": Case(
        "AsyncSchedulingUnsupported",
        "async scheduling is only supported",
        lambda m, p: spec(m, p["medusa"], args=[*ARGS, "--async-scheduling"]),
    ),
    "an unknown key": Case(
        "ExtraKeyNotAccepted",
        "num_spec_tokens_typo",
        lambda m, p: spec(m, {**p["ngram"], "extra": {"num_spec_tokens_typo": 3}}),
    ),
    "a key of the removed V0 engine": Case(
        "ExtraKeyNotAccepted",
        "disable_by_batch_size",
        lambda m, p: spec(m, {**p["ngram"], "extra": {"disable_by_batch_size": 3}}),
    ),
    "the key that vLLM has only to reject it": Case(
        "ExtraKeyNotAccepted",
        "draft_tensor_parallel_size",
        lambda m, p: spec(m, {**p["eagle"], "extra": {"tensor_parallel_size": 1}}),
    ),
    "a key of 0.33": Case(
        "ExtraKeyNotAccepted", "xpress_topc", lambda m, p: spec(m, {**p["eagle"], "extra": {"xpress_topc": 2}})
    ),
    "a draft group that is neither 1 nor the target's": Case(
        "DraftParallelSizeInvalid",
        "draft_tensor_parallel_size",
        lambda m, p: draft(m, p["eagle"], tensorParallelSize=2),
    ),
    "a draft context above the target's": Case(
        "DraftContextTooLong", "cannot be larger", lambda m, p: draft(m, p["draft_model"], maxModelLen=1536)
    ),
    "other vocabularies with an EAGLE head": Case(
        "HeterogeneousVocabularyConflict",
        "only works with method='draft_model'",
        lambda m, p: draft(m, p["eagle"], heterogeneousVocabulary=True),
    ),
    "other vocabularies with probabilistic drafts": Case(
        "HeterogeneousVocabularyConflict",
        "greedy",
        lambda m, p: draft(m, p["draft_model"], heterogeneousVocabulary=True, sampling="probabilistic"),
    ),
    "fast prefill with an EAGLE head": Case(
        "FastPrefillUnsupported",
        "prefill",
        lambda m, p: spec(m, p["eagle"], args=[*ARGS, "--kv-sharing-fast-prefill"]),
    ),
    "a batch too small for the drafts": Case(
        "BatchTooSmallForDrafts",
        "max_num_",
        lambda m, p: spec(m, p["draft_model"], args=[*ARGS, "--max-num-batched-tokens", "1"]),
    ),
    "MTP without k": Case(
        "TokensNeededWithoutDraft", "num_speculative_tokens", lambda m, _: spec(m, {"method": "mtp"})
    ),
    "suffix without its package": Case(
        "SuffixNeedsArcticInference", "Arctic Inference is required", lambda m, p: spec(m, p["suffix"])
    ),
    "flag and value in one string": Case(
        "ArgumentNotSplit", "unrecognized arguments", lambda m, p: spec(m, p["ngram"], args=["--max-num-seqs 4"])
    ),
    "a value before any flag": Case(
        "ArgumentWithoutFlag", "unrecognized arguments", lambda m, p: spec(m, p["ngram"], args=["other", *ARGS])
    ),
}
FILES = {
    "another vocabulary": ("VocabularyDiffers", "same vocabulary size", "draft-vocab"),
    "a missing draft": ("DraftMissing", "Invalid repository ID or local directory", "no-such-dir"),
}


def arguments(model: DeploymentSpec) -> list[str]:
    proposer = model.speculation.proposers()[0] if model.speculation else None
    return list(build_arm(model, proposer).args)


def ask(listed: list[list[str]]) -> list[Answer]:
    """What the engine says to each argument list."""
    done = subprocess.run(
        [python(), "-m", "e2e.engine.ask"],
        input=json.dumps(listed),
        text=True,
        capture_output=True,
        check=False,
        cwd=OPERATOR.parent,
        env={**environment(), "PYTHONPATH": f"{OPERATOR}:{OPERATOR.parent}"},
        timeout=1800,
    )
    assert "ANSWERS " in done.stdout, done.stderr[-3000:]
    answers: list[Answer] = json.loads(done.stdout.split("ANSWERS ", 1)[1])
    return answers


@pytest.fixture(scope="session")
def answers(models: Path) -> dict[str, Answer]:
    """What the engine says to every case, asked once."""
    known = proposers(models)
    specs: dict[str, DeploymentSpec | None] = {
        name: read(case.change(models, known))[0] for name, case in REFUSED.items()
    }
    for name, (_, _, folder) in FILES.items():
        specs[name] = read(draft(models, known["draft_model"], model=str(models / folder)))[0]
    specs |= {f"accepted {name}": read(spec(models, known[name]))[0] for name in known if name != "suffix"}
    specs["accepted plain"] = read(spec(models, None))[0]
    asked = {name: arguments(one) for name, one in specs.items() if one is not None}
    return dict(zip(asked, ask(list(asked.values())), strict=True))


def found(findings: tuple[Finding, ...], rule: str) -> Finding:
    named = [one for one in findings if one.rule_id == rule]
    assert named, [one.sentence() for one in findings]
    return named[0]


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_rule_refuses_the_engine_refuses(name: str, models: Path, answers: dict[str, Answer]) -> None:
    case = REFUSED[name]
    _, findings = read(case.change(models, proposers(models)))
    finding = found(findings, case.rule)
    if case.rule != "SuffixNeedsArcticInference":
        assert finding.severity is Severity.REFUSE
    assert answers[name] is not None, "the engine accepts it"
    assert case.said in str(answers[name])


@pytest.mark.parametrize("name", FILES)
def test_what_the_files_show_the_engine_refuses(name: str, models: Path, answers: dict[str, Answer]) -> None:
    rule, said, folder = FILES[name]
    model, _ = read(draft(models, proposers(models)["draft_model"], model=str(models / folder)))
    assert model is not None
    plan = preflight_plan(model, locate_below(Path("/")))
    assert found(preflight_findings(plan or {}), rule).severity is Severity.REFUSE
    assert said in str(answers[name])


@pytest.mark.parametrize("name", ["plain", "ngram", "draft_model", "eagle", "eagle3", "medusa"])
def test_what_the_rules_accept_the_engine_accepts(name: str, models: Path, answers: dict[str, Answer]) -> None:
    raw = spec(models, proposers(models).get(name))
    assert [one for one in read(raw)[1] if one.severity is Severity.REFUSE] == []
    assert answers[f"accepted {name}"] is None


def test_lint_with_the_engine_reports_what_only_the_engine_knows(models: Path, tmp_path: Path) -> None:
    more = ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "512"]
    raw = spec(models, proposers(models)["ngram"], args=[*ARGS, *more])
    assert [one for one in read(raw)[1] if one.severity is Severity.REFUSE] == []
    header = {"apiVersion": "specfleet.dev/v1alpha1", "kind": "SpeculativeDeployment", "metadata": {"name": "demo"}}
    file = tmp_path / "demo.json"
    file.write_text(json.dumps({**header, "spec": raw}))
    done = subprocess.run(
        [python(), "-m", "specfleet.cli.main", "lint", "--with-engine", "--format", "json", str(file)],
        capture_output=True,
        text=True,
        check=False,
        env={**environment(), "PYTHONPATH": str(OPERATOR)},
        timeout=1800,
    )
    assert done.returncode == 1, done.stderr[-2000:]
    found_by_engine = [one for one in json.loads(done.stdout)[0]["findings"] if one["rule"] == "EngineRefuses"]
    assert "max_num_batched_tokens (512)" in found_by_engine[0]["message"]
    assert {one["path"] for one in found_by_engine} == {"spec", "spec.speculation"}
