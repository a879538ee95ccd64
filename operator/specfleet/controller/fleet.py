"""What the operator knows of all deployments: the cache, the watch's reports, user ConfigMaps, and the fleet's breaker.

Nothing here is needed after a restart: every part is read again.
"""

import time
from collections.abc import Mapping
from datetime import datetime

from specfleet.api.deployment import SpeculativeDeployment
from specfleet.controller.observe import Surroundings, UnreadableError, read_deployment
from specfleet.controller.probe import Prober
from specfleet.controller.wanted import WantedArms
from specfleet.decide.breaker import fleet_view
from specfleet.decide.observation import FleetView, WatchHistory
from specfleet.decide.watch_report import WatchReport
from specfleet.engine.pod_inputs import referenced_config_maps
from specfleet.kube import kinds
from specfleet.kube.cache import Cache, Key
from specfleet.kube.port import KubeApi, NotFoundError
from specfleet.resources.monitoring import KIND as POD_MONITOR
from specfleet.resources.route import KIND as HTTP_ROUTE

CONFIG_MAP_SECONDS = 300.0

ConfigMaps = Mapping[str, Mapping[str, str]]


class Fleet:
    """Shared by the workers on one event loop."""

    def __init__(self, prober: Prober) -> None:
        self.cache = Cache()
        self.prober = prober
        self.reports: dict[Key, WatchReport] = {}
        self.refused: dict[Key, tuple[str, ...]] = {}
        """What the API server (or the owner of a name) refuses, in its own words; told in status."""
        self.optional: frozenset[str] = frozenset()
        """Optional kinds that the cluster serves (HTTPRoute, PodMonitor)."""
        self.watch = WatchHistory()
        self._config_maps: dict[Key, tuple[float, ConfigMaps]] = {}
        self._parsed: dict[Key, tuple[tuple[str, str], SpeculativeDeployment]] = {}
        self._wanted: dict[Key, tuple[tuple[str, int, str], WantedArms]] = {}
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

    def wanted(self, key: Key, owner: SpeculativeDeployment) -> WantedArms:
        """Arms of the present spec; built again only when the spec or a referenced ConfigMap changed."""
        maps = self._config_maps.get(key, (0.0, {}))[1]
        version = (owner.uid, int(owner.metadata.get("generation", 0)), repr(sorted(maps.items())))
        known = self._wanted.get(key)
        if known is None or known[0] != version:
            known = (version, WantedArms(owner.spec, maps))
            self._wanted[key] = known
        return known[1]

    def surroundings(self, key: Key) -> Surroundings:
        """What observe() needs besides the cache."""
        return Surroundings(
            prober=self.prober,
            refused=self.refused.get(key, ()),
            reports=self.reports,
            config_maps=self._config_maps.get(key, (0.0, {}))[1],
            gateway_api=HTTP_ROUTE in self.optional,
            fleet=self._breaker,
            watch=self.watch,
        )

    async def load_config_maps(self, key: Key, api: KubeApi) -> None:
        """Read the ConfigMaps that the spec names (their content is part of the fingerprint), every five minutes."""
        owner = self.deployment(key)
        names = set(referenced_config_maps(owner.spec.template, tuple(owner.spec.engine.env)))
        if owner.spec.benchmark.prompts.config_map:
            names.add(owner.spec.benchmark.prompts.config_map)
        read, maps = self._config_maps.get(key, (float("-inf"), {}))
        if not names or (time.monotonic() - read < CONFIG_MAP_SECONDS and names <= set(maps)):
            return
        found: dict[str, Mapping[str, str]] = {}
        for name in sorted(names):
            try:
                body = await api.get(kinds.CONFIG_MAP, key[0], name)
            except NotFoundError:
                continue  # The pods will say that it is missing; its absence is part of the fingerprint too.
            found[name] = {**body.get("data", {}), **body.get("binaryData", {})}
        self._config_maps[key] = (time.monotonic(), found)

    def prompts(self, key: Key, owner: SpeculativeDeployment) -> str | None:
        """The user's prompts.jsonl, if spec.benchmark.prompts.configMap names one."""
        name = owner.spec.benchmark.prompts.config_map
        return self._config_maps.get(key, (0.0, {}))[1].get(name, {}).get("prompts.jsonl") if name else None

    def forget(self, key: Key) -> None:
        """A deployment is gone; the garbage collector removes its children."""
        self.cache.drop_deployment(key)
        self.reports.pop(key, None)
        self.refused.pop(key, None)
        self._config_maps.pop(key, None)
        self._wanted.pop(key, None)
        self._parsed.pop(key, None)

    def judge_breaker(self, now: datetime) -> FleetView:
        """Open when many roll back at once: a shared cause (decide/breaker.py)."""
        self._breaker = fleet_view((one.status for one in self.readable()), len(self.cache.deployments), now)
        return self._breaker


def served_optional(paths: Mapping[str, bool]) -> frozenset[str]:
    """Names of the optional kinds that the cluster serves."""
    return frozenset(kind for kind in (HTTP_ROUTE, POD_MONITOR) if paths.get(kind))
