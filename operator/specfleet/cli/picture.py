"""From stored objects to the Observation that the operator would decide on, as far as a reader can see it.

With the children (Deployments, pods, ...) it is the operator's own observe(); without them the arms are those of
status. What only the operator knows (its probe, its metrics) is taken from status or left out, and `unknown` says so.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from specfleet.api import deployment as deployment_kind
from specfleet.api import labels, names
from specfleet.api.base import RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import ArmStatus, DeploymentStatus, Phase
from specfleet.cli.stored import UnusableInputError, deployments, kubectl_get
from specfleet.controller.observe import Surroundings, observe
from specfleet.controller.pods import pod_view
from specfleet.controller.probe import Answered, Prober, Question
from specfleet.controller.wanted import WantedArms
from specfleet.decide.breaker import fleet_view
from specfleet.decide.gates import Source
from specfleet.decide.observation import ArmView, FleetView, Observation, PodView, Proof
from specfleet.decide.revisions import revision_name
from specfleet.engine.environment import ConfigMaps
from specfleet.engine.pod_inputs import referenced_config_maps
from specfleet.kube import kinds
from specfleet.kube.cache import Cache
from specfleet.resources.metadata import base_labels

CHILDREN = (kinds.DEPLOYMENT, kinds.POD, kinds.JOB, kinds.CONTROLLER_REVISION, kinds.SPECULATIVE_BENCHMARK)
NAMELESS = "00000000-0000-0000-0000-000000000000"
"""UID of an object that was never in a cluster."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What was seen of one deployment."""

    obs: Observation
    objects: tuple[RawObject, ...]
    unknown: frozenset[Source] = frozenset()
    """Sources that could not be seen: gates that rest on them are not known."""
    notes: tuple[str, ...] = ()
    pods_seen: bool = True
    """False: arms are those that status counts, and their pods have no names."""

    @property
    def status(self) -> DeploymentStatus:
        """Status as last written."""
        return self.obs.status


@dataclass(frozen=True, slots=True)
class Read:
    """What kubectl gave."""

    objects: tuple[RawObject, ...]
    namespace: str | None = None
    """Of the deployment."""
    whole_fleet: bool = False
    """Every SpeculativeDeployment of the cluster is among the objects."""
    notes: tuple[str, ...] = ()


def read_cluster(name: str, namespace: str | None, flags: Sequence[str]) -> Read:
    """The deployment, its children, and every other SpeculativeDeployment (for the breaker), with what was refused.

    Raises UnusableInputError when the deployment itself cannot be read.
    """
    plural = f"{deployment_kind.PLURAL}.specfleet.dev"
    own = kubectl_get([plural, name], namespace, flags)
    owner = _parse(own[0])
    notes: list[str] = []
    selector = f"{labels.DEPLOYMENT}={base_labels(owner)[labels.DEPLOYMENT]}"
    asked = [[",".join(_plural(kind) for kind in CHILDREN), "-l", selector]]
    if owner.spec.traffic.parent_refs:
        asked.append([_plural(kinds.HTTP_ROUTE), "-l", selector])
    if owner.spec.template.multi_node is not None:
        asked.append([_plural(kinds.LEADER_WORKER_SET), "-l", selector])
    maps = referenced_config_maps(owner.spec.template, tuple(owner.spec.engine.env))
    asked += [["configmaps", one] for one in maps]
    found, refused = list(own), set[str]()
    while asked:
        words = asked.pop(0)
        try:
            found += kubectl_get(words, owner.namespace, flags)
        except UnusableInputError as error:
            kinds_asked, *rest = words
            single = kinds_asked.split(",")
            if len(single) == 1:
                notes.append(str(error))
                refused.add(kinds_asked)
            # One kind that is refused must not hide the others.
            asked = [[one, *rest] for one in single if len(single) > 1] + asked
    if refused & {_plural(kinds.DEPLOYMENT), _plural(kinds.POD)}:
        # Arms without their pods would look as if nothing served: then those that status counts are shown.
        found = [one for one in found if one.get("kind") not in (kinds.DEPLOYMENT.kind, kinds.POD.kind)]
    # Only where there must be some: kubectl fails for a kind that the cluster does not have.
    if _spans_nodes(owner, found):
        try:
            found += kubectl_get([_plural(kinds.LEADER_WORKER_SET), "-l", selector], owner.namespace, flags)
        except UnusableInputError as error:
            notes.append(str(error))
    try:
        others = kubectl_get([plural, "-A"], None, flags)
    except UnusableInputError as error:
        notes.append(f"whether the fleet's breaker is open is not known: {error}")
        return Read(tuple(found), owner.namespace, False, tuple(notes))
    found += [one for one in others if one["metadata"].get("uid") != owner.metadata.get("uid")]
    return Read(tuple(found), owner.namespace, True, tuple(notes))


