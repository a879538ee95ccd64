"""A healthy fleet costs nothing: no write, as many Prometheus requests for 50 deployments as for one, little memory."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest

from e2e.road.access import Access, Object, RoadError, wait_until
from e2e.road.audit import is_checkpoint, read_writes, steady_state_writes
from e2e.road.example import RESOURCE, Place, load_quickstart, namespace, overlaid
from e2e.road.install import OPERATOR_NAMESPACE, operator_pods, service_account
from e2e.road.recorder import seconds_of
from e2e.road.verify import operator_metrics
from e2e.scenarios.stage import SHORT_ROAD, on_stage

STEADY_SECONDS = 300.0
MEMORY_BYTES = 150e6
CPU_CORES = 0.05
FLEET = 50
MEASURE_SECONDS = 120.0
pytestmark = pytest.mark.long


def test_promoted_and_healthy_for_five_minutes_writes_nothing(access: Access, space: str) -> None:
    if access.audit_log is None:
        pytest.skip("AUDIT_LOG is not set: writes cannot be counted")
    with on_stage(access, space, "steady", SHORT_ROAD) as stage:
        stage.start_traffic()
        stage.until_promoted()
        settled = lambda: stage.status.get("calibration") is not None  # noqa: E731
        stage.follow("what is normal has been written down", settled, 120)
        stage.stay(30)
        began = time.time()
        stage.stay(STEADY_SECONDS)
        writes = steady_state_writes(read_writes(access.audit_log, began, time.time()), service_account(access))
        mine = [one for one in writes if one.namespace == space or is_checkpoint(one)]
        assert stage.phase == "Speculative"
        assert not mine, f"{len(mine)} writes in {STEADY_SECONDS:.0f} s, for example {mine[0]}"


def counter(access: Access, name: str) -> float:
    """One unlabelled metric of the operator."""
    for line in operator_metrics(access).splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    raise RoadError(f"the operator has no metric {name}")


def usage(access: Access) -> Object:
    """CPU seconds and working set of the operator's container, as the kubelet measures them."""
    pod = operator_pods(access)[0]
    node = pod["spec"]["nodeName"]
    summary = json.loads(access.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/stats/summary").stdout)
    name = pod["metadata"]["name"]
    mine = next(one for one in summary["pods"] if one["podRef"] == {**one["podRef"], "name": name})
    container = mine["containers"][0]
    return {
        "time": seconds_of(container["cpu"]["time"]),
        "cpu_seconds": container["cpu"]["usageCoreNanoSeconds"] / 1e9,
        "memory_bytes": container["memory"]["workingSetBytes"],
    }


def idle(space: str, number: int) -> Object:
    """A small plain deployment that asks for nothing."""
    changes: Object = {"replicas": 1, "speculation": None, "traffic": {"parentRefs": [], "hostnames": []}}
    body = overlaid(load_quickstart(), Place(space, f"idle-{number:02d}"), changes, faults=False)
    body["spec"]["traffic"] = {}
    body["spec"]["monitoring"] = {"scrapeIntervalSeconds": 15}
    return body


@pytest.fixture
def fleet_space(access: Access, space: str) -> Iterator[str]:
    """A namespace for many deployments, emptied at the end."""
    name = f"{space}-fleet" if "OPERATOR_NAMESPACES" not in os.environ else space
    access.apply([namespace(name)])
    yield name
    access.kubectl("delete", RESOURCE, "--all", "-n", name, "--cascade=foreground", "--timeout=300s", seconds=330)


def all_serve(access: Access, space: str, count: int) -> bool:
    """Whether so many deployments are Ready."""
    ready = 0
    for body in access.list(RESOURCE, space):
        conditions = (body.get("status") or {}).get("conditions", [])
        ready += any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready >= count


def requests_per_minute(access: Access) -> float:
    """Requests to the metrics server over the measuring time."""
    before, began = counter(access, "specfleet_telemetry_queries_total"), time.monotonic()
    time.sleep(MEASURE_SECONDS)
    after = counter(access, "specfleet_telemetry_queries_total")
    return (after - before) / (time.monotonic() - began) * 60


def test_fifty_deployments_ask_prometheus_no_more_than_one_and_stay_small(access: Access, fleet_space: str) -> None:
    others = [one["metadata"]["name"] for one in access.list(RESOURCE) if one["metadata"]["namespace"] != fleet_space]
    assert not others, f"{', '.join(others)} would be counted too: remove what other runs have left"
    access.apply([idle(fleet_space, 0)])
    wait_until("one deployment serves", lambda: all_serve(access, fleet_space, 1), 120)
    time.sleep(30)
    one = requests_per_minute(access)
    access.apply([idle(fleet_space, number) for number in range(FLEET)])
    wait_until(f"{FLEET} deployments serve", lambda: all_serve(access, fleet_space, FLEET), 600, pause=5)
    time.sleep(30)
    before = usage(access)
    many = requests_per_minute(access)
    after = usage(access)
    cores = (after["cpu_seconds"] - before["cpu_seconds"]) / (after["time"] - before["time"])
    said = (
        f"requests per minute {one:.1f} with 1 and {many:.1f} with {FLEET} deployments; "
        f"{cores:.3f} cores, {after['memory_bytes'] / 1e6:.0f} MB in namespace {OPERATOR_NAMESPACE}"
    )
    print(f"\n{said}")
    assert one > 0, said
    assert abs(many - one) <= 1.5, said
    assert after["memory_bytes"] <= MEMORY_BYTES, said
    assert cores <= CPU_CORES, said
