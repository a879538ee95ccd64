"""Real engines: what the rules accept starts and answers; what they refuse dies when they say so."""

import json
from pathlib import Path
from typing import Any

import pytest
from specfleet.api.deployment import DeploymentSpec
from specfleet.cli.linting import locate_below
from specfleet.engine.arguments import EngineArm, build_arm
from specfleet.engine.findings import Severity
from specfleet.engine.identity import contradiction
from specfleet.engine.metrics import METRICS, Kind, Quantity, metric_names
from specfleet.engine.preflight import preflight_findings, preflight_plan
from specfleet.engine.versions import version_of

from e2e.engine.engine import free_port, running
from e2e.engine.specs import ARGS, proposers, read, spec

SCHEDULE = [{"minBatchSize": 1, "maxBatchSize": 4, "tokens": 2}]


def arm_of(model: DeploymentSpec | None) -> EngineArm:
    assert model is not None
    return build_arm(model, model.speculation.proposers()[0] if model.speculation else None)


@pytest.mark.parametrize("method", ["plain", "ngram", "suffix", "draft_model", "eagle", "eagle3", "medusa"])
def test_an_accepted_method_starts_answers_and_is_what_it_says(method: str, models: Path, tmp_path: Path) -> None:
    port = free_port()
    raw = spec(models, proposers(models).get(method), port)
    model, findings = read(raw)
    assert model is not None
    arm = arm_of(model)
    assert [one for one in findings if one.severity is Severity.REFUSE] == []
    with running(arm.args, port, tmp_path / "log", with_suffix=method == "suffix") as engine:
        assert engine.wait_until_ready(), engine.said[-3000:]
        answer = engine.complete("target")
        assert answer["usage"]["completion_tokens"] == 16
        assert answer["system_fingerprint"] == arm.fingerprint
        assert contradiction(model.engine, json.loads(engine.get("/version"))) is None
        metrics = engine.get("/metrics")
    exposes(metrics, model, method != "plain")
    if method != "plain":
        assert f"method='{method}'" in engine.said


def exposes(metrics: str, model: DeploymentSpec, speculative: bool) -> None:
    """The metric table is true for this engine, and the declared SLOs are bucket edges."""
    version = version_of(model.engine)
    assert version is not None
    names = metric_names(version)
    for one in METRICS:
        if one.name not in names.values() or (one.only_with_speculation and not speculative):
            continue
        series = one.name + ("_bucket" if one.kind is Kind.HISTOGRAM else "")
        if one.quantity is not Quantity.ADMISSION_REJECTIONS:
            assert f"\n{series}{{" in metrics, series
    if not speculative:
        assert "vllm:spec_decode" not in metrics
    assert 'vllm:request_time_per_output_token_seconds_bucket{engine="0",le="0.0137"' in metrics
    assert 'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.77"' in metrics


def test_a_schedule_with_ngram_starts_and_answers(models: Path, tmp_path: Path) -> None:
    port = free_port()
    model, _ = read(spec(models, {**proposers(models)["ngram"], "tokensPerBatchSize": SCHEDULE}, port))
    with running(arm_of(model).args, port, tmp_path / "log") as engine:
        assert engine.wait_until_ready(), engine.said[-3000:]
        assert engine.complete("target")["usage"]["completion_tokens"] == 16


def first_request_kills(raw: dict[str, Any], port: int, log: Path, words: str) -> None:
    model, _ = read(raw)
    with running(arm_of(model).args, port, log) as engine:
        assert engine.wait_until_ready(), engine.said[-3000:]
        with pytest.raises(OSError):  # noqa: PT011 - a refused, reset or failed request
            engine.complete("target")
        assert engine.wait_until_ended() is not None
        assert words in engine.said


def test_a_schedule_with_medusa_kills_the_engine_at_the_first_request(models: Path, tmp_path: Path) -> None:
    port = free_port()
    raw = spec(models, {**proposers(models)["medusa"], "tokensPerBatchSize": SCHEDULE}, port)
    assert "ScheduleKillsEngine" in {one.rule_id for one in read(raw)[1]}
    first_request_kills(raw, port, tmp_path / "log", "AssertionError")


def test_layers_that_the_target_does_not_have_kill_the_engine_at_the_first_request(
    models: Path, tmp_path: Path
) -> None:
    port = free_port()
    proposer = proposers(models)["eagle3"]
    proposer["draft"]["model"] = str(models / "eagle3-layers")
    raw = spec(models, proposer, port)
    model, _ = read(raw)
    assert model is not None
    plan = preflight_plan(model, locate_below(Path("/")))
    assert "AuxiliaryLayersMissing" in {one.rule_id for one in preflight_findings(plan or {})}
    first_request_kills(raw, port, tmp_path / "log", "Error")


OVERLAP = [
    {"minBatchSize": 1, "maxBatchSize": 4, "tokens": 3},
    {"minBatchSize": 3, "maxBatchSize": 8, "tokens": 1},
]
DEAD_AT_START: dict[str, tuple[str, dict[str, Any], list[str], str, str]] = {
    "ngram_gpu on CPU": ("ngram", {"method": "ngram_gpu"}, [], "MethodNeedsGpu", "Error"),
    "a schedule that overlaps": ("ngram", {"tokensPerBatchSize": OVERLAP}, [], "ScheduleRangesOverlap", "overlapping"),
    "no padded batch with a draft model": (
        "draft_model",
        {"draft": {"disablePaddedBatch": True}},
        [],
        "PaddedBatchNeeded",
        "only supports padded drafter batch",
    ),
    "custom logits processors": (
        "ngram",
        {},
        ["--logits-processors", "vllm.v1.sample.logits_processor:MinPLogitsProcessor"],
        "LogitsProcessorsUnsupported",
        "Custom logits processors are not supported when speculative decoding is enabled",
    ),
}


@pytest.mark.parametrize("name", DEAD_AT_START)
def test_what_a_rule_refuses_dies_at_start(name: str, models: Path, tmp_path: Path) -> None:
    base, changes, more, rule, words = DEAD_AT_START[name]
    port = free_port()
    proposer = proposers(models)[base]
    draft = {**proposer.get("draft", {}), **changes.get("draft", {})}
    proposer = {**proposer, **changes, **({"draft": draft} if draft else {})}
    model, findings = read(spec(models, proposer, port, args=[*ARGS, *more]))
    assert rule in {one.rule_id for one in findings if one.severity is Severity.REFUSE}
    with running(arm_of(model).args, port, tmp_path / "log") as engine:
        assert not engine.wait_until_ready()
        assert engine.process.returncode != 0
        assert words in engine.said


def test_a_name_makes_the_engine_run_another_method(models: Path, tmp_path: Path) -> None:
    port = free_port()
    proposer = {
        "method": "draft_model",
        "numSpeculativeTokens": 3,
        "draft": {"model": str(models / "eagle3-named-draft")},
    }
    model, findings = read(spec(models, proposer, port))
    assert "DraftNameChangesMethod" in {one.rule_id for one in findings}
    with running(arm_of(model).args, port, tmp_path / "log") as engine:
        engine.wait_until_ready()
        assert "method='draft_model'" not in engine.said
