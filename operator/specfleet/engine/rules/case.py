"""What rules look at: the spec with its flags parsed and its version read once."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.model import TemplateSpec
from specfleet.api.speculation import Method, Proposer
from specfleet.engine.devices import Devices, devices_asked
from specfleet.engine.flags import Flag, find, parse_flags, switched_on
from specfleet.engine.methods import METHODS, MethodFacts
from specfleet.engine.versions import EngineVersion, version_of

ARGS = "spec.engine.args"
ENV = "spec.engine.env"


@dataclass(frozen=True)
class Case:
    """A spec, seen as both arms share it."""

    spec: DeploymentSpec

    @cached_property
    def version(self) -> EngineVersion | None:
        """The version asked for."""
        return version_of(self.spec.engine)

    @property
    def own_build(self) -> bool:
        """Whether engine.version says that the engine is not as vLLM released it (`0.32.0+own`, but not `+cpu`)."""
        suffix = (self.spec.engine.version or "").partition("+")[2]
        return bool(suffix) and re.fullmatch(r"cpu|cu\d+|rocm[\d.]*|xpu|precompiled", suffix) is None

    @cached_property
    def flags(self) -> tuple[Flag, ...]:
        """engine.args, parsed."""
        return parse_flags(self.spec.engine.args)

    @cached_property
    def devices(self) -> Devices:
        """Accelerators that one pod asks for."""
        return devices_asked(self.spec.template)

    @property
    def template(self) -> TemplateSpec:
        """spec.template."""
        return self.spec.template

    @property
    def gpus_needed(self) -> int:
        """Accelerators of one engine: tensor x pipeline x data parallel size."""
        engine = self.spec.engine
        return engine.tensor_parallel_size * engine.pipeline_parallel_size * engine.data_parallel_size

    @property
    def pods_per_engine(self) -> int:
        """1, or the size of a multi-node engine."""
        return self.template.multi_node.size if self.template.multi_node else 1

    @property
    def gpus_per_pod(self) -> int | None:
        """Accelerators that each pod of an engine needs, None when they do not divide evenly."""
        needed, pods = self.gpus_needed, self.pods_per_engine
        return needed // pods if needed % pods == 0 else None

    @property
    def sizes(self) -> str:
        """The parallel sizes as people multiply them: `tensor x pipeline x data`."""
        engine = self.spec.engine
        return f"{engine.tensor_parallel_size} x {engine.pipeline_parallel_size} x {engine.data_parallel_size}"

    @cached_property
    def cpu_engine(self) -> bool:
        """Whether the image is a CPU build, by its name or tag, or by the variables that only CPU builds read."""
        reference = self.spec.engine.image.split("@", 1)[0].rsplit("/", 1)[-1]
        named = "cpu" in reference.replace(":", "-").replace("_", "-").split("-")
        return named or any(name.startswith("VLLM_CPU_") for name in self.env)

    @cached_property
    def env(self) -> Mapping[str, str | None]:
        """Variables by name; None for values by reference."""
        return {
            str(one["name"]): (None if "valueFrom" in one else str(one.get("value", "")))
            for one in self.spec.engine.env
            if isinstance(one, dict) and "name" in one
        }

    @property
    def lora(self) -> bool:
        """Whether LoRA adapters are on."""
        return switched_on(self.flags, "--enable-lora")

    @property
    def tools(self) -> bool:
        """Whether tool calling is on."""
        return switched_on(self.flags, "--enable-auto-tool-choice")

    @property
    def runner_v2(self) -> bool | None:
        """The model runner that the environment forces: True V2, False V1, None left to vLLM."""
        value = self.env.get("VLLM_USE_V2_MODEL_RUNNER")
        return None if value is None else value not in ("0", "false", "False", "")

    @cached_property
    def structured_backend(self) -> str | None:
        """The structured output backend that the arguments force, None for vLLM's own choice."""
        direct = find(
            self.flags,
            "--structured-outputs-config.backend",
            "--guided-decoding-backend",
            "--structured-outputs-backend",
        )
        if direct is not None:
            return direct.text
        packed = find(self.flags, "--structured-outputs-config")
        value = _object(packed.text) if packed is not None else {}
        return str(value["backend"]) if "backend" in value else None


@dataclass(frozen=True)
class ProposerCase(Case):
    """One proposer of a spec."""

    proposer: Proposer
    path: str
    """Where it is written, for example `spec.speculation.candidates[1]`."""

    @property
    def method(self) -> Method:
        """The proposer's method."""
        return self.proposer.method

    @property
    def facts(self) -> MethodFacts:
        """What is known about the method."""
        return METHODS[self.proposer.method]

    @property
    def tokens(self) -> int | None:
        """k, None where the engine chooses."""
        return self.proposer.num_speculative_tokens

    def at(self, field: str) -> str:
        """Path of a field below the proposer."""
        return f"{self.path}.{field}"


def proposer_path(spec: DeploymentSpec, proposer: Proposer) -> str:
    """Where a proposer (or the range it was expanded from) is written in the spec."""
    speculation = spec.speculation
    for index, candidate in enumerate((speculation.candidates or ()) if speculation else ()):
        if candidate == proposer or _expanded_from(candidate, proposer):
            return f"spec.speculation.candidates[{index}]"
    return "spec.speculation"


def _expanded_from(candidate: Proposer, proposer: Proposer) -> bool:
    if candidate.num_speculative_tokens_range is None:
        return False
    plain = {"num_speculative_tokens": None, "num_speculative_tokens_range": None}
    return candidate.model_copy(update=plain) == proposer.model_copy(update=plain)


def _object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
