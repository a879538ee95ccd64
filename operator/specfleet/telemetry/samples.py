"""From series to one table per pod: what each scrape said, joined on the scrape's own timestamp."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from specfleet.decide.counters import COUNTERS, GAUGES, Counter, Floats
from specfleet.telemetry.prometheus import Series
from specfleet.telemetry.queries import (
    COUNTER_METRICS,
    FINISH_REASONS,
    FINISHED,
    GAP_BUCKETS,
    GAUGE_METRICS,
    HTTP,
    HTTP_CLASSES,
    METRICS,
    REQUIRED,
    START_TIME,
)
from specfleet.telemetry.scraped import Scraped, fullest, scraped

PodKey = tuple[str, str]
"""namespace, pod name."""

START_ROW = COUNTERS + GAUGES
ROWS = START_ROW + 1
_LAZY = (
    Counter.ABORTED,
    Counter.FAILED,
    Counter.HTTP_OK,
    Counter.HTTP_CLIENT_ERROR,
    Counter.HTTP_SERVER_ERROR,
    Counter.PREEMPTIONS,
)
"""Series that may come into being with their first event, or that a version lacks: absent in a scrape means 0."""
_KNOWN = frozenset(METRICS)


@dataclass(frozen=True, slots=True)
class PodSamples:
    """All scrapes of one pod in the queried span."""

    times: Floats
    """(n,) epoch seconds of the scrapes, ascending."""
    values: Floats
    """(ROWS, n): counters, gauges, process start time. NaN: the scrape did not have it."""
    duplicate: bool = False
    """The pod is scraped more than once (two jobs); only the fullest set of series is used."""

    def missing(self) -> list[str]:
        """Required metrics that no scrape had, by their names on the wire."""
        absent = [counter for counter in REQUIRED if not np.isfinite(self.values[counter]).any()]
        names = {counter: name for name, counter in COUNTER_METRICS.items()} | {Counter.FINISHED: FINISHED}
        return [names[counter] for counter in absent]

    def speculates(self) -> bool:
        """Whether the engine exposes the spec_decode counters at all."""
        return bool(np.isfinite(self.values[Counter.DRAFTS]).any())


def by_pod(
    series: Iterable[Series], pods: Mapping[PodKey, float | None], namespace_label: str, pod_label: str
) -> dict[PodKey, PodSamples]:
    """Group series by the pods asked for; everything else in the answer (other workloads) is ignored.

    `pods`: the longest gap between outputs (seconds) that each may have; None where there is no limit.
    """
    grouped: dict[PodKey, dict[Scraped, list[tuple[int, Series]]]] = {}
    for one in series:
        key = (one.labels.get(namespace_label, ""), one.labels.get(pod_label, ""))
        if key not in pods or not one.times.size:
            continue
        row = _row(one.labels) if one.labels.get("__name__") != GAP_BUCKETS else _within(one.labels, pods[key])
        if row is None:
            continue
        target = scraped(one.labels, namespace_label, pod_label)
        grouped.setdefault(key, {}).setdefault(target, []).append((row, one))
    return {key: _choose(targets) for key, targets in grouped.items()}


def _row(labels: Mapping[str, str]) -> int | None:
    name = labels.get("__name__", "")
    if name in COUNTER_METRICS:
        return int(COUNTER_METRICS[name])
    if name in GAUGE_METRICS:
        return COUNTERS + int(GAUGE_METRICS[name])
    if name == FINISHED:
        return int(FINISH_REASONS.get(labels.get("finished_reason", ""), Counter.FINISHED))
    if name == HTTP:
        counter = HTTP_CLASSES.get(labels.get("status", "")[:1])
        return None if counter is None else int(counter)
    return START_ROW if name == START_TIME else None


def _within(labels: Mapping[str, str], limit: float | None) -> int | None:
    """Place of a cumulative bucket whose edge is not below the limit: behind all rows, by its edge in microseconds."""
    try:
        edge = float(labels.get("le", ""))
    except ValueError:
        return None
    return None if limit is None or edge < limit or np.isinf(edge) else ROWS + round(edge * 1e6)


def _choose(targets: Mapping[Scraped, list[tuple[int, Series]]]) -> PodSamples:
    """The set of series with most samples."""
    best = fullest(targets, lambda rows: sum(one.times.size for _, one in rows))
    return _table(best, duplicate=len(targets) > 1)


def _table(rows: list[tuple[int, Series]], duplicate: bool) -> PodSamples:
    times = rows[0][1].times
    if any(one.times.size != times.size or not np.array_equal(one.times, times) for _, one in rows):
        times = np.unique(np.concatenate([one.times for _, one in rows]))
    values = np.full((ROWS + 1, times.size), np.nan)
    tightest = min((place for place, _ in rows if place >= ROWS), default=None)
    for place, one in rows:
        if place >= ROWS and place != tightest:
            continue
        row = min(place, ROWS)
        at = np.searchsorted(times, one.times)
        good = np.isfinite(one.values)
        seen = values[row, at]
        # Engines of one pod (data parallel ranks) add up; the KV cache is as full as the fullest.
        fullest = COUNTERS + 2 <= row < ROWS
        merged = np.fmax(seen, one.values) if fullest else np.where(np.isnan(seen), 0.0, seen) + one.values
        values[row, at] = np.where(good, merged, np.nan)
    for counter in _LAZY:
        values[counter] = np.where(np.isnan(values[counter]), 0.0, values[counter])
    values[Counter.STALLED_STEPS] = values[Counter.STEPS] - values[ROWS]
    return PodSamples(times, values[:ROWS], duplicate)
