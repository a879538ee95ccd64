"""One tick of telemetry for the whole fleet: few queries per server, closed windows per deployment and arm.

Nothing lives only here: which windows were read is a cursor per deployment, and a fresh collector reads again from
the end of the watch's checkpoint, or without one from the start of the step or calibration (at most `replay_seconds`
back), in slices of bounded size.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from specfleet.api.status import ArmRole
from specfleet.decide.counters import TargetFeed, Window
from specfleet.decide.watch_report import Answer
from specfleet.decide.watch_target import Key, Target, TargetPod
from specfleet.telemetry.deltas import MAX_SCRAPE_INTERVAL_SECONDS, intervals
from specfleet.telemetry.prometheus import Prometheus, PrometheusError, Series
from specfleet.telemetry.queries import SERIES_PER_POD, fleet_queries, pods_per_namespace, stall_edges
from specfleet.telemetry.samples import PodKey, PodSamples, by_pod
from specfleet.telemetry.servers import MetricsServer
from specfleet.telemetry.week_replay import WeekReader
from specfleet.telemetry.windows import PodState, arm_answer, pod_window, scrape_refusal, window_answer, window_length

REPLAY_SECONDS = 6 * 3600.0
SAMPLES_PER_SLICE = 2_000_000
SLICES_PER_TICK = 50
PATIENCE_SECONDS = 10.0
"""No slice is begun and no server is waited for later than this in a tick: the next one goes on."""
LOOK_BACK_SCRAPES = 4
INGESTION_SECONDS = 5.0
"""A window is closed this long after its end (less where scrapes are closer): samples need time to arrive."""

FIRST_SCRAPE_SECONDS = 180.0
"""A new pod is scraped only once a PodMonitor has become configuration and the server has read it again: minutes."""

log = logging.getLogger(__name__)


@dataclass
class _Cursor:
    """How far one target has been read."""

    position: float
    """Start of the next window, epoch seconds."""
    handed_out: float
    """End of the last window that was handed out."""
    step_seconds: float | None = None
    answers: dict[ArmRole, tuple[Answer, str]] = field(default_factory=dict)
    windows: dict[ArmRole, list[Window]] = field(default_factory=dict)


_Group = tuple[MetricsServer, str, str]
"""Targets that are asked for together: of one server, with one name of the namespace label and one of the pod's."""


def _nowhere(_: Target) -> float | None:
    return None


