"""The engine pod: one template for both arms; only the engine's arguments differ."""

from collections.abc import Mapping, Sequence

from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.api.model import TemplateSpec
from specfleet.api.status import ArmRole
from specfleet.decide.exchange import SETTLE_SECONDS
from specfleet.engine.arguments import EngineArm
from specfleet.engine.nodes import LEADER_ADDRESS
from specfleet.resources.metadata import pod_labels
from specfleet.resources.scripts import DRAIN, DRAIN_HOST, PROVE

CONTAINER = "engine"
PORT = "SPECFLEET_PORT"
MODEL = "SPECFLEET_MODEL"
PROBE_PERIOD_SECONDS = 5
PROVE_TIMEOUT_SECONDS = 30
GRACE_MARGIN_SECONDS = 30
KEEP_ALIVE = "VLLM_HTTP_TIMEOUT_KEEP_ALIVE"
KEEP_ALIVE_SECONDS = "3900"
"""Longer than a gateway keeps idle connections (Envoy: one hour). vLLM's 5 s make it close a connection just as the
gateway sends a request on it: 503 now and then, seen at 6 requests/s without any switch."""
READY_TIMEOUT = "VLLM_ENGINE_READY_TIMEOUT_S"
"""The engine ends itself when its core is not up after this long, 600 s by default: a slow start of a large model would
look like a crash loop long before startupTimeoutSeconds is over. Always the same value, the most that field may be: the
probe and the operator hold the limit, and a changed limit must not change the engine's container."""
READY_TIMEOUT_SECONDS = "86400"
HOST_IP = "VLLM_HOST_IP"
QUEUE = "kueue.x-k8s.io/queue-name"
DRAIN_SETTLE_SECONDS = SETTLE_SECONDS + 1


def base_url(ip: str, port: int) -> str:
    """Where a pod answers HTTP; an IPv6 address stands in brackets."""
    return f"http://[{ip}]:{port}" if ":" in ip else f"http://{ip}:{port}"


def pod_template(
    owner: SpeculativeDeployment, spec: DeploymentSpec, engine: EngineArm, role: ArmRole, benchmark: bool
) -> RawObject:
    """core/v1 PodTemplateSpec of an arm; of engines over several pods, that of the leader."""
    metadata = pod_metadata(spec.template, pod_labels(owner, role, engine.fingerprint, benchmark))
    # A queue admits groups of pods as a whole, by the label of their set (resources/groups.py).
    if spec.template.kueue_queue_name and spec.template.multi_node is None:
        metadata["labels"][QUEUE] = spec.template.kueue_queue_name
    return {"metadata": metadata, "spec": pod_spec(spec, engine_container(spec, engine, benchmark))}


def pod_metadata(template: TemplateSpec, own: Mapping[str, str]) -> RawObject:
    """Labels and annotations of the template; the user's never take the place of ours."""
    metadata: RawObject = {"labels": {**template.labels, **own}}
    if template.annotations:
        metadata["annotations"] = dict(template.annotations)
    return metadata


def pod_spec(spec: DeploymentSpec, container: RawObject) -> RawObject:
    """core/v1 PodSpec around the container of an engine."""
    template = spec.template
    pod: RawObject = {
        "containers": [container],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_seconds(spec),
    }
    pod.update(_placement(template))
    volumes = list(template.volumes)
    if template.shared_memory_size:
        memory = {"medium": "Memory", "sizeLimit": template.shared_memory_size}
        volumes.append({"name": "specfleet-shm", "emptyDir": memory})
    if volumes:
        pod["volumes"] = volumes
    return pod


def grace_seconds(spec: DeploymentSpec) -> int:
    """Long enough for preStop (drain) and for SIGTERM with the engine's own shutdown timeout."""
    return spec.engine.drain_timeout_seconds + spec.engine.shutdown_timeout_seconds + GRACE_MARGIN_SECONDS


