"""The reconcile of one SpeculativeDeployment. This page is the main road:

    observe (from memory) -> decide -> nothing to change? done, no request was made
    otherwise: read the objects themselves -> observe -> decide -> apply

Reading before acting costs a few requests per action and makes a stale or gappy watch harmless.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from specfleet.alerts.events import build_event
from specfleet.alerts.metrics import OperatorMetrics
from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.controller.changes import CREATED_ONCE, Changes, Settled, find_changes
from specfleet.controller.children import desired_children
from specfleet.controller.failures import still_told
from specfleet.controller.fleet import Fleet
from specfleet.controller.observe import UnreadableError, observe, read_deployment
from specfleet.controller.ownership import TakenError, owned, refuse_taken
from specfleet.decide.breaker import ROLL_BACK
from specfleet.decide.decide import decide
from specfleet.decide.observation import Observation
from specfleet.decide.plan import Plan
from specfleet.kube import kinds
from specfleet.kube.cache import Key
from specfleet.kube.lease import Lease
from specfleet.kube.port import ConflictError, ForbiddenError, InvalidError, KubeApi, KubeError, NotFoundError
from specfleet.resources.metadata import base_labels

EVENT_LIFE_SECONDS = 3600.0
"""The API server keeps Events for an hour by default: older ones are not told again."""

_VARYING = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\w*\d\w*")
"""Numbers, times and identifiers in the words of an admission webhook."""

log = logging.getLogger(__name__)


class Reconciler:
    """Turns one key's plan into writes. Every method may be cut off between any two writes."""

    def __init__(
        self, api: KubeApi, fleet: Fleet, lease: Lease, metrics: OperatorMetrics, clock: Callable[[], datetime]
    ) -> None:
        self._api = api
        self._fleet = fleet
        self._lease = lease
        self._metrics = metrics
        self._clock = clock
        self._settled = Settled()
        self._told: set[str] = set()

    def keep_only(self, uids: set[str]) -> None:
        """Forget what is remembered of objects that are gone."""
        self._settled.keep_only(uids)
        self._told &= uids

    async def reconcile(self, key: Key) -> float | None:
        """Bring one deployment a step on. Returns after how many seconds to look again, None for only on change."""
        if key not in self._fleet.cache.deployments:
            return None
        await self._fleet.load_config_maps(key, self._api)
        await self._fleet.gpu_types.look(key, self._fleet.cache, self._api)
        obs, plan, changes = self._think(key)
        await self._tell_again(obs.deployment)
        if changes:
            self._lease.check()
            if not await self._read(key):
                return None
            obs, plan, changes = self._think(key)
            if await self._act(key, obs, plan, changes):
                return 1.0
        soon = (plan.requeue_seconds, self._fleet.look_again_seconds(key))
        return min((seconds for seconds in soon if seconds is not None), default=None)

    def _think(self, key: Key) -> tuple[Observation, Plan, Changes]:
        owner = self._fleet.deployment(key)
        wanted = self._fleet.wanted(key, owner)
        obs = observe(self._fleet.cache, key, owner, wanted, self._fleet.surroundings(key), self._clock())
        plan = decide(obs)
        self._fleet.note_measuring(key, plan.status.benchmark is not None)
        if key in self._fleet.failing:
            plan = replace(plan, status=still_told(plan.status, owner.status))
        manifests = desired_children(
            obs, plan, wanted, self._fleet.cache, key, self._fleet.optional, self._fleet.prompts(key, owner)
        )
        return obs, plan, find_changes(self._fleet.cache, key, owner, plan, manifests, self._settled)

    async def _read(self, key: Key) -> bool:
        """Read the deployment and its children themselves. False when it is gone."""
        namespace, name = key
        try:
            body = await self._api.get(kinds.SPECULATIVE_DEPLOYMENT, namespace, name)
        except NotFoundError:
            self._fleet.forget(key)
            return False
        if body["metadata"].get("deletionTimestamp"):
            self._fleet.forget(key)
            return False
        self._fleet.cache.put_deployment(body)
        selector = f"{labels.DEPLOYMENT}={base_labels(read_deployment(body))[labels.DEPLOYMENT]}"
        served = [kind for kind in kinds.WATCHED if not kind.optional or kind.kind in self._fleet.optional]
        mark = self._fleet.cache.mark()
        lists = await asyncio.gather(*(self._api.list_all(kind, namespace, selector) for kind in served))
        for kind, bodies in zip(served, lists, strict=True):
            self._fleet.cache.replace_children(key, kind, bodies, mark)
        return True

    async def _act(self, key: Key, obs: Observation, plan: Plan, changes: Changes) -> bool:
        """Evidence, decision, children, removals, news: in this order (changes.py says why).

        True when what the API server refuses has changed, so that status has to tell it. One refused child does not
        keep the others from being written: exchange() goes by what the route and the pods are, not what they should be.
        Nor does one that is left from a namesake and still being removed; for that ConflictError is raised at the end.
        """
        namespace = key[0]
        for manifest in changes.evidence:
            await self._create(key, manifest)
        if changes.status is not None:
            self._lease.check()
            current = self._fleet.cache.deployments[key]
            body = await self._api.patch_status(kinds.SPECULATIVE_DEPLOYMENT, current, changes.status)
            self._fleet.cache.put_deployment(body)
            self._tell(obs.deployment, plan)
            if any(one.action == ROLL_BACK for one in plan.decisions):
                self._fleet.judge_breaker(self._clock())
            # What goes wrong from here on may cut off the Events: status tells them, and the next reconcile again.
            self._told.discard(obs.deployment.uid)
        refused = []
        leaving: ConflictError | None = None
        for manifest in (*changes.create, *changes.apply):
            try:
                await self._write_child(key, obs.deployment, manifest)
            except ConflictError as error:
                leaving = leaving or error
            except (TakenError, InvalidError, ForbiddenError) as error:
                log.warning("%s/%s: %s", *key, error.message)
                refused.append(error.message[:1000])
        for removal in (*changes.restarts, *changes.remove):
            self._lease.check()
            await self._api.delete(removal.kind, namespace, removal.name, removal.uid)
        for decision in plan.decisions:
            await self._event(build_event(obs.deployment, decision))
        self._told.add(obs.deployment.uid)
        before = self._fleet.refused.get(key, ())
        told = _as_told(refused, before)
        self._fleet.refused[key] = told
        if leaving is not None:
            raise leaving
        return before != told

    async def _write_child(self, key: Key, owner: SpeculativeDeployment, manifest: RawObject) -> None:
        if manifest["kind"] in CREATED_ONCE:
            await self._create(key, manifest)
            return
        if not self._known(key, owner, manifest):
            await refuse_taken(self._api, owner, manifest)
        # After the question, which may take longer than the Lease lasts.
        self._lease.check()
        answered = await self._api.apply(manifest)
        self._settled.remember(manifest, answered)
        self._fleet.cache.put(kinds.kind_of(manifest), answered)

    def _known(self, key: Key, owner: SpeculativeDeployment, manifest: RawObject) -> bool:
        """Whether the cache shows the object as ours, by UID."""
        bodies = self._fleet.cache.children(key, kinds.kind_of(manifest))
        live = next((body for body in bodies if body["metadata"]["name"] == manifest["metadata"]["name"]), None)
        return live is not None and owned(live, owner)

    async def _create(self, key: Key, manifest: RawObject) -> None:
        self._lease.check()
        await self._api.create(manifest)
        kind = kinds.kind_of(manifest)
        body = await self._api.get(kind, key[0], manifest["metadata"]["name"])
        self._fleet.cache.put(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **body})

    async def _event(self, manifest: RawObject) -> None:
        """Events are news: a failure to tell them never stops the work."""
        try:
            await self._api.create(manifest)
        except KubeError as error:
            log.warning("event %s was not written: %s", manifest["metadata"]["name"], error.message)

    async def _tell_again(self, owner: SpeculativeDeployment) -> None:
        """Once per process, and after every reconcile that failed half-way: an Event whose telling was cut off is made
        good (its name is the same)."""
        if owner.uid in self._told or not self._lease.held:
            return
        self._told.add(owner.uid)
        recent = owner.status.history[-3:] if owner.status is not None else []
        for decision in recent:
            if (self._clock() - decision.time).total_seconds() < EVENT_LIFE_SECONDS:
                await self._event(build_event(owner, decision))

    def _tell(self, owner: SpeculativeDeployment, plan: Plan) -> None:
        for decision in plan.decisions:
            log.info("%s/%s %s %s: %s", owner.namespace, owner.name, decision.action, decision.reason, decision.message)
            self._metrics.count_decision(owner.namespace, owner.name, decision)


def _as_told(refused: Iterable[str], before: Iterable[str]) -> tuple[str, ...]:
    """Refusals in the words in which they were told first: a request number that changes with every try would be
    written into status, and the write would bring about the next try."""
    known = {_VARYING.sub("", one): one for one in before}
    return tuple(known.get(_VARYING.sub("", one), one) for one in refused)


__all__ = ["Reconciler", "UnreadableError"]
