"""Where the test cluster keeps its files and which addresses it uses."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

KUBERNETES_VERSION = "1.36.3"
PARTS = Path(__file__).parent / "parts"

API_PORT = 6443
CLUSTER_CIDR = "10.244.0.0/16"
SERVICE_CIDR = "10.96.0.0/16"
KUBERNETES_VIP = "10.96.0.1"
PROMETHEUS_VIP = "10.96.0.90"
ALERTMANAGER_VIP = "10.96.0.93"
GATEWAY_NAMESPACE = "specfleet-test"
GATEWAY_NAME = "gateway"
MONITORING_NAMESPACE = "monitoring"
# Contour binds a Gateway's listener to its port + 8000 so that Envoy needs no privileged port.
GATEWAY_PORT = 18080
ENVOY_PORT = GATEWAY_PORT + 8000


class ClusterError(Exception):
    """What went wrong and which log tells more; shown to the user as it is."""


def cache_dir() -> Path:
    """The folder for everything built and everything running: SPECFLEET_CACHE, else ~/.cache/specfleet."""
    named = os.environ.get("SPECFLEET_CACHE")
    return Path(named).resolve() if named else Path.home() / ".cache" / "specfleet"


def run_dir() -> Path:
    """The folder of the running cluster; it exists exactly while there is something to take down."""
    return cache_dir() / "run"


@dataclass(frozen=True)
class Node:
    """Addresses and names of one node; node 1's network namespace also carries the control plane."""

    number: int

    @property
    def name(self) -> str:
        """The node's name in Kubernetes."""
        return f"node{self.number}"

    @property
    def netns(self) -> str:
        """The name of the node's network namespace and of its cgroup root."""
        return f"kn{self.number}"

    @property
    def ip(self) -> str:
        """The node's address."""
        return f"10.250.{self.number}.2"

    @property
    def gateway_ip(self) -> str:
        """The address of the other end of the node's veth pair."""
        return f"10.250.{self.number}.1"

    @property
    def pod_cidr(self) -> str:
        """The node's share of CLUSTER_CIDR."""
        return f"10.244.{self.number}.0/24"

    @property
    def directory(self) -> Path:
        """The node's state folder."""
        return run_dir() / f"n{self.number}"

    @property
    def containerd_socket(self) -> Path:
        """The address of the node's containerd."""
        return self.directory / "containerd" / "containerd.sock"

    def command(self, *argv: str | Path) -> list[str]:
        """Return argv wrapped to run in the node's network namespace.

        Not `ip netns exec`: that remounts /sys and hides /sys/fs/cgroup.
        """
        return ["nsenter", f"--net=/run/netns/{self.netns}", *map(str, argv)]


MAX_NODES = 5
CONTROL_NODE = Node(1)
