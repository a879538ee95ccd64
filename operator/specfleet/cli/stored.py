"""Reads SpeculativeDeployments and their evidence, from files or from the cluster by kubectl."""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from specfleet.api import deployment as deployment_kind
from specfleet.api import evidence as evidence_kind
from specfleet.api.base import API_VERSION, GROUP
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import DecisionRecord
from specfleet.decide.units import pairs_of

JUDGE = "Judge"
"""DecisionRecord.action of a verdict; later actions name the same evidence with reasons of their own."""
_FORBIDDEN = re.compile(
    r'User "([^"]+)" cannot (\w+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)")?'
)
"""As kube-apiserver words a request that no role allows."""
Model = TypeVar("Model", SpeculativeDeployment, evidence_kind.SpeculativeBenchmark)


class UnusableInputError(Exception):
    """What was given cannot be read; the text says what to do."""


@dataclass(frozen=True, slots=True)
class StoredBenchmark:
    """All evidence of one benchmark, and the decision that was taken on it (None: none recorded any more)."""

    deployment: SpeculativeDeployment
    benchmark: str
    names: tuple[str, ...]
    evidence: tuple[BenchmarkEvidenceSpec, ...]
    decision: DecisionRecord | None

    @property
    def purpose(self) -> str:
        """Qualify, Confirm, Suspicion or Change."""
        return next((one.purpose for one in self.evidence if one.purpose != "Capacity"), "Capacity")

    @property
    def measured(self) -> tuple[BenchmarkEvidenceSpec, ...]:
        """Evidence that the verdict rests on."""
        return tuple(pairs_of(self.evidence))


def add_source(command: argparse.ArgumentParser) -> None:
    """Options that say where the objects are: files, or the cluster that kubectl talks to."""
    command.add_argument("-f", "--filename", action="append", default=[], help="YAML or JSON file instead of a cluster")
    command.add_argument("-n", "--namespace", help="namespace")
    command.add_argument("--kubeconfig", help="path of the kubeconfig that kubectl is to use")
    command.add_argument("--context", help="context of the kubeconfig")


def cluster_flags(options: argparse.Namespace) -> tuple[str, ...]:
    """The options of `add_source` as kubectl takes them."""
    given = (("--kubeconfig", options.kubeconfig), ("--context", options.context))
    return tuple(f"{flag}={value}" for flag, value in given if value)


def read_objects(files: Sequence[str], namespace: str | None, flags: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Objects of the given files (`-`: standard input); without files, those of the cluster."""
    if files:
        return [body for path in files for body in _from_file(path)]
    plural = f"{deployment_kind.PLURAL}.specfleet.dev,{evidence_kind.PLURAL}.specfleet.dev"
    return kubectl_get([plural], namespace, flags)


def where(files: Sequence[str], namespace: str | None) -> str:
    """Where `read_objects` looks, in words."""
    if files:
        return ", ".join(files)
    return f"namespace {namespace}" if namespace else "the current namespace (another one: -n)"


def _from_file(path: str) -> Iterator[dict[str, Any]]:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UnusableInputError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise UnusableInputError(f"{path} is neither YAML nor JSON: {error}") from error
    yield from _flatten(documents)


def kubectl_get(words: Sequence[str], namespace: str | None, flags: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Objects that `kubectl get WORDS` finds. Raises UnusableInputError with what kubectl said."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise UnusableInputError("kubectl is not on the PATH: give the objects as files with -f")
    place = ["--namespace", namespace] if namespace else []
    asked = [kubectl, *flags, "get", *words, *place, "-o", "json"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise UnusableInputError(_refusal(answer.stderr) or f"kubectl get {' '.join(words)}: {answer.stderr.strip()}")
    return list(_flatten([json.loads(answer.stdout)]))


def _refusal(said: str) -> str:
    """Which right is missing, and who gives it; "" when the API server refused something else."""
    found = _FORBIDDEN.search(said)
    if found is None:
        return ""
    user, verb, resource, group, namespace = found.groups()
    place = f"in namespace {namespace}" if namespace else "in all namespaces"
    return (
        f"{user} may not {verb} {resource}{f'.{group}' if group else ''} {place}: "
        f"the cluster role `view` may ({'a RoleBinding there' if namespace else 'a ClusterRoleBinding'} gives it)"
    )


def _flatten(documents: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for body in documents:
        if isinstance(body, list):
            yield from _flatten(body)
        elif isinstance(body, dict) and str(body.get("kind", "")).endswith("List"):
            yield from _flatten(body.get("items") or [])
        elif isinstance(body, dict):
            _check_kind(body)
            yield body


def _check_kind(body: dict[str, Any]) -> None:
    """Raises UnusableInputError for an object of our API whose kind is misspelt: it would be passed over in silence."""
    kinds = (deployment_kind.KIND, evidence_kind.KIND)
    if str(body.get("apiVersion", "")).partition("/")[0] == GROUP and body.get("kind") not in kinds:
        raise UnusableInputError(f"kind {body.get('kind')!r} is none of {API_VERSION}: write {' or '.join(kinds)}")


def deployments(objects: Iterable[dict[str, Any]]) -> list[SpeculativeDeployment]:
    """Every SpeculativeDeployment among the objects."""
    return [_valid(SpeculativeDeployment, body) for body in objects if body.get("kind") == deployment_kind.KIND]


def benchmarks(objects: Sequence[dict[str, Any]]) -> list[StoredBenchmark]:
    """Every benchmark of which evidence and its deployment are among the objects, oldest first."""
    owners = {(one.metadata.get("namespace"), one.name): one for one in deployments(objects)}
    grouped: dict[tuple[Any, str, str], list[tuple[str, BenchmarkEvidenceSpec]]] = {}
    for body in objects:
        if body.get("kind") != evidence_kind.KIND:
            continue
        one = _valid(evidence_kind.SpeculativeBenchmark, body).spec
        metadata = body["metadata"]
        key = (metadata.get("namespace"), one.deployment, one.benchmark)
        grouped.setdefault(key, []).append((str(metadata["name"]), one))
    found = []
    for (namespace, owner, benchmark), items in grouped.items():
        deployment = owners.get((namespace, owner))
        if deployment is None:
            raise UnusableInputError(
                f"SpeculativeDeployment {owner} is missing: a verdict depends on its spec; give it with -f too"
            )
        items.sort(key=lambda item: (item[1].pair, item[1].unit))
        names = tuple(name for name, _ in items)
        evidence = tuple(one for _, one in items)
        units = {f"-{one.benchmark}-{one.unit}" for one in evidence}
        found.append(StoredBenchmark(deployment, benchmark, names, evidence, _decision(deployment, units)))
    return sorted(found, key=lambda item: item.evidence[0].started)


def _decision(deployment: SpeculativeDeployment, units: set[str]) -> DecisionRecord | None:
    """The newest recorded judgement that rests on one of these units (names may be shortened in front)."""
    if deployment.status is None:
        return None
    records = [
        *deployment.status.history,
        *([deployment.status.last_decision] if deployment.status.last_decision else []),
    ]
    mine = [one for one in records if one.action == JUDGE and any(name.endswith(tuple(units)) for name in one.evidence)]
    return max(mine, key=lambda one: one.time, default=None)


def _valid(kind: type[Model], body: Any) -> Model:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        name = (body.get("metadata") or {}).get("name", "?")
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise UnusableInputError(f"{body.get('kind')} {name}: {where}: {problem['msg']}") from error
