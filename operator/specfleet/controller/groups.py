"""Groups of pods (LeaderWorkerSet) as the replicas that decide() counts: one view per group, named after its leader.

A group is ready when its leader is: the leader's start-up probe needs a completion, and that needs every rank. What
keeps any of its pods from running keeps the group from it, so the view tells that too.

LeaderWorkerSet makes the whole group anew when one container ends, with restart counts of zero. What ended before is
remembered here, or a group that crashes again and again would for ever look as if it had just been made. A fresh
operator begins to count anew.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from specfleet.api.base import RawObject
from specfleet.controller.pods import condition, parse_time, pod_view
from specfleet.decide.observation import PodView, Proof
from specfleet.kube.cache import Key
from specfleet.resources.groups import GROUP_INDEX, WORKER_INDEX

KEPT = timedelta(hours=1)
"""Ends longer ago than that say nothing about the group any more."""
PODLESS_SECONDS = 60.0
"""How long the LeaderWorkerSet controller may take to make the first pod."""


@dataclass(frozen=True, slots=True)
class End:
    """How one life of a group ended, told by the pod that ended first."""

    finished: datetime
    started: datetime | None
    out_of_memory: bool
    failure: str | None


@dataclass
class Group:
    """What is remembered of one group."""

    leader: str = ""
    """UID of the leader that was seen last: another one is another life."""
    was_ready: bool = False
    waiting_since: datetime | None = None
    """Since when no life of it has become ready; None while it is."""
    ends: dict[str, End] = field(default_factory=dict)
    """By the leader's UID: what ends with one pod takes the others along, which are no crashes of their own."""


class GroupHistory:
    """Ends and waits of groups, in memory only."""

    def __init__(self) -> None:
        self._groups: dict[Key, dict[tuple[str, str], Group]] = {}
        self._podless: dict[Key, dict[str, datetime]] = {}

    def of(self, key: Key, owner: str, index: str) -> Group:
        """The memory of one group of a LeaderWorkerSet, by the set's UID."""
        return self._groups.setdefault(key, {}).setdefault((owner, index), Group())

    def podless_since(self, key: Key, body: RawObject, pods: bool, now: datetime) -> datetime | None:
        """Since when a set that should have pods has none for longer than its controller needs; None while it has."""
        seen, uid = self._podless.setdefault(key, {}), body["metadata"]["uid"]
        if pods or int(body["spec"].get("replicas", 1)) == 0:
            seen.pop(uid, None)
            return None
        since = seen.setdefault(uid, now)
        return since if (now - since).total_seconds() > PODLESS_SECONDS else None

    def keep_only(self, uids: Iterable[str]) -> None:
        """Forget sets that are gone, by UID."""
        left = frozenset(uids)
        for found in self._groups.values():
            for slot in [slot for slot in found if slot[0] not in left]:
                del found[slot]
        for seen in self._podless.values():
            for uid in [uid for uid in seen if uid not in left]:
                del seen[uid]

    def forget(self, key: Key) -> None:
        """A deployment is gone."""
        self._groups.pop(key, None)
        self._podless.pop(key, None)


def by_group(pods: Iterable[RawObject]) -> dict[str, list[RawObject]]:
    """Pods of one LeaderWorkerSet by the index of their group, the leader of each first."""
    found: dict[str, list[RawObject]] = {}
    for pod in pods:
        found.setdefault(pod["metadata"].get("labels", {}).get(GROUP_INDEX, ""), []).append(pod)
    return {index: sorted(members, key=_rank) for index, members in found.items()}


def leader_of(members: Sequence[RawObject]) -> RawObject | None:
    """The leader among the pods of a group; None: it is gone, and the others are on their way out."""
    return next((pod for pod in members if _rank(pod)[0] == 0), None)


