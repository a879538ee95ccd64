"""From a Pod as the API server has it to the PodView that decide() looks at."""

from datetime import datetime

from specfleet.api.base import RawObject
from specfleet.controller.last_words import why_it_ended
from specfleet.decide.observation import PodView, Proof
from specfleet.resources.pods import CONTAINER

MEMORY_MESSAGES = ("OutOfMemoryError", "CUDA out of memory", "No available memory for the cache blocks")
"""Last words of a vLLM that ran out of GPU memory (torch, and the KV-cache profiling of V1 engines)."""


def parse_time(text: str | None) -> datetime | None:
    """RFC 3339 as the API server writes it."""
    return datetime.fromisoformat(text) if text else None


def pod_view(pod: RawObject, proof: Proof, proof_message: str, engine_version: str | None) -> PodView:
    """Everything about one engine pod. `proof` comes from the operator's own probe (probe.py)."""
    metadata, status = pod["metadata"], pod.get("status", {})
    container: RawObject = next((one for one in status.get("containerStatuses", []) if one["name"] == CONTAINER), {})
    ready, scheduled = condition(pod, "Ready"), condition(pod, "PodScheduled")
    blocked = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated") or {}
    created = parse_time(metadata["creationTimestamp"])
    assert created is not None
    return PodView(
        name=metadata["name"],
        uid=metadata["uid"],
        ip=status.get("podIP"),
        created=created,
        ready_since=parse_time(ready.get("lastTransitionTime")) if ready.get("status") == "True" else None,
        unready_since=_unready_since(ready, scheduled),
        proof=proof,
        proof_message=proof_message,
        deleting="deletionTimestamp" in metadata,
        gated=scheduled.get("status") == "False" and scheduled.get("reason") == "SchedulingGated",
        unschedulable_since=parse_time(scheduled.get("lastTransitionTime")) if blocked else None,
        unschedulable_message=scheduled.get("message", "") if blocked else "",
        restarts=int(container.get("restartCount", 0)),
        last_restart=parse_time(ended.get("finishedAt")),
        last_run_started=parse_time(ended.get("startedAt")),
        out_of_memory=_out_of_memory(ended),
        failure=_failure(pod, container, ended),
        engine_version=engine_version,
        image_digest=_digest(container.get("imageID")),
        gpu_type=None,
        ran=bool(ended or container.get("state", {}).get("running")),
        node=pod["spec"].get("nodeName") if "spec" in pod else None,
    )


def condition(pod: RawObject, kind: str) -> RawObject:
    """The pod's condition of that type, {} while it has none."""
    listed: list[RawObject] = pod.get("status", {}).get("conditions") or []
    return next((one for one in listed if one["type"] == kind), {})


def why_not_running(pod: RawObject, now: datetime, patience_seconds: float) -> str:
    """What a pod waits for, or how it ended, in Kubernetes' words; "" for one that runs or is on its way up.

    The kubelet gives no reason for a volume that it cannot mount (only an Event): a pod that has had a node for longer
    than `patience_seconds` and no container is no longer on its way up.
    """
    view = pod_view(pod, Proof.PENDING, "", None)
    if view.gated:
        return "the pod stands in a queue (scheduling gate)"
    if view.unschedulable_message or view.failure:
        return view.unschedulable_message or view.failure or ""
    scheduled = condition(pod, "PodScheduled")
    since = parse_time(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None
    pending = pod.get("status", {}).get("phase") in (None, "Pending")
    if not pending or since is None or (now - since).total_seconds() <= patience_seconds:
        return ""
    return (
        f"the pod has had a node for over {patience_seconds:g} s and its container has not been created (a volume that "
        f"cannot be mounted? an image? kubectl describe pod {view.name})"
    )


def _unready_since(ready: RawObject, scheduled: RawObject) -> datetime | None:
    """Since when it could have become ready. Until the kubelet says so, since it has a node: what it waited for one (in
    a queue, for the autoscaler) is no part of the engine's start."""
    if ready:
        return parse_time(ready.get("lastTransitionTime")) if ready.get("status") == "False" else None
    return parse_time(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None


def _out_of_memory(ended: RawObject) -> bool:
    """The kernel's OOM killer, or the engine's last words about GPU memory."""
    message = str(ended.get("message", ""))
    return ended.get("reason") == "OOMKilled" or any(text in message for text in MEMORY_MESSAGES)


def _failure(pod: RawObject, container: RawObject, ended: RawObject) -> str | None:
    """Why the container does not run, in words that help."""
    if pod.get("status", {}).get("phase") == "Failed":
        return str(pod["status"].get("message") or pod["status"].get("reason") or "the pod failed")
    waiting = container.get("state", {}).get("waiting") or {}
    reason = waiting.get("reason")
    if reason in (None, "ContainerCreating", "PodInitializing") and not ended:
        return None
    parts = [str(reason)] if reason else []
    if waiting.get("message"):
        parts.append(str(waiting["message"])[:300])
    if ended:
        why = why_it_ended(str(ended.get("message", "")), pod["metadata"]["name"], CONTAINER)
        parts.append(f"last exit {ended.get('exitCode')} ({ended.get('reason')}){': ' + why if why else ''}")
    return "; ".join(parts) or None


def _digest(image_id: str | None) -> str | None:
    """sha256:... of `repo@sha256:...`."""
    if not image_id:
        return None
    return image_id.rsplit("@", maxsplit=1)[-1]
