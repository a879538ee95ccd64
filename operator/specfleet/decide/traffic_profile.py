"""Whether production traffic is still the traffic that was measured: a distance between histograms, with hysteresis.

Bands are the engine's own 1-2-5 buckets of prompt and output length. The distance is the earth mover's distance in
bands: 1.0 means that the average request moved by one band (about a factor of 2.15), wherever it started. A share that
moves to the neighbouring band counts little and one that moves far counts much, which a difference of shares misses.

Load is compared on one side only: how many doublings the peak of an engine's batch lies beyond the largest batch of the
measured matrix. Below it the matrix says what happens.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from specfleet.api.benchmark import LoadTier, TrafficSlice

MOVED_BANDS = 1.0
BACK_BANDS = 0.5
MOVED_DOUBLINGS = 0.25
"""19 % beyond the largest measured batch: speculation loses its gain with the batch, in steps of that size."""
BACK_DOUBLINGS = 0.0
PEAK_DEVIATIONS = 2.326
"""Standard deviations that a normal value exceeds in one percent of all cases."""
LENGTHS = ("prompt length", "output length")
PEAK = "peak load"
PRODUCTION = "production"
"""How the names of slices like production begin."""
CONSECUTIVE = 3
MINIMUM_REQUESTS = 500
FILLED_RATIO = 0.9
"""Of the context that the answer leaves: prompts are made by characters, their tokens are not exact."""
LARGEST_CONCURRENCY = 4096
"""As the API allows it."""
LOOKS_PER_WINDOW = 4
"""Looks overlap: three in a row that say moved span at least one and a half windows of traffic."""


@dataclass(frozen=True, slots=True)
class TrafficProfile:
    """Requests per band (upper edge in tokens -> requests, or shares of them)."""

    prompt_tokens: Mapping[float, float]
    output_tokens: Mapping[float, float]
    requests: float
    """Requests that the profile rests on."""
    peak_batch: float | None = None
    """Requests in one engine at a time: exceeded for one percent of the window (production), or the most that was
    measured (evidence). None: not known."""


@dataclass(frozen=True, slots=True)
class TrafficLook:
    """What production looked like over one window that ends at `time`."""

    time: datetime
    profile: TrafficProfile


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


def doublings_beyond(measured: float | None, now: float | None) -> float | None:
    """How far a peak lies beyond the largest measured batch; 0 inside; None when one of them is not known."""
    if measured is None or now is None or measured <= 0:
        return None
    return max(0.0, math.log2(max(now, 1.0) / measured))


def compare(measured: TrafficProfile, now: TrafficProfile, state: ProfileState) -> ProfileAnswer:
    """One look. Moved after CONSECUTIVE looks beyond MOVED_BANDS, and back only below BACK_BANDS, so that traffic on
    the edge does not start a benchmark every day."""
    distances = {
        LENGTHS[0]: distance(measured.prompt_tokens, now.prompt_tokens),
        LENGTHS[1]: distance(measured.output_tokens, now.output_tokens),
        PEAK: doublings_beyond(measured.peak_batch, now.peak_batch),
    }
    known = {name: value for name, value in distances.items() if value is not None}
    if now.requests < MINIMUM_REQUESTS or any(name not in known for name in LENGTHS):
        text = f"{now.requests:.0f} requests are too few to compare traffic ({MINIMUM_REQUESTS} are needed)"
        return ProfileAnswer(state, False, known, text)
    bands = BACK_BANDS if state.moved else MOVED_BANDS
    doublings = BACK_DOUBLINGS if state.moved else MOVED_DOUBLINGS
    beyond = any(value > (doublings if name == PEAK else bands) for name, value in known.items())
    over = min(state.over + 1, CONSECUTIVE) if beyond else 0
    following = ProfileState(over, over >= CONSECUTIVE or (state.moved and beyond))
    said = [f"{name} moved by {value:.2f} bands" for name, value in known.items() if name != PEAK]
    if known.get(PEAK):
        said.append(
            f"peak load of {now.peak_batch:.0f} requests per engine is {known[PEAK]:.2f} doublings beyond the largest "
            f"measured batch of {measured.peak_batch:.0f}"
        )
    return ProfileAnswer(following, True, known, "; ".join(said))


def exceeded_batch(mean: float) -> float:
    """Batch that is exceeded for one percent of the time where requests arrive at random and the mean batch is `mean`.

    Poisson, by its normal approximation. Production's peak is such a batch: next to a mean, the very load that was
    measured would look like more.
    """
    return mean + PEAK_DEVIATIONS * math.sqrt(mean)


def mean_batch(exceeded: float) -> float:
    """The inverse of exceeded_batch: the mean at which that batch is exceeded for one percent of the time."""
    return ((math.sqrt(PEAK_DEVIATIONS**2 + 4 * exceeded) - PEAK_DEVIATIONS) / 2) ** 2


def production_slices(
    profile: TrafficProfile, like: Sequence[TrafficSlice], longest: int | None = None
) -> tuple[TrafficSlice, ...]:
    """Slices that stand for the traffic as it is: the shorter and the longer half of the prompts, equally weighted.

    Sampling is that of the heaviest declared slice: no histogram knows it. One slice where both halves are alike.
    `longest`: the declared context length in tokens; prompt and answer together stay within it.
    """
    heaviest = max(like, key=lambda one: one.weight)
    output = max(2, round(_mean(profile.output_tokens)))
    halves = [max(1, round(_mean(half))) for half in _halves(profile.prompt_tokens)]
    if longest is not None:
        output = max(2, min(output, longest // 2))
        halves = [max(1, min(tokens, int(FILLED_RATIO * (longest - output)))) for tokens in halves]
    names = (f"{PRODUCTION}-short", f"{PRODUCTION}-long") if halves[0] != halves[1] else (PRODUCTION,)
    return tuple(
        heaviest.model_copy(update={"name": name, "prompt_tokens": tokens, "output_tokens": output, "weight": 1.0})
        for name, tokens in zip(names, halves, strict=False)
    )


def heaviest_tier(tiers: Sequence[LoadTier]) -> LoadTier:
    """The tier with the largest concurrency, else the largest rate, else the largest share of the capacity."""
    return max(tiers, key=lambda one: (one.concurrency or 0, one.requests_per_second or 0, one.capacity_ratio or 0))


def loaded_tiers(tiers: Sequence[LoadTier], ratio: float) -> list[LoadTier]:
    """The tiers with the heaviest one raised by `ratio`: the largest concurrency, else the largest rate.

    A share of the capacity is raised to the whole capacity at most: beyond it a queue grows for as long as one looks.
    """
    if ratio <= 1:
        return list(tiers)
    heaviest = heaviest_tier(tiers)
    if heaviest.concurrency is not None:
        raised: dict[str, float] = {"concurrency": min(LARGEST_CONCURRENCY, math.ceil(heaviest.concurrency * ratio))}
    elif heaviest.requests_per_second is not None:
        raised = {"requests_per_second": heaviest.requests_per_second * ratio}
    else:
        raised = {"capacity_ratio": min(1.0, (heaviest.capacity_ratio or 1.0) * ratio)}
    return [one.model_copy(update=raised) if one is heaviest else one for one in tiers]


def _middle(edges: Sequence[float], edge: float) -> float:
    """Geometric middle of the band that ends at `edge`. The open band counts as its start: engines draw their edges up
    to the context length, and a benchmark of longer prompts than the engine takes would measure refusals."""
    place = edges.index(edge)
    if math.isinf(edge):
        return edges[place - 1] if place > 0 else 1.0
    return math.sqrt((edges[place - 1] if place > 0 else max(1.0, edge / 2)) * edge)


def _mean(bands: Mapping[float, float]) -> float:
    edges = sorted(bands)
    total = sum(bands.values())
    return sum(_middle(edges, edge) * bands[edge] for edge in edges) / total if total > 0 else 1.0


def _halves(bands: Mapping[float, float]) -> tuple[dict[float, float], dict[float, float]]:
    """The lower and the upper half of the requests; the band with the median is shared between them."""
    left = sum(bands.values()) / 2
    lower: dict[float, float] = {}
    upper: dict[float, float] = {}
    for edge in sorted(bands):
        lower[edge] = min(left, bands[edge])
        upper[edge] = bands[edge] - lower[edge]
        left -= lower[edge]
    return lower, upper
