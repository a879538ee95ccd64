"""How fast the watch is, per core (CPU time of the process): detectors alone, and whole deployments with decide().

Nothing is projected: the last figure is a run of 30 days, the road to promotion included.
"""

import os
import statistics
import sys
import time
from typing import Any

import numpy as np
from specfleet.decide.bank import DetectorBank
from specfleet.decide.counters import COUNTERS, Counter
from specfleet.simulate.fleet import Fleet, Setting
from specfleet.simulate.requests import EAGLE, moments
from specfleet.simulate.run import Simulation
from specfleet.simulate.scenario import Scenario
from specfleet.simulate.traffic import DAY, TrafficModel

WINDOWS_PER_DAY = 1440
MINUTE = 60.0
REPEATS = 5
DEPLOYMENTS = 1000
"""In one process, of the 10,000 that one operator is made for: what a window costs is shared by all of them."""
DAYS = 30.0


def detectors(rows: int = 4000, windows: int = 60) -> float:
    """Fleet-days per minute of all detectors, given window counters (60-s windows)."""
    bank = DetectorBank(rows)
    bank.threshold[:], bank.rate[:], bank.dispersion[:], bank.slow_dispersion[:] = 12.6, 0.45, 100.0, 400.0
    bank.curve[:] = np.log(0.01)
    rng = np.random.default_rng(1)
    counts = rng.poisson(200, (COUNTERS, rows)).astype(float)
    counts[Counter.DRAFT_TOKENS], counts[Counter.GENERATED_TOKENS] = 6000.0, 8000.0
    counts[Counter.ACCEPTED_TOKENS] = rng.binomial(6000, 0.45, rows)
    counts[Counter.STEP_SECONDS] = 80.0
    seconds, lengths = np.full((2, rows), 120.0), np.full(rows, 60.0)
    began = time.process_time()
    for index in range(windows):
        bank.step(slice(None), counts, counts, seconds, lengths * (index + 1), lengths)
    return rows * windows / WINDOWS_PER_DAY / (time.process_time() - began) * MINUTE


def generated(rate: float = 5.0, fleets: int = 200, days: float = 0.5) -> float:
    """Fleet-days per minute with the window-level generator in front of the detectors."""
    fleet = Fleet(Setting(TrafficModel(rate), fleets=fleets), 1)
    fleet.calibrate(DAY / 4)
    began = time.process_time()
    fleet.run(days * DAY)
    return fleets * days / (time.process_time() - began) * MINUTE


class _Timed(Simulation):
    """Notes when the last deployment was promoted: (CPU seconds, window)."""

    promoted: tuple[float, int] | None = None

    def _watch(self, alive, awake, index, edge):  # type: ignore[no-untyped-def]
        super()._watch(alive, awake, index, edge)
        if self.promoted is None and all(story.anchor is not None for story in self.stories):
            self.promoted = time.process_time(), index


def whole(copies: int = DEPLOYMENTS, days: float = DAYS, rate: float = 2.0) -> tuple[float, float]:
    """Fleet-days per minute of whole deployments: generator, one watch for all, reports, decide() and a cluster each.

    Of `days` with the road of each to its promotion before them, and of the days alone.
    """
    scenario = Scenario.model_validate(
        {"name": "speed", "duration": days * DAY, "traffic": {"requestsPerSecond": rate}}
    )
    moments(EAGLE)
    simulation = _Timed(scenario, copies)
    began = time.process_time()
    results = simulation.run()
    ended = time.process_time()
    wrong = sum(not one.passed for one in results)
    if simulation.promoted is None or wrong:
        raise SystemExit(f"{wrong} of {copies} deployments were never promoted: there is no figure")
    since = simulation.promoted[0]
    return copies * days / (ended - began) * MINUTE, copies * days / (ended - since) * MINUTE


def measure() -> dict[str, Any]:
    """All figures; those that take seconds are medians of several runs."""
    with_road, promoted = whole()
    what = f"end to end, {DEPLOYMENTS} deployments for {DAYS:g} days: generator, watch, decide and a cluster each"
    return {
        "detectors": round(statistics.median(detectors() for _ in range(REPEATS))),
        "with generator at 5 req/s": round(statistics.median(generated() for _ in range(REPEATS))),
        what: round(promoted),
        f"{what}, the road to the promotion included": round(with_road),
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with_road, promoted = whole(int(sys.argv[1]), float(sys.argv[2]))
        print(f"end to end, fleet-days per minute and core: {promoted:,.0f}; with the road {with_road:,.0f}")
    else:
        for name, figure in measure().items():
            print(f"{name}: {figure:,} fleet-days per minute and core")
    print(f"load average while measuring: {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores")
