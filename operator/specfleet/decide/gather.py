"""Windows of single deployments, put together into the columns that the watch takes in."""

from collections.abc import Callable, Sequence

import numpy as np

from specfleet.api.status import ArmRole
from specfleet.decide.counters import COUNTERS, GAUGES, TargetFeed, Window
from specfleet.decide.record import Record
from specfleet.decide.reference import ROLES
from specfleet.decide.sums import CODES, NO_WINDOW, Batch


def gathered(
    members: Sequence[tuple[Record, dict[ArmRole, Window]]], pod_slot: Callable[[Record, str, ArmRole], int]
) -> Batch:
    """One window of many deployments as columns."""
    size = len(members)
    answers = np.full((2, size), NO_WINDOW, np.int8)
    edges = np.zeros((2, size))
    slots, groups, pods = [], [], []
    for arm, role in enumerate(ROLES):
        for column, (record, windows) in enumerate(members):
            window = windows.get(role)
            if window is None:
                continue
            answers[arm, column], edges[:, column] = CODES[window.answer], (window.start, window.end)
            record.said[role] = window.message
            for name, pod in window.pods.items():
                slots.append(pod_slot(record, name, role))
                groups.append(arm * size + column)
                pods.append(pod)
    return Batch(
        start=edges[0],
        end=edges[1],
        answers=answers,
        pod_slots=np.array(slots, np.intp),
        pod_group=np.array(groups, np.intp),
        pod_seconds=np.array([pod.seconds for pod in pods]),
        pod_counts=np.stack([pod.counts for pod in pods], axis=1) if pods else np.zeros((COUNTERS, 0)),
        pod_gauges=np.stack([pod.gauges for pod in pods], axis=1) if pods else np.zeros((GAUGES, 0)),
    )


def rounds(feed: TargetFeed, seen_until: float) -> list[dict[ArmRole, Window]]:
    """Windows of all arms grouped by their common start, oldest first, without those seen before."""
    found: dict[float, dict[ArmRole, Window]] = {}
    for role, windows in feed.windows.items():
        for window in windows:
            if window.start >= seen_until - 1e-6:
                found.setdefault(window.start, {})[role] = window
    return [found[start] for start in sorted(found)]
