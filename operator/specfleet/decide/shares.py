"""Error shares of both arms as arrays: is the speculative one worse by more than is allowed, at any traffic?"""

import numpy as np
from numpy.typing import NDArray

from specfleet.decide.bank import Rows
from specfleet.decide.counters import Counter, Floats
from specfleet.decide.drift import wilson_bounds

DISPERSION = 3.0
"""Errors come in bursts (retries): fewer independent events than counted ones."""
STEP_DISPERSION = 100.0
"""All requests that run share a step: a long one is many long gaps at once."""
STALLED_SHARE = 0.05
"""guardrails.stallSloSeconds limits the 95th percentile."""
STRICT_Z = (5.0, 4.0, 5.0, 4.0)
"""Server errors roll back at once, so they have to be surer than 4xx."""
CONTROL_Z = 3.0
MIN_EVENTS = 5.0
MIN_REQUESTS = 20.0
MEMORY = np.array([0.87, 0.98, 0.97, 0.97])
"""Weight of what was known a window ago, once there are enough requests; below that nothing is forgotten. Server errors
are seen with a short memory (an outburst, in minutes) and a long one (a few per cent, in half an hour)."""

SERVER, CLIENT, SERVER_SLOW, STALLS = 0, 1, 2, 3
KINDS = 4
SPECULATIVE, BASELINE = 0, 1


class ShareBank:
    """Recent failed and all requests, [kind, speculative or baseline, events or requests, row]."""

    def __init__(self, rows: int) -> None:
        self.sums = np.zeros((KINDS, 2, 2, rows))

    def grow(self, rows: int) -> None:
        """Make room for so many rows."""
        old = self.sums
        self.sums = np.zeros((KINDS, 2, 2, rows))
        self.sums[..., : old.shape[-1]] = old

    def clear(self, row: int) -> None:
        """Forget one row."""
        self.sums[..., row] = 0.0

    def state(self, row: int) -> dict[str, NDArray[np.generic]]:
        """Views of one row."""
        return {"sums": self.sums[..., row]}

    def step(self, rows: Rows, speculative: Floats, baseline: Floats) -> None:
        """Take in one window, (COUNTERS, n) deltas of each arm."""
        fresh = np.stack([_events(speculative), _events(baseline)], axis=1)
        old = self.sums[..., rows]
        requests = old[:, :1, 1:]
        self.sums[..., rows] = (
            old * np.clip(2 * MIN_REQUESTS / np.maximum(requests, 1e-9), MEMORY[:, None, None, None], 1.0) + fresh
        )

    def excess(self, row: int, kind: int) -> tuple[float, float, float]:
        """Of one row: share in the speculative arm, in the baseline, and the lower bound of the difference.

        The bound joins the Wilson bounds of both shares (Newcombe's method). Without baseline requests the difference
        is against a share of 0.
        """
        if (self.sums[:STALLS, SPECULATIVE, 0, row] < MIN_EVENTS).all():
            return 0.0, 0.0, -1.0
        kinds = (SERVER, SERVER_SLOW) if kind == SERVER else (kind,)
        found = [self._excess(np.array([row]), one) for one in kinds]
        ours, plain, bound = max(found, key=lambda one: float(one[2][0]))
        return float(ours[0]), float(plain[0]), float(bound[0])

    def exceeds(self, rows: NDArray[np.intp], allowed: Floats) -> NDArray[np.bool_]:
        """Where server errors or 4xx are more than `allowed`, (2, n) for SERVER and CLIENT."""
        found = np.zeros(rows.size, bool)
        enough = (self.sums[:STALLS, SPECULATIVE, 0][:, rows] >= MIN_EVENTS).any(axis=0)
        some = rows[enough]
        if some.size:
            limits = allowed[:, enough]
            found[enough] = np.any(
                [
                    self._excess(some, kind)[2] > limits[CLIENT if kind == CLIENT else SERVER]
                    for kind in (SERVER, CLIENT, SERVER_SLOW)
                ],
                axis=0,
            )
        return found

    def stalled(self, rows: NDArray[np.intp]) -> tuple[Floats, Floats, Floats]:
        """Share of gaps over the limit in the speculative arm and in the baseline, and the least that the first is."""
        events, steps = self.sums[STALLS, :, 0][:, rows], self.sums[STALLS, :, 1][:, rows]
        least = wilson_bounds(events[SPECULATIVE], steps[SPECULATIVE], STRICT_Z[STALLS], STEP_DISPERSION)[0]
        ours, plain = _share(events[SPECULATIVE], steps[SPECULATIVE]), _share(events[BASELINE], steps[BASELINE])
        return ours, plain, least

    def control_stalls(self, row: int) -> tuple[bool, bool]:
        """Of one row: whether the plain arm stalls as well, and whether it surely does not. Both False: not known."""
        events, steps = self.sums[STALLS, BASELINE][:, [row]]
        most = wilson_bounds(events, steps, CONTROL_Z, STEP_DISPERSION)[1]
        return bool(events[0] > STALLED_SHARE * steps[0]), bool(steps[0] > 0 and most[0] <= STALLED_SHARE)

    def stalls(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Where more than STALLED_SHARE of the gaps are over the limit."""
        events, steps = self.sums[STALLS, SPECULATIVE][:, rows]
        found = np.asarray(events > STALLED_SHARE * steps)
        found[found] = self.stalled(rows[found])[2] > STALLED_SHARE
        return found

    def _excess(self, rows: NDArray[np.intp], kind: int) -> tuple[Floats, Floats, Floats]:
        events, requests = self.sums[kind, :, 0][:, rows], self.sums[kind, :, 1][:, rows]
        ours, plain = _share(events[SPECULATIVE], requests[SPECULATIVE]), _share(events[BASELINE], requests[BASELINE])
        lower = wilson_bounds(events[SPECULATIVE], requests[SPECULATIVE], STRICT_Z[kind], DISPERSION)[0]
        upper = wilson_bounds(events[BASELINE], requests[BASELINE], CONTROL_Z, DISPERSION)[1]
        upper = np.where(requests[BASELINE] > 0, upper, 0.0)
        bound = ours - plain - np.hypot(ours - lower, upper - plain)
        few = (events[SPECULATIVE] < MIN_EVENTS) | (requests[SPECULATIVE] < MIN_REQUESTS)
        return ours, plain, np.where(few, -1.0, bound)


def server_errors(counts: Floats) -> Floats:
    """Requests that failed on the engine's side. Aborts are left out: clients cancel for reasons of their own."""
    return np.asarray(counts[Counter.FAILED] + counts[Counter.HTTP_SERVER_ERROR])


def all_requests(counts: Floats) -> Floats:
    """Requests that came to an end: HTTP answers where they are counted, else the engine's own count."""
    http = counts[Counter.HTTP_OK] + counts[Counter.HTTP_CLIENT_ERROR] + counts[Counter.HTTP_SERVER_ERROR]
    engine = counts[Counter.FINISHED] + counts[Counter.FAILED] + counts[Counter.ABORTED]
    return np.asarray(np.maximum(http, engine + counts[Counter.HTTP_CLIENT_ERROR]))


def _events(counts: Floats) -> Floats:
    total = all_requests(counts)
    server, client = server_errors(counts), counts[Counter.HTTP_CLIENT_ERROR]
    failed = [np.stack([events, total]) for events in (server, client, server)]
    return np.stack([*failed, np.stack([counts[Counter.STALLED_STEPS], counts[Counter.STEPS]])])


def _share(events: Floats, requests: Floats) -> Floats:
    return np.asarray(np.where(requests > 0, events / np.maximum(requests, 1e-9), 0.0))
