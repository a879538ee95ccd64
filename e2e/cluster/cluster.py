"""Brings the whole cluster up, says how it is, and tells others where to find it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import dns, gateway, host, monitoring, network, node, users
from e2e.cluster.base_images import node_images, pause_image, python_image
from e2e.cluster.build import binary, build_parts, say
from e2e.cluster.controlplane import ControlPlane, Endpoint
from e2e.cluster.debian import install_packages
from e2e.cluster.down import take_down
from e2e.cluster.images import images_dir, import_once
from e2e.cluster.manifests import render
from e2e.cluster.parts import KUBE
from e2e.cluster.process import only_one, wait_for
from e2e.cluster.settings import API_PORT, CONTROL_NODE, MAX_NODES, ClusterError, Node, cache_dir, run_dir
from e2e.cluster.wheels import install_wheels, kubectl_binary

_UP_MARK = "up.json"


def control_plane() -> ControlPlane:
    """The cluster's control plane: in node 1's network namespace, at fixed ports."""
    endpoint = Endpoint(CONTROL_NODE.ip, API_PORT, 2379, 2380, wrap=lambda argv: CONTROL_NODE.command(*argv))
    everybody = [
        users.ADMIN,
        users.SCHEDULER,
        users.PROXY,
        users.COREDNS,
        users.CONTOUR,
        users.PROMETHEUS_OPERATOR,
        *(users.node_user(number) for number in range(1, MAX_NODES + 1)),
    ]
    return ControlPlane(run_dir(), controller_manager=True, endpoint=endpoint, accounts=everybody)


def build_everything() -> None:
    """Install and build all that the cluster needs; does nothing when all of it is there.

    Raises ClusterError naming what failed and its log.
    """
    install_packages()
    install_wheels()
    with ThreadPoolExecutor() as pool:
        early = [pool.submit(pause_image), pool.submit(python_image)]
        build_parts()
        for image in early:
            image.result()
    node_images()


def _one_at_a_time() -> AbstractContextManager[None]:
    return only_one(cache_dir() / "cluster.lock", "waiting for another `e2e.cluster` command to end")


def up(nodes: int) -> None:
    """Bring up the cluster with so many nodes, or find it up; what a killed run left half way is taken down first.

    Raises ClusterError naming the log to read.
    """
    if os.geteuid() != 0:
        raise ClusterError("the cluster needs root for namespaces, mounts and cgroups: run it as root")
    if not 1 <= nodes <= MAX_NODES:
        raise ClusterError(f"--nodes {nodes}: between 1 and {MAX_NODES}")
    with _one_at_a_time():
        build_everything()
        state = read_state()
        if state is not None and not state.broken:
            _add_nodes(state, nodes)
            return
        if run_dir().exists() or network.made_nodes():
            ended = f" ({', '.join(state.broken)} ended)" if state is not None else ""
            say(f"taking down what is left of an earlier run{ended}")
            _take_down()
        began = time.monotonic()
        _start(nodes)
        say(f"cluster up in {time.monotonic() - began:.1f} s; `python3 -m e2e.cluster env` tells the addresses")


def down() -> None:
    """Take the cluster down.

    Raises ClusterError naming what could not be removed.
    """
    with _one_at_a_time():
        _take_down()


def _take_down() -> None:
    left = take_down()
    if left:
        raise ClusterError("could not remove: " + ", ".join(left))


def _start(count: int) -> None:
    began = time.monotonic()
    nodes = [Node(number) for number in range(1, count + 1)]
    plane = control_plane()
    plane.directory.mkdir(parents=True)
    host.remember()
    for each in nodes:
        network.make_network(each)
    plane.prepare()
    with ThreadPoolExecutor(max_workers=count + 1) as pool:
        started: list[Future[None]] = [pool.submit(_start_node, each, plane) for each in nodes]
        plane.start()
        _start_scheduler(plane)
        plane.apply(render(node.PROXY_BINDING))
        say(f"{time.monotonic() - began:5.1f} s  control plane")
        for future in started:
            future.result()
        say(f"{time.monotonic() - began:5.1f} s  containerd and kubelet on {count} node(s)")
        for each in nodes:
            node.start_proxy(each, plane)
        later = [pool.submit(start, plane) for start in (dns.start_dns, monitoring.start_operator)]
        gateway.start_gateway(plane)
        for future in later:
            future.result()
    for each in nodes:
        node.wait_ready(each, plane)
    say(f"{time.monotonic() - began:5.1f} s  nodes Ready, DNS, Gateway")
    monitoring.wait_for_monitoring(plane)
    _wait_for_default_account(plane)
    say(f"{time.monotonic() - began:5.1f} s  Prometheus and Alertmanager")
    _write_state(plane, count)


def _start_node(each: Node, plane: ControlPlane) -> None:
    node.start_node(each, plane)
    for archive in [*node_images(), *sorted(images_dir().glob("*.oci.tar"))]:
        import_once(each, archive)
    node.start_kubelet(each, plane)


def _add_nodes(state: State, count: int) -> None:
    if count <= state.nodes:
        say(f"the cluster is up already, with {state.nodes} node(s)")
        return
    plane = control_plane()
    for number in range(state.nodes + 1, count + 1):
        each = Node(number)
        network.make_network(each)
        _start_node(each, plane)
        node.start_proxy(each, plane)
        node.wait_ready(each, plane)
        say(f"{each.name} added")
    _write_state(plane, count)


def _start_scheduler(plane: ControlPlane) -> None:
    config = plane.kubeconfig_of(users.SCHEDULER)
    plane.daemons.start(
        "kube-scheduler",
        [
            *CONTROL_NODE.command(binary(KUBE, "kube-scheduler"), f"--kubeconfig={config}"),
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            f"--cert-dir={plane.directory / 'certificates'}",
            "--leader-elect=false",
        ],
    )


def _wait_for_default_account(plane: ControlPlane) -> None:
    """Bare pods are refused until the controller manager has made the default service account."""
    query = [*plane.kubectl, "get", "serviceaccount", "default"]
    wait_for(
        "the default service account is there",
        lambda: subprocess.run(query, capture_output=True, check=False).returncode == 0,
        seconds=60,
        log=plane.daemons.log("kube-controller-manager"),
    )


@dataclass(frozen=True)
class State:
    """A cluster that came up: its nodes and those of its programs that have ended since."""

    nodes: int
    broken: tuple[str, ...]


def _write_state(plane: ControlPlane, nodes: int) -> None:
    programs = plane.daemons.names()
    (run_dir() / _UP_MARK).write_text(json.dumps({"nodes": nodes, "programs": programs}))


def read_state() -> State | None:
    """How the cluster is, or None when none is fully up."""
    try:
        written = json.loads((run_dir() / _UP_MARK).read_text())
    except FileNotFoundError:
        return None
    daemons = control_plane().daemons
    return State(written["nodes"], tuple(name for name in written["programs"] if daemons.pid(name) is None))


def environment() -> dict[str, str]:
    """The variables that tests and the demo read.

    Raises ClusterError when the cluster isn't up.
    """
    state = read_state()
    if state is None:
        raise ClusterError("the cluster is not up: run `python3 -m e2e.cluster up`")
    plane = control_plane()
    return {
        "KUBECONFIG": str(plane.kubeconfig),
        "KUBECTL": str(kubectl_binary()),
        "GATEWAY_URL": gateway.GATEWAY_URL,
        "PROMETHEUS_URL": monitoring.PROMETHEUS_URL,
        "ALERTMANAGER_URL": monitoring.ALERTMANAGER_URL,
        "AUDIT_LOG": str(plane.audit_log),
        "LOGS": str(plane.directory / "log"),
    }


def status_lines() -> Sequence[str]:
    """What runs, for a person; empty when nothing does."""
    daemons = control_plane().daemons
    lines = []
    for name in daemons.names():
        pid = daemons.pid(name)
        state = f"pid {pid}, {_resident_mib(pid)} MiB" if pid is not None else f"ENDED; read {daemons.log(name)}"
        lines.append(f"{name:28} {state}")
    return lines


def _resident_mib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return next((int(line.split()[1]) // 1024 for line in text.splitlines() if line.startswith("VmRSS")), 0)


def purge() -> None:
    """Take the cluster down and delete the cache with everything built."""
    down()
    shutil.rmtree(cache_dir(), ignore_errors=True)
