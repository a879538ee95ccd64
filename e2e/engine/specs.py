"""Specs for the CPU engine, written against the tiny models."""

from pathlib import Path
from typing import Any

from specfleet.api.deployment import DeploymentSpec
from specfleet.engine.admission import read_spec
from specfleet.engine.findings import Finding
from specfleet.engine.rules import check

IMAGE = "vllm-cpu:v0.32.0"
ARGS = ["--max-num-seqs", "4", "--enforce-eager", "--disable-uvicorn-access-log"]
DUMMY = {"load_format": "dummy"}


def proposers(models: Path) -> dict[str, dict[str, Any]]:
    """For every method that runs on CPU, the least that starts."""
    heads: dict[str, dict[str, Any]] = {
        "eagle": {"model": str(models / "eagle"), "loadConfig": DUMMY},
        "eagle3": {"model": str(models / "eagle3"), "loadConfig": DUMMY},
        "medusa": {"model": str(models / "medusa")},
    }
    return {
        "ngram": {"method": "ngram", "numSpeculativeTokens": 3, "ngram": {"promptLookupMin": 2, "promptLookupMax": 4}},
        "suffix": {"method": "suffix", "numSpeculativeTokens": 8},
        "draft_model": {
            "method": "draft_model",
            "numSpeculativeTokens": 3,
            "draft": {"model": str(models / "draft")},
        },
        **{name: {"method": name, "numSpeculativeTokens": 3, "draft": head} for name, head in heads.items()},
    }


def arguments_for(method: str) -> list[str]:
    """engine.args: medusa does not read the draft's own load format, so its target has dummy weights too."""
    return [*ARGS, "--load-format", "dummy"] if method == "medusa" else ARGS


def spec(models: Path, proposer: dict[str, Any] | None, port: int = 8000, **engine: Any) -> dict[str, Any]:
    """A raw spec for the CPU engine."""
    args = arguments_for(proposer["method"] if proposer else "")
    raw: dict[str, Any] = {
        "model": {"name": str(models / "target"), "servedName": "target", "maxModelLen": 1024},
        "engine": {"image": IMAGE, "port": port, "args": args, "shutdownTimeoutSeconds": 5, **engine},
        "guardrails": {"minAgreementRatio": 0.9, "tpotSloSeconds": 0.0137, "ttftSloSeconds": 0.77},
    }
    return raw if proposer is None else {**raw, "speculation": proposer}


def read(raw: dict[str, Any]) -> tuple[DeploymentSpec | None, tuple[Finding, ...]]:
    """The spec and everything that lint says about it."""
    model, findings = read_spec(raw)
    return model, (*findings, *(check(model) if model is not None else ()))
