"""Windows of counter deltas: what telemetry hands to the watch. Arrays are indexed by `Counter` and `Gauge`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from specfleet.api.status import ArmRole
from specfleet.decide.watch_report import Answer
from specfleet.decide.watch_target import Target

Floats = NDArray[np.float64]


class Counter(IntEnum):
    """Counters of one pod, summed over its engine processes (data parallel ranks)."""

    DRAFTS = 0
    DRAFT_TOKENS = 1
    ACCEPTED_TOKENS = 2
    ACCEPTED_FIRST = 3
    """Accepted at draft position 0."""
    GENERATED_TOKENS = 4
    STEP_SECONDS = 5
    """Sum of gaps between engine outputs (one per request and step, whatever the number of tokens): decode time."""
    STEPS = 6
    TTFT_SECONDS = 7
    FIRST_TOKENS = 8
    """Requests that got their first token."""
    FINISHED = 9
    """Requests that ended by themselves (stop, length, repetition)."""
    ABORTED = 10
    FAILED = 11
    """Requests that the engine ended with an error."""
    HTTP_OK = 12
    HTTP_CLIENT_ERROR = 13
    HTTP_SERVER_ERROR = 14
    PREEMPTIONS = 15
    STALLED_STEPS = 16
    """Gaps between engine outputs that were surely longer than guardrails.stallSloSeconds: above the first bucket edge
    that is not below it. 0 without a limit, or where no edge is high enough."""


class Gauge(IntEnum):
    """Gauges of one pod; a window carries the mean of RUNNING and WAITING and the maximum of KV_CACHE."""

    RUNNING = 0
    WAITING = 1
    KV_CACHE = 2


COUNTERS = len(Counter)
GAUGES = len(Gauge)


@dataclass(frozen=True, slots=True)
class PodWindow:
    """One pod over one window: only windows without restart, warm-up or scrape gap become one."""

    seconds: float
    """Covered by the pod's scrapes."""
    counts: Floats
    """(COUNTERS,) deltas."""
    gauges: Floats
    """(GAUGES,); NaN where not exposed."""


@dataclass(frozen=True, slots=True)
class Window:
    """One arm over one closed window [start, end), epoch seconds. Without pods: nothing was measured."""

    start: float
    end: float
    answer: Answer
    message: str = ""
    pods: Mapping[str, PodWindow] = field(default_factory=dict)

    @property
    def counts(self) -> Floats:
        """(COUNTERS,) sum over pods."""
        total = np.zeros(COUNTERS)
        for pod in self.pods.values():
            total += pod.counts
        return total

    @property
    def pod_seconds(self) -> float:
        """Seconds of pods covered."""
        return sum(pod.seconds for pod in self.pods.values())


@dataclass(frozen=True, slots=True)
class Hour:
    """One past hour of both arms, read from the counters at its two ends."""

    start: float
    """Epoch seconds."""
    counts: Floats
    """(2, COUNTERS): speculative, plain."""
    pod_seconds: Floats
    """(2,)."""


@dataclass(frozen=True, slots=True)
class TargetFeed:
    """What one tick brought for one target: windows closed since the last tick, oldest first, per arm."""

    target: Target
    windows: Mapping[ArmRole, tuple[Window, ...]] = field(default_factory=dict)
    answers: Mapping[ArmRole, tuple[Answer, str]] = field(default_factory=dict)
    """State of each arm's metrics at the tick, also when no window closed."""
    week_start: float | None = None
    """Where the first week begins of which `hours` are read again after a restart of the operator."""
    hours: tuple[Hour, ...] = ()
