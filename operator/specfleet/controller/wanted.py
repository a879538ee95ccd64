"""From a spec to the arms that it asks for, with what the engine rules say about each."""

from collections.abc import Mapping

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.speculation import Proposer
from specfleet.api.status import ArmRole
from specfleet.controller.prompt_source import missing_config_map, prompt_findings
from specfleet.decide.observation import WantedArm
from specfleet.engine.arguments import EngineArm, build_arm, fairness
from specfleet.engine.cluster_parts import missing_parts
from specfleet.engine.environment import ConfigMaps
from specfleet.engine.findings import Finding, Severity
from specfleet.engine.pod_inputs import required_config_maps
from specfleet.engine.preflight import model_key, preflight_key
from specfleet.engine.rules import check, check_proposer


class WantedArms:
    """The plain arm and the proposers' arms of one spec, built once per generation."""

    def __init__(
        self,
        spec: DeploymentSpec,
        config_maps: ConfigMaps,
        absent: Mapping[str, str] | None = None,
        groups: frozenset[str] | None = None,
    ) -> None:
        """`absent`: ConfigMap that was looked for -> why it cannot be read; `groups`: API groups of the cluster.
        None: nobody looked (offline)."""
        self.engines: dict[str, EngineArm] = {}
        self.config_maps = config_maps
        self.preflight_key = preflight_key(spec)
        self.model_key = model_key(spec)
        proposers = spec.speculation.proposers() if spec.speculation else ()
        per_proposer = [check_proposer(spec, proposer) for proposer in proposers]
        shared = [one for one in check(spec) if not any(one in findings for findings in per_proposer)]
        plain = build_arm(spec, None, config_maps)
        self.baseline = self._arm(
            ArmRole.BASELINE, None, plain, [*shared, *missing_parts(spec, groups), *_missing(spec, absent or {})]
        )
        prompts = prompt_findings(spec, config_maps, absent or {})
        arms: dict[str, WantedArm] = {}
        for proposer, findings in zip(proposers, per_proposer, strict=True):
            engine = build_arm(spec, proposer, config_maps)
            unfair = fairness(plain, engine)
            listed = [*findings, *([_unfair(unfair)] if unfair else []), *prompts]
            arm = self._arm(ArmRole.SPECULATIVE, proposer, engine, listed)
            arms.setdefault(arm.fingerprint, arm)
        self.proposers = tuple(arms.values())

    def _arm(self, role: ArmRole, proposer: Proposer | None, engine: EngineArm, findings: list[Finding]) -> WantedArm:
        self.engines[engine.fingerprint] = engine
        return WantedArm(
            role=role,
            fingerprint=engine.fingerprint,
            proposer=proposer,
            label=engine.proposer_label,
            unverified=engine.unverified,
            refusals=tuple(one for one in findings if one.severity is Severity.REFUSE),
            warnings=tuple(one for one in findings if one.severity is Severity.WARN),
            fingerprint_inputs=engine.fingerprint_inputs,
        )


def _missing(spec: DeploymentSpec, absent: Mapping[str, str]) -> list[Finding]:
    """No pod starts without them, and what they would say is part of the fingerprint: nothing new is begun."""
    needed = required_config_maps(spec.template, tuple(spec.engine.env))
    return [missing_config_map(path, name, absent[name]) for name, path in needed.items() if name in absent]


def _unfair(difference: str) -> Finding:
    return Finding(
        "UnfairComparison",
        Severity.REFUSE,
        "spec.speculation",
        "UnfairComparison",
        f"the arms would differ in more than the proposer: {difference}",
        "Set it for both arms",
        "specfleet",
    )
