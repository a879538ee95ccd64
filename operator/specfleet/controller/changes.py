"""What of a plan is not so yet: the writes that turn what is into what should be, in a crash-safe order.

Evidence before the status that follows from it; the status (the decision) before the children that carry it out; then
deletions. A crash between any two leaves a state from which the next reconcile goes on.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

from specfleet.api.base import RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.controller.ownership import owned
from specfleet.decide.plan import Plan
from specfleet.kube import kinds
from specfleet.kube.cache import Cache, Key
from specfleet.kube.kinds import Kind
from specfleet.resources.evidence import speculative_benchmark

CREATED_ONCE = (kinds.CONTROLLER_REVISION.kind, kinds.JOB.kind, kinds.CONFIG_MAP.kind)
"""Never changed after creation: what was asked for, and what runs."""
PRUNED = (*kinds.ARMS, kinds.SERVICE, kinds.JOB, kinds.CONFIG_MAP, kinds.HTTP_ROUTE, kinds.POD_MONITOR)
REVISIONS_KEPT = 10


@dataclass(frozen=True, slots=True)
class Removal:
    """An object to delete, with the UID that it must have."""

    kind: Kind
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Changes:
    """Writes still to be made; empty in a steady state."""

    evidence: tuple[RawObject, ...] = ()
    status: RawObject | None = None
    create: tuple[RawObject, ...] = ()
    apply: tuple[RawObject, ...] = ()
    remove: tuple[Removal, ...] = ()
    restarts: tuple[Removal, ...] = ()

    def __bool__(self) -> bool:
        return bool(
            self.evidence or self.status is not None or self.create or self.apply or self.remove or self.restarts
        )


@dataclass
class Settled:
    """Manifests that the API server keeps in another form than they were sent (`0.5` becomes `500m`).

    Without this memory they would be applied for ever. Only an optimisation: it starts empty after a restart.
    """

    _seen: dict[str, tuple[str, str]] = field(default_factory=dict)

    def remember(self, manifest: RawObject, answered: RawObject) -> None:
        """The API server answered an apply."""
        self._seen[answered["metadata"]["uid"]] = (_digest(manifest), _spec_version(answered))

    def holds(self, manifest: RawObject, live: RawObject) -> bool:
        """Whether this very manifest was applied and nobody has changed the object since."""
        return self._seen.get(live["metadata"]["uid"]) == (_digest(manifest), _spec_version(live))

    def keep_only(self, uids: set[str]) -> None:
        """Forget objects that are gone."""
        self._seen = {uid: value for uid, value in self._seen.items() if uid in uids}


def find_changes(
    cache: Cache, key: Key, owner: SpeculativeDeployment, plan: Plan, manifests: list[RawObject], settled: Settled
) -> Changes:
    """Compare what should be with what the cache shows."""
    create: list[RawObject] = []
    apply: list[RawObject] = []
    for manifest in manifests:
        live = _live(cache, key, manifest)
        if live is None or live["metadata"].get("deletionTimestamp"):
            (create if manifest["kind"] in CREATED_ONCE else apply).append(manifest)
        elif manifest["kind"] not in CREATED_ONCE and not (contains(live, manifest) or settled.holds(manifest, live)):
            apply.append(manifest)
    status = plan.status.to_wire()
    current = cache.deployments.get(key, {}).get("status") or {}
    return Changes(
        evidence=tuple(speculative_benchmark(owner, one) for one in plan.record),
        status=status if status != current else None,
        create=tuple(create),
        apply=tuple(apply),
        remove=tuple(_surplus(cache, key, owner, plan, manifests)),
        restarts=tuple(Removal(kinds.POD, pod.name, pod.uid) for pod in plan.restarts),
    )


def contains(live: object, wanted: object) -> bool:
    """Whether everything that is wanted is there; what the API server added by default does not count."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(key in live and contains(live[key], one) for key, one in wanted.items())
    if isinstance(wanted, list):
        if not isinstance(live, list) or len(live) != len(wanted):
            return False
        return all(contains(a, b) for a, b in zip(live, wanted, strict=True))
    return live == wanted


def _surplus(
    cache: Cache, key: Key, owner: SpeculativeDeployment, plan: Plan, manifests: Iterable[RawObject]
) -> list[Removal]:
    wanted = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
    found = []
    for kind in PRUNED:
        for body in cache.children(key, kind):
            name = body["metadata"]["name"]
            if (kind.kind, name) not in wanted and owned(body, owner) and "deletionTimestamp" not in body["metadata"]:
                found.append(Removal(kind, name, body["metadata"]["uid"]))
    return found + _old_revisions(cache, key, owner, plan) + _old_evidence(cache, key, owner, plan)


def _old_revisions(cache: Cache, key: Key, owner: SpeculativeDeployment, plan: Plan) -> list[Removal]:
    """All but the last ten; the present and the stable one are never removed."""
    kept = {plan.revision, plan.status.stable.name if plan.status.stable else None}
    bodies = [body for body in cache.children(key, kinds.CONTROLLER_REVISION) if owned(body, owner)]
    bodies.sort(key=lambda body: (int(body.get("revision", 0)), body["metadata"]["name"]))
    old = [body for body in bodies if body["metadata"]["name"] not in kept][:-REVISIONS_KEPT]
    return [Removal(kinds.CONTROLLER_REVISION, body["metadata"]["name"], body["metadata"]["uid"]) for body in old]


def _old_evidence(cache: Cache, key: Key, owner: SpeculativeDeployment, plan: Plan) -> list[Removal]:
    """Beyond spec.benchmark.evidenceKept, the oldest that the present benchmark or search does not need."""
    needed = plan.status.needed_benchmarks
    bodies = [body for body in cache.children(key, kinds.SPECULATIVE_BENCHMARK) if owned(body, owner)]
    bodies.sort(key=lambda body: (body["metadata"]["creationTimestamp"], body["metadata"]["name"]))
    surplus = len(bodies) - owner.spec.benchmark.evidence_kept
    old = [body for body in bodies if body["spec"].get("benchmark") not in needed][: max(0, surplus)]
    return [Removal(kinds.SPECULATIVE_BENCHMARK, body["metadata"]["name"], body["metadata"]["uid"]) for body in old]


def _live(cache: Cache, key: Key, manifest: RawObject) -> RawObject | None:
    kind = kinds.kind_of(manifest)
    name = manifest["metadata"]["name"]
    return next((body for body in cache.children(key, kind) if body["metadata"]["name"] == name), None)


def _digest(manifest: RawObject) -> str:
    return sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _spec_version(body: RawObject) -> str:
    """Changes with every change of the spec; the resourceVersion of kinds that have no generation."""
    metadata = body["metadata"]
    return str(metadata.get("generation") or metadata.get("resourceVersion"))
