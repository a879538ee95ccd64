"""The workloads of the arms (Deployments; LeaderWorkerSets where engines span nodes) and their Services."""

from copy import deepcopy

from specfleet.api import labels, names
from specfleet.api.base import RawObject
from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.api.status import ArmRole
from specfleet.engine.arguments import EngineArm
from specfleet.resources import groups
from specfleet.resources.as_applied import as_applied
from specfleet.resources.identity import BUILDER, BUILDER_VERSION, ArmIdentity, builder_of, has_pods, identity, rolling
from specfleet.resources.metadata import base_labels, child, pod_labels
from specfleet.resources.pods import place, pod_template, selector


def read_arm(live: RawObject) -> ArmIdentity | None:
    """Which arm a Deployment or LeaderWorkerSet is, None when it is none of ours.

    Read from the immutable selector and from the pods' labels: the workload's own ones may have been edited by hand.
    """
    if live.get("kind") == groups.KIND:
        return groups.read_group_set(live)
    spec = live["spec"]
    told = spec.get("template", {}).get("metadata", {}).get("labels", {})
    return identity({labels.ARM: told.get(labels.ARM, ""), **spec.get("selector", {}).get("matchLabels", {})})


def arm_workload_name(owner: SpeculativeDeployment, kind: str, arm: ArmIdentity) -> str:
    """The name that an arm's Deployment or LeaderWorkerSet has."""
    name = names.group_set if kind == groups.KIND else names.arm
    return name(owner.name, arm.fingerprint, arm.benchmark)


def arm_workload(
    owner: SpeculativeDeployment,
    spec: DeploymentSpec,
    engine: EngineArm,
    role: ArmRole,
    replicas: int,
    benchmark: bool = False,
    live: RawObject | None = None,
    node: str | None = None,
) -> RawObject:
    """apps/v1 Deployment of an arm, or its LeaderWorkerSet where engines span nodes.

    `live` of another builder version keeps the pod template that was applied then. `node`: where a benchmark pod (a
    group's leader) should rather run. A workload that has pods keeps the placement it has: to change it would replace a
    pod under its runs.
    """
    arm = ArmIdentity(role, engine.fingerprint, benchmark)
    live = as_applied(live) if live is not None else None
    template = pod_template(owner, spec, engine, role, benchmark)
    running = _template_of(live) if benchmark and live is not None and has_pods(live) else None
    place(template, running, node)
    version = builder_of(live)
    kept = live if version != BUILDER_VERSION else None
    if spec.template.multi_node is not None:
        return groups.arm_group_set(owner, spec, engine, arm, replicas, template, kept)
    if kept is not None:
        template = _template_of(kept)
    return _deployment(owner, names.arm(owner.name, arm.fingerprint, benchmark), arm, replicas, template, version)


def _template_of(live: RawObject) -> RawObject:
    """The pod template of a workload; of a group, its leader's."""
    found: RawObject = groups.leader_template(live) if live.get("kind") == groups.KIND else live["spec"]["template"]
    return found


def moved(live: RawObject, spec: DeploymentSpec, node: str | None) -> RawObject:
    """The benchmark workload of an arm of that earlier spec, with its next pod where it should rather run.

    One that has pods stays as it is, as in arm_workload. From the spec: `live` may prefer the node of its last pod.
    """
    if has_pods(live):
        return live
    placed = deepcopy(as_applied(live))
    template = _template_of(placed)
    template["spec"]["affinity"] = spec.template.affinity
    place(template, None, node)
    return placed


def rescaled(owner: SpeculativeDeployment, live: RawObject, replicas: int) -> RawObject | None:
    """The workload of an earlier spec with other replicas and the template that was applied then. None: not an arm."""
    live = as_applied(live)
    if live.get("kind") == groups.KIND:
        return groups.rescaled_group_set(owner, live, replicas)
    arm = read_arm(live)
    if arm is None:
        return None
    return _deployment(owner, live["metadata"]["name"], arm, replicas, live["spec"]["template"], builder_of(live))


def _deployment(
    owner: SpeculativeDeployment, name: str, arm: ArmIdentity, replicas: int, template: RawObject, version: str
) -> RawObject:
    own = pod_labels(owner, arm.role, arm.fingerprint, arm.benchmark)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": child(owner, name, own, {BUILDER: version}),
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 0,
            "progressDeadlineSeconds": 2147483647,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling(owner)},
            "selector": {"matchLabels": selector(owner, arm.role, arm.fingerprint, arm.benchmark)},
            "template": template,
        },
    }


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
