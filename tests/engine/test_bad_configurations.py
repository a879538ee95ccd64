"""The ways in which a real engine was seen to die at start: each is refused before an engine starts.

`said` is what vLLM 0.32 printed last (10 to 17 s after it was started), `words` what specfleet says instead.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from specfleet.api.speculation import Method, Proposer
from specfleet.cli.linting import locate_below
from specfleet.engine.findings import Finding, Severity
from specfleet.engine.preflight import preflight_findings, preflight_plan
from specfleet.engine.speculative import config_text, speculative_config

from tests.engine.specs import lint_raw, proposer, raw_spec, spec_of
from tests.engine.test_arguments import proposers


class Case(NamedTuple):
    """One recorded death."""

    said: str
    speculation: dict[str, Any]
    path: str
    words: str


CASES = {
    "unknown-key": Case(
        "num_spec_tokens_typo: Unexpected keyword argument",
        {"method": "ngram", "numSpeculativeTokens": 3, "numSpecTokensTypo": 3},
        "spec.speculation.numSpecTokensTypo",
        "unknown field 'numSpecTokensTypo'",
    ),
    "unknown-key through the escape hatch": Case(
        "num_spec_tokens_typo: Unexpected keyword argument",
        proposer("ngram", extra={"num_spec_tokens_typo": 3}),
        "spec.speculation.extra.num_spec_tokens_typo",
        "has the key num_spec_tokens_typo",
    ),
    "tokens-0": Case(
        "num_speculative_tokens: Input should be greater than 0",
        proposer("eagle", numSpeculativeTokens=0),
        "spec.speculation.numSpeculativeTokens",
        "greater than or equal to 1 (found 0)",
    ),
    "tokens-missing": Case(
        "A speculative model was provided, but `num_speculative_tokens` was not provided",
        proposer("eagle", numSpeculativeTokens=None),
        "spec.speculation.numSpeculativeTokens",
        "this method needs numSpeculativeTokens",
    ),
    "medusa-no-model": Case(
        "num_speculative_tokens was provided but without speculative model.",
        proposer("medusa", draft=None),
        "spec.speculation.draft",
        "this method needs a draft",
    ),
    "method-unknown": Case(
        "method: Input should be 'ngram', 'medusa', 'mlp_speculator', ...",
        {"method": "nosuch", "numSpeculativeTokens": 3},
        "spec.speculation.method",
        "no vLLM method is called 'nosuch'",
    ),
}


def refused(findings: tuple[Finding, ...], path: str) -> str:
    found = [one for one in findings if one.severity is Severity.REFUSE and one.field_path == path]
    assert found, [one.sentence() for one in findings]
    return found[0].sentence()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_the_spec_alone_shows_is_refused_by_lint(case: Case) -> None:
    sentence = refused(lint_raw(raw_spec(None, {"speculation": case.speculation})), case.path)
    assert case.words in sentence


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name, size in {"target": 512, "draft-good": 512, "draft-vocab": 640}.items():
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": size}))
    return tmp_path


def test_vocab_mismatch_is_refused_by_the_models_files(models: Path) -> None:
    spec = spec_of(Method.DRAFT_MODEL, draft__model="/models/draft-vocab")
    sentence = refused(
        preflight_findings(preflight_plan(spec, locate_below(models)) or {}), "spec.speculation.draft.model"
    )
    assert "a vocabulary of 512 tokens" in sentence
    assert "/models/draft-vocab one of 640" in sentence


def test_missing_draft_dir_is_refused_by_the_models_files(models: Path) -> None:
    spec = spec_of(Method.DRAFT_MODEL, draft__model="/models/no-such-dir")
    sentence = refused(
        preflight_findings(preflight_plan(spec, locate_below(models)) or {}), "spec.speculation.draft.model"
    )
    assert "/models/no-such-dir does not exist" in sentence


@settings(max_examples=200, deadline=None)
@given(proposers)
def test_not_json_cannot_arise_from_a_typed_proposer(raw: dict[str, Any]) -> None:
    rendered = config_text(speculative_config(Proposer.model_validate(raw)))
    value = json.loads(rendered)
    assert isinstance(value, dict)
    assert value["method"] == raw["method"]
