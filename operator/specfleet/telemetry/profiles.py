"""What production traffic is like: the engine's histograms of prompt and output length over one window, and its peak.

Asked for a few times per window only. Of the histograms two samples per series are read (end and start of the window);
the peak is one quantile per pod, which the metrics server works out over the window.
"""

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from specfleet.decide.traffic_profile import LOOKS_PER_WINDOW, TrafficLook, TrafficProfile, from_cumulative
from specfleet.decide.watch_target import Key, Target
from specfleet.telemetry.prometheus import Prometheus, PrometheusError, Series
from specfleet.telemetry.queries import fleet_queries, pods_per_namespace
from specfleet.telemetry.scraped import Scraped, fullest, scraped
from specfleet.telemetry.servers import MetricsServer

PROMPT = "vllm:request_prompt_tokens_bucket"
OUTPUT = "vllm:request_generation_tokens_bucket"
RUNNING = "vllm:num_requests_running"
PEAK_QUANTILE = 0.99
"""A load that is exceeded for a quarter of an hour a day is a peak, one that is exceeded for a minute is a burst."""
SERIES_PER_POD = 40
"""Two histograms with 1-2-5 edges up to the context length."""
LOOK_BACK_SCRAPES = 4

Counts = dict[tuple[str, str, str], dict[float, float]]
"""Cumulative count per edge, by (namespace, pod, metric)."""

Peaks = dict[tuple[str, str], float]
"""Running requests at the peak, by (namespace, pod)."""

log = logging.getLogger(__name__)


