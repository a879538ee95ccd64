"""A workload as specfleet has applied it: without what others have set in the templates of its pods.

The templates of an arm of another builder or of an earlier spec are applied again as they stand in the cluster. Whole,
that would make what others have added ours: it would no longer be told, and stay when they take it back.
"""

import json
from collections.abc import Iterable

from specfleet.api.base import FIELD_MANAGER, RawObject

TEMPLATES = ("template", "leaderWorkerTemplate")
"""Where the pods stand in the spec of a Deployment and of a LeaderWorkerSet."""


def as_applied(live: RawObject) -> RawObject:
    """A copy whose pod templates hold only the fields that are ours by metadata.managedFields.

    A field that somebody else has changed is theirs alone from then on. Of a workload that names nothing of ours in its
    templates (restored from a backup) everything stays. Source: FieldsV1 of the Kubernetes API (server-side apply).
    """
    entries = [one for one in live["metadata"].get("managedFields") or [] if not one.get("subresource")]
    spec = dict(live["spec"])
    for name in TEMPLATES:
        trees = [_step(_step(one.get("fieldsV1") or {}, "f:spec"), f"f:{name}") for one in entries]
        told = list(zip(entries, trees, strict=True))
        own = [tree for one, tree in told if one.get("manager") == FIELD_MANAGER and tree]
        if name in spec and own:
            spec[name] = _held(spec[name], own, [tree for one, tree in told if one.get("manager") != FIELD_MANAGER])
    # Without them it cannot be taken for what stands in the cluster, and to ask twice changes nothing.
    metadata = {key: value for key, value in live["metadata"].items() if key != "managedFields"}
    return {**live, "metadata": metadata, "spec": spec}


def _held(value: object, own: list[RawObject], others: list[RawObject]) -> object:
    """What of a value those trees of fields hold; one without fields below it holds the value as a whole."""
    keys = {key for tree in own for key in tree if key != "."}
    if not keys:
        # Set by us as an empty one (emptyDir: {}) and filled by others; a value that is one never has fields below it.
        filled = any(key != "." for tree in others for key in tree)
        return type(value)() if filled and isinstance(value, dict | list) else value
    if isinstance(value, dict):
        return {
            key: _held(inner, _below(own, f"f:{key}"), _below(others, f"f:{key}"))
            for key, inner in value.items()
            if f"f:{key}" in keys
        }
    if isinstance(value, list):
        named = ((item, _name(item, keys)) for item in value)
        return [_item(item, name, own, others) for item, name in named if name is not None]
    return value


def _item(item: object, name: str, own: list[RawObject], others: list[RawObject]) -> object:
    """One item of a list; the fields that tell it from the others are always part of it."""
    held = _held(item, _below(own, name), _below(others, name))
    return {**json.loads(name[2:]), **held} if isinstance(held, dict) else held


def _name(item: object, keys: Iterable[str]) -> str | None:
    """By which of those keys a list item is held: `k:{"name":"engine"}` or `v:"a value"`; None: by none."""
    for key in keys:
        kind, _, text = key.partition(":")
        said = json.loads(text) if kind in ("k", "v") else None
        if kind == "v" and said == item:
            return key
        if kind != "k" or not isinstance(said, dict) or not isinstance(item, dict):
            continue
        if all(item.get(name, one) == one for name, one in said.items()):
            return key
    return None


def _below(trees: list[RawObject], key: str) -> list[RawObject]:
    return [tree[key] for tree in trees if key in tree]


def _step(tree: RawObject, key: str) -> RawObject:
    return tree.get(key) or {}
