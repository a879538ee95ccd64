"""What others have set in the pod template of an arm: by name an arm of its fingerprint, in fact something else.

Server-side apply puts back the fields that we set and leaves those that we do not. A node selector, a variable or a
side container that somebody patches into one arm's workload stays there, and its pods are compared as if they were
what the spec says. Webhooks that change pods, and values that the API server fills in, belong to nobody and do not
count; nor do annotations (kubectl rollout restart).
"""

import json
from collections.abc import Iterator

from specfleet.api.base import FIELD_MANAGER, RawObject
from specfleet.resources.groups import KIND as LEADER_WORKER_SET

SHOWN = 5
_POD_SPECS = {
    LEADER_WORKER_SET: (
        ("f:spec", "f:leaderWorkerTemplate", "f:leaderTemplate", "f:spec"),
        ("f:spec", "f:leaderWorkerTemplate", "f:workerTemplate", "f:spec"),
    ),
}
_POD_SPEC = (("f:spec", "f:template", "f:spec"),)


def foreign_fields(body: RawObject) -> str | None:
    """What others have added to the pods of an arm, in words; None: nothing."""
    entries = body["metadata"].get("managedFields") or []
    others = [one for one in entries if one.get("manager") != FIELD_MANAGER and not one.get("subresource")]
    if not others:
        return None
    own = {path for one in entries if one.get("manager") == FIELD_MANAGER for path in _paths(body, one)}
    found: dict[str, set[str]] = {}
    for one in others:
        # Who set the immutable selector has made the object (a restored backup) and holds every default with it.
        if "f:selector" in (one.get("fieldsV1") or {}).get("f:spec", {}):
            continue
        added = {_shown(path) for path in _paths(body, one) if path not in own}
        if added:
            found.setdefault(str(one.get("manager")), set()).update(added)
    if not found:
        return None
    said = "; ".join(f"{who} set {', '.join(sorted(paths)[:SHOWN])}" for who, paths in sorted(found.items()))
    return (
        f"{body['kind']} {body['metadata']['name']}: in its pods {said}: this arm is not what the spec says and is "
        "compared as if it were; take it back there, and put it into spec.template if both arms should have it"
    )


def _paths(body: RawObject, entry: RawObject) -> Iterator[tuple[str, ...]]:
    """Fields of the pods that an entry of managedFields owns (FieldsV1: nested keys, a leaf is empty)."""
    for prefix in _POD_SPECS.get(body["kind"], _POD_SPEC):
        tree = entry.get("fieldsV1") or {}
        for step in prefix:
            tree = tree.get(step) or {}
        yield from _leaves(tree, ())


def _leaves(tree: RawObject, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for key, inner in tree.items():
        # "." is the item itself, of which the fields below it are told.
        if key != ".":
            yield from _leaves(inner, (*path, key)) if inner else iter([(*path, key)])


def _shown(path: tuple[str, ...]) -> str:
    """As a person writes it, down to the list item that was added: containers[engine].env[FOO]."""
    said = ""
    for step in path:
        kind, _, rest = step.partition(":")
        if kind == "k":
            keys = json.loads(rest)
            said += f"[{keys.get('name', ', '.join(map(str, keys.values())))}]"
        elif kind == "v":
            said += f"[{rest}]"
        else:
            said += f".{rest}" if said else rest
    added = [mark for mark in ("env[", "volumes[", "volumeMounts[", "ports[") if mark in said]
    return said[: said.index("]", said.index(added[0])) + 1] if added else said
