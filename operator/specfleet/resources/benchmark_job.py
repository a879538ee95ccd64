"""The benchmark Job and its ConfigMap: the driver runs in the engine's own image, beside no user traffic."""

import json
from collections.abc import Mapping

from specfleet.api import labels, names
from specfleet.api.base import RawObject
from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.benchmark import plan as benchmark_plan
from specfleet.benchmark.plan import PLAN_FILE, PROMPTS_FILE
from specfleet.decide.plan import JobIntent
from specfleet.engine.environment import engine_environment
from specfleet.engine.mounts import readable_elsewhere
from specfleet.resources.metadata import child
from specfleet.resources.pods import CONTAINER

UNIT = f"{labels.BENCHMARK}-unit"
DRIVER_USER = 65532
DEADLINE_MARGIN_SECONDS = 300
"""For the image, the client's imports and the probes."""
OWN_ENVIRONMENT = {
    "HOME": "/tmp",  # noqa: S108
    "CUDA_VISIBLE_DEVICES": "",
    "NVIDIA_VISIBLE_DEVICES": "void",
}
"""What the driver needs, whatever the engine is given: a home that it may write, and no GPU (the engine's image asks
for all of them by its own environment)."""
KEEPS_OUT_OF_FOLDERS = "PYTHONSAFEPATH"
"""With it Python would not find the driver in its own folder."""
LIMITS = {"cpu": "4", "memory": "8Gi"}
"""Far above what a client takes, so that none is slowed; a namespace whose quota counts limits refuses pods without."""
HUB_CACHES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
"""Where the engine keeps what it has loaded from the hub, the tokenizer among it."""


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
            **benchmark_plan.driver_sources(),
            PLAN_FILE: json.dumps(plan, sort_keys=True),
            PROMPTS_FILE: prompts,
        },
    }


def benchmark_job(owner: SpeculativeDeployment, benchmark: str, job: JobIntent, deadline_seconds: int) -> RawObject:
    """batch/v1 Job of one unit: no service account token, restricted security context, bounded in time."""
    name = unit_name(owner, benchmark, job)
    template = owner.spec.template
    driver = {"name": "driver", "mountPath": benchmark_plan.MOUNT, "readOnly": True}
    scratch = {"name": "scratch", "mountPath": "/tmp"}  # noqa: S108
    mounts = _mounts(owner.spec)
    pod: RawObject = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": DRIVER_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
            **reading_groups(template.pod_security_context),
        },
        "containers": [
            {
                "name": CONTAINER,
                "image": owner.spec.engine.image,
                # The driver is the package of that name in this folder.
                "workingDir": benchmark_plan.MOUNT,
                "command": ["python3", "-m", benchmark_plan.DRIVER, "--plan", f"{benchmark_plan.MOUNT}/{PLAN_FILE}"],
                "env": _environment(owner.spec),
                "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": LIMITS},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [driver, scratch, *mounts],
            }
        ],
        "volumes": [
            {"name": "driver", "configMap": {"name": name, "items": _places()}},
            {"name": "scratch", "emptyDir": {}},
            *[volume for volume in template.volumes if volume.get("name") in {one["name"] for one in mounts}],
        ],
    }
    if template.image_pull_policy:
        pod["containers"][0]["imagePullPolicy"] = template.image_pull_policy
    if template.image_pull_secrets:
        pod["imagePullSecrets"] = template.image_pull_secrets
    allowed = tolerations(owner.spec)
    if allowed:
        pod["tolerations"] = allowed
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


def reading_groups(context: RawObject) -> RawObject:
    """PodSecurityContext fields: groups that may read the engine's volumes; joined, so that nothing on them changes its
    owner."""
    listed = [*context.get("supplementalGroups", []), context.get("fsGroup")]
    groups = [one for one in dict.fromkeys(listed) if one is not None]
    return {"supplementalGroups": groups} if groups else {}


def _places() -> list[RawObject]:
    """core/v1 KeyToPath list: a ConfigMap has no folders, a package is one."""
    package = [{"key": name, "path": f"{benchmark_plan.DRIVER}/{name}"} for name in benchmark_plan.driver_sources()]
    return [*package, *({"key": name, "path": name} for name in (PLAN_FILE, PROMPTS_FILE))]


def tolerations(spec: DeploymentSpec) -> list[RawObject]:
    """The engine's own, and those of the taints that clusters put on GPU nodes under the resource's own name: pods that
    ask for it are let in (ExtendedResourceToleration), and a pod beside the engines is not asking."""
    asked = {**spec.template.resources.get("requests", {}), **spec.template.resources.get("limits", {})}
    devices = sorted(name for name in asked if "/" in name)
    return [
        *spec.template.tolerations,
        *({"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in devices),
    ]


def _environment(spec: DeploymentSpec) -> list[RawObject]:
    """core/v1 EnvVar list: the engine's own (tokens, caches, proxies), except what would break the driver or take a GPU
    from an arm."""
    listed = [one for one in engine_environment(spec) if one["name"] not in {*OWN_ENVIRONMENT, KEEPS_OUT_OF_FOLDERS}]
    return [*listed, *({"name": name, "value": value} for name, value in OWN_ENVIRONMENT.items())]


def _mounts(spec: DeploymentSpec) -> list[RawObject]:
    """The engine's volumes that the client reads from, read-only: prompts, a local tokenizer, the hub's cache.

    No other: a ReadWriteOnce volume that the engines hold on another node would keep the driver from starting. One that
    begins empty in every pod is the driver's own: it has to load the tokenizer into it.
    """
    tokenizer = spec.model.tokenizer or spec.model.name
    wanted = [spec.benchmark.prompts.volume, tokenizer if tokenizer.startswith("/") else None]
    if not tokenizer.startswith("/"):
        wanted += [str(one.get("value", "")) for one in spec.engine.env if one.get("name") in HUB_CACHES]
    chosen: dict[str, RawObject] = {}
    for path in wanted:
        holding = [one for one in spec.template.volume_mounts if path and _inside(path, str(one.get("mountPath", "")))]
        if holding:
            nearest = max(holding, key=lambda one: len(str(one["mountPath"])))
            folder = str(nearest["mountPath"])
            chosen[folder] = {**nearest, "readOnly": readable_elsewhere(spec.template, folder)}
    return list(chosen.values())


def _inside(path: str, folder: str) -> bool:
    return bool(folder) and (path == folder or path.startswith(f"{folder.rstrip('/')}/"))


def _labels(benchmark: str) -> dict[str, str]:
    return {labels.ROLE: labels.ROLE_DRIVER, labels.BENCHMARK: benchmark}
