"""What a person is told when a deployment cannot be worked on: a metric, an Event, and conditions.

decide() never ran, so nothing else in status is touched. The next reconcile that succeeds writes the conditions anew.
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
from specfleet.controller.fleet import Fleet
from specfleet.kube import kinds
from specfleet.kube.cache import Key
from specfleet.kube.lease import Lease, LostLeaseError
from specfleet.kube.port import KubeApi, KubeError

REASON = "OperatorError"
TOLD_FROM = 3
"""Failures in a row: the API server stutters, and somebody writes in between, without a person having to know."""
MESSAGE_LIMIT = 1024
SAYS = {
    ConditionType.STALLED: ConditionStatus.TRUE,
    ConditionType.RECONCILING: ConditionStatus.FALSE,
    ConditionType.READY: ConditionStatus.UNKNOWN,
}
"""kstatus reads it as Failed. Ready is not known: what serves goes on serving, but nobody looks."""

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

    async def happened(self, key: Key, family: str, message: str, lasting: bool = False) -> None:
        """A reconcile failed. `lasting`: trying again cannot help (the object does not fit this operator)."""
        self._counts[key] = self._counts.get(key, 0) + 1
        if not lasting and self._counts[key] < TOLD_FROM:
            return
        self.metrics.show_failing(*key, family)
        body = self.fleet.cache.deployments.get(key)
        if body is None:
            return
        said = f"{family}: {message}"[:MESSAGE_LIMIT]
        try:
            self.lease.check()
            await self._write(body, said)
            if self._told.get(key) != family:
                await self.api.create(operator_error_event(body, family, said, self.clock()))
                self._told[key] = family
        except (KubeError, LostLeaseError) as error:
            log.warning("%s/%s: the failure could not be told in the cluster: %s", *key, error)

    def over(self, key: Key) -> None:
        """A reconcile succeeded, or the deployment is gone."""
        if self._counts.pop(key, None) is not None:
            self._told.pop(key, None)
            self.metrics.show_failing(*key, None)

    async def _write(self, body: RawObject, said: str) -> None:
        """Conditions only, and only once: an own write wakes the reconcile that fails again."""
        status = body.get("status")
        status = dict(status) if isinstance(status, dict) else {}
        generation = body["metadata"].get("generation", 0)
        before = [one for one in _listed(status.get("conditions")) if isinstance(one, dict)]
        if _says_so(before) and status.get("observedGeneration") == generation:
            return
        status["conditions"] = sorted(_conditions(before, said, generation, self.clock()), key=lambda one: one["type"])
        status["observedGeneration"] = generation
        self.fleet.cache.put_deployment(await self.api.patch_status(kinds.SPECULATIVE_DEPLOYMENT, body, status))


def _listed(conditions: Any) -> list[Any]:
    return conditions if isinstance(conditions, list) else []


def _says_so(conditions: Iterable[RawObject]) -> bool:
    said = {one.get("type"): (one.get("status"), one.get("reason")) for one in conditions}
    return all(said.get(kind.value) == (status.value, REASON) for kind, status in SAYS.items())


def _conditions(before: list[RawObject], said: str, generation: int, now: datetime) -> list[RawObject]:
    """The conditions that were there, with those of kstatus replaced."""
    known = {one.get("type"): one for one in before}
    moment = now.replace(microsecond=0).isoformat().replace("+00:00", "Z")
    fresh = {}
    for kind, status in SAYS.items():
        old = known.get(kind.value, {})
        same = old.get("status") == status.value and "lastTransitionTime" in old
        fresh[kind.value] = {
            "type": kind.value,
            "status": status.value,
            "reason": REASON,
            "message": said,
            "lastTransitionTime": old["lastTransitionTime"] if same else moment,
            "observedGeneration": generation,
        }
    return [*(one for one in before if one.get("type") not in fresh), *fresh.values()]
