"""The engine's command line: `vllm serve` with every argument of one arm. Deterministic, no shell."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from specfleet.api.base import RawObject
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.speculation import Proposer
from specfleet.engine import buckets
from specfleet.engine.environment import ConfigMaps, engine_environment, environment_inputs
from specfleet.engine.fingerprint import describe_difference, fingerprint_of
from specfleet.engine.flags import Flag, ordered, parse_flags
from specfleet.engine.nodes import headless_args, node_flags
from specfleet.engine.pod_inputs import pod_inputs
from specfleet.engine.speculative import config_text, proposer_label, speculative_config
from specfleet.engine.versions import version_of

SHUTDOWN_TIMEOUT_SINCE = "0.18"
FINGERPRINT_SINCE = "0.21"
PROPOSER_INPUTS = ("method", "draft", "speculative ")
"""Prefixes of the fingerprint inputs in which the two arms of a comparison may differ."""

_NO_CONFIG_MAPS: ConfigMaps = MappingProxyType({})

_FRIENDLY = {
    "--revision": "model revision",
    "--tokenizer": "tokenizer",
    "--tokenizer-revision": "tokenizer revision",
    "--quantization": "quantization",
    "--dtype": "dtype",
    "--max-model-len": "context length",
    "--served-model-name": "served name",
    "--tensor-parallel-size": "tensor parallel size",
    "--pipeline-parallel-size": "pipeline parallel size",
    "--data-parallel-size": "data parallel size",
    "--shutdown-timeout": "shutdown timeout",
    "--custom-histogram-buckets": "histogram buckets",
}
_FRIENDLY_CONFIG = {
    "method": "method",
    "model": "draft",
    "revision": "draft revision",
    "code_revision": "draft code revision",
    "quantization": "draft quantization",
    "num_speculative_tokens": "speculative tokens",
}


@dataclass(frozen=True, slots=True)
class EngineArm:
    """One arm's engine, complete: what to run and what it is."""

    args: tuple[str, ...]
    """Everything after `vllm serve`; of an engine over several pods, those of its leader."""
    env: tuple[RawObject, ...]
    """core/v1 EnvVar list."""
    speculative_config: dict[str, Any] | None
    """The object of --speculative-config; None for the plain arm."""
    proposer_label: str
    """`none`, `eagle3 k=3`."""
    fingerprint: str
    """Requested fingerprint: 12 hexadecimal digits."""
    fingerprint_inputs: Mapping[str, str]
    """What the fingerprint was made of, by name, for differences in words."""
    unverified: bool
    """Whether `extra` keys are passed that no rule has looked at."""

    @property
    def worker_args(self) -> tuple[str, ...]:
        """Everything after `vllm serve` in the other pods of an engine over several pods."""
        return headless_args(self.args)


def build_arm(
    spec: DeploymentSpec,
    proposer: Proposer | None,
    config_maps: ConfigMaps = _NO_CONFIG_MAPS,
    known_as: str | None = None,
) -> EngineArm:
    """The arm with this proposer (None: plain). Does not check any rule: see specfleet.engine.rules.

    `known_as`: fingerprint that an arm of an earlier spec has had all along.
    """
    config = None if proposer is None else speculative_config(proposer)
    user = ordered(parse_flags(spec.engine.args))
    shared = (*_model_flags(spec), *_engine_flags(spec))
    env = engine_environment(spec)
    inputs = {
        **_engine_inputs(spec),
        **_flag_inputs((*shared, *user)),
        **environment_inputs(env, config_maps),
        **pod_inputs(spec.template, config_maps),
        **_proposer_inputs(config),
    }
    fingerprint = known_as or fingerprint_of(inputs)
    own = [*shared, *node_flags(spec), *_fingerprint_flags(spec, fingerprint)]
    if config is not None:
        own.append(Flag("--speculative-config", (config_text(config),)))
    return EngineArm(
        args=(spec.model.name, *(token for flag in (*own, *user) for token in flag.tokens)),
        env=env,
        speculative_config=config,
        proposer_label=proposer_label(proposer),
        fingerprint=fingerprint,
        fingerprint_inputs=MappingProxyType(inputs),
        unverified=bool(proposer is not None and proposer.extra),
    )


def fairness(a: EngineArm, b: EngineArm) -> str | None:
    """What two arms of a comparison differ in besides the proposer, in words; None for a fair comparison."""
    return describe_difference(_without_proposer(a), _without_proposer(b)) or None


def served_name(spec: DeploymentSpec) -> str:
    """The model name that clients use and that labels every metric."""
    return spec.model.served_name or spec.model.name


def _model_flags(spec: DeploymentSpec) -> list[Flag]:
    model = spec.model
    listed = {
        "--served-model-name": served_name(spec),
        "--revision": model.revision,
        "--tokenizer": model.tokenizer,
        "--tokenizer-revision": model.tokenizer_revision,
        "--quantization": model.quantization,
        "--dtype": model.dtype,
        "--max-model-len": model.max_model_len,
    }
    return [Flag(name, (str(value),)) for name, value in listed.items() if value is not None]


def _engine_flags(spec: DeploymentSpec) -> list[Flag]:
    engine, version = spec.engine, version_of(spec.engine)
    flags = [Flag("--host", ("0.0.0.0",)), Flag("--port", (str(engine.port),))]  # noqa: S104 - a pod's own network
    sizes = {
        "--tensor-parallel-size": engine.tensor_parallel_size,
        "--pipeline-parallel-size": engine.pipeline_parallel_size,
        "--data-parallel-size": engine.data_parallel_size,
    }
    flags += [Flag(name, (str(size),)) for name, size in sizes.items() if size > 1]
    if version is not None and version.has(SHUTDOWN_TIMEOUT_SINCE):
        flags.append(Flag("--shutdown-timeout", (str(engine.shutdown_timeout_seconds),)))
    if version is not None and version.has(buckets.SINCE):
        flags.append(Flag("--custom-histogram-buckets", (_compact(buckets.histogram_buckets(spec.guardrails)),)))
    return flags


def _fingerprint_flags(spec: DeploymentSpec, fingerprint: str) -> list[Flag]:
    version = version_of(spec.engine)
    if version is None or not version.has(FINGERPRINT_SINCE):
        return []
    return [Flag("--fingerprint-mode", ("custom",)), Flag("--fingerprint-value", (fingerprint,))]


def _engine_inputs(spec: DeploymentSpec) -> dict[str, str]:
    version = version_of(spec.engine)
    inputs = {"image": spec.engine.image, "model": spec.model.name}
    return inputs if version is None else {**inputs, "engine": str(version)}


def _flag_inputs(flags: tuple[Flag, ...]) -> dict[str, str]:
    inputs: dict[str, str] = {}
    for flag in flags:
        key = _FRIENDLY.get(flag.name, flag.name or "arguments")
        inputs[key] = f"{inputs[key]} {flag.text}" if key in inputs else flag.text
    return inputs


def _proposer_inputs(config: Mapping[str, Any] | None) -> dict[str, str]:
    if config is None:
        return {}
    return {
        _FRIENDLY_CONFIG.get(key, f"speculative {key}"): value if isinstance(value, str) else _compact(value)
        for key, value in config.items()
    }


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _without_proposer(arm: EngineArm) -> dict[str, str]:
    return {key: value for key, value in arm.fingerprint_inputs.items() if not key.startswith(PROPOSER_INPUTS)}
