"""Hard faults seen through Kubernetes: they count also while the metrics server is away."""

from dataclasses import dataclass
from datetime import datetime

from specfleet.decide.observation import ArmView, JobView, PodView, Proof, RouteView

RECENT_SECONDS = 600.0
CRASHES = 2
CRASHED_SHARE = 0.25
"""Of an arm's pods: two single crashes are a fault of an arm of four, not of one of forty. So is one that crashes
again and again: in a larger arm it is a bad GPU or node."""
MEMORY_FILLS_SECONDS = 21600.0
"""A run of at most this length that followed another end and ended out of memory: memory that fills slowly fills again.
"""
UNSCHEDULABLE_SECONDS = 120.0
"""A pod that the scheduler cannot place for this long means: no room. Nothing stays Pending for ever."""

GATED_SECONDS = 3600.0
"""How long a pod may stand in a queue: made anew every few minutes it would stand at its end for ever."""
ROUTE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an arm cannot be trusted to answer."""

    reason: str
    message: str
    pod: str | None = None
    """Where it is one pod's alone."""


def crash_fault(arm: ArmView | None, now: datetime) -> Fault | None:
    """A share of the arm's pods ran out of memory, crashes again and again, or crashed (two at least), in ten minutes.

    Memory that fills slowly fills at another time in every pod: those that ran out in the hours before count too.
    """
    if arm is None:
        return None
    share = CRASHED_SHARE * len(arm.pods)
    recent = [pod for pod in arm.pods if _seconds(pod.last_restart, now) <= RECENT_SECONDS]
    full = [pod for pod in arm.pods if pod.out_of_memory and _seconds(pod.last_restart, now) <= MEMORY_FILLS_SECONDS]
    last = next((pod for pod in full if pod in recent), None)
    if last is not None and len(full) >= share:
        return Fault("OutOfMemory", f"pod {last.name} ran out of memory{_detail(last)}")
    restarts = sum(_crashes(pod, now) for pod in recent)
    looping = sum(_crashes(pod, now) >= CRASHES for pod in recent)
    if looping >= max(1, share) or len(recent) >= max(CRASHES, share):
        worst = max(recent, key=lambda pod: pod.restarts)
        return Fault(
            "CrashLoop",
            f"{restarts} restarts within 10 min, most in pod {worst.name} ({worst.restarts}){_detail(worst)}",
        )
    return None


def lone_fault(arm: ArmView | None, now: datetime) -> Fault | None:
    """One pod that ends again and again while its arm does not: it is told, and replaced once where it is promoted."""
    if arm is None or crash_fault(arm, now) is not None:
        return None
    ending = [
        pod
        for pod in arm.pods
        if not (pod.serves or pod.deleting)
        and _seconds(pod.last_restart, now) <= RECENT_SECONDS
        and _crashes(pod, now, _loop_seconds(pod)) >= CRASHES
    ]
    if not ending:
        return None
    pod = max(ending, key=lambda one: one.restarts)
    reason = "OutOfMemory" if pod.out_of_memory else "CrashLoop"
    said = f"pod {pod.name} alone ends again and again, {pod.restarts} times, {arm.name} does not{_detail(pod)}"
    return Fault(reason, said, pod.name)


def straggler(arm: ArmView | None, now: datetime, timeout_seconds: float) -> Fault | None:
    """One pod that alone keeps an arm from being whole: it ends again and again, or does not come up in time."""
    lone = lone_fault(arm, now)
    if lone is not None or arm is None or not arm.serving:
        return lone
    late = next(iter(_late(arm, now, timeout_seconds)), None)
    if late is None:
        return None
    said = f"pod {late.name} alone of {arm.name} is not ready after {timeout_seconds:.0f} s: {_unready(late)}"
    return Fault("StartTimeout", said, late.name)


def _crashes(pod: PodView, now: datetime, within_seconds: float = RECENT_SECONDS) -> int:
    """Crashes within that time, at least: restartCount alone counts from the pod's first day."""
    again = pod.restarts >= CRASHES and _seconds(pod.last_run_started, now) <= within_seconds
    return CRASHES if again else 1


def loop_fault(arm: ArmView, now: datetime) -> Fault | None:
    """Every pod of an arm crashes again and again, or runs out of memory again and again, however slowly.

    A pod that has ended once comes back by itself.
    """
    pods = [pod for pod in arm.pods if not pod.deleting]
    if not pods or any(_crashes(pod, now, _loop_seconds(pod)) < CRASHES for pod in pods):
        return None
    pod = min(pods, key=lambda one: one.out_of_memory)
    reason = "OutOfMemory" if pod.out_of_memory else "CrashLoop"
    return Fault(reason, f"every pod of {arm.name} ends again and again, {pod.name} {pod.restarts} times{_detail(pod)}")


def _loop_seconds(pod: PodView) -> float:
    return MEMORY_FILLS_SECONDS if pod.out_of_memory else RECENT_SECONDS


