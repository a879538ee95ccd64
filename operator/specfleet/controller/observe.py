"""observe: from what the watches and the probe have seen to one Observation. Reads memory only."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from pydantic import ValidationError

from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.model import EngineSpec
from specfleet.benchmark.result import MessageError, parse_report
from specfleet.controller.foreign import foreign_fields
from specfleet.controller.groups import GroupHistory, by_group, group_view, leader_of
from specfleet.controller.jobs import (
    MESSAGE_SECONDS,
    driver_waits_for,
    is_preflight,
    preflight_view,
    reported_at,
    termination_message,
)
from specfleet.controller.ownership import owned
from specfleet.controller.pods import parse_time, pod_view
from specfleet.controller.probe import Prober, Question
from specfleet.controller.wanted import WantedArms
from specfleet.decide.observation import (
    ArmView,
    Command,
    FleetView,
    JobView,
    Observation,
    PodView,
    Proof,
    RouteView,
    WatchHistory,
)
from specfleet.decide.traffic_profile import TrafficLook
from specfleet.decide.watch_report import UNKNOWN_REPORT, WatchReport
from specfleet.kube import kinds
from specfleet.kube.cache import Cache, Key
from specfleet.resources import route as routes
from specfleet.resources.benchmark_job import UNIT
from specfleet.resources.groups import KIND as LEADER_WORKER_SET
from specfleet.resources.groups import SET_NAME
from specfleet.resources.identity import ArmIdentity
from specfleet.resources.pods import CONTAINER, MODEL, PORT
from specfleet.resources.revision import read_revision
from specfleet.resources.workloads import arm_workload_name, read_arm

COMMAND_LENGTH = 256
"""An annotation may be 256 KiB long; it is written back into status."""

DEFAULT_PORT = 8000
NO_PODS = "its LeaderWorkerSet has no pods; does the LeaderWorkerSet controller run (namespace lws-system)?"


class UnreadableError(Exception):
    """The object in the cluster does not fit the API of this operator; the text names the field."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an observation needs besides the cache."""

    prober: Prober
    reports: Mapping[Key, WatchReport]
    gateway_api: bool
    fleet: FleetView
    refused: tuple[str, ...] = ()
    watch: WatchHistory = field(default_factory=WatchHistory)
    traffic: TrafficLook | None = None
    groups: GroupHistory = field(default_factory=GroupHistory)
    gpu_types: Mapping[str, str] = field(default_factory=dict)
    """By pod UID, as far as nodes name them."""
    promoted_watch: WatchReport | None = None


def read_deployment(body: RawObject) -> SpeculativeDeployment:
    """Parse the user's object. Raises UnreadableError."""
    try:
        return SpeculativeDeployment.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise UnreadableError(f"{path}: {first['msg']}") from error


def observe(
    cache: Cache,
    key: Key,
    owner: SpeculativeDeployment,
    wanted: WantedArms,
    around: Surroundings,
    now: datetime,
    with_evidence: bool = True,
) -> Observation:
    """One immutable picture of a deployment.

    `with_evidence` False: for the telemetry tick, which asks for the arms of the whole fleet every few seconds and not
    for what was measured once.
    """
    pods = _pods_by_arm(cache, key)
    arms: list[ArmView] = []
    bench: list[ArmView] = []
    for body in (one for kind in kinds.ARMS for one in cache.children(key, kind)):
        arm = read_arm(body) if _ours(body, owner) else None
        # Somebody else's Deployment may carry a copy of our labels.
        if arm is not None and body["metadata"]["name"] == arm_workload_name(owner, body["kind"], arm):
            (bench if arm.benchmark else arms).append(_arm(body, arm, pods, owner, wanted, around, key, now))
    return Observation(
        now=now,
        deployment=owner,
        baseline=wanted.baseline,
        proposers=wanted.proposers,
        arms=tuple(arms),
        bench=tuple(bench),
        route=_route(cache, key, owner, now),
        job=_job(cache, key, owner, now),
        preflight_key=wanted.preflight_key,
        model_key=wanted.model_key,
        preflight=preflight_view(cache, key, owner, now),
        evidence=_evidence(cache, key, owner) if with_evidence else (),
        watch=around.reports.get(key, UNKNOWN_REPORT),
        promoted_watch=around.promoted_watch,
        traffic=around.traffic,
        revisions=_Revisions(cache.children(key, kinds.CONTROLLER_REVISION)),
        fleet=around.fleet,
        command=_command(owner),
        problems=_problems(owner, around, cache, key),
        history=around.watch,
    )


def _ours(body: RawObject, owner: SpeculativeDeployment) -> bool:
    """By UID: neither a namesake's children nor what a person has labelled is ours. A restored backup has no owners."""
    return not body["metadata"].get("ownerReferences") or owned(body, owner)


