"""What the operator knows of all deployments: the cache, the watch's reports, user ConfigMaps, and the fleet's breaker.

Nothing here is needed after a restart: every part is read again.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from hashlib import sha256

from specfleet.api.base import RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.controller.gpu_types import GpuTypes
from specfleet.controller.groups import GroupHistory
from specfleet.controller.observe import Surroundings, UnreadableError, read_deployment
from specfleet.controller.probe import Prober
from specfleet.controller.wanted import WantedArms
from specfleet.decide.breaker import fleet_view
from specfleet.decide.observation import FleetView, WatchHistory
from specfleet.decide.traffic_profile import TrafficLook
from specfleet.decide.watch_report import WatchReport
from specfleet.engine.pod_inputs import referenced_config_maps
from specfleet.kube import kinds
from specfleet.kube.cache import Cache, Key
from specfleet.kube.port import ForbiddenError, KubeApi, NotFoundError
from specfleet.resources.route import KIND as HTTP_ROUTE

CONFIG_MAP_SECONDS = 300.0

ABSENT_SECONDS = 30.0
"""One that could not be read is looked for more often: a person is probably about to create it."""

ConfigMaps = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class UserMaps:
    """ConfigMaps of one deployment as last read."""

    read: float = float("-inf")
    """On the monotonic clock, seconds."""
    found: ConfigMaps = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    """Name -> why it cannot be read."""
    missed: frozenset[str] = frozenset()
    """In `found` from the time before: not there at the last look."""

    @property
    def looked_for(self) -> frozenset[str]:
        """All names that were asked for."""
        return frozenset({*self.found, *self.absent})

    @cached_property
    def digest(self) -> str:
        """Changes with what was read; worked out once per reading: prompts alone may be a megabyte."""
        return sha256(repr((sorted(self.found.items()), sorted(self.absent.items()))).encode()).hexdigest()


class Fleet:
    """Shared by the workers on one event loop."""

    def __init__(self, prober: Prober, benchmarks_at_once: int | None = None) -> None:
        """`benchmarks_at_once`: how many deployments may begin to measure; None: all."""
        self._benchmarks_at_once = benchmarks_at_once
        self._measuring: set[Key] | None = None
        self.cache = Cache()
        self.prober = prober
        self.reports: dict[Key, WatchReport] = {}
        self.promoted_reports: dict[Key, WatchReport] = {}
        """Of promoted arms beside the trial of a changed engine."""
        self.traffic: dict[Key, TrafficLook] = {}
        self.refused: dict[Key, tuple[str, ...]] = {}
        """What the API server (or the owner of a name) refuses, in its own words; told in status."""
        self.failing: set[Key] = set()
        """Of which status says that they cannot be worked on (failures.py); that stays until a reconcile succeeds."""
        self.groups: frozenset[str] | None = None
        """API groups that the cluster serves; None: it has not been asked."""
        self.optional: frozenset[str] = frozenset()
        """Optional kinds that the cluster serves (HTTPRoute, PodMonitor, LeaderWorkerSet)."""
        self.groups_of_pods = GroupHistory()
        self.gpu_types = GpuTypes()
        self.watch = WatchHistory()
        self._config_maps: dict[Key, UserMaps] = {}
        self._parsed: dict[Key, tuple[tuple[str, str], SpeculativeDeployment]] = {}
        self._wanted: dict[Key, tuple[tuple[object, ...], WantedArms]] = {}
        self._breaker = FleetView()

    def deployment(self, key: Key) -> SpeculativeDeployment:
        """The deployment as last seen; parsed once per resourceVersion. Raises UnreadableError, KeyError."""
        body = self.cache.deployments[key]
        version = (str(body["metadata"].get("uid")), str(body["metadata"].get("resourceVersion")))
        known = self._parsed.get(key)
        if known is None or known[0] != version:
            known = (version, read_deployment(body))
            self._parsed[key] = known
        return known[1]

    def readable(self) -> list[SpeculativeDeployment]:
        """All deployments that fit this operator's API."""
        found = []
        for key in self.cache.known():
            try:
                found.append(self.deployment(key))
            except UnreadableError:
                continue
        return found

    def unreadable(self) -> list[RawObject]:
        """All others, as they are in the cluster."""
        found = []
        for key in self.cache.known():
            try:
                self.deployment(key)
            except UnreadableError:
                found.append(self.cache.deployments[key])
        return found

    def wanted(self, key: Key, owner: SpeculativeDeployment) -> WantedArms:
        """Arms of the present spec; built again only when the spec or a referenced ConfigMap changed."""
        read = self._config_maps.get(key, UserMaps())
        version = (owner.uid, int(owner.metadata.get("generation", 0)), read.digest, self.groups)
        known = self._wanted.get(key)
        if known is None or known[0] != version:
            known = (version, WantedArms(owner.spec, read.found, read.absent, self.groups))
            self._wanted[key] = known
        return known[1]

    def surroundings(self, key: Key) -> Surroundings:
        """What observe() needs besides the cache."""
        return Surroundings(
            prober=self.prober,
            refused=self.refused.get(key, ()),
            reports=self.reports,
            promoted_watch=self.promoted_reports.get(key),
            gateway_api=HTTP_ROUTE in self.optional,
            fleet=replace(
                self._breaker,
                others_measuring=len(self.measuring - {key}),
                benchmarks_at_once=self._benchmarks_at_once,
            ),
            watch=self.watch,
            traffic=self.traffic.get(key),
            groups=self.groups_of_pods,
            gpu_types=self.gpu_types.by_pod,
        )

    @property
    def measuring(self) -> set[Key]:
        """Deployments with a benchmark in flight; after a restart, those whose status says so."""
        if self._measuring is None:
            found = (one for one in self.readable() if one.status is not None and one.status.benchmark is not None)
            self._measuring = {(one.namespace, one.name) for one in found}
        return self._measuring

    def note_measuring(self, key: Key, measures: bool) -> None:
        """What was just decided: between that and the next decision nothing else runs, so no place is given twice."""
        (self.measuring.add if measures else self.measuring.discard)(key)

    async def load_config_maps(self, key: Key, api: KubeApi) -> None:
        """Read the ConfigMaps that the spec names (their content is part of the fingerprint), every five minutes."""
        owner = self.deployment(key)
        names = set(referenced_config_maps(owner.spec.template, tuple(owner.spec.engine.env)))
        if owner.spec.benchmark.prompts.config_map:
            names.add(owner.spec.benchmark.prompts.config_map)
        before = self._config_maps.get(key, UserMaps())
        patience = ABSENT_SECONDS if before.missed or before.absent else CONFIG_MAP_SECONDS
        if not names or (time.monotonic() - before.read < patience and names <= before.looked_for):
            return
        found: dict[str, Mapping[str, str]] = {}
        absent: dict[str, str] = {}
        missed: set[str] = set()
        for name in sorted(names):
            try:
                body = await api.get(kinds.CONFIG_MAP, key[0], name)
            except (NotFoundError, ForbiddenError) as error:
                if name in before.found and name not in before.missed:
                    # A ConfigMap that is replaced is away for a moment: twice in a row is gone.
                    found[name] = before.found[name]
                    missed.add(name)
                else:
                    absent[name] = error.message
                continue
            found[name] = {**body.get("data", {}), **body.get("binaryData", {})}
        self._config_maps[key] = UserMaps(time.monotonic(), found, absent, frozenset(missed))

    def look_again_seconds(self, key: Key) -> float | None:
        """When a ConfigMap that could not be read is looked for again; None when there is none."""
        read = self._config_maps.get(key, UserMaps())
        return ABSENT_SECONDS if read.absent or read.missed else None

    def prompts(self, key: Key, owner: SpeculativeDeployment) -> str | None:
        """The user's prompts.jsonl, if spec.benchmark.prompts.configMap names one."""
        name = owner.spec.benchmark.prompts.config_map
        found = self._config_maps.get(key, UserMaps()).found
        return found.get(name, {}).get("prompts.jsonl") if name else None

    def forget(self, key: Key) -> None:
        """A deployment is gone; the garbage collector removes its children."""
        self.cache.drop_deployment(key)
        self.reports.pop(key, None)
        self.promoted_reports.pop(key, None)
        self.traffic.pop(key, None)
        self.refused.pop(key, None)
        self.failing.discard(key)
        # Not by way of `measuring`: a stand-by would count now what it needs to know when it takes over.
        (self._measuring or set()).discard(key)
        self.groups_of_pods.forget(key)
        self._config_maps.pop(key, None)
        self._wanted.pop(key, None)
        self._parsed.pop(key, None)

    def judge_breaker(self, now: datetime) -> FleetView:
        """Open when many roll back at once: a shared cause (decide/breaker.py).

        Asked with every tick, and at once after each roll-back: windows of a whole fleet close in the same moment.
        """
        self._breaker = fleet_view((one.status for one in self.readable()), len(self.cache.deployments), now)
        return self._breaker


def served_optional(paths: Mapping[str, bool]) -> frozenset[str]:
    """Names of the optional kinds that the cluster serves."""
    return frozenset(kind.kind for kind in kinds.WATCHED if kind.optional and paths.get(kind.kind))
