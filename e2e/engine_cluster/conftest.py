"""The cluster with the operator and the real engine in it; what cannot run here, and the peak of memory, at the end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.engine.models import EngineMissingError
from e2e.engine_cluster import not_here
from e2e.engine_cluster.deployments import prepare
from e2e.road.access import Access, RoadError, cluster_up, find_access
from e2e.road.install import build_images, install, wait_for_operator

MEMORY_LIMIT_BYTES = 20e9
_peak = [0.0]


def used_bytes() -> float:
    """Memory of this machine that is in use and cannot be given back."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    found = {words[0]: 1024 * int(words[1]) for words in lines}
    return found["MemTotal:"] - found["MemAvailable:"]


@pytest.fixture(scope="session", autouse=True)
def _memory() -> Iterator[None]:
    """Measure the peak of the machine's memory while scenarios run; it is bounded."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(2.0):
            _peak[0] = max(_peak[0], used_bytes())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()
    assert _peak[0] < MEMORY_LIMIT_BYTES, f"{_peak[0] / 1e9:.1f} GB of memory were in use"


@pytest.fixture(scope="session")
def access() -> Access:
    """A cluster with specfleet and the engine's image in it. E2E_INSTALL=0: with the operator that is there."""
    try:
        if os.environ.get("E2E_INSTALL", "1") == "0":
            found = find_access()
            prepare()
            wait_for_operator(found)
            return found
        cluster_up()
        found = find_access()
        build_images()
        prepare()
        install(found)
    except (RoadError, EngineMissingError) as error:
        pytest.fail(str(error))
    return found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not shown, so that green is not taken for more than it is."""
    terminalreporter.section("not shown here")
    for line in not_here.lines():
        terminalreporter.line(line)
    if _peak[0]:
        terminalreporter.line(f"peak of the machine's memory: {_peak[0] / 1e9:.1f} GB (limit 20 GB)")
