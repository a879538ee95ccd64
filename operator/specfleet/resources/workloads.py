"""Deployments and Services of the arms."""

from dataclasses import dataclass

from specfleet.api import labels, names
from specfleet.api.base import RawObject
from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.api.status import ArmRole
from specfleet.engine.arguments import EngineArm
from specfleet.resources.metadata import base_labels, child, pod_labels
from specfleet.resources.pods import pod_template, selector

BUILDER = f"{labels.DEPLOYMENT.split('/', maxsplit=1)[0]}/builder"
BUILDER_VERSION = "2"
"""Raised when the pod template that is built for the same spec changes: running arms then keep the template they have,
so that an upgrade of the operator never restarts a fleet."""


@dataclass(frozen=True, slots=True)
class ArmIdentity:
    """Which arm a Deployment is."""

    role: ArmRole
    fingerprint: str
    benchmark: bool


def read_arm(live: RawObject) -> ArmIdentity | None:
    """Which arm a Deployment is, None when it is none of ours.

    Read from the immutable selector and from the pods' labels: the Deployment's own ones may have been edited by hand.
    """
    spec = live["spec"]
    chosen = spec.get("selector", {}).get("matchLabels", {})
    said = spec.get("template", {}).get("metadata", {}).get("labels", {}).get(labels.ARM)
    fingerprint, role = chosen.get(labels.FINGERPRINT), chosen.get(labels.ROLE)
    if not fingerprint or role not in (labels.ROLE_SERVING, labels.ROLE_BENCHMARK) or said not in list(ArmRole):
        return None
    return ArmIdentity(ArmRole(said), fingerprint, role == labels.ROLE_BENCHMARK)


def arm_deployment(
    owner: SpeculativeDeployment,
    spec: DeploymentSpec,
    engine: EngineArm,
    role: ArmRole,
    replicas: int,
    benchmark: bool = False,
    live: RawObject | None = None,
) -> RawObject:
    """apps/v1 Deployment of an arm. `live` of another builder version keeps its own pod template."""
    template = pod_template(owner, spec, engine, role, benchmark)
    version = BUILDER_VERSION
    if live is not None:
        version = live["metadata"].get("annotations", {}).get(BUILDER, BUILDER_VERSION)
        if version != BUILDER_VERSION:
            template = live["spec"]["template"]
    name = names.arm(owner.name, engine.fingerprint, benchmark)
    return _deployment(owner, name, engine.fingerprint, role, replicas, benchmark, template, version)


def rescaled(owner: SpeculativeDeployment, live: RawObject, replicas: int) -> RawObject | None:
    """The Deployment of an earlier spec with other replicas: its template is taken from itself. None: not an arm."""
    arm = read_arm(live)
    if arm is None:
        return None
    annotations = live["metadata"].get("annotations", {})
    return _deployment(
        owner,
        live["metadata"]["name"],
        arm.fingerprint,
        arm.role,
        replicas,
        arm.benchmark,
        live["spec"]["template"],
        annotations.get(BUILDER, BUILDER_VERSION),
    )


def _deployment(
    owner: SpeculativeDeployment,
    name: str,
    fingerprint: str,
    role: ArmRole,
    replicas: int,
    benchmark: bool,
    template: RawObject,
    version: str,
) -> RawObject:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": child(owner, name, pod_labels(owner, role, fingerprint, benchmark), {BUILDER: version}),
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 0,
            "progressDeadlineSeconds": 2147483647,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": _rolling(owner)},
            "selector": {"matchLabels": selector(owner, role, fingerprint, benchmark)},
            "template": template,
        },
    }


def _rolling(owner: SpeculativeDeployment) -> RawObject:
    """For changes of the template that no engine notices (a toleration): in place, and with one replica not at the cost
    of the only pod, where a spare one is declared."""
    if owner.spec.capacity.max_extra_replicas > 0:
        return {"maxSurge": 1, "maxUnavailable": 0}
    return {"maxSurge": 0, "maxUnavailable": max(1, owner.spec.rollout.max_unavailable)}


def arm_service(owner: SpeculativeDeployment, spec: DeploymentSpec, role: ArmRole, fingerprint: str) -> RawObject:
    """core/v1 Service of one serving arm; the route's backend."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child(
            owner,
            names.arm(owner.name, fingerprint),
            {labels.ARM: role.value, labels.FINGERPRINT: fingerprint, labels.ROLE: labels.ROLE_SERVING},
        ),
        "spec": {"selector": selector(owner, role, fingerprint, benchmark=False), "ports": [_port(spec)]},
    }


def shared_service(owner: SpeculativeDeployment, spec: DeploymentSpec) -> RawObject:
    """core/v1 Service over all serving pods: for clients without a gateway; the replica ratio is the traffic ratio."""
    chosen = {**base_labels(owner), labels.ROLE: labels.ROLE_SERVING}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child(owner, names.service(owner.name)),
        "spec": {"selector": chosen, "ports": [_port(spec)]},
    }


def _port(spec: DeploymentSpec) -> RawObject:
    return {"name": "http", "protocol": "TCP", "port": spec.engine.port, "targetPort": "http"}
