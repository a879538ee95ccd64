"""The cluster as the demo and the scenarios reach it: addresses from e2e.cluster, objects through its API.

People's acts (apply, patch, delete) go through kubectl, as people do them. Looks, once a second for as long as a
scenario lasts, do not: a kubectl per look takes a third of a core, and on two cores the arms are measured on those.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import urllib3
from kubernetes.client.exceptions import ApiException
from kubernetes.config import new_client_from_config
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import DynamicApiError, NotFoundError

Object = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
FIELD_MANAGER = "specfleet-road"
READ_SECONDS = 30.0
NEEDED = ("KUBECONFIG", "KUBECTL", "GATEWAY_URL", "PROMETHEUS_URL")


class RoadError(Exception):
    """What went wrong, in words for the person at the terminal."""


class MissingError(RoadError):
    """What was asked for is not there. Of a list that is its whole kind: never the same as no objects."""


@cache
def _client(kubeconfig: str) -> DynamicClient:
    return DynamicClient(new_client_from_config(kubeconfig))


@cache
def _kind(kubeconfig: str, resource: str) -> Any:
    """A resource by its name as kubectl takes it: `pods`, `pod` or `deployments.apps`."""
    name, _, group = resource.partition(".")
    known = _client(kubeconfig).resources
    # The core group first: Events are in two.
    found = sorted(
        (
            one
            for word in ("name", "singular_name")
            for one in known.search(**{word: name})
            if one.group == group or not group
        ),
        key=lambda one: (one.group != "", not one.preferred),
    )
    if not found:
        raise RoadError(f"the API server knows no {resource}")
    return found[0]


def cluster_command(*words: str) -> list[str]:
    """A command line of e2e.cluster, with the interpreter that runs this."""
    return [sys.executable, "-m", "e2e.cluster", *words]


@dataclass(frozen=True)
class Access:
    """Addresses of one cluster."""

    kubectl_binary: str
    kubeconfig: str
    gateway_url: str
    prometheus_url: str
    alertmanager_url: str | None
    audit_log: Path | None

    def kubectl(
        self, *words: str, stdin: str | None = None, check: bool = True, seconds: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl. Raises RoadError with what it said."""
        command = [self.kubectl_binary, f"--kubeconfig={self.kubeconfig}", *words]
        try:
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise RoadError(f"`kubectl {' '.join(words)}` did not end within {seconds:.0f} s") from error
        if check and done.returncode != 0:
            said = done.stderr.strip() or done.stdout.strip()
            raise RoadError(f"`kubectl {' '.join(words)}` ended with {done.returncode}: {said}")
        return done

    def apply(self, objects: Iterable[Mapping[str, Any]], manager: str = FIELD_MANAGER) -> None:
        """Server-side apply. Raises RoadError with the API server's answer."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "--server-side", "--force-conflicts", f"--field-manager={manager}", "-f", "-", stdin=text)

    def get(self, resource: str, name: str, namespace: str | None = None) -> Object | None:
        """One object, or None when it is not there. Raises RoadError."""
        try:
            return self._read(resource, name=name, namespace=namespace)
        except MissingError:
            return None

    def list(self, resource: str, namespace: str | None = None, selector: str = "") -> list[Object]:
        """All objects of a kind in a namespace, or in all of them. Raises RoadError."""
        return list(self._read(resource, namespace=namespace, label_selector=selector or None)["items"])

    def _read(self, resource: str, **query: str | None) -> Object:
        asked = {key: value for key, value in query.items() if value is not None}
        try:
            kind = _kind(self.kubeconfig, resource)
            found: Object = _client(self.kubeconfig).get(kind, **asked, _request_timeout=READ_SECONDS).to_dict()
        except NotFoundError as error:
            raise MissingError(f"the API server has no such {resource}: {asked}") from error
        except (ApiException, DynamicApiError, urllib3.exceptions.HTTPError, OSError) as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise RoadError(f"reading {resource} of the API server: {first}") from error
        return found

    def prometheus(self, path: str, **parameters: str) -> Any:
        """`data` of one Prometheus API call. Raises RoadError."""
        return get_json(f"{self.prometheus_url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}")["data"]


def get_json(url: str, seconds: float = 10.0) -> Any:
    """GET a JSON document. Raises RoadError."""
    try:
        with urllib.request.urlopen(url, timeout=seconds) as answer:
            return json.load(answer)
    except (OSError, ValueError) as error:
        raise RoadError(f"{url}: {error}") from error


def find_access() -> Access:
    """Where the cluster is, as `e2e.cluster env` says. Raises RoadError when none is up."""
    done = subprocess.run(cluster_command("env"), capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise RoadError(done.stderr.strip() or "`python3 -m e2e.cluster env` failed")
    script = f"{done.stdout}\nenv -0"
    shell = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    found = dict(line.partition("=")[::2] for line in shell.stdout.split("\0") if line)
    missing = [name for name in NEEDED if not found.get(name)]
    if missing:
        raise RoadError(f"the cluster's {', '.join(missing)} is not known: export it (CLUSTER=existing) and try again")
    audit = found.get("AUDIT_LOG")
    return Access(
        kubectl_binary=found["KUBECTL"],
        kubeconfig=found["KUBECONFIG"],
        gateway_url=found["GATEWAY_URL"].rstrip("/"),
        prometheus_url=found["PROMETHEUS_URL"].rstrip("/"),
        alertmanager_url=found.get("ALERTMANAGER_URL", "").rstrip("/") or None,
        audit_log=Path(audit) if audit else None,
    )


def cluster_up() -> None:
    """Bring the cluster up, or find it up; its progress goes to the terminal. Raises RoadError."""
    done = subprocess.run(cluster_command("up"), check=False, cwd=ROOT)
    if done.returncode != 0:
        kind = os.environ.get("CLUSTER", "embedded")
        raise RoadError(f"the cluster (CLUSTER={kind}) could not be brought up; what is missing is said above")
    if os.environ.get("CLUSTER") == "kind":
        raise RoadError("the kind cluster is up, without a gateway and Prometheus: go on as said above")


def wait_until(what: str, holds: Callable[[], bool], seconds: float, pause: float = 1.0) -> None:
    """Poll until it holds. Raises RoadError when time is up."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise RoadError(f"not so after {seconds:.0f} s: {what}")
        time.sleep(pause)
