"""One node: containerd with its images, kubelet, kube-proxy."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from e2e.cluster import network
from e2e.cluster.build import binary, part_dir
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.parts import CONTAINERD, KUBE, RUNC
from e2e.cluster.process import run, wait_for
from e2e.cluster.settings import CLUSTER_CIDR, CONTROL_NODE, Node
from e2e.cluster.users import PROXY, node_user

_READY_SECONDS = 120.0


def start_node(node: Node, plane: ControlPlane) -> None:
    """Start a node's containerd, ready for images; its network must be there.

    Raises ClusterError naming the log to read.
    """
    network.make_cgroups(node)
    _start_containerd(node, plane)


def wait_ready(node: Node, plane: ControlPlane) -> None:
    """Return when Kubernetes says that the node is Ready.

    Raises ClusterError naming the kubelet's log.
    """
    name = f"kubelet-{node.name}"
    path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    query = [*plane.kubectl, "get", "node", node.name, "-o", path]
    wait_for(
        f"{node.name} is Ready",
        lambda: subprocess.run(query, capture_output=True, check=False).stdout == b"True",
        seconds=_READY_SECONDS,
        log=plane.daemons.log(name),
        pid=plane.daemons.pid(name),
    )


def containerd_command(node: Node, *arguments: str | Path) -> list[str]:
    """A ctr command line against the node's containerd, in Kubernetes' namespace."""
    return [str(binary(CONTAINERD, "ctr")), "-a", str(node.containerd_socket), "-n", "k8s.io", *map(str, arguments)]


def import_image(node: Node, archive: Path, log: Path) -> None:
    """Import an OCI archive into the node's containerd."""
    run(containerd_command(node, "images", "import", archive), log=log)


def containerd_config(node: Node, runc: Path, plugins: Path) -> str:
    """The configuration of the node's containerd (version 3), as TOML."""
    folder = node.directory / "containerd"
    return f"""\
version = 3
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{node.containerd_socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  # Without CAP_SYS_RESOURCE a lower oom_score_adj is refused.
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "{runc}"
        Root = "{folder}/runc"
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{plugins}"]
    conf_dir = "{node.directory}/cni/net.d"
"""


def cni_config(node: Node) -> dict[str, object]:
    """The pod network of one node: a bridge with the node's share of the pod addresses."""
    ranges = [[{"subnet": node.pod_cidr}]]
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isDefaultGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": {"type": "host-local", "dataDir": f"{node.directory}/cni/ipam", "ranges": ranges},
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]}


def kubelet_config(node: Node, resolv_conf: Path) -> dict[str, object]:
    """The KubeletConfiguration of one node."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.netns}",
        "containerRuntimeEndpoint": f"unix://{node.containerd_socket}",
        "address": node.ip,
        "healthzBindAddress": "127.0.0.1",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "podLogsDir": f"{node.directory}/pods-log",
        "volumePluginDir": f"{node.directory}/volplugins",
        "resolvConf": str(resolv_conf),
        "clusterDomain": "cluster.local",
        "clusterDNS": [CONTROL_NODE.ip],
        # There is no registry: a collected image never comes back.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
            "imagefs.inodesFree": "1%",
        },
        "nodeStatusUpdateFrequency": "5s",
        # How soon a changed Secret or ConfigMap shows in its pods: a new PodMonitor is scraped within seconds.
        "syncFrequency": "5s",
        "maxPods": 200,
    }


def proxy_config(node: Node, kubeconfig: Path) -> dict[str, object]:
    """The KubeProxyConfiguration of one node."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": CLUSTER_CIDR,
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "hostnameOverride": node.name,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # These sysctls are read-only in a network namespace.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "oomScoreAdj": 0,
        "nodePortAddresses": [f"{node.ip}/32"],
    }


def _start_containerd(node: Node, plane: ControlPlane) -> None:
    for folder in ("containerd", "cni/net.d", "kubelet"):
        (node.directory / folder).mkdir(parents=True, exist_ok=True)
    config = node.directory / "containerd" / "config.toml"
    config.write_text(containerd_config(node, binary(RUNC), part_dir(CONTAINERD)))
    (node.directory / "cni" / "net.d" / "10-bridge.conflist").write_text(json.dumps(cni_config(node)))
    name = f"containerd-{node.name}"
    search = f"{part_dir(CONTAINERD)}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    pid = plane.daemons.start(name, node.command(binary(CONTAINERD), "-c", config), {"PATH": search})
    version = containerd_command(node, "version")
    wait_for(
        f"containerd of {node.name} answers",
        lambda: subprocess.run(version, capture_output=True, check=False).returncode == 0,
        seconds=30,
        log=plane.daemons.log(name),
        pid=pid,
    )


def start_kubelet(node: Node, plane: ControlPlane) -> None:
    """Start the node's kubelet; it waits for the API server by itself."""
    # No upstream name servers: names outside the cluster don't resolve in pods.
    resolv_conf = plane.directory / "resolv.conf"
    resolv_conf.touch()
    config = node.directory / "kubelet.yaml"
    config.write_text(json.dumps(kubelet_config(node, resolv_conf)))
    plane.daemons.start(
        f"kubelet-{node.name}",
        [
            *node.command(binary(KUBE, "kubelet"), f"--config={config}"),
            f"--kubeconfig={plane.kubeconfig_of(node_user(node.number))}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.ip}",
            f"--root-dir={node.directory / 'kubelet'}",
            f"--cert-dir={node.directory / 'kubelet-certificates'}",
            "-v=2",
            # Else cadvisor doesn't find the containers' labels.
            f"--containerd={node.containerd_socket}",
            "--containerd-namespace=k8s.io",
        ],
    )


def start_proxy(node: Node, plane: ControlPlane) -> None:
    """Start the node's kube-proxy; RBAC for it must be there."""
    config = node.directory / "proxy.yaml"
    config.write_text(json.dumps(proxy_config(node, plane.kubeconfig_of(PROXY))))
    plane.daemons.start(f"kube-proxy-{node.name}", node.command(binary(KUBE, "kube-proxy"), f"--config={config}"))


PROXY_BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "kube-proxy"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"},
    "subjects": [{"kind": "User", "name": PROXY.name}],
}
