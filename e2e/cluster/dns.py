"""CoreDNS as a process beside the control plane; the kubelets hand its address to the pods."""

from __future__ import annotations

from pathlib import Path

from e2e.cluster.build import binary
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.manifests import cluster_role, render
from e2e.cluster.parts import COREDNS as PART
from e2e.cluster.process import answers, wait_for
from e2e.cluster.settings import CONTROL_NODE
from e2e.cluster.users import COREDNS

_READS = [
    {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
]


def corefile(address: str, kubeconfig: Path) -> str:
    """The Corefile: cluster.local only, answers kept 2 s so that new Services are seen at once."""
    return f"""\
.:53 {{
  bind {address}
  errors
  ready {address}:8181
  kubernetes cluster.local in-addr.arpa ip6.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    ttl 2
  }}
  cache 2
}}
"""


def start_dns(plane: ControlPlane) -> None:
    """Start CoreDNS and return when it is ready.

    Raises ClusterError naming its log.
    """
    plane.apply(render(*cluster_role("coredns", _READS, {"kind": "User", "name": COREDNS.name})))
    config = plane.directory / "Corefile"
    config.write_text(corefile(CONTROL_NODE.ip, plane.kubeconfig_of(COREDNS)))
    pid = plane.daemons.start("coredns", CONTROL_NODE.command(binary(PART), "-conf", config))
    log = plane.daemons.log("coredns")
    wait_for("CoreDNS is ready", lambda: answers(f"http://{CONTROL_NODE.ip}:8181/ready"), seconds=60, log=log, pid=pid)
