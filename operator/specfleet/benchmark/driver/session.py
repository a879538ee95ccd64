"""The state of one pair."""

from dataclasses import dataclass, field
from pathlib import Path

from .bench import Bench
from .counters import Counters
from .harness import Json
from .summary import Run


@dataclass
class Session:
    """What a pair keeps between its runs."""

    plan: Json
    source: list[Json]
    bench: Bench
    work: Path
    characters_per_token: float = 0.0
    seen: dict[str, Counters] = field(default_factory=dict)
    """The last scrape of each arm: an engine that was started again since then was so under our load."""
    runs: list[Run] = field(default_factory=list)
    capacity_requests_per_second: float | None = None
    texts: dict[str, list[str]] = field(default_factory=dict)
    requests: dict[str, list[int]] = field(default_factory=dict)
    error: str | None = None
