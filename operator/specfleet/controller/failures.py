"""What a person is told when a deployment cannot be worked on: a metric, an Event, and conditions.

Nothing else in status is touched. What is told stays until a reconcile succeeds, also where decide() runs and only a
write fails (still_told): taken back at each try and told again at its end, it would wake the next try by itself.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from specfleet.alerts.events import operator_error_event
from specfleet.alerts.metrics import OperatorMetrics
from specfleet.api.base import RawObject
from specfleet.api.conditions import ConditionStatus, ConditionType
from specfleet.api.reasons import OPERATOR_ERROR, UNREADABLE
from specfleet.api.status import DeploymentStatus
from specfleet.controller.fleet import Fleet
from specfleet.kube import kinds
from specfleet.kube.cache import Key
from specfleet.kube.lease import Lease, LostLeaseError
from specfleet.kube.port import KubeApi, KubeError

REASONS = (OPERATOR_ERROR, UNREADABLE)
TOLD_FROM = 3
"""Failures in a row: the API server stutters, and somebody writes in between, without a person having to know."""
TOLD_FROM_IN_BETWEEN = 9
"""The same where somebody else's write or removal was in the way, which is nothing odd: after two minutes of it."""
MESSAGE_LIMIT = 1024
SAYS = {
    ConditionType.STALLED: {OPERATOR_ERROR: ConditionStatus.TRUE, UNREADABLE: ConditionStatus.TRUE},
    ConditionType.RECONCILING: {OPERATOR_ERROR: ConditionStatus.FALSE, UNREADABLE: ConditionStatus.FALSE},
    ConditionType.READY: {OPERATOR_ERROR: ConditionStatus.UNKNOWN, UNREADABLE: ConditionStatus.FALSE},
}
"""kstatus reads it as Failed. What serves goes on serving, but nobody looks: whether it is what was asked for is not
known, and surely not where nobody can read what was asked for."""

log = logging.getLogger(__name__)


@dataclass
class Failures:
    """Counts failures in a row per deployment, and tells of those that last. Never raises."""

    api: KubeApi
    fleet: Fleet
    lease: Lease
    metrics: OperatorMetrics
    clock: Callable[[], datetime]
    _counts: dict[Key, int] = field(default_factory=dict)
    _told: dict[Key, str] = field(default_factory=dict)
    """Family of what was told last: a message may carry numbers that change with every try."""

    async def happened(self, key: Key, family: str, message: str, told_from: int = TOLD_FROM) -> None:
        """A reconcile failed. `told_from` 1: trying again cannot help (the object does not fit this operator)."""
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._counts[key] < told_from:
            return
        self.metrics.show_failing(*key, family)
        body = self.fleet.cache.deployments.get(key)
        if body is None:
            return
        reason = UNREADABLE if family == UNREADABLE else OPERATOR_ERROR
        said = (message if reason == UNREADABLE else f"{family}: {message}")[:MESSAGE_LIMIT]
        try:
            self.lease.check()
            await self._write(body, reason, said)
            self.fleet.failing.add(key)
            if self._told.get(key) != family:
                await self.api.create(operator_error_event(body, reason, family, said, self.clock()))
                self._told[key] = family
        except (KubeError, LostLeaseError) as error:
            log.warning("%s/%s: the failure could not be told in the cluster: %s", *key, error)

    def over(self, key: Key) -> bool:
        """A reconcile succeeded, or the deployment is gone. True: status still tells of the failure."""
        if self._counts.pop(key, None) is not None:
            self._told.pop(key, None)
            self.metrics.show_failing(*key, None)
        told = key in self.fleet.failing
        self.fleet.failing.discard(key)
        return told

    async def _write(self, body: RawObject, reason: str, said: str) -> None:
        """Conditions only, and only once: an own write wakes the reconcile that fails again."""
        status = body.get("status")
        status = dict(status) if isinstance(status, dict) else {}
        generation = body["metadata"].get("generation", 0)
        before = [one for one in _listed(status.get("conditions")) if isinstance(one, dict)]
        if _says_so(before, reason) and status.get("observedGeneration") == generation:
            return
        fresh = _conditions(before, reason, said, generation, self.clock())
        status["conditions"] = sorted(fresh, key=lambda one: one["type"])
        status["observedGeneration"] = generation
        self.fleet.cache.put_deployment(await self.api.patch_status(kinds.SPECULATIVE_DEPLOYMENT, body, status))


def still_told(status: DeploymentStatus, before: DeploymentStatus | None) -> DeploymentStatus:
    """The status that was decided, with what was told of the failure in place of the same conditions."""
    told = [one for one in before.conditions if one.type in SAYS and one.reason in REASONS] if before else []
    kinds_told = {one.type for one in told}
    others = [one for one in status.conditions if one.type not in kinds_told]
    return status.model_copy(update={"conditions": sorted([*others, *told], key=lambda one: one.type)})


def _listed(conditions: Any) -> list[Any]:
    return conditions if isinstance(conditions, list) else []


def _says_so(conditions: Iterable[RawObject], reason: str) -> bool:
    said = {one.get("type"): (one.get("status"), one.get("reason")) for one in conditions}
    return all(said.get(kind.value) == (says[reason].value, reason) for kind, says in SAYS.items())


def _conditions(before: list[RawObject], reason: str, said: str, generation: int, now: datetime) -> list[RawObject]:
    """The conditions that were there, with those of kstatus replaced."""
    known = {one.get("type"): one for one in before}
    moment = now.replace(microsecond=0).isoformat().replace("+00:00", "Z")
    fresh = {}
    for kind, status in ((kind, says[reason]) for kind, says in SAYS.items()):
        old = known.get(kind.value, {})
        same = old.get("status") == status.value and "lastTransitionTime" in old
        fresh[kind.value] = {
            "type": kind.value,
            "status": status.value,
            "reason": reason,
            "message": said,
            "lastTransitionTime": old["lastTransitionTime"] if same else moment,
            "observedGeneration": generation,
        }
    return [*(one for one in before if one.get("type") not in fresh), *fresh.values()]