def start_fault(arm: ArmView | None, now: datetime, timeout_seconds: float) -> Fault | None:
    """Why an arm that should come up does not: it crashes, contradicts its spec, or takes too long."""
    if arm is None:
        return None
    crashed = crash_fault(arm, now)
    if crashed is not None and not arm.serving:
        return crashed
    for pod in arm.pods:
        if pod.proof is Proof.CONTRADICTED:
            return Fault("EngineContradictsSpec", f"pod {pod.name}: {pod.proof_message}")
    late = _late(arm, now, timeout_seconds)
    if late and not arm.serving:
        pod = late[0]
        return Fault("StartTimeout", f"pod {pod.name} is not ready after {timeout_seconds:.0f} s: {_unready(pod)}")
    return None


def _late(arm: ArmView, now: datetime, timeout_seconds: float) -> list[PodView]:
    # Without a node nothing of it has started: that is no_room's business.
    starting = (pod for pod in arm.pods if not pod.deleting and not pod.gated and pod.unschedulable_since is None)
    return [pod for pod in starting if _waiting_seconds(pod, now) > timeout_seconds]


def _unready(pod: PodView) -> str:
    return pod.failure or pod.proof_message or "it never answered a completion"


def _waiting_seconds(pod: PodView, now: datetime) -> float:
    """How long a pod has not served: since it was made, fell out of readiness, or was first asked when it was ready.

    Not since it is ready: an operator that was away for a day must not hold its own absence against the pod.
    """
    if pod.serves or (pod.ready_since is not None and pod.asked_since is None):
        return 0.0
    moments = (pod.created, pod.ready_since, pod.unready_since, pod.asked_since)
    since = max(moment for moment in moments if moment is not None)
    return _seconds(since, now)


def no_room(arm: ArmView | None, now: datetime, patience: float = UNSCHEDULABLE_SECONDS) -> Fault | None:
    """The scheduler has no place for a pod of the arm, or nobody lets the pod be made (a quota, an admission rule).

    `patience`: seconds that this may last; longer where the arm's own pods on their way out still hold the place.
    """
    if arm is None:
        return None
    if arm.refused_since and _seconds(arm.refused_since, now) > patience:
        return Fault("InsufficientCapacity", f"pods of {arm.name} cannot be created: {arm.refused_message}")
    for pod in arm.pods:
        if pod.gated and _seconds(pod.created, now) > GATED_SECONDS:
            return Fault("InsufficientCapacity", f"pod {pod.name} stands in a queue for over an hour (scheduling gate)")
        if pod.unschedulable_since and _seconds(pod.unschedulable_since, now) > patience:
            return Fault("InsufficientCapacity", f"pod {pod.name} cannot be scheduled: {pod.unschedulable_message}")
    return None


def driver_fault(job: JobView | None, now: datetime) -> Fault | None:
    """The benchmark's own pod does not start, while the arms hold their GPUs for it."""
    if job is None or job.finished or not job.waits_for or _seconds(job.started, now) <= UNSCHEDULABLE_SECONDS:
        return None
    return Fault("BenchmarkPodPending", f"the pod that sends the benchmark's requests does not start: {job.waits_for}")


def stuck_rollout(arm: ArmView | None, now: datetime, timeout_seconds: float) -> Fault | None:
    """A template was changed in place and the pod that should take over does not come: the one before it serves on."""
    if arm is None:
        return None
    alive = [pod for pod in arm.pods if not pod.deleting]
    if len(alive) <= arm.replicas:
        return None
    full = no_room(arm, now, timeout_seconds)
    late = [pod for pod in alive if not pod.gated and _waiting_seconds(pod, now) > timeout_seconds]
    if full is None and not late:
        return None
    said = full.message if full is not None else f"pod {late[0].name} is not ready{_detail(late[0])}"
    return Fault("RolloutStuck", f"{arm.name} cannot exchange its pods for the changed template: {said}")


def route_fault(route: RouteView | None, now: datetime) -> Fault | None:
    """No gateway has taken the route for longer than any gateway needs: weights are written and nobody follows them."""
    if route is None or route.accepted or _seconds(route.since, now) <= ROUTE_SECONDS:
        return None
    return Fault("RouteNotAccepted", f"spec.traffic.parentRefs: {route.message}")


def engine_mismatch(*arms: ArmView | None) -> Fault | None:
    """Pods that should run one engine on one kind of GPU run several: a tag was moved, a node has another image under
    it, or nodes have other GPUs. Then they are not compared."""
    seen: dict[tuple[str, str], str] = {}
    gpus: dict[str, str] = {}
    for pod in (pod for arm in arms if arm is not None for pod in arm.serving):
        if pod.image_digest and pod.engine_version:
            seen.setdefault((pod.image_digest, pod.engine_version), pod.name)
        if pod.gpu_type:
            gpus.setdefault(pod.gpu_type, pod.name)
    if len(seen) < 2 and len(gpus) > 1:
        said = ", ".join(f"{name}: {kind}" for kind, name in sorted(gpus.items()))
        return Fault(
            "GpusDiffer", f"the arms run on several kinds of GPU ({said}): choose one in template.nodeSelector"
        )
    if len(seen) < 2:
        return None
    said = ", ".join(f"{name}: vLLM {version} {digest[:19]}" for (digest, version), name in sorted(seen.items()))
    return Fault("EngineMoved", f"one tag, several engines ({said}): pin spec.engine.image by digest")


def _seconds(moment: datetime | None, now: datetime) -> float:
    return float("inf") if moment is None else (now - moment).total_seconds()


def _detail(pod: PodView) -> str:
    return f": {pod.failure}" if pod.failure else ""