class Collector:
    """Reads all targets. Not for concurrent ticks."""

    def __init__(
        self,
        replay_seconds: float = REPLAY_SECONDS,
        resumes_at: Callable[[Target], float | None] = _nowhere,
        patience_seconds: float | None = PATIENCE_SECONDS,
    ) -> None:
        """`resumes_at`: up to where the watch knows a target already that is new here, epoch seconds.
        `patience_seconds`: bound of a tick; None: for who asks once, everything is read in one.
        """
        self._replay_seconds = replay_seconds
        self._resumes_at = resumes_at
        self._patience_seconds = patience_seconds
        self._clients: dict[MetricsServer, Prometheus] = {}
        self._cursors: dict[Key, _Cursor] = {}
        self._weeks = WeekReader()
        self._reading: dict[_Group, tuple[frozenset[Key], asyncio.Task[None]]] = {}
        """Reads that outlive their tick; nobody else touches the cursors of their targets."""
        self._moved: set[Key] = set()
        """Targets that have changed their server under such a read: what it finds is not of the one they name now."""
        self._queries_to_forgotten = 0

    @property
    def queries(self) -> int:
        """Requests sent to metrics servers so far, those to servers that nobody names any more included."""
        return self._queries_to_forgotten + sum(client.queries for client in self._clients.values())

    async def tick(self, targets: Mapping[MetricsServer, Sequence[Target]], now: datetime) -> dict[Key, TargetFeed]:
        """Windows closed since the last tick and the present answer per arm, for every target.

        A server that fails makes the answers of its targets UNAVAILABLE; it never raises. A server is asked only when
        a window of one of its targets can close. Targets of one that has not answered within the tick are left out:
        it must not hold what the others say, and is heard in the tick after its answer. A target that has changed its
        server meanwhile is left out until the one before has answered, which then does not count.
        """
        clock = now.timestamp()
        self._forget_all_but(targets)
        groups: dict[_Group, list[Target]] = {}
        for server, members in targets.items():
            for target in members:
                self._open(target, clock)
                groups.setdefault((server, target.namespace_label, target.pod_label), []).append(target)
        for group, members in groups.items():
            elsewhere = {key for other, (busy, _) in self._reading.items() if other != group for key in busy}
            self._moved.update(target.key for target in members if target.key in elsewhere)
            groups[group] = [target for target in members if target.key not in elsewhere]
        await self._read_all({group: members for group, members in groups.items() if members}, clock)
        read = (members for group, members in groups.items() if group not in self._reading)
        return {target.key: self._feed(target) for members in read for target in members}

    async def _read_all(self, groups: Mapping[_Group, list[Target]], clock: float) -> None:
        loop, begun = asyncio.get_running_loop(), []
        for group, members in groups.items():
            if group not in self._reading:
                task = loop.create_task(self._read(group[0], members, clock))
                self._reading[group] = (frozenset(target.key for target in members), task)
                begun.append(task)
        # Not for those of the ticks before: one that is late already is not waited for again.
        if begun:
            await asyncio.wait(begun, timeout=self._patience_seconds)
        for group in [group for group, (_, task) in self._reading.items() if task.done()]:
            busy, task = self._reading.pop(group)
            for key in busy & self._moved:
                handed_out = self._cursors[key].handed_out
                self._cursors[key] = _Cursor(position=handed_out, handed_out=handed_out)
            self._moved -= busy
            error = None if task.cancelled() else task.exception()
            if error is not None:
                log.error("%s: reading it failed", group[0].url, exc_info=error)

    def close(self) -> None:
        """Let go of all servers."""
        for _, task in self._reading.values():
            task.cancel()
        for server in list(self._clients):
            self._let_go(server)

    def _let_go(self, server: MetricsServer) -> None:
        client = self._clients.pop(server)
        self._queries_to_forgotten += client.queries
        client.close()

    def _forget_all_but(self, targets: Mapping[MetricsServer, Sequence[Target]]) -> None:
        keys = {target.key for members in targets.values() for target in members}
        keys.update(*(busy for busy, _ in self._reading.values()))
        waited_for = {server for server, _, _ in self._reading}
        self._cursors = {key: cursor for key, cursor in self._cursors.items() if key in keys}
        self._weeks.keep_only(keys)
        for server in [one for one in self._clients if one not in targets and one not in waited_for]:
            self._let_go(server)

    def _open(self, target: Target, clock: float) -> None:
        if target.key in self._cursors:
            return
        begin = self._begin(target, clock - self._replay_seconds)
        self._cursors[target.key] = _Cursor(position=begin, handed_out=begin)
        self._weeks.open(target, begin, clock)

    def _begin(self, target: Target, earliest: float) -> float:
        """Where the first window begins."""
        known = self._resumes_at(target)
        if known is not None and known >= earliest:
            return known
        origin = target.since.timestamp()
        if target.calibration is not None:
            origin = min(origin, target.calibration.since.timestamp())
        length = target.window_seconds
        return float(np.ceil(max(origin, earliest) / length) * length)

    async def _read(self, server: MetricsServer, members: list[Target], clock: float) -> None:
        loop = asyncio.get_running_loop()
        patience = math.inf if self._patience_seconds is None else self._patience_seconds
        begun = loop.time()
        client = self._clients.setdefault(server, Prometheus(server))
        try:
            await self._weeks.read(client, members, begun + patience / 2)
        except Exception:
            log.exception("%s: the first week of its deployments cannot be read again", server.url)
            self._weeks.give_up(target.key for target in members)
        for _ in range(SLICES_PER_TICK):
            due = [target for target in members if self._closes(target) <= clock]
            if not due:
                return
            end = min(clock, self._slice_end(due))
            try:
                series = await self._ask(client, due, end)
                # In a thread: decoding thousands of pods takes seconds, and the event loop has probes to answer.
                await asyncio.to_thread(self._digest, due, series, end, clock)
            except Exception as error:
                # Whatever one server says must not blind the watch of the deployments on other servers.
                if not isinstance(error, PrometheusError):
                    log.exception("%s: the answer cannot be used", server.url)
                for target in due:
                    self._cursors[target.key].answers = dict.fromkeys(target.arms, (Answer.UNAVAILABLE, str(error)))
                return
            if loop.time() >= begun + patience:
                return

    def _closes(self, target: Target) -> float:
        cursor = self._cursors[target.key]
        step = cursor.step_seconds or target.scrape_interval_seconds
        length = window_length(target.window_seconds, min(step, MAX_SCRAPE_INTERVAL_SECONDS))
        return cursor.position + length + min(INGESTION_SECONDS, step / 2)

    def _slice_end(self, due: list[Target]) -> float:
        pods = sum(len(pods) for target in due for pods in target.arms.values())
        step = min(self._cursors[target.key].step_seconds or target.scrape_interval_seconds for target in due)
        span = SAMPLES_PER_SLICE * step / max(1, pods * SERIES_PER_POD)
        first = min(due, key=lambda target: self._cursors[target.key].position)
        return max(self._cursors[first.key].position + span, self._closes(first))

    async def _ask(self, client: Prometheus, due: list[Target], end: float) -> list[Series]:
        begin = min(self._cursors[target.key].position for target in due)
        step = max(self._cursors[target.key].step_seconds or MAX_SCRAPE_INTERVAL_SECONDS for target in due)
        seconds = end - begin + LOOK_BACK_SCRAPES * step
        limits = [limit for target in due if (limit := target.guardrails.stall_slo_seconds) is not None]
        queries = fleet_queries(pods_per_namespace(due), due[0].namespace_label, seconds, edges=stall_edges(limits))
        answers = await asyncio.gather(*(client.range_vector(query, end) for query in queries), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [one for answer in answers if not isinstance(answer, BaseException) for one in answer]

    def _digest(self, due: list[Target], series: Iterable[Series], end: float, clock: float) -> None:
        wanted = {
            (target.key[0], pod.name): target.guardrails.stall_slo_seconds
            for target in due
            for pods in target.arms.values()
            for pod in pods
        }
        samples = by_pod(series, wanted, due[0].namespace_label, due[0].pod_label)
        for target in due:
            states = {role: _states(target, pods, samples) for role, pods in target.arms.items()}
            self._advance(target, states, end, clock)

    def _advance(self, target: Target, arms: Mapping[ArmRole, dict[str, PodState]], end: float, clock: float) -> None:
        cursor = self._cursors[target.key]
        steps = [
            state.intervals.step_seconds
            for states in arms.values()
            for state in states.values()
            if state.intervals is not None and state.intervals.step_seconds is not None
        ]
        if steps:
            cursor.step_seconds = float(np.median(steps))
        refused = cursor.step_seconds is not None and scrape_refusal(cursor.step_seconds) is not None
        if end >= clock:
            cursor.answers = {role: _answer(target, role, states, clock) for role, states in arms.items()}
        step = min(cursor.step_seconds or target.scrape_interval_seconds, MAX_SCRAPE_INTERVAL_SECONDS)
        length = window_length(target.window_seconds, step)
        while cursor.position + length + min(INGESTION_SECONDS, step / 2) <= end:
            for role, states in arms.items():
                if states and not refused:
                    window = _window(target, states, cursor.position, cursor.position + length, role)
                    cursor.windows.setdefault(role, []).append(window)
            cursor.position += length

    def _feed(self, target: Target) -> TargetFeed:
        cursor = self._cursors[target.key]
        windows = {role: tuple(found) for role, found in cursor.windows.items()}
        cursor.windows, cursor.handed_out = {}, cursor.position
        nothing = (Answer.INSUFFICIENT, "no window has closed yet")
        answers = {role: cursor.answers.get(role, nothing) for role in target.arms}
        return TargetFeed(target, windows, answers, *self._weeks.take(target.key))


def _states(target: Target, pods: Sequence[TargetPod], samples: Mapping[PodKey, PodSamples]) -> dict[str, PodState]:
    states = {}
    for pod in pods:
        found = samples.get((target.key[0], pod.name))
        if found is None:
            states[pod.name] = PodState(None, None)
            continue
        started = None if pod.started_at is None else pod.started_at.timestamp()
        states[pod.name] = PodState(
            intervals(found, started, target.warmup_seconds),
            float(found.times[-1]),
            tuple(found.missing()),
            found.speculates(),
            found.duplicate,
        )
    return states


def _answer(target: Target, role: ArmRole, states: Mapping[str, PodState], clock: float) -> tuple[Answer, str]:
    answer, message = arm_answer(states, clock, target.window_seconds)
    if answer is Answer.TARGET_DOWN and target.arms[role]:
        born = [pod.started_at.timestamp() for pod in target.arms[role] if pod.started_at is not None]
        if born and clock - max(born) < max(FIRST_SCRAPE_SECONDS, 2 * target.window_seconds):
            return Answer.INSUFFICIENT, "the pods are too young to have been scraped"
    return answer, message


def _window(target: Target, states: Mapping[str, PodState], start: float, end: float, role: ArmRole) -> Window:
    found = {
        name: pod_window(state.intervals, start, end)
        for name, state in states.items()
        if state.intervals is not None and not state.missing
    }
    pods = {name: window for name, window in found.items() if window is not None}
    answer, message = window_answer(pods, states, role is ArmRole.SPECULATIVE and target.method is not None)
    return Window(start, end, answer, message, pods)
