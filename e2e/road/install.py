"""Puts specfleet into a cluster: builds both images, renders the chart and applies it, waits for the operator.

  python -m e2e.road.install

Running it again changes nothing that is already so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml
from helm_python import Chart

from e2e.cluster.images import ImageBuild
from e2e.road.access import FIELD_MANAGER, ROOT, Access, Object, RoadError, cluster_command, find_access, wait_until

OPERATOR_NAMESPACE = "specfleet"
RELEASE = "specfleet"
ENGINE_TAG = "0.32.0"
OPERATOR_TAG = "dev"
OPERATOR_FILE = "images/operator/Dockerfile"
CHART = ROOT / "charts" / "specfleet"
READY_SECONDS = 180.0


def image_prefix() -> str:
    """Where images come from: localhost in the embedded cluster, IMAGE_PREFIX in any other one. Raises RoadError."""
    if os.environ.get("CLUSTER", "embedded") == "embedded":
        return "localhost"
    prefix = os.environ.get("IMAGE_PREFIX", "").rstrip("/")
    if not prefix:
        raise RoadError(
            "CLUSTER=existing and CLUSTER=kind take images from a registry that the nodes can reach. Build and push\n"
            f"  docker build -t PREFIX/specfleet:{OPERATOR_TAG} -f {OPERATOR_FILE} .\n"
            f"  docker build -t PREFIX/vllm-sim:{ENGINE_TAG} images/vllm-sim\n"
            "(for kind: `kind load docker-image` instead of a push) and set IMAGE_PREFIX=PREFIX.\n"
            "GATEWAY=NAMESPACE/NAME names the Gateway that the example is reached by (GATEWAY_URL leads to it)."
        )
    return prefix


def operator_image() -> str:
    """Name of the operator's image."""
    return f"{image_prefix()}/specfleet:{OPERATOR_TAG}"


def engine_image() -> str:
    """Name of the simulated engine's image."""
    return f"{image_prefix()}/vllm-sim:{ENGINE_TAG}"


def build_images() -> None:
    """Build both images in the embedded cluster, or do nothing where they come from a registry. Raises RoadError."""
    if image_prefix() != "localhost":
        return
    _build(engine_image(), "images/vllm-sim")
    _build(operator_image(), ".", "--file", OPERATOR_FILE)


def _build(tag: str, context: str, *more: str) -> None:
    done = subprocess.run(cluster_command("image", tag, context, *more), cwd=ROOT, check=False)
    if done.returncode != 0:
        raise RoadError(f"image {tag} could not be built; why is said above")


def operator_content() -> str:
    """What the operator's image was built from: the tag stays the same, so a change has to show elsewhere."""
    if image_prefix() != "localhost":
        return "from a registry"
    return ImageBuild(operator_image(), ROOT, ROOT / OPERATOR_FILE).key()


def chart_values(access: Access) -> Object:
    """What the demo sets in the chart: the image and where metrics and alerts are."""
    repository, _, tag = operator_image().rpartition(":")
    return {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "IfNotPresent"},
        "prometheus": {"url": access.prometheus_url},
        "alertmanager": {"url": access.alertmanager_url or ""},
        "podMonitor": {"enabled": True, "interval": "5s"},
        "namespaces": limited_namespaces(),
        "podAnnotations": {"specfleet.dev/image-content": operator_content()},
    }


def limited_namespaces() -> list[str]:
    """Namespaces that the operator is limited to: OPERATOR_NAMESPACES, separated by commas; empty means all of them."""
    return [part.strip() for part in os.environ.get("OPERATOR_NAMESPACES", "").split(",") if part.strip()]


