import base64
import ipaddress
import json
import tomllib
from pathlib import Path

import pytest

from e2e.cluster import monitoring, node, users
from e2e.cluster.manifests import render
from e2e.cluster.settings import CLUSTER_CIDR, MAX_NODES, SERVICE_CIDR, Node


@pytest.mark.parametrize("number", range(1, MAX_NODES + 1))
def test_each_nodes_addresses_lie_in_the_cluster_and_overlap_no_other_nodes(number: int) -> None:
    pods = ipaddress.ip_network(Node(number).pod_cidr)
    assert pods.subnet_of(ipaddress.ip_network(CLUSTER_CIDR))
    others = [Node(n) for n in range(1, MAX_NODES + 1) if n != number]
    assert not any(pods.overlaps(ipaddress.ip_network(other.pod_cidr)) for other in others)
    assert Node(number).ip not in {other.ip for other in others}


def test_the_fixed_addresses_are_service_addresses() -> None:
    services = ipaddress.ip_network(SERVICE_CIDR)
    for url in (monitoring.PROMETHEUS_URL, monitoring.ALERTMANAGER_URL):
        assert ipaddress.ip_address(url.removeprefix("http://").split(":")[0]) in services


def test_containerds_configuration_is_toml_that_pins_the_pause_image_and_names_runc() -> None:
    config = tomllib.loads(node.containerd_config(Node(2), Path("/parts/runc"), Path("/parts/cni")))
    plugins = config["plugins"]
    assert plugins["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"] == "localhost/pause:1"
    runtime = plugins["io.containerd.cri.v1.runtime"]
    assert runtime["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/parts/runc"
    assert runtime["cni"]["bin_dirs"] == ["/parts/cni"]


def test_two_nodes_never_share_a_cgroup_root_or_a_socket() -> None:
    configs = [node.kubelet_config(Node(n), Path("/etc/resolv.conf")) for n in (1, 2)]
    assert configs[0]["cgroupRoot"] != configs[1]["cgroupRoot"]
    assert configs[0]["containerRuntimeEndpoint"] != configs[1]["containerRuntimeEndpoint"]


def test_kubeconfigs_verify_the_server_and_tokens_are_private(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_text("certificate")
    tokens = users.write_users(
        tmp_path / "users", "https://10.0.0.1:6443", authority, [users.ADMIN, users.node_user(1)]
    )
    config = json.loads((tmp_path / "users" / "admin.kubeconfig").read_text())
    cluster = config["clusters"][0]["cluster"]
    assert cluster["server"] == "https://10.0.0.1:6443"
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"certificate"
    assert "insecure-skip-tls-verify" not in cluster
    assert config["users"][0]["user"]["token"] in tokens.read_text()
    assert tokens.stat().st_mode & 0o077 == 0
    assert 'system:node:node1,node1,"system:nodes"' in tokens.read_text()


def test_prometheus_takes_the_monitors_and_rules_of_every_namespace() -> None:
    listed = json.loads(render(*monitoring.objects()))["items"]
    spec = next(item["spec"] for item in listed if item["kind"] == "Prometheus")
    for kind in ("podMonitor", "rule"):
        assert spec[f"{kind}Selector"] == {}
        assert spec[f"{kind}NamespaceSelector"] == {}
