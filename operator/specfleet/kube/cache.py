"""Objects as last seen by the watches. An index is never trusted for absence: before acting, the API server is asked.

Kopf does not report an object that was deleted in a watch gap (seen on 1.45), so the cache is compared with a full list
from time to time, and every reconcile that wants to act reads its objects anew (controller/reconcile.py).
"""

from collections import defaultdict
from collections.abc import Iterable

from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.kube.kinds import Kind

Key = tuple[str, str]
"""(namespace, name of the SpeculativeDeployment)."""


class Cache:
    """Children by deployment and kind, and the SpeculativeDeployments themselves. Single-threaded (one event loop)."""

    def __init__(self) -> None:
        self.deployments: dict[Key, RawObject] = {}
        self._children: dict[Key, dict[tuple[str, str], RawObject]] = defaultdict(dict)

    def put_deployment(self, body: RawObject) -> Key:
        """Remember a SpeculativeDeployment."""
        key = (body["metadata"]["namespace"], body["metadata"]["name"])
        if _newer(body, self.deployments.get(key)):
            self.deployments[key] = body
        return key

    def drop_deployment(self, key: Key) -> None:
        """Forget a SpeculativeDeployment and its children."""
        self.deployments.pop(key, None)
        self._children.pop(key, None)

    def put(self, kind: Kind, body: RawObject) -> Key | None:
        """Remember a child; the key of its deployment, or None when it is not one of ours."""
        key = owner_key(body)
        if key is not None:
            slot = (kind.kind, body["metadata"]["name"])
            if _newer(body, self._children[key].get(slot)):
                self._children[key][slot] = body
        return key

    def drop(self, kind: Kind, body: RawObject) -> Key | None:
        """Forget a child."""
        key = owner_key(body)
        if key is not None:
            self._children.get(key, {}).pop((kind.kind, body["metadata"]["name"]), None)
        return key

    def children(self, key: Key, kind: Kind) -> list[RawObject]:
        """Children of a deployment, by name."""
        found = self._children.get(key, {})
        return [body for (name, _), body in sorted(found.items(), key=lambda item: item[0]) if name == kind.kind]

    def replace_children(self, key: Key, kind: Kind, bodies: Iterable[RawObject]) -> bool:
        """What a full list says; True when the cache differed."""
        fresh = {(kind.kind, body["metadata"]["name"]): body for body in bodies}
        slots = self._children[key]
        before = {slot: body for slot, body in slots.items() if slot[0] == kind.kind}
        for slot in before:
            if slot not in fresh:
                del slots[slot]
        slots.update(fresh)
        return _versions(before) != _versions(fresh)

    def known(self) -> list[Key]:
        """All deployments, in a stable order."""
        return sorted(self.deployments)


def owner_key(body: RawObject) -> Key | None:
    """The SpeculativeDeployment that owns a child: by owner reference, for pods and Job pods by label."""
    metadata = body["metadata"]
    for reference in metadata.get("ownerReferences", []):
        if reference.get("kind") == "SpeculativeDeployment":
            return (metadata["namespace"], reference["name"])
    name = metadata.get("labels", {}).get(labels.DEPLOYMENT)
    return (metadata["namespace"], name) if name else None


def _newer(body: RawObject, known: RawObject | None) -> bool:
    """Whether a body may replace the known one: an older watch event must not undo what a write answered."""
    if known is None or known["metadata"].get("uid") != body["metadata"].get("uid"):
        return True
    try:
        return int(body["metadata"]["resourceVersion"]) >= int(known["metadata"]["resourceVersion"])
    except (KeyError, ValueError):
        return True


def _versions(bodies: dict[tuple[str, str], RawObject]) -> dict[tuple[str, str], str]:
    return {slot: body["metadata"].get("resourceVersion", "") for slot, body in bodies.items()}
