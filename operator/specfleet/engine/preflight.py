"""What the preflight reads and what its answer means: model directories are compared before a GPU is taken.

The comparison itself is specfleet.engine.preflight_script, the same text in `lint --models` and in the cluster.
"""

import inspect
import json
from collections.abc import Callable
from typing import Any

from specfleet.api.base import RawObject
from specfleet.api.deployment import DeploymentSpec
from specfleet.engine import preflight_script
from specfleet.engine.findings import Finding, Severity
from specfleet.engine.rules.case import proposer_path

VARIABLE = "SPECFLEET_PREFLIGHT"
"""Environment variable of the preflight container that holds the plan as JSON."""
_SOURCE = "config.json of both models"

Locate = Callable[[str, str | None], str | None]
"""(model name or path, revision) -> directory to read, None where it cannot be seen from here."""


def inside_pod(model: str, _revision: str | None) -> str | None:
    """In the cluster only paths can be read: repositories are downloaded by the engine itself."""
    return model if model.startswith("/") else None


def preflight_plan(spec: DeploymentSpec, locate: Locate = inside_pod) -> RawObject | None:
    """The plan for VARIABLE, None when there is nothing to compare from here."""
    model = spec.model
    target = {
        "model": model.name,
        "directory": locate(model.name, model.revision),
        "tensorParallelSize": spec.engine.tensor_parallel_size,
        "maxModelLen": model.max_model_len,
    }
    drafts: list[RawObject] = []
    for proposer in spec.speculation.proposers() if spec.speculation else ():
        draft = proposer.draft
        entry: RawObject = {
            "method": proposer.method.value,
            "field": proposer_path(spec, proposer),
            "tokens": proposer.num_speculative_tokens,
            "model": draft.model if draft else model.name,
        }
        if draft is not None:
            entry |= {
                "directory": locate(draft.model, draft.revision),
                "maxModelLen": draft.max_model_len,
                "tensorParallelSize": draft.tensor_parallel_size,
                "heterogeneousVocabulary": draft.heterogeneous_vocabulary,
                "parallelDrafting": draft.parallel_drafting,
            }
        drafts.append({key: value for key, value in entry.items() if value is not None})
    if target["directory"] is None and not any(draft.get("directory") for draft in drafts):
        return None
    return {"target": {key: value for key, value in target.items() if value is not None}, "drafts": drafts}


def preflight_command() -> list[str]:
    """The command of the preflight container."""
    return ["python3", "-c", script_text()]


def script_text() -> str:
    """The preflight program."""
    return inspect.getsource(preflight_script)


def preflight_findings(plan: RawObject) -> tuple[Finding, ...]:
    """Findings for a plan whose directories can be read from here."""
    return _findings(preflight_script.inspect(plan))


def read_answer(text: str) -> tuple[Finding, ...] | None:
    """Findings in the termination message of a preflight pod; None when it is not an answer (no data, no verdict)."""
    try:
        answer = json.loads(text)
        return _findings(answer)
    except (ValueError, KeyError, TypeError):
        return None


def _findings(answer: list[dict[str, Any]]) -> tuple[Finding, ...]:
    found = (
        Finding(
            one["rule"], Severity(one["severity"]), one["path"], one["rule"], one["message"], one["remedy"], _SOURCE
        )
        for one in answer
    )
    return tuple(dict.fromkeys(found))
