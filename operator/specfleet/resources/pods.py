"""The engine pod: one template for both arms; only the engine's arguments differ."""

from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.api.model import TemplateSpec
from specfleet.api.status import ArmRole
from specfleet.decide.exchange import SETTLE_SECONDS
from specfleet.engine.arguments import EngineArm
from specfleet.resources.metadata import pod_labels
from specfleet.resources.scripts import DRAIN, PROVE

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
DRAIN_SETTLE_SECONDS = SETTLE_SECONDS + 1


def pod_template(
    owner: SpeculativeDeployment, spec: DeploymentSpec, engine: EngineArm, role: ArmRole, benchmark: bool
) -> RawObject:
    """core/v1 PodTemplateSpec of an arm."""
    template = spec.template
    own = pod_labels(owner, role, engine.fingerprint, benchmark)
    metadata: RawObject = {"labels": {**template.labels, **own}}
    if template.kueue_queue_name:
        metadata["labels"]["kueue.x-k8s.io/queue-name"] = template.kueue_queue_name
    if template.annotations:
        metadata["annotations"] = dict(template.annotations)
    return {"metadata": metadata, "spec": pod_spec(spec, engine)}


def pod_spec(spec: DeploymentSpec, engine: EngineArm) -> RawObject:
    """core/v1 PodSpec of an engine pod."""
    template = spec.template
    pod: RawObject = {
        "containers": [engine_container(spec, engine)],
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


def engine_container(spec: DeploymentSpec, engine: EngineArm) -> RawObject:
    """The engine's container: command without a shell, probes that ask for a completion, a drain before SIGTERM."""
    template = spec.template
    container: RawObject = {
        "name": CONTAINER,
        "image": spec.engine.image,
        "command": ["vllm", "serve"],
        "args": list(engine.args),
        "env": [*_environment(spec, engine), *engine.env],
        "ports": [{"name": "http", "containerPort": spec.engine.port, "protocol": "TCP"}],
        "startupProbe": {
            "exec": {"command": ["python3", "-c", PROVE]},
            "periodSeconds": PROBE_PERIOD_SECONDS,
            "timeoutSeconds": PROVE_TIMEOUT_SECONDS + 1,
            "failureThreshold": max(1, spec.engine.startup_timeout_seconds // PROBE_PERIOD_SECONDS),
        },
        "readinessProbe": _health(period=2, failures=2),
        "livenessProbe": _health(period=10, failures=6),
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


def _environment(spec: DeploymentSpec, engine: EngineArm) -> list[RawObject]:
    """What the probe and drain scripts read. The fingerprint is the only value that differs between arms."""
    values = {
        PORT: str(spec.engine.port),
        MODEL: spec.model.served_name or spec.model.name,
        "SPECFLEET_FINGERPRINT": engine.fingerprint,
        "SPECFLEET_PROVE_TIMEOUT": str(PROVE_TIMEOUT_SECONDS),
        "SPECFLEET_DRAIN_SECONDS": str(spec.engine.drain_timeout_seconds),
        "SPECFLEET_SETTLE_SECONDS": f"{DRAIN_SETTLE_SECONDS:g}",
    }
    given = {one.get("name") for one in spec.engine.env}
    defaults = {KEEP_ALIVE: KEEP_ALIVE_SECONDS, READY_TIMEOUT: READY_TIMEOUT_SECONDS}
    values |= {name: value for name, value in defaults.items() if name not in given}
    return [{"name": name, "value": value} for name, value in values.items()]


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


def selector(owner: SpeculativeDeployment, role: ArmRole, fingerprint: str, benchmark: bool) -> dict[str, str]:
    """Labels that choose the pods of one arm."""
    own = pod_labels(owner, role, fingerprint, benchmark)
    return {key: own[key] for key in (labels.DEPLOYMENT, labels.FINGERPRINT, labels.ROLE)}
