"""examples/quickstart.yaml, and what the demo lays over it: a Secret through which the simulated engine's faults come.

The Secret enters the fingerprint by name only, so that changing its content changes the engine's behaviour and nothing
that the operator could see in a spec.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from e2e.road.access import ROOT, Access, Object, RoadError
from e2e.road.install import engine_image

QUICKSTART = ROOT / "examples" / "quickstart.yaml"
RESOURCE = "speculativedeployments.specfleet.dev"
FAULTS_SECRET = "simulated-faults"
FAULTS_FOLDER = "/etc/vllm-sim"
FAULTS_KEY = "faults.json"

POST_FAULTS = """
import sys, urllib.request
request = urllib.request.Request(
    "http://127.0.0.1:8000/sim/faults", sys.argv[1].encode(), {"Content-Type": "application/json"})
print(urllib.request.urlopen(request, timeout=5).status)
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one example runs."""

    namespace: str
    name: str

    @property
    def hostname(self) -> str:
        """Hostname of its route, which no other example shares."""
        return f"{self.name}.{self.namespace}.example" if self.namespace != "demo" else f"{self.name}.example"


def load_quickstart() -> Object:
    """The example as it is in the repository."""
    document: Object = yaml.safe_load(QUICKSTART.read_text(encoding="utf-8"))
    return document


def overlaid(example: Object, place: Place, changes: Mapping[str, Any] | None = None, faults: bool = True) -> Object:
    """The example in a namespace, with the faults' Secret mounted. `changes` are merged into spec.

    GATEWAY=NAMESPACE/NAME in the environment names the Gateway of a cluster of one's own.
    """
    made = copy.deepcopy(example)
    made["metadata"] = {"name": place.name, "namespace": place.namespace}
    spec = made["spec"]
    spec["engine"]["image"] = engine_image()
    spec["traffic"]["hostnames"] = [place.hostname]
    if "GATEWAY" in os.environ:
        space, _, name = os.environ["GATEWAY"].partition("/")
        spec["traffic"]["parentRefs"] = [{"name": name, "namespace": space}]
    if faults:
        template = spec.setdefault("template", {})
        template["volumes"] = [{"name": "faults", "secret": {"secretName": FAULTS_SECRET}}]
        template["volumeMounts"] = [{"name": "faults", "mountPath": FAULTS_FOLDER, "readOnly": True}]
        spec["engine"]["env"] = [
            *spec["engine"].get("env", []),
            {"name": "VLLM_SIM_FAULTS", "value": "1"},
            {"name": "VLLM_SIM_FAULTS_FILE", "value": f"{FAULTS_FOLDER}/{FAULTS_KEY}"},
        ]
    merge(spec, changes or {})
    return made


def merge(base: Object, changes: Mapping[str, Any]) -> None:
    """Merge `changes` into `base` as JSON merge patch does: None removes, lists are replaced."""
    for key, value in changes.items():
        if value is None:
            base.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(base.get(key), dict):
            merge(base[key], value)
        else:
            base[key] = copy.deepcopy(dict(value) if isinstance(value, Mapping) else value)


def namespace(name: str) -> Object:
    """A Namespace of the demo's own, by which everything is cleaned up."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "specfleet-e2e"}},
    }


def faults_secret(space: str, faults: Sequence[Mapping[str, Any]]) -> Object:
    """The Secret that future pods find their faults in."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": FAULTS_SECRET, "namespace": space},
        "stringData": {FAULTS_KEY: json.dumps({"faults": list(faults)})},
    }


def inject(access: Access, place: Place, faults: Sequence[Mapping[str, Any]]) -> int:
    """Give the faults to all present pods at once and to all future ones by the Secret. Returns the pods reached.

    Both carry the same absolute values, so that a pod that hears of them twice behaves no worse.
    """
    access.apply([faults_secret(place.namespace, faults)])
    selector = f"specfleet.dev/deployment={place.name},specfleet.dev/role in (serving,benchmark)"
    reached = 0
    for pod in access.list("pods", place.namespace, selector):
        if pod["status"].get("phase") != "Running" or "deletionTimestamp" in pod["metadata"]:
            continue
        body = json.dumps({"faults": list(faults)})
        name = pod["metadata"]["name"]
        words = ["exec", "-n", place.namespace, name, "-c", "engine", "--", "python3", "-c", POST_FAULTS, body]
        done = access.kubectl(*words, check=False)
        reached += done.returncode == 0
    if reached == 0:
        raise RoadError(f"the faults reached no pod of {place.namespace}/{place.name}: is VLLM_SIM_FAULTS=1 set?")
    return reached


def acceptance_decay(rates: Sequence[float]) -> Object:
    """The drafts fit no longer: acceptance per position falls to `rates` and stays there, also in restarted pods."""
    return {
        "id": "decay",
        "kind": "acceptance_decay",
        "arms": {"speculation": True},
        "acceptance": list(rates),
        "heals_on_restart": False,
    }
