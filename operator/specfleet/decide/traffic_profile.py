"""Whether production traffic is still the traffic that was measured: a distance between histograms, with hysteresis.

Bands are the engine's own 1-2-5 buckets of prompt and output length. The distance is the earth mover's distance in
bands: 1.0 means that the average request moved by one band (about a factor of 2.15), wherever it started. A share that
moves to the neighbouring band counts little and one that moves far counts much, which a difference of shares misses.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MOVED_BANDS = 1.0
BACK_BANDS = 0.5
MOVED_LOAD_RATIO = 1.5
"""Peak requests/s per pod beyond the largest measured rate by this much is a load that no cell speaks for."""
CONSECUTIVE = 3
MINIMUM_REQUESTS = 500


@dataclass(frozen=True, slots=True)
class TrafficProfile:
    """Requests per band (upper edge in tokens -> requests) and the busiest rate per pod."""

    prompt_tokens: Mapping[float, float]
    output_tokens: Mapping[float, float]
    peak_requests_per_second: float | None = None

    @property
    def requests(self) -> float:
        """Requests that the profile rests on."""
        return sum(self.prompt_tokens.values())


@dataclass(frozen=True, slots=True)
class ProfileState:
    """What has to be remembered between looks."""

    over: int = 0
    moved: bool = False


@dataclass(frozen=True, slots=True)
class ProfileAnswer:
    """The distance now, and whether the evidence still speaks for this traffic."""

    state: ProfileState
    known: bool
    """False: too few requests to say anything; the state is kept."""
    distances: Mapping[str, float] = field(default_factory=dict)
    message: str = ""


def from_cumulative(buckets: Mapping[float, float]) -> dict[float, float]:
    """Requests per band from a Prometheus histogram (upper edge -> cumulative count). Raises ValueError if it falls."""
    found: dict[float, float] = {}
    before = 0.0
    for edge in sorted(buckets):
        if not math.isfinite(buckets[edge]) or buckets[edge] < before:
            raise ValueError(f"bucket {edge} counts {buckets[edge]} after {before}: not a cumulative histogram")
        found[edge] = buckets[edge] - before
        before = buckets[edge]
    return found


def distance(first: Mapping[float, float], second: Mapping[float, float]) -> float | None:
    """Earth mover's distance in bands; None when one of them is empty. The edges of both are merged."""
    edges = sorted({*first, *second})
    one, two = _shares(first, edges), _shares(second, edges)
    if one is None or two is None:
        return None
    carried = moved = 0.0
    for a, b in zip(one[:-1], two[:-1], strict=True):
        carried += a - b
        moved += abs(carried)
    return moved


def _shares(bands: Mapping[float, float], edges: Sequence[float]) -> list[float] | None:
    total = sum(bands.values())
    return [bands.get(edge, 0.0) / total for edge in edges] if total > 0 else None


def compare(measured: TrafficProfile, now: TrafficProfile, state: ProfileState) -> ProfileAnswer:
    """One look. Moved after CONSECUTIVE looks beyond MOVED_BANDS (or the load beyond MOVED_LOAD_RATIO), and back only
    below BACK_BANDS, so that traffic on the edge does not start a benchmark every day."""
    lengths = {
        "prompt length": distance(measured.prompt_tokens, now.prompt_tokens),
        "output length": distance(measured.output_tokens, now.output_tokens),
    }
    known = {name: value for name, value in lengths.items() if value is not None}
    if now.requests < MINIMUM_REQUESTS or len(known) < len(lengths):
        text = f"{now.requests:.0f} requests are too few to compare traffic ({MINIMUM_REQUESTS} are needed)"
        return ProfileAnswer(state, False, known, text)
    load = _load_ratio(measured, now)
    worst = max(known.values())
    limit = BACK_BANDS if state.moved else MOVED_BANDS
    beyond = worst > limit or (load is not None and load > MOVED_LOAD_RATIO)
    over = min(state.over + 1, CONSECUTIVE) if beyond else 0
    following = ProfileState(over, over >= CONSECUTIVE or (state.moved and beyond))
    words = [f"{name} moved by {value:.2f} bands" for name, value in known.items()]
    if load is not None:
        words.append(f"peak load is {load:.2f} times the measured one")
    distances = dict(known) if load is None else {**known, "load": load}
    return ProfileAnswer(following, True, distances, "; ".join(words))


def _load_ratio(measured: TrafficProfile, now: TrafficProfile) -> float | None:
    before, after = measured.peak_requests_per_second, now.peak_requests_per_second
    return after / before if before and after is not None else None
