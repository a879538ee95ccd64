"""The arms of a spec as people read them: pod template, command line, fingerprint."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.api.status import ArmRole
from specfleet.cli.manifests import Manifest
from specfleet.engine.arguments import EngineArm, build_arm
from specfleet.engine.environment import ConfigMaps

UNKNOWN_UID = "00000000-0000-0000-0000-000000000000"
"""Stands for the UID that only the API server gives; nothing in a pod depends on it."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm that the spec asks for."""

    role: ArmRole
    engine: EngineArm

    def answers_to(self, name: str | None) -> bool:
        """Whether --arm NAME means this arm; None means all."""
        return name in (None, self.role.value, self.engine.proposer_label, self.engine.fingerprint)


def arms_of(spec: DeploymentSpec, config_maps: ConfigMaps) -> list[Arm]:
    """The plain arm first, then every proposer in spec order."""
    proposers = spec.speculation.proposers() if spec.speculation else ()
    plain = Arm(ArmRole.BASELINE, build_arm(spec, None, config_maps))
    return [plain, *(Arm(ArmRole.SPECULATIVE, build_arm(spec, one, config_maps)) for one in proposers)]


def pod_text(manifest: Manifest, spec: DeploymentSpec, arm: Arm) -> str:
    """The pod template as the operator creates it, as one YAML document; two where engines span several pods."""
    from specfleet.resources.groups import worker_template
    from specfleet.resources.pods import pod_template

    metadata = {"namespace": "default", "uid": UNKNOWN_UID, **manifest.raw["metadata"]}
    owner = SpeculativeDeployment(metadata=metadata, spec=spec)
    builds = (pod_template, worker_template) if spec.template.multi_node else (pod_template,)
    made = [build(owner, spec, arm.engine, arm.role, benchmark=False) for build in builds]
    titles = _titles(manifest, spec, arm)
    return "---\n".join(title + _yaml(template) for title, template in zip(titles, made, strict=True))


def command_text(manifest: Manifest, spec: DeploymentSpec, arm: Arm) -> str:
    """The command line of each kind of pod, quoted for a shell (the operator itself uses none)."""
    lines = (arm.engine.args, arm.engine.worker_args) if spec.template.multi_node else (arm.engine.args,)
    titles = _titles(manifest, spec, arm)
    return "".join(f"{title}vllm serve {shlex.join(line)}\n" for title, line in zip(titles, lines, strict=True))


def fingerprint_text(manifest: Manifest, _spec: DeploymentSpec, arm: Arm) -> str:
    """The requested fingerprint and everything that it was made of, as one YAML document."""
    document = {"fingerprint": arm.engine.fingerprint, "inputs": dict(arm.engine.fingerprint_inputs)}
    return f"# {manifest.name}: {_title(arm)}\n" + _yaml(document)


def read_config_maps(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """ConfigMaps written out as folders: NAME/KEY holds a value. Raises OSError."""
    return {
        one.name: {file.name: file.read_text(encoding="utf-8") for file in sorted(one.iterdir()) if file.is_file()}
        for one in sorted(folder.iterdir())
        if one.is_dir()
    }


def _titles(manifest: Manifest, spec: DeploymentSpec, arm: Arm) -> list[str]:
    """A line of comment for each kind of pod that an engine has."""
    start, nodes = f"# {manifest.name}: {_title(arm)}", spec.template.multi_node
    if nodes is None:
        return [f"{start}\n"]
    others = "the other pod" if nodes.size == 2 else f"each of the other {nodes.size - 1} pods"
    return [f"{start}, the leader of {nodes.size} pods\n", f"{start}, {others}\n"]


def _title(arm: Arm) -> str:
    note = ", unverified" if arm.engine.unverified else ""
    return f"{arm.role.value} ({arm.engine.proposer_label}{note}), fingerprint {arm.engine.fingerprint}"


def _yaml(value: object) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)
    return text