def engine_container(spec: DeploymentSpec, engine: EngineArm, benchmark: bool = False) -> RawObject:
    """The engine's container: command without a shell, probes that ask for a completion, a drain before SIGTERM."""
    return {
        **bare_container(spec, engine.args, [*_environment(spec, engine, benchmark), *engine.env]),
        "ports": [{"name": "http", "containerPort": spec.engine.port, "protocol": "TCP"}],
        "startupProbe": {
            "exec": {"command": ["python3", "-c", PROVE]},
            "periodSeconds": PROBE_PERIOD_SECONDS,
            "timeoutSeconds": PROVE_TIMEOUT_SECONDS + 1,
            "failureThreshold": max(1, spec.engine.startup_timeout_seconds // PROBE_PERIOD_SECONDS),
        },
        "readinessProbe": _health(period=2, failures=2),
        "livenessProbe": _health(period=10, failures=6),
    }


def worker_container(spec: DeploymentSpec, engine: EngineArm, benchmark: bool = False) -> RawObject:
    """The container of a pod that is not the leader of its engine: it has no HTTP, so nothing asks it.

    It leaves last: the leader's requests run on its GPUs too, so its drain asks the leader's metrics.
    """
    own = [*_environment(spec, engine, benchmark), {"name": DRAIN_HOST, "value": f"$({LEADER_ADDRESS})"}]
    return bare_container(spec, engine.worker_args, [*own, *engine.env])


def bare_container(spec: DeploymentSpec, args: Sequence[str], env: list[RawObject]) -> RawObject:
    """What every container of an engine has: image, command, drain, least privileges, devices and volumes."""
    template = spec.template
    container: RawObject = {
        "name": CONTAINER,
        "image": spec.engine.image,
        "command": ["vllm", "serve"],
        "args": list(args),
        "env": env,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "lifecycle": {"preStop": {"exec": {"command": ["python3", "-c", DRAIN]}}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
            **template.security_context,
        },
    }
    if template.resources or template.resource_claims:
        container["resources"] = _resources(template)
    if template.image_pull_policy:
        container["imagePullPolicy"] = template.image_pull_policy
    mounts = list(template.volume_mounts)
    if template.shared_memory_size:
        mounts.append({"name": "specfleet-shm", "mountPath": "/dev/shm"})  # noqa: S108 - where the engine expects it
    if mounts:
        container["volumeMounts"] = mounts
    return container


def _resources(template: TemplateSpec) -> RawObject:
    resources = dict(template.resources)
    if template.resource_claims and "claims" not in resources:
        resources["claims"] = [{"name": claim["name"]} for claim in template.resource_claims]
    return resources


def _health(period: int, failures: int) -> RawObject:
    return {
        "httpGet": {"path": "/health", "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _environment(spec: DeploymentSpec, engine: EngineArm, benchmark: bool) -> list[RawObject]:
    """What the probe and drain scripts read. The fingerprint is the only value that differs between arms.

    No endpoint leads to a benchmark's pod: it need not wait until one is gone everywhere, twice per benchmark and arm.
    """
    values = {
        PORT: str(spec.engine.port),
        MODEL: spec.model.served_name or spec.model.name,
        "SPECFLEET_FINGERPRINT": engine.fingerprint,
        "SPECFLEET_PROVE_TIMEOUT": str(PROVE_TIMEOUT_SECONDS),
        "SPECFLEET_DRAIN_SECONDS": str(spec.engine.drain_timeout_seconds),
        "SPECFLEET_SETTLE_SECONDS": "0" if benchmark else f"{DRAIN_SETTLE_SECONDS:g}",
    }
    given = {one.get("name") for one in spec.engine.env}
    defaults = {KEEP_ALIVE: KEEP_ALIVE_SECONDS, READY_TIMEOUT: READY_TIMEOUT_SECONDS}
    values |= {name: value for name, value in defaults.items() if name not in given}
    own: list[RawObject] = [{"name": name, "value": value} for name, value in values.items()]
    if spec.template.multi_node is not None and HOST_IP not in given:
        own.append({"name": HOST_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    return own


def _placement(template: TemplateSpec) -> RawObject:
    """Fields that go into the pod as the user wrote them; absent ones stay absent."""
    fields: RawObject = {
        "nodeSelector": template.node_selector,
        "tolerations": template.tolerations,
        "affinity": template.affinity,
        "topologySpreadConstraints": template.topology_spread_constraints,
        "initContainers": template.init_containers,
        "resourceClaims": template.resource_claims,
        "serviceAccountName": template.service_account_name,
        "imagePullSecrets": template.image_pull_secrets,
        "runtimeClassName": template.runtime_class_name,
        "priorityClassName": template.priority_class_name,
        "schedulerName": template.scheduler_name,
        "hostIPC": template.host_ipc,
        "securityContext": template.pod_security_context,
    }
    return {key: value for key, value in fields.items() if value}


def place(template: RawObject, running: RawObject | None, node: str | None) -> None:
    """Give a pod template the placement of the one that runs (to change it would replace a pod under its runs), or let
    it prefer a node."""
    spec = template["spec"]
    affinity = spec.get("affinity")
    if running is not None:
        affinity = running["spec"].get("affinity")
    elif node is not None:
        affinity = preferring(affinity, node)
    spec.pop("affinity", None)
    if affinity:
        spec["affinity"] = affinity


def preferring(affinity: RawObject | None, node: str) -> RawObject:
    """core/v1 Affinity that also prefers one node, by its name: a hostname label may have another value."""
    given = dict(affinity or {})
    on_nodes = dict(given.get("nodeAffinity") or {})
    terms = list(on_nodes.get("preferredDuringSchedulingIgnoredDuringExecution") or [])
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms.append({"weight": 100, "preference": {"matchFields": [field]}})
    return {**given, "nodeAffinity": {**on_nodes, "preferredDuringSchedulingIgnoredDuringExecution": terms}}


def selector(owner: SpeculativeDeployment, role: ArmRole, fingerprint: str, benchmark: bool) -> dict[str, str]:
    """Labels that choose the pods of one arm."""
    own = pod_labels(owner, role, fingerprint, benchmark)
    return {key: own[key] for key in (labels.DEPLOYMENT, labels.FINGERPRINT, labels.ROLE)}
