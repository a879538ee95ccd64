"""Monitoring: prometheus-operator as a process beside the control plane; the Prometheus and Alertmanager that it
deploys run as pods, from images around our own binaries. So PodMonitor and PrometheusRule mean what they mean
anywhere. Both servers have a fixed address, reachable from the host and from pods.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster.base_images import ALERTMANAGER_IMAGE, PROMETHEUS_IMAGE, RELOADER_IMAGE
from e2e.cluster.build import binary, part_dir
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.manifests import Object, cluster_role, namespace, render
from e2e.cluster.parts import PROMETHEUS_OPERATOR
from e2e.cluster.process import answers, run, wait_for
from e2e.cluster.settings import (
    ALERTMANAGER_VIP,
    CONTROL_NODE,
    MONITORING_NAMESPACE,
    PROMETHEUS_VIP,
    run_dir,
)
from e2e.cluster.users import PROMETHEUS_OPERATOR as USER

PROMETHEUS_URL = f"http://{PROMETHEUS_VIP}:9090"
ALERTMANAGER_URL = f"http://{ALERTMANAGER_VIP}:9093"
_GROUP = "monitoring.coreos.com"
_ACCOUNT = "prometheus"
_READS: list[Object] = [
    {
        "apiGroups": [""],
        "resources": ["nodes", "nodes/metrics", "services", "endpoints", "pods"],
        "verbs": ["get", "list", "watch"],
    },
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
    {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
]
# Alerts are only read from the API: /api/v2/alerts. The short group_wait shows them at once.
ALERTMANAGER_CONFIG: Object = {
    "route": {"receiver": "none", "group_wait": "1s", "group_interval": "5s", "repeat_interval": "1h"},
    "receivers": [{"name": "none"}],
}


def _meta(name: str) -> dict[str, str]:
    return {"name": name, "namespace": MONITORING_NAMESPACE}


def _service(name: str, address: str, port: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(name),
        "spec": {
            "clusterIP": address,
            "selector": {"app.kubernetes.io/name": name, "app.kubernetes.io/instance": "main"},
            "ports": [{"name": "web", "port": port, "targetPort": "web"}],
        },
    }


def _claim() -> dict[str, object]:
    return {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
    }


def volume(folder: Path) -> Object:
    """The one PersistentVolume, which Prometheus's claim binds to: a folder of this machine, the same on every node."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "prometheus"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder)},
        },
    }


def prometheus() -> Object:
    """The Prometheus object: every PodMonitor, ServiceMonitor and PrometheusRule of every namespace."""
    selectors: dict[str, object] = {}
    for kind in ("podMonitor", "serviceMonitor", "rule", "probe", "scrapeConfig"):
        selectors |= {f"{kind}Selector": {}, f"{kind}NamespaceSelector": {}}
    alertmanager = {"namespace": MONITORING_NAMESPACE, "name": "alertmanager", "port": "web", "apiVersion": "v2"}
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "Prometheus",
        "metadata": _meta("main"),
        "spec": {
            "image": PROMETHEUS_IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "version": "v3.16.0",
            "replicas": 1,
            "serviceAccountName": _ACCOUNT,
            "externalUrl": PROMETHEUS_URL,
            "scrapeInterval": "5s",
            "evaluationInterval": "2s",
            "retention": "2d",
            # Kept over a stop, as a real Prometheus keeps it.
            "storage": {"volumeClaimTemplate": {"spec": _claim()}},
            **selectors,
            "alerting": {"alertmanagers": [alertmanager]},
            "securityContext": {"fsGroup": 65534, "runAsUser": 65534, "runAsNonRoot": True},
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        },
    }


def alertmanager() -> Object:
    """The Alertmanager object."""
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "Alertmanager",
        "metadata": _meta("main"),
        "spec": {
            "image": ALERTMANAGER_IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "version": "v0.35.0",
            "replicas": 1,
            "externalUrl": ALERTMANAGER_URL,
            "configSecret": "alertmanager-config",
            "securityContext": {"fsGroup": 65534, "runAsUser": 65534, "runAsNonRoot": True},
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        },
    }


def objects() -> list[Object]:
    """Everything but the namespace and the CRDs."""
    account = {"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": MONITORING_NAMESPACE}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": _meta("alertmanager-config")}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta(_ACCOUNT)},
        *cluster_role("prometheus", _READS, account),
        {**secret, "stringData": {"alertmanager.yaml": json.dumps(ALERTMANAGER_CONFIG)}},
        _service("prometheus", PROMETHEUS_VIP, 9090),
        _service("alertmanager", ALERTMANAGER_VIP, 9093),
        alertmanager(),
        prometheus(),
    ]


def start_operator(plane: ControlPlane) -> None:
    """Install the CRDs, start prometheus-operator and ask it for a Prometheus and an Alertmanager; doesn't wait."""
    plane.install_crds(part_dir(PROMETHEUS_OPERATOR) / "crds")
    data = plane.directory / "prometheus"
    data.mkdir(exist_ok=True)
    # fsGroup doesn't reach into a hostPath.
    data.chmod(0o777)
    plane.apply(render(namespace(MONITORING_NAMESPACE), volume(data)))
    plane.daemons.start(
        "prometheus-operator",
        [
            *CONTROL_NODE.command(
                binary(PROMETHEUS_OPERATOR, "operator"), f"--prometheus-config-reloader={RELOADER_IMAGE}"
            ),
            "--web.listen-address=127.0.0.1:18006",
            "--log-level=info",
            "--config-reloader-cpu-request=0",
            "--config-reloader-cpu-limit=0",
            "--config-reloader-memory-request=0",
            "--config-reloader-memory-limit=0",
        ],
        {"KUBECONFIG": str(plane.kubeconfig_of(USER))},
    )
    plane.apply(render(*objects()))


def wait_for_monitoring(plane: ControlPlane) -> None:
    """Return when Prometheus and Alertmanager answer at their fixed addresses.

    Raises ClusterError naming the log to read.
    """
    operator = plane.daemons.log("prometheus-operator")
    for name, url in (("Prometheus", PROMETHEUS_URL), ("Alertmanager", ALERTMANAGER_URL)):
        wait_for(f"{name} answers at {url}", lambda url=url: answers(f"{url}/-/ready"), seconds=180, log=operator)  # type: ignore[misc]


def set_prometheus(plane_kubectl: Sequence[str], *, running: bool) -> None:
    """Stop or start Prometheus, as an outage that tests want; what it had scraped before is there again after.

    Raises ClusterError when it isn't so after two minutes.
    """
    replicas = 1 if running else 0
    patch = json.dumps({"spec": {"replicas": replicas}})
    inside = [*plane_kubectl, "-n", MONITORING_NAMESPACE]
    run([*inside, "patch", "prometheuses.monitoring.coreos.com", "main", "--type=merge", "-p", patch])
    run(
        [
            *inside,
            "wait",
            f"--for=jsonpath={{.spec.replicas}}={replicas}",
            "statefulset/prometheus-main",
            "--timeout=60s",
        ]
    )
    log = run_dir() / "log" / "prometheus-operator.log"
    wait_for(
        f"Prometheus is {'up' if running else 'gone'}",
        lambda: answers(f"{PROMETHEUS_URL}/-/ready") == running,
        seconds=120,
        log=log,
    )
