"""A rendered command line, read back: for the round-trip test and for people who bring a `vllm serve` line."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specfleet.api.speculation import Proposer
from specfleet.engine.flags import Flag, parse_flags
from specfleet.engine.nodes import EXECUTOR, HEADLESS
from specfleet.engine.speculative import proposer_of

_MODEL_FIELDS = {
    "--served-model-name": "served_name",
    "--revision": "revision",
    "--tokenizer": "tokenizer",
    "--tokenizer-revision": "tokenizer_revision",
    "--quantization": "quantization",
    "--dtype": "dtype",
    "--max-model-len": "max_model_len",
}
_ENGINE_FIELDS = {
    "--port": "port",
    "--shutdown-timeout": "shutdown_timeout_seconds",
    "--tensor-parallel-size": "tensor_parallel_size",
    "--pipeline-parallel-size": "pipeline_parallel_size",
    "--data-parallel-size": "data_parallel_size",
}
_INTEGERS = {"max_model_len", *_ENGINE_FIELDS.values()}
_OWN = {"--host", "--fingerprint-mode", "--fingerprint-value", "--custom-histogram-buckets"}
_NODES = {EXECUTOR[0], "--node-rank", "--master-addr", HEADLESS}
"""Said in every pod of an engine over several ones, with the same meaning."""


@dataclass(frozen=True, slots=True)
class Command:
    """The parts of a `vllm serve` command line that specfleet has fields for."""

    model: dict[str, Any]
    """Fields of ModelSpec by Python name, `name` included."""
    engine: dict[str, Any]
    """Fields of EngineSpec by Python name."""
    proposer: Proposer | None
    fingerprint: str | None
    nodes: int | None
    """Pods of the engine; None: one."""
    others: tuple[Flag, ...]
    """Flags without a field: the user's own."""


def parse_command(args: Sequence[str]) -> Command:
    """Reads everything after `vllm serve`. Raises ValueError when --speculative-config is no JSON object."""
    model: dict[str, Any] = {"name": args[0]}
    engine: dict[str, Any] = {}
    proposer, fingerprint, nodes, others = None, None, None, []
    for flag in parse_flags(args[1:]):
        if flag.name in _MODEL_FIELDS:
            model[_MODEL_FIELDS[flag.name]] = _typed(_MODEL_FIELDS[flag.name], flag.text)
        elif flag.name in _ENGINE_FIELDS:
            engine[_ENGINE_FIELDS[flag.name]] = _typed(_ENGINE_FIELDS[flag.name], flag.text)
        elif flag.name == "--speculative-config":
            proposer = proposer_of(json.loads(flag.text))
        elif flag.name == "--fingerprint-value":
            fingerprint = flag.text
        elif flag.name == "--nnodes":
            nodes = int(flag.text)
        elif flag.name not in _OWN | _NODES:
            others.append(flag)
    return Command(model, engine, proposer, fingerprint, nodes, tuple(others))


def _typed(field: str, text: str) -> Any:
    return int(text) if field in _INTEGERS else text
