"""How fast the watch is, per core (CPU time): detectors alone, and whole deployments with decide()."""

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


def whole(copies: int = 200, days: float = 30.0, rate: float = 2.0) -> float:
    """Fleet-days per minute of whole deployments: generator, one watch for all, reports, decide() and a cluster each.

    The road of each to its promotion is part of it.
    """
    scenario = Scenario.model_validate(
        {"name": "speed", "duration": days * DAY, "traffic": {"requestsPerSecond": rate}}
    )
    moments(EAGLE)
    simulation = Simulation(scenario, copies)
    began = time.process_time()
    simulation.run()
    return copies * days / (time.process_time() - began) * MINUTE


def measure() -> dict[str, Any]:
    """All figures."""
    return {
        "detectors": detectors(),
        "with generator at 5 req/s": generated(),
        "end to end: generator, watch, decide and a cluster each": whole(),
    }


if __name__ == "__main__":
    for name, figure in measure().items():
        print(f"{name}: {figure:,.0f} fleet-days per minute and core")