def _pods_by_arm(cache: Cache, key: Key) -> dict[tuple[str, str], list[RawObject]]:
    found: dict[tuple[str, str], list[RawObject]] = {}
    for pod in cache.children(key, kinds.POD):
        own = pod["metadata"].get("labels", {})
        slot = (own.get(labels.FINGERPRINT, ""), own.get(labels.ROLE, ""))
        # A finished pod (evicted, refused by the kubelet) may stay for weeks and holds no GPU; another one replaces it.
        if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            found.setdefault(slot, []).append(pod)
    return found


def _arm(
    body: RawObject,
    arm: ArmIdentity,
    pods: Mapping[tuple[str, str], list[RawObject]],
    owner: SpeculativeDeployment,
    wanted: WantedArms,
    around: Surroundings,
    key: Key,
    now: datetime,
) -> ArmView:
    engine = owner.spec.engine if arm.fingerprint in wanted.engines else None
    mine = pods.get((arm.fingerprint, labels.ROLE_BENCHMARK if arm.benchmark else labels.ROLE_SERVING), [])
    views = [
        replace(_pod(pod, arm.fingerprint, engine, around.prober, key), gpu_type=_gpu([pod], around)) for pod in mine
    ]
    since, why, leaving = *_refused(body), 0
    if body["kind"] == LEADER_WORKER_SET:
        own = _of_set(body, [*mine, *pods.get((arm.fingerprint, labels.ROLE_WORKER), [])])
        views, leaving = _groups(body, views, own, around, key, now)
        since, why = around.groups.podless_since(key, body, bool(own), now), NO_PODS
    return ArmView(
        name=body["metadata"]["name"],
        role=arm.role,
        fingerprint=arm.fingerprint,
        replicas=int(body["spec"].get("replicas", 1)),
        pods=tuple(sorted(views, key=lambda view: view.name)),
        created=parse_time(body["metadata"].get("creationTimestamp")),
        refused_since=since,
        refused_message=why,
        leaving=leaving,
    )


def _of_set(body: RawObject, pods: list[RawObject]) -> list[RawObject]:
    """The pods of one LeaderWorkerSet: those of the serving and the benchmark set of a fingerprint have one role."""
    name = body["metadata"]["name"]
    return [pod for pod in pods if pod["metadata"].get("labels", {}).get(SET_NAME) == name]


def _groups(
    body: RawObject, leaders: list[PodView], pods: list[RawObject], around: Surroundings, key: Key, now: datetime
) -> tuple[list[PodView], int]:
    """One view per group with a leader, and how many groups have lost theirs and still hold their devices."""
    size, uid = int(body["spec"]["leaderWorkerTemplate"].get("size", 1)), body["metadata"]["uid"]
    views, leaving = {view.name: view for view in leaders}, 0
    found = []
    for index, members in by_group(pods).items():
        leader = leader_of(members)
        view = views.get(leader["metadata"]["name"]) if leader is not None else None
        if view is None:
            leaving += 1
        else:
            whole = group_view(view, members, size, around.groups.of(key, uid, index), now)
            found.append(replace(whole, gpu_type=_gpu(members, around)))
    return found, leaving


def _gpu(pods: Iterable[RawObject], around: Surroundings) -> str | None:
    """The GPU type of the pods of one engine; several types joined, None where no node names one."""
    types = {around.gpu_types.get(pod["metadata"]["uid"]) for pod in pods}
    return "+".join(sorted(one for one in types if one is not None)) or None


def _refused(body: RawObject) -> tuple[datetime | None, str]:
    """Since when pods of a Deployment cannot be made, and why (condition ReplicaFailure)."""
    status = body.get("status", {})
    if int(status.get("replicas", 0)) >= int(body["spec"].get("replicas", 1)):
        return None, ""
    for one in status.get("conditions", []):
        if one["type"] == "ReplicaFailure" and one["status"] == "True":
            return parse_time(one.get("lastTransitionTime")), str(one.get("message", ""))
    return None, ""


def _pod(pod: RawObject, fingerprint: str, engine: EngineSpec | None, prober: Prober, key: Key) -> PodView:
    """A pod is asked what its own template says (model, port): it may belong to an earlier spec."""
    view = pod_view(pod, Proof.PENDING, "", None)
    if view.ready_since is None or view.ip is None:
        return view
    told = _environment(pod)
    question = Question(
        key=key,
        uid=view.uid,
        starts=view.restarts,
        ip=view.ip,
        port=_port(told.get(PORT, "")),
        model=told.get(MODEL, ""),
        fingerprint=fingerprint,
        engine=engine,
        ready_since=view.ready_since,
    )
    answered = prober.answer(question)
    found = pod_view(pod, answered.proof, answered.message, answered.engine_version)
    return replace(found, asked_since=answered.asked_since)


def _port(text: str) -> int:
    """A pod with our labels that a person made may say anything; the probe then finds nobody there."""
    return int(text) if text.isascii() and text.isdigit() else DEFAULT_PORT


def _environment(pod: RawObject) -> dict[str, str]:
    container: RawObject = next((one for one in pod["spec"]["containers"] if one["name"] == CONTAINER), {})
    return {one["name"]: str(one.get("value", "")) for one in container.get("env", [])}


