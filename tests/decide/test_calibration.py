"""What is written down as normal, and when there is too little to write."""

import numpy as np
import pytest
from specfleet.api.speculation import Method
from specfleet.api.status import ArmRole
from specfleet.decide.calibration import WindowPair, calibrate, measured_dispersion, prior_dispersion
from specfleet.decide.counters import COUNTERS, Counter


def pair(drafted: float, acceptance: float = 0.5, tokens: float = 6000.0) -> WindowPair:
    ours, plain = np.zeros(COUNTERS), np.zeros(COUNTERS)
    ours[Counter.DRAFT_TOKENS], ours[Counter.DRAFTS] = drafted, drafted / 3
    ours[Counter.ACCEPTED_TOKENS], ours[Counter.ACCEPTED_FIRST] = acceptance * drafted, 0.7 * drafted / 3
    for counts, tpot in ((ours, 0.01), (plain, 0.02)):
        counts[Counter.GENERATED_TOKENS], counts[Counter.FIRST_TOKENS] = tokens, 30
        counts[Counter.STEP_SECONDS], counts[Counter.TTFT_SECONDS] = tpot * (tokens - 30), 3.0
    return WindowPair(1000.0, ours, plain, (60.0, 60.0))


def test_a_calibration_says_rates_latency_by_load_and_how_much_it_rests_on():
    found = calibrate("f", [pair(6000.0) for _ in range(10)], Method.EAGLE3, "Watch")
    assert found is not None
    assert found.acceptance_rate == pytest.approx(0.5)
    assert found.position_zero_rate == pytest.approx(0.7)
    assert found.accepted_length == pytest.approx(2.5)
    assert found.tpot_seconds == pytest.approx(0.01)
    assert found.drafted_tokens == 60_000
    assert found.dispersion is None, "ten windows say nothing about scatter"
    by_role = {point.role: point for point in found.load_points}
    assert by_role[ArmRole.SPECULATIVE].tpot_seconds == pytest.approx(0.01)
    assert by_role[ArmRole.BASELINE].tpot_seconds == pytest.approx(0.02)
    assert by_role[ArmRole.BASELINE].tokens_per_second_per_pod == 128, "100 tokens/s, to the nearest octave"


@pytest.mark.parametrize("windows", [[], [pair(6000.0)] * 4, [pair(100.0)] * 10, [pair(0.0)] * 50])
def test_too_little_is_no_calibration(windows):
    assert calibrate("f", windows, Method.EAGLE3, "Watch") is None


def test_independent_tokens_have_a_dispersion_of_one_and_clustered_ones_more():
    rng = np.random.default_rng(1)
    drafted = np.full(1000, 5000.0)
    independent = rng.binomial(5000, 0.5, 1000).astype(float)
    assert measured_dispersion(independent, drafted, 0.5) == pytest.approx(1.0, abs=0.15)
    clustered = 100.0 * rng.binomial(50, 0.5, 1000)
    assert measured_dispersion(clustered, drafted, 0.5) == pytest.approx(100, rel=0.4), (
        "few distinct values make the median coarse"
    )
    slow = np.clip(0.5 + 0.02 * np.repeat(rng.standard_normal(34), 30)[:1000], 0, 1)
    drifting = rng.binomial(5000, slow).astype(float)
    assert measured_dispersion(drifting, drafted, 0.5) > 15, "what changes slowly shows in blocks"


def test_lookup_methods_start_with_a_wider_prior():
    assert prior_dispersion(Method.NGRAM) > prior_dispersion(Method.EAGLE3)
