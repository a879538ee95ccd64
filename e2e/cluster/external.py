"""Clusters that somebody else runs: an existing one by KUBECONFIG, or kind where a Docker engine answers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from e2e.cluster.build import say
from e2e.cluster.process import answers
from e2e.cluster.settings import ClusterError, cache_dir
from e2e.cluster.wheels import install_wheels, kubectl_binary

KIND_NAME = "specfleet"
_NEEDED_CRDS = {
    "httproutes.gateway.networking.k8s.io": "Gateway API with a controller, such as Contour",
    "podmonitors.monitoring.coreos.com": "prometheus-operator",
}


def _kubectl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(kubectl_binary()), *arguments], capture_output=True, text=True, check=False)


def missing_in_existing() -> list[str]:
    """What the cluster of KUBECONFIG lacks for the demo and the end-to-end tests, one line each."""
    install_wheels()
    if "KUBECONFIG" not in os.environ:
        return ["KUBECONFIG is not set: CLUSTER=existing uses the cluster that it names"]
    version = _kubectl("version", "--request-timeout=10s")
    if version.returncode != 0:
        return [f"the API server of {os.environ['KUBECONFIG']} doesn't answer: {version.stderr.strip()}"]
    missing = []
    for crd, provider in _NEEDED_CRDS.items():
        if _kubectl("get", "crd", crd).returncode != 0:
            missing.append(f"the CRD {crd} is missing: install {provider}")
    for variable, path in (("PROMETHEUS_URL", "/-/ready"), ("GATEWAY_URL", None)):
        url = os.environ.get(variable)
        if not url:
            missing.append(f"{variable} is not set: give the address of it as seen from this machine")
        elif path is not None and not answers(f"{url.rstrip('/')}{path}"):
            missing.append(f"{variable}={url} doesn't answer at {path}")
    return missing


def check_existing() -> None:
    """Raise ClusterError with everything that the existing cluster lacks."""
    missing = missing_in_existing()
    if missing:
        raise ClusterError("CLUSTER=existing can't be used yet:\n  " + "\n  ".join(missing))
    say("the existing cluster has Gateway API, prometheus-operator's CRDs and a Prometheus that answers")


def existing_environment() -> dict[str, str]:
    """The variables that tests and the demo read, as the user gave them."""
    names = ("KUBECONFIG", "GATEWAY_URL", "PROMETHEUS_URL", "ALERTMANAGER_URL", "AUDIT_LOG")
    return {**{n: os.environ[n] for n in names if n in os.environ}, "KUBECTL": str(kubectl_binary())}


def kind_up() -> None:
    """Create the kind cluster unless it is there; Gateway API and monitoring are then up to the user.

    Raises ClusterError naming what is missing. Not part of this project's own test runs: they have no Docker engine.
    """
    for program in ("docker", "kind"):
        if shutil.which(program) is None:
            raise ClusterError(f"CLUSTER=kind needs `{program}` in PATH")
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode != 0:
        raise ClusterError("CLUSTER=kind needs a Docker engine, and `docker info` doesn't reach one")
    listed = subprocess.run(["kind", "get", "clusters"], capture_output=True, text=True, check=True)
    if KIND_NAME not in listed.stdout.split():
        config = str(_kind_kubeconfig())
        subprocess.run(["kind", "create", "cluster", "--name", KIND_NAME, "--kubeconfig", config], check=True)
    say(f"kind cluster {KIND_NAME} is up: export KUBECONFIG={_kind_kubeconfig()}")
    say("install a Gateway API controller and prometheus-operator in it, set GATEWAY_URL and PROMETHEUS_URL,")
    say("and go on with CLUSTER=existing")


def kind_down() -> None:
    """Delete the kind cluster."""
    subprocess.run(["kind", "delete", "cluster", "--name", KIND_NAME], check=True)


def _kind_kubeconfig() -> Path:
    cache_dir().mkdir(parents=True, exist_ok=True)
    return cache_dir() / "kind.kubeconfig"
