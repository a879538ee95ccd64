"""What the preflight reads and what its answer means: model directories are compared before a GPU is taken.

The comparison itself is specfleet.engine.preflight_script, the same text in `lint --models` and in the cluster.
"""

import inspect
import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from specfleet.api.base import RawObject
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.speculation import Method, Proposer
from specfleet.engine import preflight_script
from specfleet.engine.findings import Finding, Severity
from specfleet.engine.flags import parse_flags
from specfleet.engine.mounts import mount_of, readable_elsewhere, volume_of
from specfleet.engine.rules.case import proposer_path

VARIABLE = "SPECFLEET_PREFLIGHT"
"""Environment variable of the preflight container that holds the plan as JSON."""
CONFIG_ELSEWHERE = "--hf-config-path"
"""vLLM then reads no config.json in the model's folder."""
WITHOUT_MODEL = (Method.NGRAM, Method.NGRAM_GPU, Method.SUFFIX)
_SOURCE = "config.json of both models"

Locate = Callable[[str, str | None], str | None]
"""(model name or path, revision) -> directory to read, None where it cannot be seen from here."""


def in_cluster(spec: DeploymentSpec) -> Locate:
    """What a pod beside the engine's can read: paths only (repositories are downloaded by the engine itself), and none
    that begins empty in every pod."""

    def locate(model: str, _revision: str | None) -> str | None:
        return model if model.startswith("/") and readable_elsewhere(spec.template, model) else None

    return locate


def preflight_plan(spec: DeploymentSpec, locate: Locate | None = None) -> RawObject | None:
    """The plan for VARIABLE, None when there is nothing to compare from here. Default: what the cluster can read."""
    locate = locate or in_cluster(spec)
    model = spec.model
    target = {
        "model": model.name,
        "directory": locate(model.name, model.revision),
        "tensorParallelSize": spec.engine.tensor_parallel_size,
        "maxModelLen": model.max_model_len,
    }
    proposers = spec.speculation.proposers() if spec.speculation else ()
    drafts = [one for proposer in proposers if (one := _draft(spec, proposer, locate)) is not None]
    if target["directory"] is None and not any("directory" in draft for draft in drafts):
        return None
    return {"target": _known(target), "drafts": drafts}


def _draft(spec: DeploymentSpec, proposer: Proposer, locate: Locate) -> RawObject | None:
    """A proposer's entry; None when it has no model, or one that lies where nothing can be said of it from here."""
    draft = proposer.draft
    if draft is None and proposer.method in WITHOUT_MODEL:
        return None
    entry: RawObject = {
        "method": proposer.method.value,
        "field": proposer_path(spec, proposer),
        "tokens": proposer.num_speculative_tokens,
        "model": spec.model.name,
    }
    if draft is None:
        return _known(entry)
    directory = locate(draft.model, draft.revision)
    if directory is None:
        return None
    entry |= {
        "model": draft.model,
        "directory": directory,
        "maxModelLen": draft.max_model_len,
        "tensorParallelSize": draft.tensor_parallel_size,
        "heterogeneousVocabulary": draft.heterogeneous_vocabulary,
        "parallelDrafting": draft.parallel_drafting,
    }
    return _known(entry)


def _known(entry: RawObject) -> RawObject:
    return {key: value for key, value in entry.items() if value is not None}


def preflight_mounts(spec: DeploymentSpec, plan: RawObject) -> tuple[list[RawObject], list[RawObject]]:
    """(volumes, volumeMounts) that hold the plan's directories, and no others: no Secret, no scratch space."""
    directories = [one["directory"] for one in (plan["target"], *plan["drafts"]) if "directory" in one]
    mounts: list[RawObject] = []
    volumes: list[RawObject] = []
    for directory in directories:
        mount = mount_of(spec.template, directory)
        volume = volume_of(spec.template, mount) if mount is not None else None
        if mount is None or volume is None:
            continue
        mounts += [] if mount in mounts else [mount]
        volumes += [] if volume in volumes else [volume]
    return volumes, mounts


def preflight_key(spec: DeploymentSpec) -> str | None:
    """Hash of what is compared in the cluster and where from; None when there is no draft that could be looked at."""
    plan = preflight_plan(spec)
    return _key(spec, plan) if plan is not None and plan["drafts"] else None


def model_key(spec: DeploymentSpec) -> str | None:
    """The same for a look at the model itself, beside its first engine; None where it cannot be judged by its folder.

    One from the hub is loaded by the engine, and what an init container fetches may not be there yet.
    """
    plan = preflight_plan(spec)
    elsewhere = any(flag.name == CONFIG_ELSEWHERE for flag in parse_flags(spec.engine.args))
    if plan is None or "directory" not in plan["target"] or spec.template.init_containers or elsewhere:
        return None
    return f"model-{_key(spec, {**plan, 'drafts': []})}"


def _key(spec: DeploymentSpec, plan: RawObject) -> str:
    seen = {"plan": plan, "image": spec.engine.image, "mounts": preflight_mounts(spec, plan)}
    return sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:16]


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
            one["rule"],
            Severity(one["severity"]),
            one["path"],
            one["rule"],
            one["message"],
            one["remedy"],
            _SOURCE,
            one.get("tokens"),
        )
        for one in answer
    )
    return tuple(dict.fromkeys(found))
