"""What Jobs say: the last words of their pods, and the answer of a preflight."""

from datetime import datetime

from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.controller.ownership import owned
from specfleet.controller.pods import parse_time, why_not_running
from specfleet.decide.observation import PreflightView
from specfleet.engine.preflight import read_answer
from specfleet.kube import kinds
from specfleet.kube.cache import Cache, Key
from specfleet.resources.pods import CONTAINER
from specfleet.resources.preflight_job import preflight_name

MESSAGE_SECONDS = 15.0
"""Job and pod come by different watches: how long the pod's last words may be behind the Job that has ended."""


def is_preflight(job: RawObject) -> bool:
    """Whether a Job is a preflight and no benchmark."""
    return bool(job["metadata"].get("labels", {}).get(labels.ROLE) == labels.ROLE_PREFLIGHT)


def termination_message(cache: Cache, key: Key, job: str) -> str | None:
    """What the pod of a Job said at its end; None before that."""
    ended = _terminated(cache, key, job)
    return None if ended is None else str(ended.get("message", ""))


def reported_at(cache: Cache, key: Key, job: str) -> datetime | None:
    """When the pod of a Job left its report; None before that. Its Job may never end: a sidecar goes on."""
    ended = _terminated(cache, key, job)
    return parse_time(ended.get("finishedAt")) if ended is not None and ended.get("message") else None


def _terminated(cache: Cache, key: Key, job: str) -> RawObject | None:
    for pod in _pods(cache, key, job):
        for container in pod.get("status", {}).get("containerStatuses", []):
            ended: RawObject | None = container.get("state", {}).get("terminated")
            if container["name"] == CONTAINER and ended:
                return ended
    return None


def driver_waits_for(cache: Cache, key: Key, owner: SpeculativeDeployment, job: RawObject, now: datetime) -> str:
    """Why the pod of a Job that is not over has not started; "" once it has, or while it is on its way up."""
    name, status = job["metadata"]["name"], job.get("status", {})
    if job["spec"].get("suspend"):
        return f"Job {name} is suspended (a queue?)"
    pods = _pods(cache, key, name)
    if pods:
        waiting = all(pod.get("status", {}).get("phase") in (None, "Pending") for pod in pods)
        return _waits_for(cache, key, owner, name, now) if waiting else ""
    # Job and pods come by different watches: of a pod that was there the Job knows.
    known = any(status.get(count) for count in ("active", "terminating", "succeeded", "failed"))
    return (
        "" if known else f"nobody makes the pod of Job {name} (a quota, an admission rule: kubectl describe job {name})"
    )


def preflight_view(cache: Cache, key: Key, owner: SpeculativeDeployment, now: datetime) -> PreflightView | None:
    """The Job of status.preflight; None when there is none. Its pod's answer counts as soon as it is there."""
    known = owner.status.preflight if owner.status is not None else None
    if known is None or known.outcome is not None:
        return None
    name = preflight_name(owner, known.id)
    jobs = (one for one in cache.children(key, kinds.JOB) if one["metadata"]["name"] == name and owned(one, owner))
    job = next(jobs, None)
    if job is None:
        return None
    said = termination_message(cache, key, name)
    findings = read_answer(said) if said is not None else None
    if findings is not None:
        return PreflightView(finished=True, findings=findings)
    over = next((one for one in job.get("status", {}).get("conditions", []) if _ends(one)), None)
    if over is None:
        return PreflightView(message=_waits_for(cache, key, owner, name, now))
    ended = parse_time(over.get("lastTransitionTime")) or now
    if said is None and (now - ended).total_seconds() < MESSAGE_SECONDS:
        return PreflightView(message="its pod has not reported yet")
    words = [str(over.get("reason", "")), str(over.get("message", "")), _waits_for(cache, key, owner, name, now)]
    return PreflightView(finished=True, message=": ".join(one for one in words if one)[:1024])


def _ends(condition: RawObject) -> bool:
    return condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"


def _waits_for(cache: Cache, key: Key, owner: SpeculativeDeployment, job: str, now: datetime) -> str:
    """Why its pod does not run, in Kubernetes' words."""
    # It pulls the image that the engines have: no sooner is it late than they are.
    patience = owner.spec.engine.startup_timeout_seconds
    return next((why for pod in _pods(cache, key, job) if (why := why_not_running(pod, now, patience))), "")


def _pods(cache: Cache, key: Key, job: str) -> list[RawObject]:
    pods = cache.children(key, kinds.POD)
    return [pod for pod in pods if pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == job]
