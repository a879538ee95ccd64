"""Two arms at the same time and at matched load: is the speculative one faster or slower? Valid under peeking.

The bounds are a normal-mixture confidence sequence around the log ratio of token-weighted times (Robbins 1970; Howard,
Ramdas et al. 2021): looking after every window does not raise the error. The variance is the larger of the one seen
between windows and the one that the number of requests allows at best.
"""

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from specfleet.api.status import Verdict
from specfleet.decide.bank import MATCHED_LOAD_RATIO, TPOT_SPREAD, TTFT_SPREAD, Rows, decoded_tokens
from specfleet.decide.counters import COUNTERS, Counter, Floats
from specfleet.decide.drift import wilson_bounds
from specfleet.decide.shares import all_requests, server_errors
from specfleet.decide.watch_report import Comparison, Signal
from specfleet.decide.watch_target import Target

CANARY_ERROR = 0.10
"""Two-sided, so 5 % for each bound, over all looks of a step."""
PROMOTED_ERROR = 0.02
MIN_WINDOWS = 3
AUTOCORRELATION = 1.5
"""Neighbouring windows share requests that run through both."""
SHARE_Z = 3.5
SHARE_DISPERSION = 3.0


@dataclass
class _Ratio:
    """Sums of (seconds, units) of both arms over paired windows, and their second moments."""

    windows: int = 0
    sums: Floats = field(default_factory=lambda: np.zeros(4))
    moments: Floats = field(default_factory=lambda: np.zeros((4, 4)))

    def add(self, seconds: float, units: float, plain_seconds: float, plain_units: float) -> None:
        if units > 0 and plain_units > 0 and seconds > 0 and plain_seconds > 0:
            pair = np.array([seconds, units, plain_seconds, plain_units])
            self.windows += 1
            self.sums += pair
            self.moments += np.outer(pair, pair)

    def log_ratio(self) -> float:
        """log of (seconds/units speculative) over (seconds/units plain)."""
        ours, units, plain, plain_units = self.sums
        return float(np.log(ours / units * plain_units / plain))

    def variance(self) -> float:
        """Of log_ratio, from the scatter between windows (linearised ratio estimator)."""
        gradient = np.array([1.0, -1.0, -1.0, 1.0]) / self.sums
        seen = float(gradient @ self.moments @ gradient)
        return AUTOCORRELATION * seen * self.windows / max(1, self.windows - 1)


@dataclass
class PairedTotals:
    """Everything the comparison needs since `since`. Only windows in which both arms were measured count."""

    tpot: _Ratio = field(default_factory=_Ratio)
    ttft: _Ratio = field(default_factory=_Ratio)
    counts: Floats = field(default_factory=lambda: np.zeros((2, COUNTERS)))
    pod_seconds: Floats = field(default_factory=lambda: np.zeros(2))

    def add(self, speculative: Floats, plain: Floats, speculative_seconds: float, plain_seconds: float) -> None:
        """One window: (COUNTERS,) deltas and pod-seconds of each arm."""
        if speculative_seconds <= 0 or plain_seconds <= 0:
            return
        self.counts += np.stack([speculative, plain])
        self.pod_seconds += (speculative_seconds, plain_seconds)
        self.tpot.add(
            speculative[Counter.STEP_SECONDS],
            float(decoded_tokens(speculative)),
            plain[Counter.STEP_SECONDS],
            float(decoded_tokens(plain)),
        )
        self.ttft.add(
            speculative[Counter.TTFT_SECONDS],
            speculative[Counter.FIRST_TOKENS],
            plain[Counter.TTFT_SECONDS],
            plain[Counter.FIRST_TOKENS],
        )

    def load_ratio(self) -> float | None:
        """Requests per second and pod, speculative / plain."""
        started = self.counts[:, Counter.FIRST_TOKENS]
        if (started <= 0).any():
            return None
        return float(started[0] / self.pod_seconds[0] * self.pod_seconds[1] / started[1])