def _spans_nodes(owner: SpeculativeDeployment, found: Iterable[RawObject]) -> bool:
    """Whether an arm of the present spec or of an earlier one may be a LeaderWorkerSet."""
    revisions = (one for one in found if one.get("kind") == kinds.CONTROLLER_REVISION.kind)
    earlier = ((one.get("data") or {}).get("spec", {}).get("template") or {} for one in revisions)
    return owner.spec.template.multi_node is not None or any(template.get("multiNode") for template in earlier)


def picture(
    objects: Sequence[RawObject],
    name: str | None,
    namespace: str | None,
    now: datetime,
    notes: Iterable[str] = (),
    whole_fleet: bool = False,
) -> Picture:
    """What the objects show of the deployment. `whole_fleet`: they hold every deployment of the cluster.

    Raises UnusableInputError when there is not exactly one deployment of that name.
    """
    bodies = [_placed(one) for one in objects]
    mine = [one for one in bodies if one.get("kind") == deployment_kind.KIND]
    chosen = [
        one
        for one in mine
        if name in (None, one["metadata"].get("name")) and namespace in (None, one["metadata"]["namespace"])
    ]
    if len(chosen) != 1:
        known = ", ".join(sorted(f"{one['metadata']['namespace']}/{one['metadata'].get('name')}" for one in mine))
        raise UnusableInputError(f"name one SpeculativeDeployment (and -n NAMESPACE); there are: {known or 'none'}")
    owner = _parse(chosen[0])
    maps = _config_maps(bodies, owner.namespace)
    wanted = WantedArms(owner.spec, maps)
    fleet = fleet_view(_statuses(mine), len(mine), now) if whole_fleet else FleetView()
    children = [one for one in bodies if one.get("kind") != deployment_kind.KIND]
    seen = any(one.get("kind") in {kind.kind for kind in kinds.ARMS} for one in children)
    obs = _observed(chosen[0], children, owner, wanted, fleet, now)
    said = list(notes)
    unknown = {Source.WATCH}
    if not whole_fleet:
        unknown.add(Source.FLEET)
    if not seen and owner.status is not None and owner.status.arms:
        serving, bench = _from_status(owner, owner.status, obs)
        obs = replace(obs, arms=serving, bench=bench)
        said.append("pods are those that status counted last; the objects themselves were not given")
    return Picture(obs, tuple(bodies), frozenset(unknown), (*said, *_doubts(obs, owner, maps)), seen)


def _observed(
    body: RawObject,
    children: Sequence[RawObject],
    owner: SpeculativeDeployment,
    wanted: WantedArms,
    fleet: FleetView,
    now: datetime,
) -> Observation:
    cache = Cache()
    key = cache.put_deployment(body)
    for child in children:
        kind = kinds.BY_NAME.get((str(child.get("apiVersion")), str(child.get("kind"))))
        if kind is not None and kind in kinds.WATCHED:
            cache.put(kind, child)
    around = Surroundings(
        prober=CountedByStatus(owner.status, children),
        reports={},
        gateway_api=True,
        fleet=fleet,
    )
    return observe(cache, key, owner, wanted, around, now)


class CountedByStatus(Prober):
    """In place of the operator's own questions: of the ready pods as many are proven as status counts."""

    def __init__(self, status: DeploymentStatus | None, pods: Iterable[RawObject]) -> None:
        self._proven: set[str] = set()
        counted: dict[str, int] = {}
        for arm in status.arms if status is not None else ():
            counted[arm.fingerprint] = counted.get(arm.fingerprint, 0) + arm.ready_replicas
        ready: dict[str, list[PodView]] = {}
        for pod in pods:
            own = pod["metadata"].get("labels") or {}
            fingerprint = own.get(labels.FINGERPRINT)
            if pod.get("kind") != kinds.POD.kind or fingerprint is None or own.get(labels.ROLE) == labels.ROLE_WORKER:
                continue
            view = pod_view(pod, Proof.PENDING, "", None)
            if view.ready_since is not None and not view.deleting:
                ready.setdefault(fingerprint, []).append(view)
        for fingerprint, views in ready.items():
            views.sort(key=lambda one: (one.ready_since or one.created, one.name))
            self._proven |= {one.uid for one in views[: counted.get(fingerprint, 0)]}

    def answer(self, question: Question) -> Answered:
        """Proven where status counts the pod."""
        if question.uid in self._proven:
            return Answered(Proof.PROVEN)
        said = "ready, but status does not count it as serving (yet)"
        return Answered(Proof.PENDING, said, asked_since=question.ready_since)


