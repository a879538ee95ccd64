"""Detectors: thresholds, increments, staging; as arrays and row by row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from specfleet.decide.bank import DETECTORS, Detector, DetectorBank, Stage
from specfleet.decide.counters import COUNTERS, Counter
from specfleet.decide.drift import alarm_threshold, level_increment, rate_increment, wilson_bounds

RATE = 0.5


def bank(rows: int = 1) -> DetectorBank:
    found = DetectorBank(rows)
    found.threshold[:] = 10.0
    found.confirm_seconds[:] = 600
    found.rate[:] = np.array([RATE, 0.7])[:, None]
    found.dispersion[:] = found.slow_dispersion[:] = 50.0
    return found


def counts(rows: int = 1, drafted: float = 6000.0, acceptance: float = RATE, tpot: float = 0.01) -> np.ndarray:
    found = np.zeros((COUNTERS, rows))
    found[Counter.DRAFT_TOKENS] = drafted
    found[Counter.DRAFTS] = drafted / 3
    found[Counter.ACCEPTED_TOKENS] = acceptance * drafted
    found[Counter.ACCEPTED_FIRST] = 0.7 * acceptance / RATE * drafted / 3
    found[Counter.GENERATED_TOKENS] = drafted / 3 + acceptance * drafted + 30
    found[Counter.FIRST_TOKENS] = 30
    found[Counter.STEP_SECONDS] = tpot * (found[Counter.GENERATED_TOKENS] - 30)
    return found


def feed(
    found: DetectorBank, windows: int, ours: np.ndarray, start: float = 0.0, plain: np.ndarray | None = None
) -> float:
    rows = len(found)
    plain = np.zeros_like(ours) if plain is None else plain
    for index in range(windows):
        ends = np.full(rows, start + 60.0 * (index + 1))
        found.step(slice(None), ours, plain, np.full((2, rows), 120.0), ends, np.full(rows, 60.0))
    return start + 60.0 * windows


def test_the_threshold_follows_from_the_budget_and_grows_with_the_number_of_looks():
    assert alarm_threshold(60, 1, 1) == pytest.approx(np.log(43_200))
    assert alarm_threshold(60, 1, 0.5) > alarm_threshold(60, 1, 1) > alarm_threshold(60, 1, 30)
    assert alarm_threshold(5, 1, 1) - alarm_threshold(60, 1, 1) == pytest.approx(np.log(12))


@given(st.floats(0, 1e6), st.floats(0, 1), st.floats(0.05, 0.95), st.floats(1, 5000))
def test_an_increment_is_bounded_and_nothing_moves_without_drafts(drafted, part, null, dispersion):
    args = [np.array([value]) for value in (drafted * part, drafted, null, 0.88 * null, dispersion)]
    found = rate_increment(*args)
    assert np.isfinite(found).all()
    assert found[0] <= 4.5 + 1e-9, "one window carries at most 4.5 nats"
    if drafted == 0:
        assert found[0] == 0


@given(st.floats(-5, 5), st.floats(0.01, 2), st.floats(0.01, 1))
def test_a_level_increment_is_bounded_and_grows_with_the_excess(excess, spread, shift):
    low, high = (
        level_increment(np.array([one]), np.array([spread]), np.array([shift]))[0] for one in (excess, excess + 1)
    )
    assert low <= high <= 4.5 + 1e-9


@given(st.integers(0, 500), st.integers(0, 500), st.floats(1, 10))
def test_bounds_of_a_share_contain_it_and_are_shares(events, more, dispersion):
    trials = events + more
    lower, upper = wilson_bounds(np.array(float(events)), np.array(float(trials)), 3.0, dispersion)
    assert 0 <= lower <= upper <= 1
    if trials:
        assert lower - 1e-12 <= events / trials <= upper + 1e-12


def tokens_to_suspect(found: DetectorBank, drafted: float, start: float) -> float:
    ours, fed = counts(drafted=drafted, acceptance=0.75 * RATE), 0.0
    while found.stage[Detector.ACCEPTANCE, 0] == Stage.QUIET:
        start, fed = feed(found, 1, ours, start), fed + drafted
    return fed


def test_a_quiet_hour_is_judged_by_fewer_tokens_than_a_busy_one_and_never_by_less_than_half():
    found = {}
    for drafted in (200.0, 600.0, 1800.0):
        one = bank()
        start = feed(one, 1440, counts(drafted=600.0))
        start = feed(one, 60, counts(drafted=drafted), start)
        found[drafted] = tokens_to_suspect(one, drafted, start)
    assert 0.5 * found[600.0] < found[200.0] < 0.8 * found[600.0] < found[600.0] < found[1800.0]


def test_a_row_without_history_and_one_after_a_scrape_gap_have_the_calibrated_dispersion():
    fresh, gap, steady = bank(), bank(), bank()
    start = feed(gap, 30, counts(drafted=600.0))
    feed(steady, 30, counts(drafted=600.0))
    nothing = np.zeros((COUNTERS, 1))
    for index in range(60):
        end = np.array([start + 60.0 * (index + 1)])
        gap.step(slice(None), nothing, nothing, np.zeros((2, 1)), end, np.full(1, 60.0))
    assert tokens_to_suspect(fresh, 600.0, 0.0) == tokens_to_suspect(gap, 600.0, start + 3600)
    assert tokens_to_suspect(steady, 600.0, start) == tokens_to_suspect(bank(), 600.0, 0.0)


def test_a_healthy_row_stays_quiet_and_a_fallen_one_is_suspected_then_confirmed():
    found = bank(2)
    ours = counts(2)
    ours[Counter.ACCEPTED_TOKENS, 1] *= 0.7
    ours[Counter.ACCEPTED_FIRST, 1] *= 0.7
    stages = []
    for index in range(40):
        feed(found, 1, ours, 60.0 * index)
        stages.append(found.stage[Detector.ACCEPTANCE].copy())
    assert (found.stage[:, 0] == Stage.QUIET).all()
    second = [Stage(one[1]) for one in stages]
    assert second[-1] is Stage.CONFIRMED
    assert second.index(Stage.CONFIRMED) - second.index(Stage.SUSPECT) == 10, "ten minutes of fresh windows"
    assert found.observed[Detector.ACCEPTANCE, 1] == pytest.approx(0.35)
    assert found.onset[Detector.ACCEPTANCE, 1] == 0.0


def test_a_suspicion_that_fresh_windows_do_not_bear_out_goes_away():
    found = bank()
    at = 0.0
    while found.stage[Detector.ACCEPTANCE, 0] == Stage.QUIET:
        at = feed(found, 1, counts(acceptance=0.35), at)
    feed(found, 12, counts(), at)
    assert found.stage[Detector.ACCEPTANCE, 0] == Stage.QUIET
    assert found.level[Detector.ACCEPTANCE, 0] == 0


def test_a_confirmed_drift_that_heals_is_withdrawn():
    found = bank()
    at = feed(found, 30, counts(acceptance=0.35))
    assert found.stage[Detector.ACCEPTANCE, 0] == Stage.CONFIRMED
    feed(found, 25, counts(), at)
    assert found.stage[Detector.ACCEPTANCE, 0] == Stage.QUIET


def test_no_traffic_moves_nothing():
    found = bank()
    feed(found, 5, counts(acceptance=0.35))
    before = {name: getattr(found, name).copy() for name in ("level", "stage", "pool")}
    feed(found, 20, np.zeros((COUNTERS, 1)), 300.0)
    for name, value in before.items():
        assert np.array_equal(getattr(found, name), value), name


def test_without_a_reference_the_detectors_are_off():
    found = bank()
    found.rate[:] = np.nan
    feed(found, 100, counts(acceptance=0.0))
    assert (found.stage == Stage.QUIET).all()
    assert (found.level == 0).all()


def test_a_calibration_from_little_data_makes_the_watch_slower_not_wrong():
    sure, unsure = bank(), bank()
    unsure.rate_error[:] = 0.05
    feed(sure, 20, counts(acceptance=0.43))
    feed(unsure, 20, counts(acceptance=0.43))
    assert sure.level[Detector.ACCEPTANCE, 0] > 0
    assert unsure.level[Detector.ACCEPTANCE, 0] == 0
    feed(unsure, 30, counts(acceptance=0.15), 1200.0)
    assert unsure.stage[Detector.ACCEPTANCE, 0] == Stage.CONFIRMED


def test_slower_than_the_plain_arm_at_matched_load_is_a_lost_gain_and_at_unmatched_load_is_nothing():
    found = bank(2)
    slow, plain = counts(2, tpot=0.03), counts(2, tpot=0.02)
    plain[Counter.FIRST_TOKENS, 1] = 5
    feed(found, 40, slow, plain=plain)
    assert found.stage[Detector.LOST_GAIN].tolist() == [Stage.CONFIRMED, Stage.QUIET]


@settings(deadline=None)
@given(arrays(np.float64, (6, 4), elements=st.floats(0, 1)), st.integers(0, 3))
def test_rows_do_not_touch_each_other(acceptances, row):
    together, alone = bank(4), bank(1)
    for index, line in enumerate(acceptances):
        ours = counts(4)
        ours[Counter.ACCEPTED_TOKENS] = line * ours[Counter.DRAFT_TOKENS]
        feed(together, 1, ours, 60.0 * index)
        feed(alone, 1, ours[:, row : row + 1], 60.0 * index)
    assert np.allclose(together.level[:, row], alone.level[:, 0])


def test_growing_keeps_rows_and_clearing_forgets_one():
    found = bank(2)
    feed(found, 8, counts(2, acceptance=0.3))
    before = found.level.copy()
    found.grow(5)
    assert len(found) == 5
    assert np.array_equal(found.level[:, :2], before)
    found.clear(0)
    assert (found.level[:, 0] == 0).all()
    assert np.isnan(found.rate[:, 0]).all()
    assert found.level.shape == (DETECTORS, 5)


def tpot_bank() -> DetectorBank:
    """Calibrated at 10 ms and 2.5 tokens per step, whatever the load."""
    found = bank()
    found.curve[0, 0] = np.log(0.010)
    found.length_reference[:] = 1 + 3 * RATE
    return found


def test_tpot_that_moves_with_acceptance_alone_is_left_to_the_acceptance_detectors():
    found = tpot_bank()
    length, fallen = 1 + 3 * RATE, 1 + 3 * 0.35
    feed(found, 200, counts(acceptance=0.35, tpot=0.010 * length / fallen))
    assert found.stage[Detector.TPOT, 0] == Stage.QUIET
    assert found.stage[Detector.ACCEPTANCE, 0] == Stage.CONFIRMED


def test_slower_steps_are_found_and_a_lookup_method_is_judged_on_its_tpot_as_it_is():
    found = tpot_bank()
    feed(found, 60, counts(tpot=0.0115))
    assert found.stage[Detector.TPOT, 0] == Stage.CONFIRMED
    lookup = tpot_bank()
    lookup.length_reference[:] = np.nan
    feed(lookup, 60, counts(acceptance=0.35, tpot=0.010 * 2.5 / 2.05))
    assert lookup.stage[Detector.TPOT, 0] == Stage.CONFIRMED


def test_an_engine_that_ceases_to_draft_is_slower_and_not_excused():
    found = tpot_bank()
    silent = counts(tpot=0.010)
    silent[[Counter.DRAFTS, Counter.DRAFT_TOKENS, Counter.ACCEPTED_TOKENS, Counter.ACCEPTED_FIRST]] = 0
    silent[Counter.STEP_SECONDS] *= 2
    feed(found, 60, silent)
    assert found.stage[Detector.TPOT, 0] == Stage.CONFIRMED


def test_the_threshold_of_tpot_is_lower_by_what_its_null_and_overshoot_allow():
    found = tpot_bank()
    limits = found.thresholds(slice(None))[:, 0]
    assert limits[Detector.ACCEPTANCE] == 10
    assert 5 <= limits[Detector.TPOT] < 8
    found.level_shift[0] = 0.01
    assert found.thresholds(slice(None))[Detector.TPOT, 0] == 5, "never below half of the budget's"