class PairColumns:
    """PairedTotals of many deployments, one row each."""

    def __init__(self, rows: int) -> None:
        self._allocate(rows)

    def _allocate(self, rows: int) -> None:
        self.windows = np.zeros((rows, 2), np.intp)
        self.sums = np.zeros((rows, 2, 4))
        self.moments = np.zeros((rows, 2, 4, 4))
        self.counts = np.zeros((rows, 2, COUNTERS))
        self.pod_seconds = np.zeros((rows, 2))

    def grow(self, rows: int) -> None:
        """Make room; the old rows keep their sums."""
        old, count = dict(self.__dict__), self.windows.shape[0]
        self._allocate(rows)
        for name, array in old.items():
            getattr(self, name)[:count] = array

    def state(self, row: int) -> dict[str, NDArray[np.generic]]:
        """Views of one row."""
        return {name: array[row, ...] for name, array in self.__dict__.items()}

    def clear(self, row: int) -> None:
        """Begin anew."""
        for array in self.__dict__.values():
            array[row] = 0

    def add(self, rows: Rows, counts: Floats, pod_seconds: Floats) -> None:
        """One window of each row: (2, COUNTERS, n) deltas and (2, n) pod-seconds; only where both were measured."""
        both = (pod_seconds > 0).all(axis=0)
        if not both.any():
            return
        if not both.all():
            rows = np.arange(self.windows.shape[0])[rows][both]
            counts, pod_seconds = counts[..., both], pod_seconds[:, both]
        self.counts[rows] += counts.transpose(2, 0, 1)
        self.pod_seconds[rows] += pod_seconds.T
        decoded = np.stack([decoded_tokens(counts[0]), decoded_tokens(counts[1])])
        for kind, (seconds, units) in enumerate(
            (
                (counts[:, Counter.STEP_SECONDS], decoded),
                (counts[:, Counter.TTFT_SECONDS], counts[:, Counter.FIRST_TOKENS]),
            )
        ):
            pair = np.stack([seconds[0], units[0], seconds[1], units[1]], axis=1)
            good = (pair > 0).all(axis=1)
            some = rows
            if not good.all():
                some, pair = np.arange(self.windows.shape[0])[rows][good], pair[good]
            self.windows[some, kind] += 1
            self.sums[some, kind] += pair
            self.moments[some, kind] += pair[:, :, None] * pair[:, None]

    def at(self, row: int) -> PairedTotals:
        """One deployment's."""
        tpot, ttft = (
            _Ratio(int(self.windows[row, kind]), self.sums[row, kind].copy(), self.moments[row, kind].copy())
            for kind in (0, 1)
        )
        return PairedTotals(tpot, ttft, self.counts[row].copy(), self.pod_seconds[row].copy())

    def seems_slower(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Where the TPOT ratio itself is above 1: without that no lower bound of it can be."""
        ours, units, plain, plain_units = self.sums[rows, 0].T
        return np.asarray((self.windows[rows, 0] >= MIN_WINDOWS) & (ours * plain_units > plain * units))


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio with its bounds."""

    ratio: float
    lower: float
    upper: float

    def __str__(self) -> str:
        return f"{self.ratio:.3f} ({self.lower:.3f} to {self.upper:.3f})"


def compare(totals: PairedTotals, target: Target, promoted: bool) -> Comparison:
    """Verdict over the step: Fail on a bound beyond a guardrail, Pass if non-inferior with enough requests."""
    tpot = interval(totals.tpot, totals, TPOT_SPREAD, target.min_requests, promoted)
    ttft = interval(totals.ttft, totals, TTFT_SPREAD, target.min_requests, promoted)
    verdict, reason, message = _judge(totals, target, tpot, ttft)
    return Comparison(
        verdict=verdict,
        reason=reason,
        message=message,
        since=_utc(target.since),
        tpot_ratio=tpot.ratio if tpot else None,
        tpot_ratio_lower=tpot.lower if tpot else None,
        tpot_ratio_upper=tpot.upper if tpot else None,
        load_ratio=totals.load_ratio(),
    )


def interval(found: _Ratio, totals: PairedTotals, spread: float, min_requests: int, promoted: bool) -> Interval | None:
    """Always-valid bounds of a ratio; None while there are too few windows or the load is not matched."""
    requests = totals.counts[:, Counter.FIRST_TOKENS]
    if found.windows < MIN_WINDOWS or (requests <= 0).any() or unmatched(totals):
        return None
    at_best = spread**2 * float((1 / requests).sum())
    variance = max(found.variance(), at_best)
    # The mixture is tightest around the least sample that a Pass needs.
    tight = spread**2 * 2 / max(1, min_requests) * 3
    error = PROMOTED_ERROR if promoted else CANARY_ERROR
    half = math.sqrt(variance * (1 + variance / tight) * math.log((1 + tight / variance) / error**2))
    middle = found.log_ratio()
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def unmatched(totals: PairedTotals) -> bool:
    """Load per pod differs by more than a third, and not by chance."""
    ratio = totals.load_ratio()
    if ratio is None:
        return False
    chance = math.sqrt(3 * float((1 / totals.counts[:, Counter.FIRST_TOKENS]).sum()))
    return abs(math.log(ratio)) > math.log(MATCHED_LOAD_RATIO) + 2 * chance


def _judge(
    totals: PairedTotals, target: Target, tpot: Interval | None, ttft: Interval | None
) -> tuple[Verdict, str, str]:
    guards = target.guardrails
    worse = _error_excess(totals, target)
    if worse is not None:
        return worse
    for name, signal, found, allowed in (
        ("TPOT", Signal.TPOT_REGRESSION, tpot, guards.max_tpot_increase_ratio),
        ("TTFT", Signal.TTFT_REGRESSION, ttft, guards.max_ttft_increase_ratio),
    ):
        if found is not None and found.lower > 1 + allowed:
            said = f"{name} {_arms(target)} {found} is above the allowed {1 + allowed:.3f}"
            return Verdict.FAIL, signal.value, said
    ours = totals.counts[0]
    if target.method is not None and ours[Counter.DRAFTS] <= 0 < ours[Counter.GENERATED_TOKENS]:
        said = (
            f"{ours[Counter.GENERATED_TOKENS]:.0f} tokens without a single draft: this would compare plain with plain"
        )
        return Verdict.INCONCLUSIVE, "NotSpeculating", said
    if unmatched(totals):
        said = f"load per pod differs between the arms ({_arms(target)} {totals.load_ratio():.2f}): not comparable"
        return Verdict.INCONCLUSIVE, "LoadNotMatched", said
    finished = totals.counts[:, Counter.FINISHED]
    if finished.min() < target.min_requests or tpot is None:
        said = f"{finished.min():.0f} of {target.min_requests} requests finished in the smaller arm"
        return Verdict.INCONCLUSIVE, "InsufficientTraffic", said
    shares = _shares(totals)
    said = f"TPOT {_arms(target)} {tpot}, {finished[0]:.0f} and {finished[1]:.0f} requests"
    if tpot.upper > 1 + guards.max_tpot_increase_ratio:
        return Verdict.INCONCLUSIVE, "NotYetDecided", f"{said}: a regression beyond the guardrail is not excluded"
    for kind, allowed in (
        (0, guards.max_error_share_increase_ratio),
        (1, guards.max_client_error_share_increase_ratio),
    ):
        if shares[kind][0] - shares[kind][1] > allowed:
            text = f"{('server', '4xx')[kind]} error share {shares[kind][0]:.4f} against {shares[kind][1]:.4f}"
            return Verdict.INCONCLUSIVE, "ErrorShareNotYetDecided", f"{said}: {text}"
    return Verdict.PASS, "NonInferior", said


def _arms(target: Target) -> str:
    """What is divided by what: a changed engine is tried without speculation, against whatever serves."""
    return "speculative/plain" if target.method is not None else "new/serving"


def _shares(totals: PairedTotals) -> list[tuple[float, float]]:
    requests = np.maximum([all_requests(totals.counts[arm]) for arm in (0, 1)], 1.0)
    server = np.array([server_errors(totals.counts[arm]) for arm in (0, 1)]) / requests
    client = totals.counts[:, Counter.HTTP_CLIENT_ERROR] / requests
    return [(float(server[0]), float(server[1])), (float(client[0]), float(client[1]))]


def _error_excess(totals: PairedTotals, target: Target) -> tuple[Verdict, str, str] | None:
    guards = target.guardrails
    requests = [all_requests(totals.counts[arm]) for arm in (0, 1)]
    server = [server_errors(totals.counts[arm]) for arm in (0, 1)]
    client = list(totals.counts[:, Counter.HTTP_CLIENT_ERROR])
    for name, signal, events, allowed in (
        ("server error", Signal.SERVER_ERRORS, server, guards.max_error_share_increase_ratio),
        ("4xx", Signal.CLIENT_ERRORS, client, guards.max_client_error_share_increase_ratio),
    ):
        if events[0] <= 0:
            continue
        lower, _ = wilson_bounds(events[0], requests[0], SHARE_Z, SHARE_DISPERSION)
        _, upper = wilson_bounds(events[1], requests[1], 1.0, SHARE_DISPERSION)
        if float(lower) - float(upper) > allowed:
            said = (
                f"{name} share {events[0]:.0f} of {requests[0]:.0f} requests against {events[1]:.0f} of "
                f"{requests[1]:.0f} on the plain arm, at least {float(lower) - float(upper):.4f} more"
            )
            return Verdict.FAIL, signal.value, said
    return None


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)
