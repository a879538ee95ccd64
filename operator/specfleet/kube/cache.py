"""Objects as last seen by the watches. An index is never trusted for absence: before acting, the API server is asked.

Kopf does not report an object that was deleted in a watch gap (seen on 1.45), so the cache is compared with a full list
from time to time, and every reconcile that wants to act reads its objects anew (controller/reconcile.py).

Watch events, answers to writes and lists arrive in any order. What is newer is told by the resourceVersion, which is a
number that grows over all objects of a kind (Kubernetes 1.35 documents what etcd always did), across namesakes too.
"""

from collections import defaultdict
from collections.abc import Iterable

from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.kube.kinds import Kind

Key = tuple[str, str]
"""(namespace, name of the SpeculativeDeployment)."""
Slot = tuple[str, str]
"""(kind, name) of a child."""
TOMBSTONES = 10_000
"""Deleted UIDs that are remembered, so that a list that was taken before the deletion does not bring them back."""


class Cache:
    """Children by deployment and kind, and the SpeculativeDeployments themselves. Single-threaded (one event loop)."""

    def __init__(self) -> None:
        self.deployments: dict[Key, RawObject] = {}
        self._children: dict[Key, dict[Slot, RawObject]] = defaultdict(dict)
        self._seen: dict[Key, dict[Slot, int]] = defaultdict(dict)
        self._deployments_seen: dict[Key, int] = {}
        self._gone: dict[str, None] = {}
        self._clock = 0

    def put_deployment(self, body: RawObject) -> Key:
        """Remember a SpeculativeDeployment."""
        key = (body["metadata"]["namespace"], body["metadata"]["name"])
        if self._fresh(body, self.deployments.get(key)):
            self._clock += 1
            self.deployments[key] = body
            self._deployments_seen[key] = self._clock
        return key

    def drop_deployment(self, key: Key) -> None:
        """Forget a SpeculativeDeployment and its children."""
        self.deployments.pop(key, None)
        self._deployments_seen.pop(key, None)
        self._children.pop(key, None)
        self._seen.pop(key, None)

    def delete_deployment(self, body: RawObject) -> Key | None:
        """A SpeculativeDeployment was deleted; its key, or None when a namesake has taken its place already."""
        key = (body["metadata"]["namespace"], body["metadata"]["name"])
        self._bury(body)
        known = self.deployments.get(key)
        if known is not None and known["metadata"].get("uid") != body["metadata"].get("uid"):
            return None
        self.drop_deployment(key)
        return key

    def put(self, kind: Kind, body: RawObject) -> Key | None:
        """Remember a child; the key of its deployment, or None when it is not one of ours."""
        key = owner_key(body)
        if key is not None:
            slot = (kind.kind, body["metadata"]["name"])
            if self._fresh(body, self._children.get(key, {}).get(slot)):
                self._store(key, slot, body)
        return key

    def drop(self, kind: Kind, body: RawObject) -> Key | None:
        """Forget a child, unless a namesake has taken its place."""
        key = owner_key(body)
        self._bury(body)
        if key is not None:
            slot = (kind.kind, body["metadata"]["name"])
            known = self._children.get(key, {}).get(slot)
            if known is not None and known["metadata"].get("uid") == body["metadata"].get("uid"):
                self._discard(key, slot)
            if not self._children.get(key):
                self._children.pop(key, None)
                self._seen.pop(key, None)
        return key

    def children(self, key: Key, kind: Kind) -> list[RawObject]:
        """Children of a deployment, by name."""
        found = self._children.get(key, {})
        return [body for (name, _), body in sorted(found.items(), key=lambda item: item[0]) if name == kind.kind]

    def mark(self) -> int:
        """The present moment, to be given to `replace_children` with a list that is asked for after it."""
        return self._clock

    def replace_children(self, key: Key, kind: Kind, bodies: Iterable[RawObject], since: int | None = None) -> bool:
        """What a full list says; True when the cache differed. What was seen after `since` is newer than the list."""
        fresh = {(kind.kind, body["metadata"]["name"]): body for body in bodies}
        slots, seen = self._children[key], self._seen[key]
        before = {slot: body for slot, body in slots.items() if slot[0] == kind.kind}
        for slot in before:
            if slot not in fresh and (since is None or seen.get(slot, 0) <= since):
                self._discard(key, slot)
        for slot, body in fresh.items():
            if self._fresh(body, slots.get(slot)):
                self._store(key, slot, body)
        return _versions(before) != _versions({slot: body for slot, body in slots.items() if slot[0] == kind.kind})

    def missing(self, listed: set[Key], since: int) -> list[Key]:
        """Deployments that a full list does not have and that were not seen since it was asked for."""
        return [key for key, seen in self._deployments_seen.items() if key not in listed and seen <= since]

    def uids(self) -> set[str]:
        """UIDs of everything that is cached."""
        bodies = [*self.deployments.values(), *(one for found in self._children.values() for one in found.values())]
        return {body["metadata"]["uid"] for body in bodies}

    def known(self) -> list[Key]:
        """All deployments, in a stable order."""
        return sorted(self.deployments)

    def _store(self, key: Key, slot: Slot, body: RawObject) -> None:
        self._clock += 1
        self._children[key][slot] = body
        self._seen[key][slot] = self._clock

    def _discard(self, key: Key, slot: Slot) -> None:
        del self._children[key][slot]
        self._seen[key].pop(slot, None)

    def _fresh(self, body: RawObject, known: RawObject | None) -> bool:
        """Whether a body may replace the known one: neither older than it nor deleted already."""
        if body["metadata"].get("uid") in self._gone:
            return False
        return known is None or _version(body) >= _version(known)

    def _bury(self, body: RawObject) -> None:
        uid = body["metadata"].get("uid")
        if uid is None:
            return
        self._gone[uid] = None
        if len(self._gone) > TOMBSTONES:
            del self._gone[next(iter(self._gone))]


def owner_key(body: RawObject) -> Key | None:
    """The SpeculativeDeployment that owns a child: by owner reference, for pods and Job pods by label."""
    metadata = body["metadata"]
    for reference in metadata.get("ownerReferences", []):
        if reference.get("kind") == "SpeculativeDeployment":
            return (metadata["namespace"], reference["name"])
    name = metadata.get("labels", {}).get(labels.DEPLOYMENT)
    return (metadata["namespace"], name) if name else None


def _version(body: RawObject) -> int:
    """The resourceVersion as a number; 0 when it is none, so that such a body never hides another one."""
    text = str(body["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0


def _versions(bodies: dict[Slot, RawObject]) -> dict[Slot, str]:
    return {slot: body["metadata"].get("resourceVersion", "") for slot, body in bodies.items()}
