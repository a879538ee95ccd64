"""Fixtures of the scenarios. E2E_INSTALL=0 takes the operator that is there instead of building and installing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from e2e.road.access import Access, Object, cluster_up, find_access
from e2e.road.demo import PLACE, remove
from e2e.road.install import build_images, install, wait_for_operator

GPU = "specfleet.dev/simulated-gpu"


@pytest.fixture(scope="session")
def access(begun: Access) -> Access:
    """A cluster with specfleet in it, and without what the demo has left for people to look at."""
    remove(begun, PLACE)
    return begun


@pytest.fixture(scope="session")
def begun() -> Access:
    """A cluster with specfleet in it."""
    if os.environ.get("E2E_INSTALL", "1") == "0":
        found = find_access()
        wait_for_operator(found)
        return found
    cluster_up()
    found = find_access()
    build_images()
    install(found)
    return found


@pytest.fixture
def space() -> str:
    """Namespace of this run's deployments: scenarios may run side by side in different ones."""
    return os.environ.get("E2E_NAMESPACE", "e2e")


class Gpus:
    """An extended resource on the first node that pods can ask for, so that room is a number."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.node = str(access.list("nodes")[0]["metadata"]["name"])

    def set(self, count: int | None) -> None:
        """So many of them, or none at all."""
        path = f"/status/capacity/{GPU.replace('/', '~1')}"
        change: Object = {"op": "add", "path": path, "value": str(count)}
        if count is None:
            change = {"op": "remove", "path": path}
        patch = json.dumps([change])
        self.access.kubectl("patch", "node", self.node, "--subresource=status", "--type=json", "-p", patch)


@pytest.fixture
def gpus(access: Access) -> Iterator[Gpus]:
    """Simulated GPUs, taken away again at the end."""
    made = Gpus(access)
    made.set(1)
    yield made
    made.set(None)
