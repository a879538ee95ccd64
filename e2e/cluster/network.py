"""Network namespaces, routes and cgroup roots of the nodes: made here, taken back here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster.process import run
from e2e.cluster.settings import CLUSTER_CIDR, CONTROL_NODE, MAX_NODES, SERVICE_CIDR, Node

_CGROUPS = Path("/sys/fs/cgroup")
SESSION_SHARES = 1024
_HOST_LINK = "kn1-host"
_NAMESPACES = Path("/run/netns")


def make_network(node: Node) -> None:
    """Make the node's namespace: node 1 is linked to the host, the others to node 1 (the host needs no forwarding)."""
    if (_NAMESPACES / node.netns).exists():
        return
    run(["ip", "netns", "add", node.netns])
    run(node.command("ip", "link", "set", "lo", "up"))
    if node == CONTROL_NODE:
        run(["ip", "link", "add", _HOST_LINK, "type", "veth", "peer", "name", "eth0", "netns", node.netns])
        run(["ip", "addr", "add", f"{node.gateway_ip}/30", "dev", _HOST_LINK])
        run(["ip", "link", "set", _HOST_LINK, "up"])
        for cidr in (CLUSTER_CIDR, SERVICE_CIDR):
            run(["ip", "route", "add", cidr, "via", node.ip])
    else:
        uplink = f"up{node.number}"
        up = CONTROL_NODE.command
        run(up("ip", "link", "add", uplink, "type", "veth", "peer", "name", "eth0", "netns", node.netns))
        run(up("ip", "addr", "add", f"{node.gateway_ip}/30", "dev", uplink))
        run(up("ip", "link", "set", uplink, "up"))
        run(up("ip", "route", "add", node.pod_cidr, "via", node.ip))
        run(["ip", "route", "add", f"{node.ip}/32", "via", CONTROL_NODE.ip])
    run(node.command("ip", "addr", "add", f"{node.ip}/30", "dev", "eth0"))
    run(node.command("ip", "link", "set", "eth0", "up"))
    run(node.command("ip", "route", "add", "default", "via", node.gateway_ip))
    run(node.command("sysctl", "-qw", "net.ipv4.ip_forward=1"))


def remove_network(node: Node) -> None:
    """Remove what make_network made; what isn't there is passed over."""
    if node == CONTROL_NODE:
        for cidr in (CLUSTER_CIDR, SERVICE_CIDR):
            run(["ip", "route", "del", cidr, "via", node.ip], check=False)
        run(["ip", "link", "del", _HOST_LINK], check=False)
    else:
        run(["ip", "route", "del", f"{node.ip}/32", "via", CONTROL_NODE.ip], check=False)
    run(["ip", "netns", "del", node.netns], check=False)


def made_nodes() -> list[Node]:
    """The nodes of which a namespace or a cgroup root is there."""
    nodes = [Node(number) for number in range(1, MAX_NODES + 1)]
    return [n for n in nodes if (_NAMESPACES / n.netns).exists() or any(_roots(n))]


def _unified() -> bool:
    """Whether this machine has cgroup v2 alone (this branch is written from the documentation, not yet run)."""
    return (_CGROUPS / "cgroup.controllers").exists()


def _roots(node: Node) -> Iterator[Path]:
    parents = [_CGROUPS] if _unified() else sorted(_CGROUPS.iterdir())
    return (parent / node.netns for parent in parents if (parent / node.netns).is_dir())


def make_cgroups(node: Node) -> None:
    """Make the node's cgroup root: two kubelets with one root would delete each other's pods."""
    if _unified():
        controllers = (_CGROUPS / "cgroup.controllers").read_text().split()
        (_CGROUPS / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))
        (_CGROUPS / node.netns).mkdir(exist_ok=True)
        return
    for hierarchy in _CGROUPS.iterdir():
        if hierarchy.is_symlink() or not (hierarchy / "cgroup.procs").exists() or hierarchy.name == "unified":
            continue
        (hierarchy / node.netns).mkdir(exist_ok=True)
    # Pods together weigh four sessions of this machine (1024 each): less, and any busy process starves engines under
    # test; far more, and the engines starve the gateway, the API server and the users' client, which run outside.
    (_CGROUPS / "cpu" / node.netns / "cpu.shares").write_text(str(4 * SESSION_SHARES))
    # A new cpuset has no processor and no memory, and takes no process until it has.
    for name in ("cpuset.cpus", "cpuset.mems"):
        value = (_CGROUPS / "cpuset" / name).read_text()
        (_CGROUPS / "cpuset" / node.netns / name).write_text(value)


def cgroup_processes(node: Node) -> list[int]:
    """All processes of the node's pods."""
    pids: set[int] = set()
    for root in _roots(node):
        for file in root.rglob("cgroup.procs"):
            try:
                pids.update(int(line) for line in file.read_text().split())
            except OSError:
                continue
    return sorted(pids)


def remove_cgroups(node: Node) -> list[Path]:
    """Remove the node's cgroups and return those that stay because something still runs in them."""
    deadline = time.monotonic() + 5
    left: list[Path] = []
    while True:
        left = []
        for root in _roots(node):
            folders = sorted((p for p in root.rglob("*") if p.is_dir()), key=lambda p: len(p.parts), reverse=True)
            for folder in [*folders, root]:
                try:
                    folder.rmdir()
                except OSError:
                    left.append(folder)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)
