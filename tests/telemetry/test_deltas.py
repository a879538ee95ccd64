"""Counter deltas and windows: resets, restarts, warm-up, gaps, absent and unusable samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from specfleet.decide.counters import COUNTERS, Counter
from specfleet.telemetry.deltas import intervals
from specfleet.telemetry.prometheus import Series
from specfleet.telemetry.queries import COUNTER_METRICS
from specfleet.telemetry.samples import ROWS, START_ROW, PodSamples, by_pod
from specfleet.telemetry.windows import PodState, arm_answer, pod_window, scrape_refusal, window_length

POD = ("ns", "p")


def samples(times, tokens, start_time=None) -> PodSamples:
    """All required counters grow like `tokens`."""
    values = np.zeros((ROWS, len(times)))
    values[:COUNTERS] = np.asarray(tokens, float)
    values[START_ROW] = np.nan if start_time is None else start_time
    return PodSamples(np.asarray(times, float), values)


@pytest.mark.parametrize(
    ("why", "times", "tokens", "start_time", "usable"),
    [
        ("nothing happened", [0, 15, 30, 45], [5, 5, 5, 5], None, [True, True, True]),
        ("the counter fell", [0, 15, 30, 45], [50, 60, 3, 9], None, [True, False, True]),
        (
            "a new process that already counts higher",
            [0, 15, 30, 45],
            [5, 6, 90, 95],
            [0, 0, 28, 28],
            [True, False, True],
        ),
        ("one scrape missed", [0, 15, 45, 60], [1, 2, 4, 5], None, [True, True, True]),
        ("three scrapes missed", [0, 15, 30, 90, 105], [1, 2, 3, 7, 8], None, [True, True, False, True]),
        ("not a number", [0, 15, 30, 45], [1, np.nan, 3, 4], None, [False, False, True]),
    ],
)
def test_which_intervals_may_be_used(why, times, tokens, start_time, usable):
    found = intervals(samples(times, tokens, start_time), started_at=None, warmup_seconds=0)
    assert found.usable.tolist() == usable, why


def test_warm_up_counts_from_the_latest_start_that_was_known_then():
    times = np.arange(0, 300, 15.0)
    tokens = np.concatenate([np.arange(10), np.arange(10)])
    found = intervals(samples(times, tokens), started_at=0.0, warmup_seconds=60)
    dropped = found.starts[~found.usable]
    assert dropped.tolist() == [0, 15, 30, 45, 135, 150, 165, 180, 195]


@given(
    st.lists(st.integers(0, 1000), min_size=2, max_size=40),
    st.sets(st.integers(1, 39), max_size=5),
)
def test_deltas_are_never_negative_and_add_up_to_what_was_counted_with_restarts(increments, restarts):
    """The own reset rule: a restart loses at most what was counted after the last scrape before it."""
    seen, value = [], 0
    for index, more in enumerate(increments):
        value = more if index in restarts else value + more
        seen.append(value)
    found = intervals(samples(np.arange(len(seen)) * 15.0, seen), None, 0)
    counted = found.counts[Counter.GENERATED_TOKENS]
    assert (counted >= 0).all()
    assert counted[found.usable].sum() <= sum(increments[1:])
    if not restarts:
        assert counted.sum() == sum(increments[1:])


@given(st.sampled_from([2.0, 15.0, 30.0, 60.0]), st.floats(0, 0.24), st.integers(0, 10_000))
def test_windows_partition_the_intervals_whatever_the_jitter(step, jitter, seed):
    rng = np.random.default_rng(seed)
    times = np.arange(40) * step + rng.uniform(-jitter, jitter, 40) * step
    seen = intervals(samples(times, np.arange(40) * 7.0), None, 0)
    length = window_length(60.0, step)
    total = 0.0
    for start in np.arange(times[0] - length, times[-1] + length, length):
        window = pod_window(seen, start, start + length)
        total += 0.0 if window is None else window.counts[Counter.GENERATED_TOKENS]
    lost = 2 * length / step * 7.0
    assert 39 * 7.0 - lost <= total <= 39 * 7.0


@pytest.mark.parametrize(("step", "length"), [(2, 60), (15, 60), (20, 60), (30, 120), (60, 180)])
def test_windows_hold_at_least_three_scrapes(step, length):
    assert window_length(60.0, step) == length


def test_scrapes_over_a_minute_are_refused_with_the_reason():
    assert scrape_refusal(60.0) is None
    assert scrape_refusal(66.0) is None
    said = scrape_refusal(120.0)
    assert said is not None
    assert "120 s" in said
    assert "scrapeIntervalSeconds" in said


def series(name: str, values: list[float], **labels: str) -> Series:
    times = np.arange(len(values)) * 15.0
    return Series({"__name__": name, "namespace": "ns", "pod": "p", **labels}, times, np.array(values))


def table(*found: Series) -> PodSamples:
    return by_pod(found, {POD: None}, "namespace", "pod")[POD]


def test_engines_of_one_pod_add_up_and_a_second_scrape_job_does_not():
    name = "vllm:generation_tokens_total"
    two = table(series(name, [1, 2], engine="0", job="a"), series(name, [10, 20], engine="1", job="a"))
    assert two.values[Counter.GENERATED_TOKENS].tolist() == [11, 22]
    assert not two.duplicate
    again = table(series(name, [1, 2, 3], engine="0", job="a"), series(name, [1, 2], engine="0", job="b"))
    assert again.values[Counter.GENERATED_TOKENS].tolist() == [1, 2, 3]
    assert again.duplicate
    now = float(again.times[-1])
    states = {"p": PodState(None, now), "q": PodState(None, now, duplicate=again.duplicate)}
    assert arm_answer(states, now, 60)[1] == "scraped more than once: q (two jobs, or replicas without deduplication)"


def test_a_status_seen_for_the_first_time_counts_from_zero():
    late = Series(
        {
            "__name__": "http_requests_total",
            "namespace": "ns",
            "pod": "p",
            "status": "5xx",
            "handler": "/v1/completions",
        },
        np.array([30.0]),
        np.array([4.0]),
    )
    found = table(*(series(name, [0, 1, 2]) for name in COUNTER_METRICS), late)
    assert found.values[Counter.HTTP_SERVER_ERROR].tolist() == [0, 0, 4]


def test_missing_metrics_are_named_as_on_the_wire():
    assert "vllm:generation_tokens_total" in table(series("vllm:num_requests_running", [1, 1])).missing()


def test_other_pods_in_the_answer_are_ignored():
    other = series("vllm:generation_tokens_total", [1, 2])
    assert by_pod([other], {("ns", "someone-else"): None}, "namespace", "pod") == {}