def _from_status(
    owner: SpeculativeDeployment, status: DeploymentStatus, obs: Observation
) -> tuple[tuple[ArmView, ...], tuple[ArmView, ...]]:
    """Arms as status lists them: serving ones first, then those of a benchmark (decide._summary)."""
    serving: list[ArmView] = []
    bench: list[ArmView] = []
    trial = status.phase in (Phase.BENCHMARKING, Phase.DEPLOYING) and status.stable is not None
    for arm in status.arms:
        again = any(arm.fingerprint == one.fingerprint for one in serving)
        stable = status.stable
        promoted = stable is not None and arm.fingerprint in (stable.baseline, stable.speculative)
        beside = again or (trial and not promoted)
        (bench if beside else serving).append(_counted(owner, arm, obs.now, beside))
    return tuple(serving), tuple(bench)


def _counted(owner: SpeculativeDeployment, arm: ArmStatus, now: datetime, beside: bool) -> ArmView:
    name = names.arm(owner.name, arm.fingerprint, beside)
    since = owner.status.phase_since if owner.status and owner.status.phase_since else now
    pods = tuple(
        PodView(
            name=f"{name}-{number}",
            uid=f"{name}-{number}",
            ip=None,
            created=since,
            ready_since=since,
            proof=Proof.PROVEN,
            engine_version=arm.engine_version,
        )
        for number in range(min(arm.ready_replicas, 1000))
    )
    return ArmView(name, arm.role, arm.fingerprint, arm.replicas, pods)


def _doubts(obs: Observation, owner: SpeculativeDeployment, maps: ConfigMaps) -> list[str]:
    """Where the picture may not be what the operator sees."""
    status, said = owner.status, []
    if status is None:
        return ["status is empty: no operator has looked at this deployment yet (does one run, in this namespace?)"]
    generation = int(owner.metadata.get("generation", 0))
    if generation > status.observed_generation > 0:
        said.append(f"the spec is of generation {generation}, status of {status.observed_generation}: not seen yet")
    missing = [
        one for one in referenced_config_maps(owner.spec.template, tuple(owner.spec.engine.env)) if one not in maps
    ]
    if missing:
        said.append(f"ConfigMaps {', '.join(missing)} were not given: their content is part of the fingerprints")
    elif status.revision is not None and revision_name(obs) != status.revision:
        said.append("the arms of this spec are not those that status works on: the spec has changed since")
    return said


def _config_maps(bodies: Iterable[RawObject], namespace: str) -> dict[str, dict[str, str]]:
    return {
        one["metadata"]["name"]: {**(one.get("data") or {}), **(one.get("binaryData") or {})}
        for one in bodies
        if one.get("kind") == kinds.CONFIG_MAP.kind and one["metadata"].get("namespace") == namespace
    }


def _placed(body: RawObject) -> RawObject:
    """With the metadata that the API server would have added."""
    metadata: dict[str, Any] = {"namespace": "default", "uid": NAMELESS, **(body.get("metadata") or {})}
    return {**body, "metadata": metadata}


def _statuses(bodies: Iterable[RawObject]) -> list[DeploymentStatus | None]:
    """Of all that can be read, as the operator does it: one odd object does not hide the others."""
    found: list[DeploymentStatus | None] = []
    for body in bodies:
        try:
            found.append(_parse(body).status)
        except UnusableInputError:
            continue
    return found


def _parse(body: RawObject) -> SpeculativeDeployment:
    return deployments([body])[0]


def _plural(kind: kinds.Kind) -> str:
    group = kind.api_version.rpartition("/")[0]
    return f"{kind.plural}.{group}" if group else kind.plural
