"""Window-level traffic of many fleets at once: diurnal rate, hourly mix, slow shifts, runaways, drift.

Small windows are drawn request by request, large ones from the requests' moments (checked against the request-level
sampler in tests). Everything is arrays [.., windows, fleets].
"""

from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from specfleet.decide.counters import COUNTERS, Counter, Floats
from specfleet.simulate.requests import (
    ACCEPTED,
    DEPTH,
    DRAFTS,
    EAGLE,
    FIRST,
    MIX,
    RUNAWAY_TOKENS,
    TOKENS,
    Dataset,
    moments,
    pool,
)
from specfleet.simulate.steps import StepModel

EXACT_BELOW = 20
"""Requests of one data set in one window up to which they are drawn one by one."""
FIELD_BITS = 21
FIELD_MASK = (1 << FIELD_BITS) - 1
HOUR = 3600.0
DAY = 86400.0


@dataclass(frozen=True, slots=True)
class TrafficModel:
    """What users do. Rates in requests per second over the whole deployment."""

    requests_per_second: float
    datasets: tuple[Dataset, ...] = EAGLE
    mix: tuple[float, ...] = MIX
    diurnal: float = 0.7
    """Rate swings by +- this part over a day (0.7: x0.3 to x1.7)."""
    mix_diurnal: float = 0.15
    """The mix leans towards the last data sets at night by this part."""
    mix_follows_load: bool = False
    """The mix leans with the rate itself, most when it is lowest; else a quarter of a day later."""
    mix_concentration: float = 60.0
    """Dirichlet concentration of the hourly mix; lower is wilder."""
    slow_sd: float = 0.02
    """Relative sd of the hourly shift of acceptance (AR(1), 0.8 per hour)."""
    runaways: bool = True
    weekend: float = 1.0
    """Rate on days 6 and 7 relative to the others."""

    def at(self, requests_per_second: float) -> "TrafficModel":
        """The same users at another rate."""
        return replace(self, requests_per_second=requests_per_second)


@dataclass(frozen=True, slots=True)
class EngineModel:
    """What the pods do with it."""

    pods: int = 4
    depth: int = DEPTH
    lookup: bool = False
    """n-gram: drafting costs next to nothing."""
    context_tokens: float = 700.0
    steps: StepModel = field(default_factory=StepModel)
    request_log_sd: float = 0.2
    """Between requests, of TPOT; windows see it with a dispersion of 3."""
    dispersion: float = 3.0
    ttft_seconds: float = 0.15
    ttft_log_sd: float = 0.8


@dataclass
class Load:
    """Requests of a span: totals per window and fleet."""

    requests: Floats
    drafts: Floats
    first: Floats
    accepted: Floats
    tokens: Floats
    starts: Floats
    """(T,) seconds."""
    window_seconds: float


