"""The comparison of two arms: valid under peeking, honest about load, errors and missing data."""

from datetime import UTC, datetime

import numpy as np
import pytest
from specfleet.api.speculation import Method
from specfleet.api.status import ArmRole, Verdict
from specfleet.decide.comparison import PairedTotals, compare, interval
from specfleet.decide.counters import COUNTERS, Counter
from specfleet.decide.watch_target import Target, TargetPod

SINCE = datetime(2026, 11, 1, tzinfo=UTC)
PODS = {role: (TargetPod(role.value, role.value, SINCE),) for role in ArmRole}


def target(**fields) -> Target:
    return Target(
        **(
            {"key": ("ns", "n", "u"), "arms": PODS, "since": SINCE, "window_seconds": 60, "method": Method.EAGLE3}
            | fields
        )
    )


def window(rng: np.random.Generator, requests: float, tpot: float, sd: float = 0.35, **more: float) -> np.ndarray:
    counts = np.zeros(COUNTERS)
    started = float(rng.poisson(requests))
    counts[Counter.FIRST_TOKENS] = counts[Counter.FINISHED] = counts[Counter.HTTP_OK] = started
    counts[Counter.GENERATED_TOKENS] = 200 * started
    counts[Counter.DRAFTS] = 80 * started
    counts[Counter.STEP_SECONDS] = 199 * started * tpot * np.exp(rng.normal(0, sd / np.sqrt(max(started, 1))))
    counts[Counter.TTFT_SECONDS] = 0.1 * started
    for name, value in more.items():
        counts[Counter[name]] = value
    return counts


def totals(ratio: float, windows: int = 40, requests: float = 20, seed: int = 1, **more: float) -> PairedTotals:
    rng = np.random.default_rng(seed)
    found = PairedTotals()
    for _ in range(windows):
        found.add(window(rng, requests, 0.02 * ratio, **more), window(rng, requests, 0.02), 60, 60)
    return found


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(0.6, Verdict.PASS), (1.0, Verdict.PASS), (1.5, Verdict.FAIL), (1.14, Verdict.INCONCLUSIVE)]
)
def test_only_a_bound_decides(ratio, verdict):
    found = compare(totals(ratio), target(), promoted=False)
    assert found.verdict is verdict, found.message
    assert found.tpot_ratio_lower < found.tpot_ratio < found.tpot_ratio_upper


def test_too_few_requests_are_inconclusive_however_good_they_look():
    found = compare(totals(0.4, windows=5, requests=10), target(min_requests=200), promoted=False)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.reason == "InsufficientTraffic"


def test_an_empty_comparison_is_inconclusive_and_has_no_numbers():
    found = compare(PairedTotals(), target(), promoted=False)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.tpot_ratio is None
    assert found.load_ratio is None


def test_unequal_load_is_never_a_pass_or_a_fail_on_latency():
    rng = np.random.default_rng(2)
    for ratio in (0.4, 2.5):
        found = PairedTotals()
        for _ in range(60):
            found.add(window(rng, 40, 0.02 * ratio), window(rng, 15, 0.02), 60, 60)
        said = compare(found, target(), promoted=False)
        assert said.verdict is Verdict.INCONCLUSIVE
        assert said.reason == "LoadNotMatched"
        assert said.tpot_ratio is None


def test_errors_fail_whatever_the_speed_and_a_single_one_does_not():
    bad = compare(totals(0.5, HTTP_SERVER_ERROR=4.0), target(), promoted=False)
    assert (bad.verdict, bad.reason) == (Verdict.FAIL, "ServerErrors")
    refused = compare(totals(0.5, HTTP_CLIENT_ERROR=4.0), target(), promoted=False)
    assert (refused.verdict, refused.reason) == (Verdict.FAIL, "IncompatibleRequests")
    one = totals(0.5)
    one.counts[0, Counter.HTTP_SERVER_ERROR] = 1.0
    assert compare(one, target(), promoted=False).verdict is not Verdict.FAIL


def test_an_arm_that_does_not_draft_is_not_compared():
    found = totals(1.0)
    found.counts[0, Counter.DRAFTS] = 0
    said = compare(found, target(), promoted=False)
    assert (said.verdict, said.reason) == (Verdict.INCONCLUSIVE, "NotSpeculating")
    assert compare(found, target(method=None), promoted=False).verdict is Verdict.PASS, "a new engine's plain arm"


def test_a_changed_engine_is_not_called_speculative():
    assert "TPOT new/serving 0.9" in compare(totals(0.9), target(method=None), promoted=False).message
    assert "TPOT speculative/plain 0.9" in compare(totals(0.9), target(), promoted=False).message


def test_looking_after_every_window_is_wrong_at_most_as_often_as_declared():
    """400 canaries of 60 windows without any difference, looked at 57 times each: 10 % two-sided over all looks."""
    wrong = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        found = PairedTotals()
        missed = False
        for _ in range(60):
            found.add(window(rng, 10, 0.02), window(rng, 10, 0.02), 60, 60)
            bounds = interval(found.tpot, found, 0.35, 200, promoted=False)
            missed = missed or (bounds is not None and not bounds.lower <= 1 <= bounds.upper)
        wrong += missed
    assert wrong / 400 <= 0.10
