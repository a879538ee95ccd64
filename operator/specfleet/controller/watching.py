"""The telemetry tick: all deployments at once, and a wake-up for those whose report says something new."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import Phase
from specfleet.controller.fleet import Fleet
from specfleet.controller.observe import UnreadableError, observe
from specfleet.decide.traffic_profile import TrafficLook
from specfleet.decide.watch import Watch
from specfleet.decide.watch_report import Answer, WatchReport, gist
from specfleet.decide.watch_scope import PROMOTED, promoted_target, watch_target
from specfleet.decide.watch_target import Key as WatchKey
from specfleet.decide.watch_target import Target
from specfleet.kube.cache import Key
from specfleet.telemetry.collector import Collector
from specfleet.telemetry.profiles import Profiles
from specfleet.telemetry.servers import MetricsServer

LONGEST_TICK_SECONDS = 5.0
LOOK_SECONDS = 5.0
"""How long a tick waits for looks at the traffic; what comes later is taken in by the next one."""
NOT_OBSERVED = WatchReport(
    answer=Answer.UNAVAILABLE, message="the operator cannot read this deployment's objects: see its log"
)
"""In place of the last report, which would otherwise go on counting as if it were fresh."""

log = logging.getLogger(__name__)


class Watching:
    """Reads the metrics of the whole fleet and keeps the reports that decide() sees."""

    def __init__(
        self,
        fleet: Fleet,
        servers: Callable[[SpeculativeDeployment], MetricsServer | str],
        wake: Callable[[Key], None],
    ) -> None:
        self._fleet = fleet
        self._servers = servers
        self._wake = wake
        self.watch = Watch()
        self._collector = Collector(resumes_at=self.watch.saved.resumes_at)
        self._profiles = Profiles()
        self._look: asyncio.Task[dict[WatchKey, TrafficLook]] | None = None
        self._watched: set[WatchKey] = set()

    @property
    def queries(self) -> int:
        """Requests sent to metrics servers so far."""
        return self._collector.queries + self._profiles.queries

    def close(self) -> None:
        """Let go of the metrics servers."""
        if self._look is not None:
            self._look.cancel()
        self._collector.close()
        self._profiles.close()

    async def tick(self, now: datetime) -> float:
        """Read, watch, report. Returns the seconds until the next tick."""
        targets: dict[MetricsServer, list[Target]] = {}
        asked: dict[MetricsServer, list[Target]] = {}
        keys: dict[tuple[str, str, str], Key] = {}
        guards: dict[tuple[str, str, str], Key] = {}
        shortest = 4 * LONGEST_TICK_SECONDS
        for key in self._fleet.cache.known():
            try:
                found = self._target(key, now)
            except Exception:
                # One deployment that cannot be observed must not blind the watch of all others.
                log.exception("%s/%s cannot be watched", *key)
                self._publish(key, NOT_OBSERVED)
                continue
            if found is None:
                continue
            target, guard, server = found
            if isinstance(server, str):
                self._publish(key, WatchReport(answer=Answer.UNAVAILABLE, message=server))
                continue
            keys[target.key] = key
            shortest = min(shortest, target.window_seconds)
            asked.setdefault(server, []).append(target)
            targets.setdefault(server, []).append(target)
            if guard is not None:
                guards[guard.key] = key
                targets[server].append(guard)
        feeds = await self._collector.tick(targets, now)
        self.watch.observe(now, feeds)
        beside = {key: self.watch.report(guard) for guard, key in guards.items()}
        for watched, key in keys.items():
            if self._is_there(watched):
                self._publish(key, self.watch.report(watched), beside.get(key))
        for watched, look in (await self._looks(asked, now)).items():
            if watched in keys and self._is_there(watched):
                self._fleet.traffic[keys[watched]] = look
                self._wake(keys[watched])
        present = {*keys, *guards}
        for gone in self._watched - present:
            self.watch.forget(gone)
        self._watched = present
        seen = {key for watched, key in keys.items() if watched in feeds}
        # One of a deployment that was looked at is used by now, or of a trial that is over.
        self.watch.saved.keep(lambda saved: saved[:2] not in seen and self._is_there(saved))
        return max(1.0, min(LONGEST_TICK_SECONDS, shortest / 4))

    async def _looks(
        self, asked: Mapping[MetricsServer, Sequence[Target]], now: datetime
    ) -> Mapping[WatchKey, TrafficLook]:
        """Looks at the traffic that were due. A slow server must not hold the next tick of the others."""
        if self._look is None:
            self._look = asyncio.get_running_loop().create_task(self._profiles.read(asked, now))
        done, _ = await asyncio.wait([self._look], timeout=LOOK_SECONDS)
        if not done:
            return {}
        look, self._look = self._look, None
        return {} if look.cancelled() else look.result()

    def _target(self, key: Key, now: datetime) -> tuple[Target, Target | None, MetricsServer | str] | None:
        """What the phase asks about, and the promoted arm beside it where that is something else.

        None for a deployment that nothing serves for yet.
        """
        try:
            owner = self._fleet.deployment(key)
        except UnreadableError:
            return None
        status = owner.status
        if status is None or status.stable is None:
            return None
        wanted = self._fleet.wanted(key, owner)
        around = self._fleet.surroundings(key)
        obs = observe(self._fleet.cache, key, owner, wanted, around, now, with_evidence=False)
        return watch_target(obs, status, now), promoted_target(obs, status, now), self._servers(owner)

    def _is_there(self, watched: tuple[str, str, str]) -> bool:
        """False when it was deleted while its metrics were read: a namesake must not inherit what they say."""
        namespace, name, uid = watched
        uid = uid.removesuffix(PROMOTED)
        body = self._fleet.cache.deployments.get((namespace, name))
        return body is not None and body["metadata"].get("uid") == uid

    def _publish(self, key: Key, report: WatchReport, promoted: WatchReport | None = None) -> None:
        before, guarded = self._fleet.reports.get(key), self._fleet.promoted_reports.get(key)
        self._fleet.reports[key] = report
        self._fleet.promoted_reports.pop(key, None)
        if promoted is not None:
            self._fleet.promoted_reports[key] = promoted
        status = self._fleet.cache.deployments[key].get("status") or {}
        moving = status.get("phase") in (Phase.CANARY, Phase.INVESTIGATING)
        told = guarded is None if promoted is None else guarded is not None and gist(guarded) == gist(promoted)
        if moving or before is None or gist(before) != gist(report) or not told:
            self._wake(key)
