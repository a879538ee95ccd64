"""Which scrape of a pod counts, where several jobs scrape it, or replicas of a server without deduplication."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from specfleet.telemetry.queries import OWN_LABELS

Scraped = tuple[tuple[str, str], ...]
"""Labels that name a scraped target beside namespace and pod, sorted by name."""
Found = TypeVar("Found")


def scraped(labels: Mapping[str, str], namespace_label: str, pod_label: str) -> Scraped:
    """The target that a series belongs to; series of one scrape (engines, positions, buckets) have the same."""
    own = OWN_LABELS | {namespace_label, pod_label}
    return tuple(sorted((name, value) for name, value in labels.items() if name not in own))


def fullest(targets: Mapping[Scraped, Found], size: Callable[[Found], float]) -> Found:
    """What the target with most to say said: the same requests must not count twice. Equal ones by label order, so that
    every tick chooses the same."""
    return targets[max(sorted(targets), key=lambda target: size(targets[target]))]