def group_view(leader: PodView, members: Sequence[RawObject], size: int, memory: Group, now: datetime) -> PodView:
    """The leader's view with what its group adds: who has no node, who does not run, and what ended before.

    `members`: pods of the group as the API server has them; `size`: how many there should be.
    """
    views = {pod["metadata"]["name"]: pod_view(pod, Proof.PENDING, "", None) for pod in members}
    others = [view for name, view in views.items() if name != leader.name]
    _remember(memory, leader, members, views, now)
    unready = _unready_since(leader, members, size)
    if leader.ready_since is not None:
        memory.was_ready, memory.waiting_since = True, None
    elif memory.waiting_since is None:
        memory.waiting_since = unready
    ends = sorted(memory.ends.values(), key=lambda end: end.finished)
    last = ends[-1] if ends else None
    waited = memory.waiting_since
    since, why = _without_node([leader, *others])
    return replace(
        leader,
        created=min(leader.created, waited) if waited is not None else leader.created,
        unready_since=waited,
        # A set replaces the whole group of a pod that goes.
        deleting=leader.deleting or any(view.deleting for view in others),
        gated=leader.gated or any(view.gated for view in others),
        unschedulable_since=since,
        unschedulable_message=why,
        restarts=len(ends),
        last_restart=last.finished if last else None,
        last_run_started=last.started if last else None,
        out_of_memory=last.out_of_memory if last else False,
        failure=_failure(leader, others, last),
        image_digest="+".join(sorted({view.image_digest for view in views.values() if view.image_digest})) or None,
    )


def _rank(pod: RawObject) -> tuple[int, str]:
    text = pod["metadata"].get("labels", {}).get(WORKER_INDEX, "")
    return (int(text) if text.isascii() and text.isdigit() else 10**6, pod["metadata"]["name"])


def _remember(
    memory: Group, leader: PodView, members: Sequence[RawObject], views: Mapping[str, PodView], now: datetime
) -> None:
    if leader.uid != memory.leader:
        if memory.was_ready:
            memory.waiting_since = None
        memory.leader, memory.was_ready = leader.uid, False
    for pod in members:
        view = views[pod["metadata"]["name"]]
        # A container that ends because its pod was deleted has not crashed.
        if view.last_restart is None or (view.deleting and view.restarts == 0):
            continue
        end = End(view.last_restart, view.last_run_started, view.out_of_memory, _told(view, leader))
        known = memory.ends.get(leader.uid)
        if known is None or end.finished < known.finished:
            memory.ends[leader.uid] = end
    memory.ends = {uid: end for uid, end in memory.ends.items() if now - end.finished < KEPT}


def _unready_since(leader: PodView, members: Sequence[RawObject], size: int) -> datetime | None:
    """Since when the engine could have started: all its pods have a node."""
    if leader.ready_since is not None or leader.unready_since is None or len(members) < size:
        return None
    placed = [_placed(pod) for pod in members]
    known = [moment for moment in placed if moment is not None]
    return max([leader.unready_since, *known]) if len(known) == len(placed) else None


def _placed(pod: RawObject) -> datetime | None:
    scheduled = condition(pod, "PodScheduled")
    return parse_time(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None


def _without_node(views: Sequence[PodView]) -> tuple[datetime | None, str]:
    """Since when the scheduler cannot place a pod, and why; of several, the one that has waited longest speaks."""
    blocked = [(view.unschedulable_since, view) for view in views if view.unschedulable_since is not None]
    if not blocked:
        return None, ""
    since, view = min(blocked, key=lambda one: one[0])
    message = view.unschedulable_message
    return since, message if view is views[0] else f"(pod {view.name} of the same engine) {message}"


def _failure(leader: PodView, others: Sequence[PodView], last: End | None) -> str | None:
    if leader.ready_since is not None:
        return None
    told = next((_told(view, leader) for view in (leader, *others) if view.failure), None)
    return told or (last.failure if last is not None else None)


def _told(view: PodView, leader: PodView) -> str | None:
    if view.failure is None or view.name == leader.name:
        return view.failure
    return f"pod {view.name}: {view.failure}"