class Profiles:
    """Reads the length profile of each target when it is due. Not for concurrent reads."""

    def __init__(self) -> None:
        self._clients: dict[MetricsServer, Prometheus] = {}
        self._due: dict[Key, float] = {}

    @property
    def queries(self) -> int:
        """Requests sent to metrics servers so far."""
        return sum(client.queries for client in self._clients.values())

    def close(self) -> None:
        """Let go of all servers."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    async def read(self, targets: Mapping[MetricsServer, Sequence[Target]], now: datetime) -> dict[Key, TrafficLook]:
        """Looks that were due, by target. A server that fails gives none and is asked again at the next due time."""
        known = {target.key for members in targets.values() for target in members}
        self._due = {key: moment for key, moment in self._due.items() if key in known}
        for server in [server for server in self._clients if server not in targets]:
            self._clients.pop(server).close()
        groups: dict[tuple[MetricsServer, str, str, float], list[Target]] = {}
        for server, members in targets.items():
            for target in members:
                if self._is_due(target, now):
                    slot = (server, target.namespace_label, target.pod_label, target.traffic_window_seconds)
                    groups.setdefault(slot, []).append(target)
        found = await asyncio.gather(*(self._look(slot[0], due, now) for slot, due in groups.items()))
        return {key: look for one in found for key, look in one.items()}

    def _is_due(self, target: Target, now: datetime) -> bool:
        clock = now.timestamp()
        if not target.arms or clock < self._due.get(target.key, 0.0):
            return False
        self._due[target.key] = clock + target.traffic_window_seconds / LOOKS_PER_WINDOW
        return True

    async def _look(self, server: MetricsServer, due: list[Target], now: datetime) -> dict[Key, TrafficLook]:
        end = now.timestamp()
        try:
            ends, starts, peaks = await asyncio.gather(
                self._counts(server, due, end),
                self._counts(server, due, end - due[0].traffic_window_seconds),
                self._peaks(server, due, end),
            )
        except PrometheusError as error:
            log.info("lengths of requests are not known: %s", error)
            return {}
        found = {}
        for target in due:
            profile = _profile(target, ends, starts, peaks)
            if profile is not None:
                found[target.key] = TrafficLook(now.replace(microsecond=0), profile)
        return found

    async def _peaks(self, server: MetricsServer, due: list[Target], at: float) -> Peaks:
        client = self._clients.setdefault(server, Prometheus(server))
        window, label = due[0].traffic_window_seconds, due[0].namespace_label
        selectors = fleet_queries(pods_per_namespace(due), label, window, (RUNNING,), 1)
        asked = (client.instant_vector(f"quantile_over_time({PEAK_QUANTILE:g}, {one})", at) for one in selectors)
        found: dict[tuple[str, str], dict[Scraped, list[float]]] = {}
        for one in (series for answer in await asyncio.gather(*asked) for series in answer):
            value = float(one.values[-1]) if len(one.values) else math.nan
            if math.isfinite(value):
                slot = (one.labels.get(label, ""), one.labels.get(due[0].pod_label, ""))
                target = scraped(one.labels, label, due[0].pod_label)
                found.setdefault(slot, {}).setdefault(target, []).append(value)
        chosen: dict[tuple[str, str], list[float]] = {slot: fullest(targets, len) for slot, targets in found.items()}
        return {slot: sum(values) for slot, values in chosen.items()}  # Engines of one pod (data parallel) add up.

    async def _counts(self, server: MetricsServer, due: list[Target], at: float) -> Counts:
        client = self._clients.setdefault(server, Prometheus(server))
        seconds = LOOK_BACK_SCRAPES * max(target.scrape_interval_seconds for target in due)
        queries = fleet_queries(
            pods_per_namespace(due), due[0].namespace_label, seconds, (PROMPT, OUTPUT), SERIES_PER_POD
        )
        answers = await asyncio.gather(*(client.range_vector(query, at) for query in queries))
        return _counted((one for answer in answers for one in answer), due[0].namespace_label, due[0].pod_label)


def _counted(series: Iterable[Series], namespace_label: str, pod_label: str) -> Counts:
    """The last sample of each series; engines of one pod (data parallel) are summed, scrapes of one engine are not."""
    found: dict[tuple[str, str, str], dict[Scraped, list[tuple[float, float]]]] = {}
    for one in series:
        try:
            edge = float(one.labels["le"])
        except (KeyError, ValueError):
            continue
        value = float(one.values[-1]) if len(one.values) else math.nan
        if not math.isfinite(value):
            continue
        slot = (one.labels.get(namespace_label, ""), one.labels.get(pod_label, ""), one.labels.get("__name__", ""))
        target = scraped(one.labels, namespace_label, pod_label)
        found.setdefault(slot, {}).setdefault(target, []).append((edge, value))
    counts: Counts = {}
    for slot, targets in found.items():
        own = counts.setdefault(slot, {})
        for edge, value in fullest(targets, len):
            own[edge] = own.get(edge, 0.0) + value
    return counts


def _profile(target: Target, ends: Counts, starts: Counts, peaks: Peaks) -> TrafficProfile | None:
    """Requests per band over all serving pods; None when an engine exposes no such histogram.

    The peak is that of the arm whose pods are busier, on average over its pods: one pod that a gateway favours is not
    the fleet.
    """
    bands: list[dict[float, float]] = []
    for metric in (PROMPT, OUTPUT):
        total: dict[float, float] = {}
        for pods in target.arms.values():
            for pod in pods:
                slot = (target.key[0], pod.name, metric)
                for edge, count in _grown(ends.get(slot, {}), starts.get(slot, {})).items():
                    total[edge] = total.get(edge, 0.0) + count
        try:
            bands.append(from_cumulative(total))
        except ValueError:
            return None
    if not bands[0] or not bands[1]:
        return None
    arms = [
        [peaks[target.key[0], pod.name] for pod in pods if (target.key[0], pod.name) in peaks]
        for pods in target.arms.values()
    ]
    busiest = max((sum(known) / len(known) for known in arms if known), default=None)
    return TrafficProfile(bands[0], bands[1], sum(bands[0].values()), busiest)


def _grown(end: Mapping[float, float], start: Mapping[float, float]) -> Mapping[float, float]:
    """What was counted in between. A counter that fell, or other edges, is another process: all that it counted."""
    if set(end) != set(start) or any(end[edge] < start[edge] for edge in end):
        return end
    return {edge: end[edge] - start[edge] for edge in end}