def rates(model: TrafficModel, starts: Floats, phases: Floats) -> Floats:
    """(T, R) requests per second."""
    day = (starts[:, None] / DAY + phases[None]) % 1.0
    wave = 1.0 + model.diurnal * np.sin(2 * np.pi * day)
    weekend = np.where((starts[:, None] // DAY) % 7 >= 5, model.weekend, 1.0)
    return np.asarray(model.requests_per_second * wave * weekend)


class Generator:
    """Draws consecutive spans; the hourly processes continue from span to span."""

    def __init__(self, model: TrafficModel, fleets: int, window_seconds: float, seed: int, together: int = 1) -> None:
        self.model, self.fleets, self.window_seconds = model, fleets, window_seconds
        self.rng = np.random.default_rng(seed)
        # So many neighbouring columns are pods of one deployment: they share the time of day, the mix and its shifts.
        self._together, self._columns = together, fleets // together
        self.phases = np.repeat(self.rng.random(self._columns), together)
        self._slow = self.rng.standard_normal(self._columns)
        self._hour = -1
        self._hour_mix: dict[int, Floats] = {}
        self._hour_slow: dict[int, Floats] = {}

    def span(self, start: float, windows: int) -> Load:
        """`windows` windows from `start` (seconds of virtual time, a multiple of the window)."""
        starts = start + np.arange(windows, dtype=np.float64) * self.window_seconds
        mix, slow = self._hourly(starts)
        mean = rates(self.model, starts, self.phases) * self.window_seconds * mix
        counts = self.rng.poisson(mean)
        totals = np.zeros((4, windows, self.fleets))
        for index, dataset in enumerate(self.model.datasets):
            ordinary = counts[index]
            if self.model.runaways and dataset.runaway_share:
                lost = self.rng.binomial(ordinary, dataset.runaway_share)
                ordinary = ordinary - lost
                totals += self._runaways(dataset, lost)
            totals += self._ordinary(index, dataset, ordinary)
        accepted = np.minimum(totals[ACCEPTED] * (1 + slow), DEPTH * totals[DRAFTS])
        first = np.minimum(totals[FIRST] * (1 + slow), totals[DRAFTS])
        requests = counts.sum(axis=0).astype(float)
        return Load(requests, totals[DRAFTS], first, accepted, totals[TOKENS], starts, self.window_seconds)

    def _hourly(self, starts: Floats) -> tuple[Floats, Floats]:
        hours = (starts // HOUR).astype(int)
        for hour in range(int(hours[0]), int(hours[-1]) + 1):
            if hour > self._hour:
                self._draw_hour(hour)
        mix = np.stack([self._hour_mix[hour] for hour in hours], axis=1)
        slow = np.stack([self._hour_slow[hour] for hour in hours])
        for hour in [hour for hour in self._hour_mix if hour < hours[-1]]:
            del self._hour_mix[hour], self._hour_slow[hour]
        return mix, slow

    def _draw_hour(self, hour: int) -> None:
        self._hour = hour
        lean = np.linspace(-1, 1, len(self.model.mix)) * self.model.mix_diurnal
        angle = 2 * np.pi * (hour / 24 + self.phases[:: self._together])
        night = -np.sin(angle) if self.model.mix_follows_load else np.cos(angle)
        mean = np.maximum(np.array(self.model.mix)[:, None] * (1 + lean[:, None] * night), 1e-3)
        drawn = self.rng.gamma(mean * self.model.mix_concentration)
        mix = drawn / np.maximum(drawn.sum(axis=0), 1e-12)
        self._hour_mix[hour] = np.repeat(mix, self._together, axis=1)
        self._slow = 0.8 * self._slow + 0.6 * self.rng.standard_normal(self._columns)
        self._hour_slow[hour] = np.repeat(self.model.slow_sd * self._slow, self._together)

    def _ordinary(self, index: int, dataset: Dataset, counts: Floats) -> Floats:
        # Drawn for all windows, used by the large ones: what a seed gives does not depend on where the line is drawn.
        z = self.rng.standard_normal((4, counts.size))
        totals, flat = np.zeros((4, counts.size)), counts.ravel()
        large = np.flatnonzero(flat > EXACT_BELOW)
        if large.size:
            totals[:, large] = self._from_moments(index, flat[large], z[:, large])
        small = np.flatnonzero((flat > 0) & (flat <= EXACT_BELOW))
        if small.size:
            totals[:, small] = self._exact(dataset, flat[small].astype(np.int64))
        return totals.reshape(4, *counts.shape)

    def _from_moments(self, index: int, counts: Floats, z: Floats) -> Floats:
        """(4, n) totals of windows of `counts` requests each, z standard normal (4, n)."""
        means, factors = moments(self.model.datasets)
        drawn = means[:, index, None] * counts + np.sqrt(counts) * np.einsum("ij,jn->in", factors[..., index], z)
        drafts = np.maximum(drawn[DRAFTS], counts)
        accepted = np.clip(drawn[ACCEPTED], 0, DEPTH * drafts)
        first = np.clip(drawn[FIRST], accepted / DEPTH, np.minimum(drafts, accepted))
        return np.stack([drafts, first, accepted, counts + drafts + accepted])

    def _exact(self, dataset: Dataset, counts: Floats) -> Floats:
        known = _packed(dataset)
        drawn = known.take(self.rng.integers(0, known.size, int(counts.sum()), np.int32))
        sums = np.add.reduceat(drawn, np.concatenate([[0], np.cumsum(counts)[:-1]]))
        drafts, first, accepted = ((sums >> (FIELD_BITS * field)) & FIELD_MASK for field in range(3))
        return np.stack([drafts, first, accepted, counts + drafts + accepted]).astype(float)

    def _runaways(self, dataset: Dataset, counts: Floats) -> Floats:
        totals = np.zeros((4, *counts.shape))
        some = np.flatnonzero(counts)
        if some.size:
            per_window = counts.ravel()[some]
            acceptance = self.rng.choice(dataset.runaway_acceptance, int(per_window.sum()))
            drafts = RUNAWAY_TOKENS / (1 + DEPTH * acceptance)
            accepted = drafts * DEPTH * acceptance
            drawn = np.stack(
                [drafts, np.minimum(accepted * 0.55, drafts), accepted, np.full(drafts.size, RUNAWAY_TOKENS)]
            )
            edges = np.concatenate([[0], np.cumsum(per_window)[:-1]])
            totals.reshape(4, -1)[:, some] = np.add.reduceat(drawn, edges, axis=1)
        return totals


@cache
def _packed(dataset: Dataset) -> NDArray[np.int64]:
    """(n,): drafts, accepted first and accepted tokens of a request as the fields of one number.

    Windows draw requests at random by the million and add them up: a request is one word of memory, and one addition
    adds all three. No sum of EXACT_BELOW requests runs over its field.
    """
    drafts, first, accepted, _ = pool(dataset).astype(np.int64)
    assert max(drafts.max(), accepted.max()) * EXACT_BELOW <= FIELD_MASK
    return np.asarray(drafts | first << FIELD_BITS | accepted << 2 * FIELD_BITS)


@dataclass(frozen=True, slots=True)
class Effect:
    """What is wrong in a span; every field is a factor on what would be, (T, R) or a number."""

    acceptance: Floats | float = 1.0
    step_time: Floats | float = 1.0
    """Of the speculative arm."""
    shared_step_time: Floats | float = 1.0
    """Of both arms."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm's part in a deployment."""

    speculative: bool
    share: Floats | float
    """Of the traffic; a number or one per column."""
    pods: float


def counters(load: Load, engine: EngineModel, arm: Arm, effect: Effect, rng: np.random.Generator) -> Floats:
    """(COUNTERS, T, R): what an arm would have counted.

    Accepted tokens are thinned by the effect; the same tokens then take more drafts.
    """
    tokens, requests = load.tokens * arm.share, load.requests * arm.share
    decoded = np.maximum(tokens - requests, 0.0)
    out = np.zeros((COUNTERS, *tokens.shape))
    length = np.ones_like(tokens)
    if arm.speculative:
        length = _drafts(out, load, engine, decoded, np.asarray(effect.acceptance))
    steps = decoded / length
    out[Counter.STEPS] = steps
    out[Counter.GENERATED_TOKENS] = tokens
    out[Counter.FIRST_TOKENS] = out[Counter.FINISHED] = out[Counter.HTTP_OK] = requests
    mean_length = max(float(decoded.sum() / max(steps.sum(), 1e-9)), 1.0)
    per_pod = tokens / load.window_seconds / arm.pods
    depth = engine.depth if arm.speculative else 0
    lengths = np.full(tokens.shape, mean_length)
    _, tpot = engine.steps.loaded(per_pod, lengths, depth, engine.context_tokens, engine.lookup)
    slower = np.asarray(effect.shared_step_time) * (np.asarray(effect.step_time) if arm.speculative else 1.0)
    # TPOT was worked out for the mean accepted length; the window's own scales it.
    own = tpot * (mean_length / length) * slower * _noise(engine.request_log_sd, engine, requests, rng)
    out[Counter.STEP_SECONDS] = own * decoded
    out[Counter.TTFT_SECONDS] = requests * engine.ttft_seconds * _noise(engine.ttft_log_sd, engine, requests, rng)
    return out


def _drafts(out: Floats, load: Load, engine: EngineModel, decoded: Floats, factor: Floats) -> Floats:
    """Fill in the draft counters; returns the accepted length."""
    with np.errstate(divide="ignore", invalid="ignore"):
        length = np.where(load.drafts > 0, 1 + factor * load.accepted / load.drafts, 1.0)
        first = np.where(load.drafts > 0, factor * load.first / load.drafts, 0.0)
    steps = decoded / length
    out[Counter.DRAFTS] = steps
    out[Counter.DRAFT_TOKENS] = steps * engine.depth
    out[Counter.ACCEPTED_TOKENS] = steps * (length - 1)
    out[Counter.ACCEPTED_FIRST] = steps * first
    return np.asarray(length)


def _noise(log_sd: float, engine: EngineModel, requests: Floats, rng: np.random.Generator) -> Floats:
    spread = log_sd * np.sqrt(engine.dispersion / np.maximum(requests, 1.0))
    return np.asarray(np.exp(spread * rng.standard_normal(requests.shape)))
