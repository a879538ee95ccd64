"""Gateway API: Contour (control plane) and Envoy (data plane) as processes beside the Kubernetes control plane.

The Gateway specfleet-test/gateway listens on 18080, which Contour binds to 26080: http://10.250.1.2:26080 from the
host and from pods. Without `timeouts` in an HTTPRoute Envoy cuts a request after 15 s.
"""

from __future__ import annotations

from pathlib import Path

from e2e.cluster.build import binary, part_dir
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.manifests import namespace, render
from e2e.cluster.parts import CONTOUR as PART
from e2e.cluster.process import answers, run, wait_for
from e2e.cluster.settings import (
    CONTROL_NODE,
    ENVOY_PORT,
    GATEWAY_NAME,
    GATEWAY_NAMESPACE,
    GATEWAY_PORT,
    ClusterError,
)
from e2e.cluster.users import CONTOUR
from e2e.cluster.wheels import envoy_binary

GATEWAY_URL = f"http://{CONTROL_NODE.ip}:{ENVOY_PORT}"
_XDS_PORT = 18001
_GROUP = "gateway.networking.k8s.io/v1"
GATEWAY_CLASS = {
    "apiVersion": _GROUP,
    "kind": "GatewayClass",
    "metadata": {"name": "contour"},
    "spec": {"controllerName": "projectcontour.io/gateway-controller"},
}
GATEWAY = {
    "apiVersion": _GROUP,
    "kind": "Gateway",
    "metadata": {"name": GATEWAY_NAME, "namespace": GATEWAY_NAMESPACE},
    "spec": {
        "gatewayClassName": "contour",
        "listeners": [
            {
                "name": "http",
                "protocol": "HTTP",
                "port": GATEWAY_PORT,
                "allowedRoutes": {"namespaces": {"from": "All"}},
            }
        ],
    },
}


def start_gateway(plane: ControlPlane) -> None:
    """Install the CRDs, start Contour and Envoy and return when the Gateway is programmed.

    Raises ClusterError naming the log to read.
    """
    crds = part_dir(PART) / "crds"
    plane.install_crds(crds / "gateway-api", crds / "contour.yaml")
    plane.apply(render(namespace("projectcontour"), namespace(GATEWAY_NAMESPACE), GATEWAY_CLASS, GATEWAY))
    _start_contour(plane)
    _start_envoy(plane)
    log = plane.daemons.log("contour")
    done = run(
        [
            *plane.kubectl,
            "-n",
            GATEWAY_NAMESPACE,
            "wait",
            "--for=condition=Programmed",
            "--timeout=60s",
            f"gateway/{GATEWAY_NAME}",
        ],
        check=False,
    )
    if done.returncode != 0:
        raise ClusterError(f"the Gateway is not Programmed: {done.stderr.strip()}; read {log}")


def _start_contour(plane: ControlPlane) -> None:
    config = plane.directory / "contour.yaml"
    config.write_text(f"gateway:\n  gatewayRef: {{namespace: {GATEWAY_NAMESPACE}, name: {GATEWAY_NAME}}}\n")
    command: list[str | Path] = [
        binary(PART),
        "serve",
        f"--config-path={config}",
        f"--kubeconfig={plane.kubeconfig_of(CONTOUR)}",
        "--insecure",
        "--xds-address=127.0.0.1",
        f"--xds-port={_XDS_PORT}",
        "--disable-leader-election",
        "--http-address=127.0.0.1",
        "--http-port=18002",
        f"--health-address={CONTROL_NODE.ip}",
        "--health-port=18003",
        "--debug-http-port=18004",
        "--envoy-service-http-address=0.0.0.0",
        f"--envoy-service-http-port={GATEWAY_PORT}",
        # The CRDs of these kinds are not in Gateway API's standard channel.
        *(f"--disable-feature={kind}" for kind in ("tlsroutes", "tcproutes", "backendtlspolicies")),
    ]
    pid = plane.daemons.start("contour", CONTROL_NODE.command(*command))
    health = f"http://{CONTROL_NODE.ip}:18003/healthz"
    log = plane.daemons.log("contour")
    wait_for("Contour is healthy", lambda: answers(health), seconds=60, log=log, pid=pid)


def _start_envoy(plane: ControlPlane) -> None:
    config = plane.directory / "envoy.json"
    run(
        [
            binary(PART),
            "bootstrap",
            "--xds-address=127.0.0.1",
            f"--xds-port={_XDS_PORT}",
            "--dns-lookup-family=v4",
            f"--admin-address={plane.directory / 'envoy-admin.sock'}",
            config,
        ]
    )
    pid = plane.daemons.start(
        "envoy",
        [
            *CONTROL_NODE.command(envoy_binary(), "-c", config, "--service-cluster", "gateway", "--service-node"),
            "gateway-1",
            "--log-level",
            "warn",
            "--concurrency",
            "1",
        ],
    )
    # The Gateway's own port opens with the first HTTPRoute.
    ready = f"http://{CONTROL_NODE.ip}:8002/ready"
    wait_for("Envoy is ready", lambda: answers(ready), seconds=60, log=plane.daemons.log("envoy"), pid=pid)
