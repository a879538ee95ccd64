"""A real API server (etcd and kube-apiserver, no root, no node) with the CRDs installed, once per session."""

import base64
import json
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.controlplane import ControlPlane

ROOT = Path(__file__).parents[2]

Object = dict[str, Any]


@dataclass(frozen=True)
class Server:
    """kubectl against the API server."""

    plane: ControlPlane

    def run(self, *words: str, stdin: Object | None = None) -> subprocess.CompletedProcess[str]:
        text = None if stdin is None else json.dumps(stdin)
        return subprocess.run([*self.plane.kubectl, *words], input=text, capture_output=True, text=True, check=False)

    def create(self, manifest: Object) -> str:
        """What the API server says to `kubectl create`; "" when it takes the object."""
        done = self.run("create", "--validate=strict", "-f", "-", stdin=manifest)
        return done.stderr if done.returncode else ""

    def dry_run(self, manifest: Object) -> str:
        """As `create`, but nothing is stored."""
        done = self.run("create", "--validate=strict", "--dry-run=server", "-f", "-", stdin=manifest)
        return done.stderr if done.returncode else ""

    def post(self, path: str, body: Object) -> Object:
        """One request without kubectl, for tests that make many."""
        config = yaml.safe_load(self.plane.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        headers = {"Authorization": f"Bearer {user['token']}", "Content-Type": "application/json"}
        request = urllib.request.Request(cluster["server"] + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, context=ssl.create_default_context(cadata=authority), timeout=30) as got:
            answer: Object = json.load(got)
        return answer

    def get(self, *words: str) -> Object:
        done = self.run("get", *words, "-o", "json")
        assert done.returncode == 0, done.stderr
        found: Object = json.loads(done.stdout)
        return found


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server of this session's own, with specfleet's CRDs."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as plane:
        plane.install_crds(ROOT / "crds")
        yield plane


@pytest.fixture(scope="session")
def server(control_plane: ControlPlane) -> Server:
    return Server(control_plane)
