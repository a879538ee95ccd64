"""What a spec needs the cluster to have. Only a running operator knows; lint says that it has not looked."""

from collections.abc import Callable
from dataclasses import dataclass

from specfleet.api.deployment import DeploymentSpec
from specfleet.engine.findings import Finding, Severity


@dataclass(frozen=True, slots=True)
class ClusterPart:
    """An API group behind a field."""

    name: str
    group: str
    field_path: str
    asked: Callable[[DeploymentSpec], bool]
    without: str
    """What would happen without it."""
    install: str


CLUSTER_PARTS = (
    ClusterPart(
        "Kueue",
        "kueue.x-k8s.io",
        "spec.template.kueueQueueName",
        lambda spec: spec.template.kueue_queue_name is not None,
        "the pods would start beside every queue and quota",
        "Install Kueue with its pod integration, or remove the field",
    ),
    ClusterPart(
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io",
        "spec.template.multiNode",
        lambda spec: spec.template.multi_node is not None,
        "nobody would make the pods of an engine that spans nodes",
        "Install LeaderWorkerSet 0.6 or newer, or use an engine that fits one node",
    ),
    ClusterPart(
        "DynamicResourceAllocation",
        "resource.k8s.io",
        "spec.template.resourceClaims",
        lambda spec: bool(spec.template.resource_claims),
        "the API server would drop the claims and the engine would find no device",
        "Use Kubernetes 1.34+ with a DRA driver for the devices, or ask for them in template.resources.limits",
    ),
)


def missing_parts(spec: DeploymentSpec, groups: frozenset[str] | None) -> list[Finding]:
    """Refusals for what the cluster does not have. `groups`: names of the API groups it serves; None: nobody knows."""
    if groups is None:
        return []
    return [
        Finding(
            f"{part.name}Missing",
            Severity.REFUSE,
            part.field_path,
            f"{part.name}Missing",
            f"this cluster does not serve {part.group}: {part.without}",
            part.install,
            "specfleet",
        )
        for part in CLUSTER_PARTS
        if part.asked(spec) and part.group not in groups
    ]
