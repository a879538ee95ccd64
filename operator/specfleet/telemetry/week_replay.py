"""A calibration week survives a restart of the operator: its past hours are read again from Prometheus.

Not window by window (a week of samples of a fleet is too much), but from the counters at the two ends of each hour: a
few samples per series and hour, a few hours per tick.
"""

import asyncio
import logging
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from specfleet.decide.counters import COUNTERS, Floats, Hour
from specfleet.decide.reference import ROLES
from specfleet.decide.watch_target import Key, Target
from specfleet.decide.week import HOUR_SECONDS, HOURS
from specfleet.decide.week import SOURCE as WEEK
from specfleet.telemetry.deltas import MAX_SCRAPE_INTERVAL_SECONDS
from specfleet.telemetry.prometheus import Prometheus, PrometheusError, Series
from specfleet.telemetry.queries import fleet_queries, pods_per_namespace
from specfleet.telemetry.samples import START_ROW, by_pod

EDGES_PER_TICK = 4
LOOK_BACK_SECONDS = 2.5 * MAX_SCRAPE_INTERVAL_SECONDS

log = logging.getLogger(__name__)


@dataclass
class _Job:
    """What is still to be read of one target."""

    start: float
    edge: float
    """The next end of an hour, epoch seconds."""
    end: float
    """From here on the collector reads windows."""
    before: dict[str, Floats] = field(default_factory=dict)
    """Last values of each pod at the edge before."""
    hours: list[Hour] = field(default_factory=list)


class WeekReader:
    """One for all servers; hours of many deployments are asked for together."""

    def __init__(self) -> None:
        self._jobs: dict[Key, _Job] = {}

    def open(self, target: Target, windows_from: float, clock: float) -> None:
        """A target that this process sees for the first time; `windows_from`: where its windows begin."""
        known = target.calibration
        if known is None or known.source == WEEK or known.fingerprint != target.fingerprint:
            return
        first, last_week = np.ceil(known.since.timestamp() / HOUR_SECONDS), np.floor(clock / HOUR_SECONDS) - HOURS
        start = float(max(first, last_week)) * HOUR_SECONDS
        if windows_from - start >= HOUR_SECONDS:
            self._jobs[target.key] = _Job(start, start, windows_from)

    def keep_only(self, keys: Collection[Key]) -> None:
        """Forget targets that are gone."""
        self._jobs = {key: job for key, job in self._jobs.items() if key in keys}

    def give_up(self, keys: Iterable[Key]) -> None:
        """Their weeks begin now: what a server says must not blind the watch of the deployments on other servers."""
        for key in keys:
            self._jobs.pop(key, None)

    def take(self, key: Key) -> tuple[float | None, tuple[Hour, ...]]:
        """Start of the week and what was read since the last call."""
        job = self._jobs.get(key)
        if job is None:
            return None, ()
        hours, job.hours = tuple(job.hours), []
        if job.edge > job.end:
            del self._jobs[key]
        return job.start, hours

    async def read(self, client: Prometheus, members: Sequence[Target], until: float = math.inf) -> None:
        """The next few edges, none begun after `until` (the event loop's clock) but the first.

        A server that fails is asked again at the next tick.
        """
        for _ in range(EDGES_PER_TICK):
            open_ = [target for target in members if (job := self._jobs.get(target.key)) and job.edge <= job.end]
            if not open_:
                return
            edge = min(self._jobs[target.key].edge for target in open_)
            due = [target for target in open_ if self._jobs[target.key].edge == edge]
            try:
                series = await self._ask(client, due, edge)
            except PrometheusError as error:
                log.info("the first week is not read yet: %s", error)
                return
            self._digest(due, series, edge)
            if asyncio.get_running_loop().time() >= until:
                return

    async def _ask(self, client: Prometheus, due: Sequence[Target], edge: float) -> list[Series]:
        queries = fleet_queries(pods_per_namespace(due), due[0].namespace_label, LOOK_BACK_SECONDS)
        answers = await asyncio.gather(*(client.range_vector(query, edge) for query in queries))
        return [one for answer in answers for one in answer]

    def _digest(self, due: Sequence[Target], series: Sequence[Series], edge: float) -> None:
        wanted = {(one.key[0], pod.name): None for one in due for pods in one.arms.values() for pod in pods}
        samples = by_pod(series, wanted, due[0].namespace_label, due[0].pod_label)
        for target in due:
            job = self._jobs[target.key]
            counts, seconds = np.zeros((2, COUNTERS)), np.zeros(2)
            now: dict[str, Floats] = {}
            for arm, role in enumerate(ROLES):
                for pod in target.arms.get(role, ()):
                    found = samples.get((target.key[0], pod.name))
                    if found is None:
                        continue
                    now[pod.name] = found.values[:, -1]
                    grown = _grown(job.before.get(pod.name), now[pod.name])
                    if grown is not None:
                        counts[arm] += grown
                        seconds[arm] += HOUR_SECONDS
            if seconds.any():
                job.hours.append(Hour(edge - HOUR_SECONDS, counts, seconds))
            job.before, job.edge = now, edge + HOUR_SECONDS


def _grown(before: Floats | None, now: Floats) -> Floats | None:
    """What the counters of one pod grew by; None when the process began anew in between, or was not there."""
    if before is None or abs(now[START_ROW] - before[START_ROW]) > 1.0:
        return None
    grown = now[:COUNTERS] - before[:COUNTERS]
    return None if (grown < 0).any() else np.nan_to_num(grown)
