"""CRD manifests of both kinds, from the pydantic models: `python -m specfleet.api.crd write|check DIR`.

Pydantic's JSON schema is turned into a structural one (apiextensions.k8s.io/v1): references inlined, nulls dropped,
const and exclusive bounds respelled, defaults stripped. A default in a schema rewrites the user's object at admission,
which GitOps tools report as drift; the models apply defaults when they read instead. structural.py checks the result.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from specfleet.api import deployment, evidence
from specfleet.api.base import GROUP, VERSION, RawObject
from specfleet.api.structural import lint

KEEP_DEFAULT = "x-specfleet-keep-default"
"""Marks a field whose default has to be in the object: spec.replicas, because the scale subresource reads it there."""
RAW_ITEMS = "x-specfleet-raw-items"
"""Marks a list of Kubernetes fragments that are passed through as the ecosystem writes them."""

_DROPPED = frozenset({"title", "propertyNames", "discriminator", KEEP_DEFAULT, RAW_ITEMS, "$defs"})
_RAW: RawObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_HEADER = "# Generated from operator/specfleet/api by `make crds`; do not edit.\n"

_DEPLOYMENT_COLUMNS = (
    ("Phase", "string", ".status.phase", 0, "Phase of the present revision"),
    ("Arm", "string", ".status.servingArm", 0, "Which arm serves: baseline or speculative"),
    ("Speculative%", "integer", ".status.weightPercent", 0, "Share of the traffic that the speculative arm gets"),
    ("Proposer", "string", '.status.arms[?(@.role=="speculative")].proposer', 0, "Proposer that runs"),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0, "A proven arm serves at full capacity"),
    ("Why", "string", '.status.conditions[?(@.type=="Ready")].reason', 0, "Why it is ready, or not"),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Age"),
    ("Message", "string", '.status.conditions[?(@.type=="Ready")].message', 1, "The same in words"),
    ("Reason", "string", ".status.phaseReason", 1, "Why the phase is what it is"),
    ("Candidate", "string", ".status.candidate", 1, "Fingerprint of the proposer under trial"),
    ("Model", "string", ".spec.model.name", 1, "Target model"),
)
_EVIDENCE_COLUMNS = (
    ("Deployment", "string", ".spec.deployment", 0, "SpeculativeDeployment that was measured"),
    ("Purpose", "string", ".spec.purpose", 0, "Qualify, Confirm, Suspicion or Capacity"),
    ("Unit", "string", ".spec.unit", 0, "The pair, or one arm's half of it"),
    ("Proposer", "string", ".spec.proposer", 0, "Proposer that was measured"),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Age"),
    ("Error", "string", ".spec.error", 1, "Why the pair has no result"),
)


def crds() -> dict[str, RawObject]:
    """Both CRD manifests by file name."""
    return {
        f"{GROUP}_{deployment.PLURAL}.yaml": _crd(
            deployment.SpeculativeDeployment,
            deployment.KIND,
            deployment.PLURAL,
            deployment.SHORT,
            _DEPLOYMENT_COLUMNS,
            subresources={
                "status": {},
                "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                },
            },
        ),
        f"{GROUP}_{evidence.PLURAL}.yaml": _crd(
            evidence.SpeculativeBenchmark, evidence.KIND, evidence.PLURAL, evidence.SHORT, _EVIDENCE_COLUMNS
        ),
    }


def structural_schema(model: type[BaseModel]) -> RawObject:
    """The structural schema of a model; keys in the order of the fields."""
    schema = model.model_json_schema(by_alias=True)
    return _structural(schema, schema.get("$defs", {}))


def render(manifest: RawObject) -> str:
    """YAML text of a manifest, the same on every machine."""
    return _HEADER + yaml.safe_dump(manifest, sort_keys=False, width=120, allow_unicode=True)


def write(directory: Path) -> None:
    """Write the CRD files."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, manifest in crds().items():
        (directory / name).write_text(render(manifest))


