"""The preflight Job: one pod without a GPU reads the models' files where an engine pod reads them."""

import json
from collections.abc import Iterable

from specfleet.api import labels, names
from specfleet.api.base import RawObject
from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.decide.preflight import JOB_SECONDS
from specfleet.engine.preflight import VARIABLE, preflight_command, preflight_mounts, preflight_plan
from specfleet.resources.benchmark_job import DRIVER_USER, reading_groups, tolerations
from specfleet.resources.metadata import base_labels, child
from specfleet.resources.pods import CONTAINER

UNIT = "preflight"


def preflight_name(owner: SpeculativeDeployment, preflight: str) -> str:
    """Name of the Job."""
    return names.unit(owner.name, preflight, UNIT)


def preflight_job(owner: SpeculativeDeployment, preflight: str) -> RawObject | None:
    """batch/v1 Job: no GPU, no service account token, restricted, bounded in time. None: nothing can be compared.

    Only the volumes that hold the models are mounted, read-only.
    """
    spec, name = owner.spec, preflight_name(owner, preflight)
    plan = preflight_plan(spec)
    if plan is None:
        return None
    metadata = child(owner, name, {labels.ROLE: labels.ROLE_PREFLIGHT})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": JOB_SECONDS,
            "template": {"metadata": {"labels": dict(metadata["labels"])}, "spec": _pod(owner, spec, plan)},
        },
    }


def _pod(owner: SpeculativeDeployment, spec: DeploymentSpec, plan: RawObject) -> RawObject:
    volumes, mounts = preflight_mounts(spec, plan)
    pod: RawObject = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": DRIVER_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
            **reading_groups(spec.template.pod_security_context),
        },
        "affinity": _beside_the_engine(owner),
        "tolerations": tolerations(spec),
        "containers": [_container(spec, plan, mounts)],
    }
    if volumes:
        pod["volumes"] = volumes
    if spec.template.image_pull_secrets:
        pod["imagePullSecrets"] = spec.template.image_pull_secrets
    return pod


def _container(spec: DeploymentSpec, plan: RawObject, mounts: Iterable[RawObject]) -> RawObject:
    container: RawObject = {
        "name": CONTAINER,
        "image": spec.engine.image,
        "command": preflight_command(),
        "env": [
            {"name": VARIABLE, "value": json.dumps(plan, sort_keys=True)},
            # Where every container is given all GPUs unless it says otherwise.
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{**mount, "readOnly": True} for mount in mounts],
    }
    if spec.template.image_pull_policy:
        container["imagePullPolicy"] = spec.template.image_pull_policy
    return container


def _beside_the_engine(owner: SpeculativeDeployment) -> RawObject:
    """On a node where an engine pod serves: the image is there, and hostPath and single-node volumes are the same."""
    serving = {**base_labels(owner), labels.ROLE: labels.ROLE_SERVING}
    term = {"labelSelector": {"matchLabels": serving}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
