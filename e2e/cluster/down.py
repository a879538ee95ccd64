"""Takes the cluster down: everything that a run made and only that, also after a run that was killed half way."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from e2e.cluster import host, network
from e2e.cluster.process import Daemons, end
from e2e.cluster.process import run as run_command
from e2e.cluster.settings import Node, cache_dir, run_dir

# In this order; the API server hangs on SIGTERM once etcd is gone, and containerd is needed by nobody after the pods.
_ORDER = ("kube-proxy", "kubelet", "envoy", "contour", "coredns", "prometheus-operator")
_LAST = ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
_TASKS = "n*/containerd/state/io.containerd.runtime.v2.task/k8s.io"


def take_down() -> list[str]:
    """Remove the cluster and return what could not be removed, one line each; nothing there is not an error."""
    directory = run_dir()
    daemons = Daemons(directory)
    names = daemons.names()
    first = [name for prefix in _ORDER for name in names if name.startswith(prefix)]
    _end_group(daemons, first)
    _end_group(daemons, [name for name in _LAST if name in names])
    namespaces = _pod_namespaces(directory)
    sandboxes = [folder.name for folder in directory.glob(f"{_TASKS}/*")]
    nodes = network.made_nodes()
    for node in nodes:
        end(network.cgroup_processes(node), grace_seconds=0.0)
    end(daemons.marked(), grace_seconds=1.0)
    _unmount(directory)
    _unmount(cache_dir() / "buildah")
    for name in namespaces:
        run_command(["ip", "netns", "del", name], check=False)
    left = [str(path) for node in nodes for path in _remove_node(node)]
    host.put_back(sandboxes)
    shutil.rmtree(directory, ignore_errors=True)
    left += [f"the mount {mount}" for mount in host.mounts_below(directory)]
    left += [f"process {pid}" for pid in daemons.marked()]
    left += [str(directory)] if directory.exists() else []
    return left


def _end_group(daemons: Daemons, names: list[str]) -> None:
    pids = [pid for name in names if (pid := daemons.pid(name)) is not None]
    end(pids, grace_seconds=1.0)


def _remove_node(node: Node) -> list[Path]:
    network.remove_network(node)
    return network.remove_cgroups(node)


def _pod_namespaces(directory: Path) -> list[str]:
    """The network namespaces of the run's pods, by containerd's own records."""
    found: set[str] = set()
    for config in directory.glob(f"{_TASKS}/*/config.json"):
        found.update(re.findall(r"/run/netns/(cni-[0-9a-f-]+)", config.read_text(errors="replace")))
    return sorted(found)


def _unmount(directory: Path) -> None:
    for mount in host.mounts_below(directory):
        run_command(["umount", "-l", mount], check=False)
