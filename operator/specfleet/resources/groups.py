"""LeaderWorkerSets of the arms whose engines span nodes: every replica is a group of pods that start and end together.

Only leaders carry the role `serving` or `benchmark`; the other pods have a role of their own. So the Services, the
PodMonitor and the scale selector, which choose by role, choose leaders, beside the pods of Deployments during a change.
"""

from specfleet.api import labels, names
from specfleet.api.base import RawObject
from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.api.status import ArmRole
from specfleet.engine.arguments import EngineArm
from specfleet.resources.identity import BUILDER, ArmIdentity, builder_of, identity, rolling
from specfleet.resources.metadata import child, pod_labels
from specfleet.resources.pods import QUEUE, pod_metadata, pod_spec, worker_container

API_VERSION = "leaderworkerset.x-k8s.io/v1"
KIND = "LeaderWorkerSet"
EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
SET_NAME = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
"""Labels that LeaderWorkerSet gives to pods."""


def worker_template(
    owner: SpeculativeDeployment, spec: DeploymentSpec, engine: EngineArm, role: ArmRole, benchmark: bool
) -> RawObject:
    """core/v1 PodTemplateSpec of the pods of an engine that are not its leader."""
    own = {**pod_labels(owner, role, engine.fingerprint, benchmark), labels.ROLE: labels.ROLE_WORKER}
    return {
        "metadata": pod_metadata(spec.template, own),
        "spec": pod_spec(spec, worker_container(spec, engine, benchmark)),
    }


def arm_group_set(
    owner: SpeculativeDeployment,
    spec: DeploymentSpec,
    engine: EngineArm,
    arm: ArmIdentity,
    replicas: int,
    leader: RawObject,
    kept: RawObject | None = None,
) -> RawObject:
    """leaderworkerset.x-k8s.io/v1 LeaderWorkerSet of an arm with that leader's pod template.

    `kept`: the one in the cluster, of another builder version, whose templates stay.

    Raises ValueError for a spec whose engines do not span nodes.
    """
    nodes = spec.template.multi_node
    if nodes is None:
        raise ValueError("this spec has no template.multiNode")
    group: RawObject = {
        "size": nodes.size,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": leader,
        "workerTemplate": worker_template(owner, spec, engine, arm.role, arm.benchmark),
    }
    if kept is not None:
        group = kept["spec"]["leaderWorkerTemplate"]
    name = names.group_set(owner.name, arm.fingerprint, arm.benchmark)
    made = _group_set(owner, name, arm, replicas, group, builder_of(kept))
    if nodes.exclusive_topology_key:
        made["metadata"]["annotations"][EXCLUSIVE] = nodes.exclusive_topology_key
    if spec.template.kueue_queue_name:
        made["metadata"]["labels"][QUEUE] = spec.template.kueue_queue_name
    return made


def leader_template(live: RawObject) -> RawObject:
    """The pod template of a LeaderWorkerSet's leaders, {} where it has none."""
    return live["spec"].get("leaderWorkerTemplate", {}).get("leaderTemplate") or {}


def read_group_set(live: RawObject) -> ArmIdentity | None:
    """Which arm a LeaderWorkerSet is, None when it is none of ours: read from the leader's labels."""
    return identity(leader_template(live).get("metadata", {}).get("labels", {}))


def rescaled_group_set(owner: SpeculativeDeployment, live: RawObject, replicas: int) -> RawObject | None:
    """The LeaderWorkerSet of an earlier spec with other replicas: its templates are taken from itself. None: no arm."""
    arm = read_group_set(live)
    if arm is None:
        return None
    name, group = live["metadata"]["name"], live["spec"]["leaderWorkerTemplate"]
    made = _group_set(owner, name, arm, replicas, group, builder_of(live))
    # Applied without them, server-side apply would take them away, and with them the queue and the placement.
    for field, key in (("annotations", EXCLUSIVE), ("labels", QUEUE)):
        if key in live["metadata"].get(field, {}):
            made["metadata"][field][key] = live["metadata"][field][key]
    return made


def _group_set(
    owner: SpeculativeDeployment, name: str, arm: ArmIdentity, replicas: int, group: RawObject, version: str
) -> RawObject:
    own = pod_labels(owner, arm.role, arm.fingerprint, arm.benchmark)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": child(owner, name, own, {BUILDER: version}),
        "spec": {
            "replicas": replicas,
            # Before the leader is ready its ranks wait for those of the others.
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": rolling(owner)},
            "leaderWorkerTemplate": group,
        },
    }
