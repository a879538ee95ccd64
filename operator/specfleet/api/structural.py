"""What makes a schema structural and its CEL rules safe: the checks the API server would make, and a few of our own."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_FORBIDDEN = frozenset(
    {"$ref", "$defs", "const", "title", "discriminator", "anyOf", "oneOf", "allOf", "not", "definitions", "id"}
)
_KNOWN = frozenset(
    {
        "type", "description", "properties", "required", "items", "additionalProperties", "enum", "default", "format",
        "pattern", "minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum",
        "exclusiveMaximum", "minProperties", "maxProperties", "nullable", "uniqueItems", "multipleOf",
        "x-kubernetes-validations", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string",
        "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
        "x-kubernetes-embedded-resource",
    }
)  # fmt: skip
_READS = re.compile(r"(?<![\w.])self\.(\w+)")
_ASKED = re.compile(r"has\(self\.(\w+)\)")


def lint(schema: Mapping[str, Any]) -> list[str]:
    """Findings as `path: what is wrong`; none for a schema the API server takes."""
    return [f"{path or '.'}: {finding}" for path, node in walk(schema) for finding in _node_findings(path, node)]


def walk(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every schema node with its field path."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    if isinstance(node.get("items"), Mapping):
        yield from walk(node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), Mapping):
        yield from walk(node["additionalProperties"], f"{path}.*")


def _node_findings(path: str, node: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(set(node) & _FORBIDDEN):
        yield f"{key} is not allowed in a structural schema"
    for key in sorted(set(node) - _FORBIDDEN - _KNOWN):
        yield f"{key} is not a keyword of apiextensions.k8s.io/v1"
    if not isinstance(node.get("type"), str) and not node.get("x-kubernetes-int-or-string"):
        yield "type is missing"
    if node.get("properties") and "additionalProperties" in node:
        yield "properties and additionalProperties exclude each other"
    if node.get("type") == "array" and "items" not in node:
        yield "an array needs items"
    if node.get("type") == "object" and path != ".metadata" and not _typed(node):
        yield "an object without properties loses everything: say x-kubernetes-preserve-unknown-fields"
    for bound in ("exclusiveMinimum", "exclusiveMaximum"):
        if bound in node and node[bound] is not True:
            yield f"{bound} must be the boolean form"
    for name in node.get("required", []):
        if name not in node.get("properties", {}):
            yield f"required field {name} has no schema"
    yield from _list_findings(node)
    yield from _rule_findings(node)


def _typed(node: Mapping[str, Any]) -> bool:
    return any(node.get(key) for key in ("properties", "additionalProperties", "x-kubernetes-preserve-unknown-fields"))


def _list_findings(node: Mapping[str, Any]) -> Iterator[str]:
    keys = node.get("x-kubernetes-list-map-keys", [])
    if (node.get("x-kubernetes-list-type") == "map") != bool(keys):
        yield "x-kubernetes-list-type: map and x-kubernetes-list-map-keys need each other"
    required = node.get("items", {}).get("required", []) if keys else []
    for key in keys:
        if key not in required:
            yield f"list key {key} must be required in the items"


def _rule_findings(node: Mapping[str, Any]) -> Iterator[str]:
    """A rule that reads an absent field ends in an evaluation error, which the user sees instead of the message."""
    required = set(node.get("required", []))
    properties = set(node.get("properties", {}))
    for entry in node.get("x-kubernetes-validations", []):
        rule = entry["rule"]
        if not entry.get("message"):
            yield f"rule {rule!r} has no message"
        if node.get("type") != "object" or "properties" not in node:
            continue
        for name in sorted(set(_READS.findall(rule)) - required - set(_ASKED.findall(rule))):
            known = "can be absent: guard it with has()" if name in properties else "does not exist"
            yield f"rule {rule!r} reads self.{name}, which {known}"
        field = entry.get("fieldPath", "").removeprefix(".").split(".")[0]
        if field and field not in properties:
            yield f"rule {rule!r} names the field {field}, which does not exist"
