"""Kinds that specfleet reads or writes."""

from dataclasses import dataclass

from specfleet.api import base, deployment, evidence


@dataclass(frozen=True, slots=True)
class Kind:
    """One namespaced resource of the API."""

    api_version: str
    kind: str
    plural: str
    optional: bool = False
    """Served only where its CRD is installed."""

    @property
    def root(self) -> str:
        """URL path of the group and version."""
        return f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """URL path of a collection, an object or its subresource."""
        parts = [self.root]
        if namespace is not None:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part is not None]
        return "/".join(parts)


SPECULATIVE_DEPLOYMENT = Kind(base.API_VERSION, deployment.KIND, deployment.PLURAL)
SPECULATIVE_BENCHMARK = Kind(base.API_VERSION, evidence.KIND, evidence.PLURAL)
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
CONTROLLER_REVISION = Kind("apps/v1", "ControllerRevision", "controllerrevisions")
POD = Kind("v1", "Pod", "pods")
SERVICE = Kind("v1", "Service", "services")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
JOB = Kind("batch/v1", "Job", "jobs")
EVENT = Kind("v1", "Event", "events")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
HTTP_ROUTE = Kind("gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes", optional=True)
POD_MONITOR = Kind("monitoring.coreos.com/v1", "PodMonitor", "podmonitors", optional=True)
NODE = Kind("v1", "Node", "nodes")
"""Read by name alone, for the GPU that its labels name; belongs to no namespace."""
LEADER_WORKER_SET = Kind("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets", optional=True)

WATCHED = (
    SPECULATIVE_BENCHMARK,
    DEPLOYMENT,
    LEADER_WORKER_SET,
    CONTROLLER_REVISION,
    POD,
    SERVICE,
    CONFIG_MAP,
    JOB,
    HTTP_ROUTE,
    POD_MONITOR,
)
"""Children: watched by label, cached, and reconciled as a set."""

ARMS = (DEPLOYMENT, LEADER_WORKER_SET)
"""What the pods of an arm are made by: the second where its engines span nodes."""

BY_NAME = {(kind.api_version, kind.kind): kind for kind in (*WATCHED, SPECULATIVE_DEPLOYMENT, EVENT, LEASE)}


def kind_of(manifest: dict[str, object]) -> Kind:
    """The Kind of a manifest. Raises KeyError for one that specfleet does not know."""
    return BY_NAME[(str(manifest["apiVersion"]), str(manifest["kind"]))]
