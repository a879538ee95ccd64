"""A pod that leaves with streams in flight cuts none; the same engine without our preStop and shutdown timeout does."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
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
def streams(access: Access) -> Iterator[Mapping[str, Sequence[PodStream]]]:
    """Streams from both pods, which are deleted once all of them flow; read to their end or until they hang."""
    with standing(access, [engine_pod(name) for name in NAMES]):
        for name in NAMES:
            wait_until(f"pod {name} serves", partial(ready, access, name), SERVE_SECONDS)
        addresses = {name: f"{found(access, name)['status']['podIP']}:8000" for name in NAMES}
        opened = {name: [PodStream(address, TOKENS) for _ in range(STREAMS)] for name, address in addresses.items()}
        for one in (stream for those in opened.values() for stream in those):
            one.start()
        for one in (stream for those in opened.values() for stream in those):
            assert one.started.wait(60), "no stream began"
        # Before they are deleted: those of the bare pod may be over before the command is.
        flowing = {name: [one.chunks for one in those if not one.done] for name, those in opened.items()}
        access.kubectl("delete", "pod", *NAMES, "-n", SPACE, "--wait=false")
        for name, those in opened.items():
            assert len(flowing[name]) == STREAMS, "streams were over before their pod was deleted: they prove nothing"
            ends = time.monotonic() + (END_SECONDS if NAMES[name] else BARE_GRACE_SECONDS + HANGS_SECONDS)
            for one in those:
                one.wait(max(0.0, ends - time.monotonic()))
            said = "; ".join(one.end for one in those)
            print(f"\n{name}: deleted after {flowing[name]} chunks; {said}", flush=True)
        yield opened


def ready(access: Access, name: str) -> bool:
    """Whether the pod is ready."""
    seen = found(access, name)
    return bool(seen) and is_ready(seen)


def test_a_pod_as_the_operator_builds_it_cuts_no_stream(
    access: Access, streams: Mapping[str, Sequence[PodStream]]
) -> None:
    assert all(one.whole for one in streams["drained"])
    wait_until("the pod is gone", lambda: not found(access, "drained"), 120)


def test_the_same_engine_without_drain_and_shutdown_timeout_cuts_streams(
    streams: Mapping[str, Sequence[PodStream]],
) -> None:
    assert not any(one.whole for one in streams["bare"]), "the scenario above would pass without the drain"
