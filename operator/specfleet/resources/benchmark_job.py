"""The benchmark Job and its ConfigMap: the driver runs in the engine's own image, beside no user traffic."""

import json
from collections.abc import Mapping

from specfleet.api import labels, names
from specfleet.api.base import RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.benchmark import plan as benchmark_plan
from specfleet.decide.plan import JobIntent
from specfleet.resources.metadata import child
from specfleet.resources.pods import CONTAINER

UNIT = f"{labels.BENCHMARK}-unit"
DRIVER_USER = 65532
DEADLINE_MARGIN_SECONDS = 300


def unit_name(owner: SpeculativeDeployment, benchmark: str, job: JobIntent) -> str:
    """Name of the Job and of its ConfigMap."""
    return names.unit(owner.name, benchmark, job.unit)


def config_map(
    owner: SpeculativeDeployment, benchmark: str, job: JobIntent, plan: Mapping[str, object], prompts: str
) -> RawObject:
    """core/v1 ConfigMap with the driver, its plan and the prompts. Immutable: a plan is never changed under a run."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child(owner, unit_name(owner, benchmark, job), _labels(benchmark)),
        "immutable": True,
        "data": {
            benchmark_plan.DRIVER_FILE: benchmark_plan.driver_source(),
            benchmark_plan.PLAN_FILE: json.dumps(plan, sort_keys=True),
            benchmark_plan.PROMPTS_FILE: prompts,
        },
    }


def benchmark_job(owner: SpeculativeDeployment, benchmark: str, job: JobIntent, deadline_seconds: int) -> RawObject:
    """batch/v1 Job of one unit: no service account token, restricted security context, bounded in time."""
    name = unit_name(owner, benchmark, job)
    template = owner.spec.template
    driver = {"name": "driver", "mountPath": benchmark_plan.MOUNT, "readOnly": True}
    scratch = {"name": "scratch", "mountPath": "/tmp"}  # noqa: S108
    pod: RawObject = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": DRIVER_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": CONTAINER,
                "image": owner.spec.engine.image,
                "command": [
                    "python3",
                    f"{benchmark_plan.MOUNT}/{benchmark_plan.DRIVER_FILE}",
                    "--plan",
                    f"{benchmark_plan.MOUNT}/{benchmark_plan.PLAN_FILE}",
                ],
                "env": [
                    {"name": "HOME", "value": "/tmp"},  # noqa: S108
                    {"name": "CUDA_VISIBLE_DEVICES", "value": ""},
                    *owner.spec.engine.env,
                ],
                "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [driver, scratch, *template.volume_mounts],
            }
        ],
        "volumes": [
            {"name": "driver", "configMap": {"name": name}},
            {"name": "scratch", "emptyDir": {}},
            *template.volumes,
        ],
    }
    if template.image_pull_policy:
        pod["containers"][0]["imagePullPolicy"] = template.image_pull_policy
    if template.image_pull_secrets:
        pod["imagePullSecrets"] = template.image_pull_secrets
    if template.tolerations:
        pod["tolerations"] = template.tolerations
    own = {**_labels(benchmark), UNIT: job.unit}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": child(owner, name, own),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": deadline_seconds + DEADLINE_MARGIN_SECONDS,
            "template": {"metadata": {"labels": child(owner, name, own)["labels"]}, "spec": pod},
        },
    }


def _labels(benchmark: str) -> dict[str, str]:
    return {labels.ROLE: labels.ROLE_DRIVER, labels.BENCHMARK: benchmark}
