"""Builders of specs for the tests: a valid one, changed at a few places written as dotted paths."""

from copy import deepcopy
from typing import Any

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.speculation import Method
from specfleet.engine.admission import read_spec
from specfleet.engine.findings import Finding
from specfleet.engine.rules import check

LATEST = "0.32.0"

VALID: dict[str, Any] = {
    "model": {"name": "/models/target", "maxModelLen": 4096},
    "engine": {"image": f"vllm/vllm-openai:v{LATEST}"},
    "template": {
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    },
    "guardrails": {"minAgreementRatio": 0.99},
}

PROPOSERS: dict[Method, dict[str, Any]] = {
    Method.NGRAM: {"numSpeculativeTokens": 3},
    Method.NGRAM_GPU: {"numSpeculativeTokens": 3},
    Method.SUFFIX: {},
    Method.DRAFT_MODEL: {"numSpeculativeTokens": 3, "draft": {"model": "/models/small"}},
    Method.EAGLE: {"numSpeculativeTokens": 3, "draft": {"model": "/models/head"}},
    Method.EAGLE3: {"numSpeculativeTokens": 3, "draft": {"model": "/models/head"}},
    Method.MTP: {"numSpeculativeTokens": 1},
    Method.MEDUSA: {"numSpeculativeTokens": 3, "draft": {"model": "/models/heads"}},
    Method.DFLASH: {"numSpeculativeTokens": 5, "draft": {"model": "/models/block"}},
    Method.DSPARK: {"numSpeculativeTokens": 5},
}
"""The least that each method needs."""

SCHEDULE = [{"minBatchSize": 1, "maxBatchSize": 8, "tokens": 3}, {"minBatchSize": 9, "maxBatchSize": 64, "tokens": 1}]


def proposer(method: Method | str, **fields: Any) -> dict[str, Any]:
    """A proposer as users write it: the least that the method needs, changed by `fields` (draft__model for nesting)."""
    raw = {"method": str(method), **deepcopy(PROPOSERS.get(Method(method), {}))}
    for path, value in fields.items():
        put(raw, path.replace("__", "."), value)
    return raw


def raw_spec(
    method: Method | str | None = None, changes: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    """A raw spec with one proposer (or none) and changes at dotted paths below spec."""
    raw = deepcopy(VALID)
    if method is not None:
        raw["speculation"] = proposer(method, **fields)
    for path, value in (changes or {}).items():
        put(raw, path, value)
    return raw


def spec_of(method: Method | str | None = None, changes: dict[str, Any] | None = None, **fields: Any) -> DeploymentSpec:
    """The same as a model; fails the test when admission refuses it."""
    spec, findings = read_spec(raw_spec(method, changes, **fields))
    assert spec is not None, findings
    assert not findings, findings
    return spec


def lint_raw(raw: dict[str, Any]) -> tuple[Finding, ...]:
    """Everything that lint says about a raw spec, as the command does."""
    spec, findings = read_spec(raw)
    return (*findings, *(check(spec) if spec is not None else ()))


def put(raw: dict[str, Any], path: str, value: Any) -> None:
    """Sets a value at a dotted path; None removes it."""
    *parents, last = path.split(".")
    place = raw
    for name in parents:
        place = place.setdefault(name, {})
    if value is None:
        place.pop(last, None)
    else:
        place[last] = value