def render_chart(values: Mapping[str, Any]) -> list[Object]:
    """The chart's CRDs and objects, CRDs first."""
    with Chart.load(CHART) as chart:
        crds = [one["data"] for one in chart.crds]
        rendered = chart.render(values=dict(values), name=RELEASE, namespace=OPERATOR_NAMESPACE)
    texts = [*crds, *(text for path, text in sorted(rendered.items()) if path.endswith((".yaml", ".yml")))]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def install(access: Access) -> Object:
    """Apply the chart and wait until the operator leads. Returns its Deployment. Raises RoadError."""
    objects = [_placed(one) for one in render_chart(chart_values(access))]
    needed = [OPERATOR_NAMESPACE, *limited_namespaces()]
    namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in needed]
    crds = [one for one in objects if one["kind"] == "CustomResourceDefinition"]
    others = [one for one in objects if one["kind"] != "CustomResourceDefinition"]
    access.apply([*namespaces, *crds])
    for crd in crds:
        name = crd["metadata"]["name"]
        access.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"crd/{name}")
    access.apply(others)
    return wait_for_operator(access)


def _placed(one: Object) -> Object:
    """Namespaced objects of a rendered chart may leave their namespace to the installer."""
    if one["kind"] in ("CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Namespace"):
        return one
    return {**one, "metadata": {"namespace": OPERATOR_NAMESPACE, **one["metadata"]}}


def wait_for_operator(access: Access) -> Object:
    """Wait until the operator's pod is ready and its Lease is held. Raises RoadError with the pod's last words."""
    try:
        wait_until("the operator is ready and holds its Lease", lambda: _leads(access), READY_SECONDS)
    except RoadError as error:
        log = access.kubectl("logs", "-n", OPERATOR_NAMESPACE, f"deployment/{deployment_name(access)}", "--tail=15")
        raise RoadError(f"{error}\n{log.stdout}{log.stderr}") from error
    found = access.get("deployment", deployment_name(access), OPERATOR_NAMESPACE)
    assert found is not None
    return found


def deployment_name(access: Access) -> str:
    """Name of the operator's Deployment."""
    names = [one["metadata"]["name"] for one in access.list("deployments", OPERATOR_NAMESPACE)]
    if not names:
        raise RoadError(f"there is no operator in namespace {OPERATOR_NAMESPACE}: run `python -m e2e.road.install`")
    return str(names[0])


def operator_pods(access: Access) -> list[Object]:
    """The operator's pods that are not on their way out."""
    pods = access.list("pods", OPERATOR_NAMESPACE)
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def service_account(access: Access) -> str:
    """The operator's user name in the audit log."""
    deployment = access.get("deployment", deployment_name(access), OPERATOR_NAMESPACE)
    assert deployment is not None
    account = deployment["spec"]["template"]["spec"].get("serviceAccountName", "default")
    return f"system:serviceaccount:{OPERATOR_NAMESPACE}:{account}"


def _leads(access: Access) -> bool:
    deployment = access.get("deployment", deployment_name(access), OPERATOR_NAMESPACE)
    status = (deployment or {}).get("status", {})
    generation = (deployment or {}).get("metadata", {}).get("generation")
    rolled_out = status.get("observedGeneration") == generation and status.get("updatedReplicas", 0) >= 1
    if not (rolled_out and status.get("availableReplicas", 0) >= 1):
        return False
    pods = {pod["metadata"]["name"] for pod in operator_pods(access)}
    leases = access.list("leases.coordination.k8s.io", OPERATOR_NAMESPACE)
    return any(one["spec"].get("holderIdentity") in pods for one in leases)


def prometheus_host(access: Access) -> str:
    """Host and port of Prometheus, for messages."""
    return urlsplit(access.prometheus_url).netloc


def print_objects(objects: Iterable[Mapping[str, Any]]) -> None:
    """Show what is about to be applied, as YAML."""
    print(yaml.safe_dump_all([json.loads(json.dumps(one)) for one in objects], sort_keys=False), end="")


def main() -> None:
    """Build and install into the cluster that is up."""
    try:
        access = find_access()
        build_images()
        deployment = install(access)
    except RoadError as error:
        sys.exit(f"error: {error}")
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    print(f"specfleet runs in namespace {OPERATOR_NAMESPACE} ({image}), applied by {FIELD_MANAGER}")


if __name__ == "__main__":
    main()