def differences(directory: Path) -> list[str]:
    """What `check` complains about: lint findings, and files that are not what the models say."""
    found = []
    for name, manifest in crds().items():
        found += [f"{name}: {finding}" for finding in lint(_schema_of(manifest))]
        path = directory / name
        if not path.exists() or path.read_text() != render(manifest):
            found.append(f"{path} is not what the models say: run `make crds`")
    return found


def _crd(
    model: type[BaseModel],
    kind: str,
    plural: str,
    short: str,
    columns: tuple[tuple[str, str, str, int, str], ...],
    subresources: RawObject | None = None,
) -> RawObject:
    schema = structural_schema(model)
    schema["properties"]["apiVersion"] = {"type": "string"}
    schema["properties"]["kind"] = {"type": "string"}
    schema["properties"]["metadata"] = {"type": "object"}
    schema["required"] = ["spec"]
    version: RawObject = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(*column) for column in columns],
        "schema": {"openAPIV3Schema": schema},
    }
    if subresources is not None:
        version["subresources"] = subresources
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {"app.kubernetes.io/part-of": "specfleet"}},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["specfleet"],
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def _column(name: str, type_: str, path: str, priority: int, description: str) -> RawObject:
    column: RawObject = {"name": name, "type": type_, "jsonPath": path, "description": description}
    if priority:
        column["priority"] = priority
    return column


def _schema_of(manifest: RawObject) -> RawObject:
    schema: RawObject = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _structural(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> RawObject:
    merged = _resolved(node, definitions)
    result: RawObject = {}
    for key, value in merged.items():
        if key in _DROPPED:
            continue
        if key == "default":
            if merged.get(KEEP_DEFAULT):
                result[key] = value
        elif key == "const":
            result["enum"] = [value]
        elif key in ("exclusiveMinimum", "exclusiveMaximum"):
            # apiextensions knows the draft-4 form only: a bound, and whether it is exclusive.
            result[key.replace("exclusiveM", "m")] = value
            result[key] = True
        elif key == "properties":
            result[key] = {name: _structural(one, definitions) for name, one in value.items()}
        elif key == "items":
            result[key] = dict(_RAW) if merged.get(RAW_ITEMS) else _structural(value, definitions)
        elif key == "additionalProperties" and "propertyNames" in merged:
            keys = _resolved(merged["propertyNames"], definitions)["enum"]
            result["properties"] = {name: _structural(value, definitions) for name in keys}
        elif key == "additionalProperties":
            result |= _additional(value, definitions)
        elif key == "description":
            result[key] = " ".join(str(value).split())
        else:
            result[key] = value
    return result


def _additional(value: Any, definitions: Mapping[str, Any]) -> RawObject:
    """A map of typed values stays one; an open object keeps unknown fields; a closed one needs no word (pruning)."""
    if isinstance(value, Mapping) and value:
        return {"additionalProperties": _structural(value, definitions)}
    return {} if value is False else {"x-kubernetes-preserve-unknown-fields": True}


def _resolved(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> RawObject:
    """The node with its reference inlined and `T | None` reduced to T; what stands beside a reference wins."""
    if "$ref" in node:
        target = definitions[str(node["$ref"]).removeprefix("#/$defs/")]
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return _resolved({**target, **beside}, definitions)
    for union in ("anyOf", "allOf"):
        if union in node:
            options = [one for one in node[union] if one.get("type") != "null"]
            if len(options) != 1:
                raise ValueError(f"a union of {len(options)} types has no structural form: {node}")
            beside = {key: value for key, value in node.items() if key != union}
            return _resolved({**options[0], **beside}, definitions)
    return dict(node)


def main(arguments: list[str]) -> int:
    """Run `write DIR` or `check DIR`. Exit code 1: the files differ or the schema is not structural."""
    if len(arguments) < 2 or arguments[0] not in ("write", "check"):
        print("usage: python -m specfleet.api.crd write|check DIR...", file=sys.stderr)
        return 2
    found: list[str] = []
    for directory in map(Path, arguments[1:]):
        if arguments[0] == "write":
            write(directory)
        found += differences(directory)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
