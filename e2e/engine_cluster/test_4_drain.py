"""A pod that leaves with streams in flight cuts none; the same engine without our preStop and shutdown timeout does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from e2e.engine_cluster.acts import SERVE_SECONDS, is_ready
from e2e.engine_cluster.bare_pods import found, pod_of, standing
from e2e.engine_cluster.deployments import SPACE, deep
from e2e.engine_cluster.streams import HANGS_SECONDS, PodStream
from e2e.road.access import Access, Object, wait_until

TOKENS = 700
STREAMS = 3
BARE_GRACE_SECONDS = 30
END_SECONDS = 240.0
SHUTDOWN_FLAG = "--shutdown-timeout"


NAMES = {"drained": True, "bare": False}


def engine_pod(name: str) -> Object:
    """A pod as the operator builds it, or the same engine as most manifests have it."""
    made = pod_of(deep(name, None), name)
    if not NAMES[name]:
        (container,) = made["spec"]["containers"]
        del container["lifecycle"]
        place = container["args"].index(SHUTDOWN_FLAG)
        del container["args"][place : place + 2]
        made["spec"]["terminationGracePeriodSeconds"] = BARE_GRACE_SECONDS
    return made


@pytest.fixture(scope="module")
def addresses(access: Access) -> Iterator[dict[str, str]]:
    """Both pods, up; removed at the end."""
    with standing(access, [engine_pod(name) for name in NAMES]):
        for name in NAMES:
            wait_until(f"pod {name} serves", partial(ready, access, name), SERVE_SECONDS)
        yield {name: f"{found(access, name)['status']['podIP']}:8000" for name in NAMES}


def ready(access: Access, name: str) -> bool:
    """Whether the pod is ready."""
    seen = found(access, name)
    return bool(seen) and is_ready(seen)


def streams_while_deleted(access: Access, name: str, address: str) -> Sequence[PodStream]:
    """Open streams, delete the pod once all of them flow, and read them to their end or until they hang."""
    streams = [PodStream(address, TOKENS) for _ in range(STREAMS)]
    for one in streams:
        one.start()
    for one in streams:
        assert one.started.wait(60), "no stream began"
    access.kubectl("delete", "pod", name, "-n", SPACE, "--wait=false")
    open_then = [one.chunks for one in streams if not one.done]
    assert len(open_then) == STREAMS, "the streams ended before the pod was deleted: they prove nothing"
    for one in streams:
        one.wait(END_SECONDS if NAMES[name] else BARE_GRACE_SECONDS + HANGS_SECONDS)
    ends = "; ".join(one.end for one in streams)
    print(f"\n{name}: deleted after {open_then} chunks; {ends}", flush=True)
    return streams


def test_a_pod_as_the_operator_builds_it_cuts_no_stream(access: Access, addresses: dict[str, str]) -> None:
    streams = streams_while_deleted(access, "drained", addresses["drained"])
    assert all(one.whole for one in streams)
    wait_until("the pod is gone", lambda: not found(access, "drained"), 120)


def test_the_same_engine_without_drain_and_shutdown_timeout_cuts_streams(
    access: Access, addresses: dict[str, str]
) -> None:
    streams = streams_while_deleted(access, "bare", addresses["bare"])
    assert not any(one.whole for one in streams), "the scenario above would pass without the drain"
