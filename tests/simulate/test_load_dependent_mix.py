"""One stratum per arm: a mix that changes with the load hides no decay, and costs some false alarms.

How many, and what tiers of load would cost instead: benchmarks/decisions/README.md.
"""

import copy

import numpy as np
import pytest
from specfleet.decide.bank import Detector, Stage
from specfleet.simulate.fleet import Fleet, Setting
from specfleet.simulate.traffic import DAY, Effect, TrafficModel

FLEETS = 12
ACCEPTANCE = (Detector.ACCEPTANCE, Detector.POSITION_ZERO, Detector.ACCEPTANCE_SLOW, Detector.POSITION_ZERO_SLOW)


@pytest.fixture(scope="module")
def calibrated() -> Fleet:
    """Long chats: 1.6 times as many in the quietest hour, 0.4 times in the busiest, which is each fleet's own."""
    traffic = TrafficModel(2.0, mix_diurnal=0.6, mix_follows_load=True)
    fleet = Fleet(Setting(traffic, fleets=FLEETS), 31)
    fleet.calibrate()
    return fleet


def test_the_acceptance_of_quiet_and_of_busy_hours_is_alike(calibrated: Fleet):
    fleet = copy.deepcopy(calibrated)
    load = fleet.generator.span(fleet.now, 1440)
    quiet = load.requests < np.median(load.requests, axis=0)
    rates = [load.accepted[some].sum() / (3 * load.drafts[some].sum()) for some in (quiet, ~quiet)]
    assert rates[0] == pytest.approx(rates[1], rel=0.05), "less than half of the drop that is looked for"


def test_a_healthy_week_confirms_at_most_twice_what_the_budget_allows(calibrated: Fleet):
    log = copy.deepcopy(calibrated).run(7 * DAY)
    assert log.count(Stage.CONFIRMED, ACCEPTANCE) <= 2 * FLEETS * 7 / 30


def test_a_fall_of_a_fifth_is_confirmed_at_whatever_hour_it_comes(calibrated: Fleet):
    log = copy.deepcopy(calibrated).run(6 * 3600.0, lambda at: Effect(acceptance=np.full((at.size, 1), 0.8)))
    delays = [log.first(Stage.CONFIRMED, one, ACCEPTANCE) for one in range(FLEETS)]
    assert max(delays) <= 90 * 60