def _route(cache: Cache, key: Key, owner: SpeculativeDeployment, now: datetime) -> RouteView | None:
    """None where traffic does not go through a route of ours."""
    if not owner.spec.traffic.parent_refs:
        return None
    live = next((body for body in cache.children(key, kinds.HTTP_ROUTE) if _ours(body, owner)), None)
    if live is None:
        return RouteView(weights={}, since=now, accepted=False, message="the HTTPRoute does not exist yet")
    ok, message = routes.accepted(live)
    since = routes.read_since(live) or now
    return RouteView(weights=routes.read_weights(live), since=since, accepted=ok, message=message)


def _job(cache: Cache, key: Key, owner: SpeculativeDeployment, now: datetime) -> JobView | None:
    """The newest driver Job. Its result is the termination message of its pod; logs are never parsed."""
    jobs = [body for body in cache.children(key, kinds.JOB) if owned(body, owner) and not is_preflight(body)]
    if not jobs:
        return None
    job = max(jobs, key=lambda body: (body["metadata"]["creationTimestamp"], body["metadata"]["name"]))
    metadata, status = job["metadata"], job.get("status", {})
    benchmark, unit = (metadata["labels"].get(label, "") for label in (labels.BENCHMARK, UNIT))
    started = parse_time(status.get("startTime")) or parse_time(metadata["creationTimestamp"])
    assert started is not None
    ended = {one["type"]: one for one in status.get("conditions", []) if one.get("status") == "True"}
    over = ended.get("Complete") or ended.get("Failed")
    reported = reported_at(cache, key, metadata["name"])
    if over is None and reported is None:
        return JobView(benchmark, unit, started, waits_for=driver_waits_for(cache, key, owner, job, now)[:1024])
    moments = (status.get("completionTime"), (over or {}).get("lastTransitionTime"))
    finished = next((found for moment in moments if (found := parse_time(moment))), reported or started)
    said = termination_message(cache, key, metadata["name"])
    if said is None and (now - finished).total_seconds() < MESSAGE_SECONDS:
        return JobView(benchmark, unit, started)
    report = parse_report(said)
    if isinstance(report, MessageError):
        why = f"{ended['Failed'].get('reason')}: {ended['Failed'].get('message')}; " if "Failed" in ended else ""
        return JobView(benchmark, unit, started, finished, failure=f"{why}{report.message}"[:1024])
    return JobView(
        benchmark,
        unit,
        started,
        finished=finished,
        failure=report.error if not report.runs else None,
        runs=report.runs,
        request_probes=report.request_probes,
        greedy_texts={name: "".join(texts) for name, texts in report.texts.items()},
        capacity_requests_per_second=report.capacity_requests_per_second,
    )


def _evidence(cache: Cache, key: Key, owner: SpeculativeDeployment) -> tuple[BenchmarkEvidenceSpec, ...]:
    found = []
    for body in (one for one in cache.children(key, kinds.SPECULATIVE_BENCHMARK) if _ours(one, owner)):
        try:
            found.append(BenchmarkEvidenceSpec.model_validate(body["spec"]))
        except ValidationError:
            continue  # Evidence of another operator version is kept, but nothing is decided from it.
    return tuple(found)


class _Revisions(Mapping[str, DeploymentSpec]):
    """Specs of the past by the name of their ControllerRevision; read when somebody asks, which is rare."""

    def __init__(self, bodies: Iterable[RawObject]) -> None:
        self._bodies = tuple(bodies)

    @cached_property
    def _specs(self) -> dict[str, DeploymentSpec]:
        found = {}
        for body in self._bodies:
            try:
                found[body["metadata"]["name"]] = read_revision(body)
            except (ValidationError, KeyError, TypeError):
                continue  # Its Deployment keeps its own template (workloads.rescaled).
        return found

    def __getitem__(self, name: str) -> DeploymentSpec:
        return self._specs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)


def _command(owner: SpeculativeDeployment) -> Command | None:
    """`specfleet.dev/command: retry 7f3a`: a verb and a nonce."""
    text = owner.metadata.get("annotations", {}).get(labels.COMMAND, "")
    verb, _, nonce = text.strip()[:COMMAND_LENGTH].partition(" ")
    return Command(verb, nonce.strip() or verb) if verb else None


def _serves(body: RawObject) -> bool:
    arm = read_arm(body)
    return arm is not None and not arm.benchmark and bool(body["spec"].get("replicas"))


def _problems(owner: SpeculativeDeployment, around: Surroundings, cache: Cache, key: Key) -> tuple[str, ...]:
    found = list(around.refused)
    # What carries no traffic (a benchmark's arm, an empty one) hides nothing from users and goes by itself.
    arms = (one for kind in kinds.ARMS for one in cache.children(key, kind) if _ours(one, owner) and _serves(one))
    found += [told for one in arms if (told := foreign_fields(one)) is not None]
    if owner.spec.traffic.parent_refs and not around.gateway_api:
        found.append(
            "spec.traffic.parentRefs: this cluster has no gateway.networking.k8s.io/v1 HTTPRoute; install Gateway API"
        )
    return tuple(found)
