"""Which GPU each engine pod has, by the labels of its node: part of the observed fingerprint, which no spec says.

A node is read once for each pod that becomes ready on it, at most every hour: on a new node a pod may come before the
label by which the device names itself. Without the right to read nodes (an operator of single namespaces) the type
stays unknown.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.controller.pods import condition
from specfleet.kube import kinds
from specfleet.kube.cache import Cache, Key
from specfleet.kube.port import KubeApi, KubeError, NotFoundError

NODE_SECONDS = 3600.0
REFUSED_SECONDS = 600.0
"""After a node without such a label; and after a refusal or none at all, for all nodes: nothing else waits for them."""
ENGINE_ROLES = (labels.ROLE_SERVING, labels.ROLE_BENCHMARK, labels.ROLE_WORKER)
NODE_LABELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "gpu.intel.com/product",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
)
"""In this order: what the device's own discovery says comes before what a cloud calls it."""


@dataclass
class GpuTypes:
    """By pod UID; a pod stays on its node for life."""

    by_pod: dict[str, str] = field(default_factory=dict)
    _nodes: dict[str, tuple[float, str | None]] = field(default_factory=dict)
    _refused: float = float("-inf")

    async def look(self, key: Key, cache: Cache, api: KubeApi) -> None:
        """Read the nodes of engine pods that are new. Never raises: what is not known is left out."""
        for pod in cache.children(key, kinds.POD):
            uid, node = pod["metadata"]["uid"], pod.get("spec", {}).get("nodeName")
            role = pod["metadata"].get("labels", {}).get(labels.ROLE)
            if (
                node is None
                or uid in self.by_pod
                or role not in ENGINE_ROLES
                or condition(pod, "Ready").get("status") != "True"
            ):
                continue
            found = await self._of_node(str(node), api)
            if found is not None:
                self.by_pod[uid] = found

    def keep_only(self, uids: set[str]) -> None:
        """Forget pods that are gone, and nodes that would be read again."""
        self.by_pod = {uid: found for uid, found in self.by_pod.items() if uid in uids}
        now = time.monotonic()
        self._nodes = {node: seen for node, seen in self._nodes.items() if now - seen[0] < NODE_SECONDS}

    async def _of_node(self, node: str, api: KubeApi) -> str | None:
        read, known = self._nodes.get(node, (float("-inf"), None))
        now = time.monotonic()
        fresh = now - read < (NODE_SECONDS if known is not None else REFUSED_SECONDS)
        if fresh or now - self._refused < REFUSED_SECONDS:
            return known
        try:
            found = gpu_of(await api.get(kinds.NODE, None, node))
        except NotFoundError:
            found = None
        except KubeError:
            self._refused = time.monotonic()
            return None
        self._nodes[node] = (time.monotonic(), found)
        return found


def gpu_of(node: RawObject) -> str | None:
    """The GPU that a node's labels name, None where none does."""
    own: Mapping[str, str] = node["metadata"].get("labels") or {}
    return next((own[name] for name in NODE_LABELS if own.get(name)), None)
