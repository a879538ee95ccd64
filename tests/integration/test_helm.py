"""The chart's life with the real Helm on a real API server: install, upgrade, uninstall."""

from collections.abc import Iterator
from typing import Any

import pytest
from helm_python import Config

from e2e.cluster.controlplane import ControlPlane
from tests.integration.conftest import ROOT, Object, Server

pytestmark = pytest.mark.integration

CHART = ROOT / "charts" / "specfleet"
RELEASE, NAMESPACE = "specfleet", "specfleet"
CRDS = {"speculativedeployments.specfleet.dev", "speculativebenchmarks.specfleet.dev"}
WIDE, NARROW = "specfleet-specfleet", "specfleet"
DEPLOYMENT: Object = {
    "apiVersion": "specfleet.dev/v1alpha1",
    "kind": "SpeculativeDeployment",
    "metadata": {"name": "survivor", "namespace": "default"},
    "spec": {"model": {"name": "m"}, "engine": {"image": "vllm/vllm-openai:v0.32.0"}},
}


def _values(**more: Any) -> Object:
    return {"image": {"repository": "registry.example.com/specfleet"}, **more}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An API server without our CRDs: Helm adopts none that it has not made."""
    with ControlPlane(tmp_path_factory.mktemp("helm")) as plane:
        yield Server(plane)


def _names(server: Server, kind: str, *words: str) -> set[str]:
    return {one["metadata"]["name"] for one in server.get(kind, *words)["items"]}


def test_the_chart_is_installed_upgraded_and_uninstalled_and_leaves_what_serves(empty: Server) -> None:
    config = Config(kubeconfig_path=empty.plane.kubeconfig, namespace=NAMESPACE)
    config.install(CHART, RELEASE, _values(), namespace=NAMESPACE, create_namespace=True)
    assert _names(empty, "crd") == CRDS
    assert RELEASE in _names(empty, "deployments", "-n", NAMESPACE)
    assert WIDE in _names(empty, "clusterrolebindings")
    assert empty.create(DEPLOYMENT) == ""

    # From the whole cluster to one namespace: the wide right goes.
    config.upgrade(CHART, RELEASE, _values(namespaces=["default"]), namespace=NAMESPACE)
    assert WIDE not in _names(empty, "clusterrolebindings")
    assert NARROW in _names(empty, "rolebindings", "-n", "default")

    config.uninstall(RELEASE)
    assert RELEASE not in _names(empty, "deployments", "-n", NAMESPACE)
    assert NARROW not in _names(empty, "rolebindings", "-n", "default")
    assert _names(empty, "crd") == CRDS
    assert empty.get("sd", "survivor")["spec"]["replicas"] == 1

    # The kept CRDs do not stand in the way of a second life.
    config.install(CHART, RELEASE, _values(), namespace=NAMESPACE)
    assert RELEASE in _names(empty, "deployments", "-n", NAMESPACE)
    config.close()
