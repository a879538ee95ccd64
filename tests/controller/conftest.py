"""A real API server with the controller manager: Deployments get pods, and owners take their children along."""

from collections.abc import Iterator

import pytest

from e2e.cluster.controlplane import ControlPlane
from tests.integration.conftest import ROOT


@pytest.fixture(scope="session")
def managed_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("managed-plane"), controller_manager=True) as plane:
        plane.install_crds(ROOT / "crds")
        yield plane
