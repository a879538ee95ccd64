"""The driver's arithmetic, held to what a real vLLM 0.32 recorded (CPU, tiny model, `vllm bench serve --seed 7`)."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specfleet.benchmark.driver import counters, harness, probes, summary, texts, validity, warming
from specfleet.benchmark.driver.failures import CannotMeasureError

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> dict[str, Any]:
    return json.loads((RECORDED / f"bench-{name}.json").read_text())


def scraped(name: str) -> counters.Counters:
    return counters.parse_metrics((RECORDED / f"{name}.prom").read_text())


@pytest.mark.parametrize("name", ["none", "draft-bad"])
def test_the_send_times_of_a_real_run_are_the_reconstructed_ones(name: str) -> None:
    bench = recorded(name)
    intended = harness.intended_delays(bench["seed"], bench["num_prompts"], bench["request_rate"])
    lags = summary.send_lags(bench["start_times"], intended)
    assert lags is not None
    assert summary.quantile(lags, 0.5) < 0.002
    assert max(lags) < 0.05


@settings(deadline=None)
@given(st.integers(0, 2**31 - 1), st.integers(1, 200), st.floats(0.01, 500))
def test_intended_times_are_numpys_for_every_seed(seed: int, count: int, rate: float) -> None:
    np.random.seed(seed)
    drawn = np.cumsum([np.random.gamma(shape=1.0, scale=1 / rate) for _ in range(count)])
    assert harness.intended_delays(seed, count, rate) == pytest.approx(drawn * (count / rate / drawn[-1]))


def test_another_seed_does_not_explain_the_recorded_send_times() -> None:
    bench = recorded("none")
    lags = summary.send_lags(bench["start_times"], harness.intended_delays(8, 30, 5.0))
    assert lags is not None
    assert summary.quantile(lags, 0.99) > 0.2


def test_without_start_times_the_lag_is_unknown() -> None:
    assert summary.send_lags([], [0.1]) is None
    assert summary.send_lags([0.0, 1.0], [0.1, 0.2]) is None


def summary_of(name: str) -> dict[str, Any]:
    bench = recorded(name)
    run = {"requests_per_second": bench["request_rate"], "requests": bench["num_prompts"], "seed": bench["seed"]}
    vllm = harness.VllmBenchServe()
    slo = {"tpot_slo_seconds": 0.01, "ttft_slo_seconds": None}
    return summary.summarise(vllm.record(bench), vllm.intended_delays(run), slo)


def test_the_summary_of_a_real_run_agrees_with_the_benchs_own_figures() -> None:
    bench, summary = recorded("none"), summary_of("none")
    assert summary["completed_requests"] == 30
    assert summary["completed_requests_per_second"] == pytest.approx(bench["request_throughput"])
    assert summary["output_tokens_per_second"] == pytest.approx(bench["output_throughput"])
    assert summary["tpot_mean_seconds"] == pytest.approx(bench["mean_tpot_ms"] / 1000, rel=1e-3)
    assert summary["tpot_p95_seconds"] == pytest.approx(bench["p95_tpot_ms"] / 1000, rel=1e-3)
    assert summary["stall_p95_seconds"] == pytest.approx(bench["p95_itl_ms"] / 1000, rel=1e-3)
    assert summary["ttft_mean_seconds"] >= bench["mean_ttft_ms"] / 1000
    assert summary["ttft_mean_seconds"] == pytest.approx(bench["mean_ttft_ms"] / 1000, abs=0.005)
    assert summary["ttft_over_slo_share"] is None
    assert 0 < summary["tpot_over_slo_share"] < 1


def test_a_real_engines_counters_give_its_exact_time_per_output_token() -> None:
    delta = counters.difference(scraped("draft-bad-before"), scraped("draft-bad-after"))
    assert delta.reset is None
    assert delta.finished > 0
    tokens = delta.count("request_generation_tokens_sum") - delta.count("request_generation_tokens_count")
    seconds = counters.decode_seconds_per_token(delta)
    assert seconds == pytest.approx(delta.values["request_decode_time_seconds_sum"] / tokens)
    assert delta.count("spec_decode_num_draft_tokens") == 3 * delta.count("spec_decode_num_drafts")
    assert sum(delta.per_position.values()) == delta.count("spec_decode_num_accepted_tokens")


def test_a_plain_engine_has_no_drafts_and_its_answers_are_counted_by_status() -> None:
    delta = counters.difference(scraped("none-before"), scraped("none-after"))
    assert delta.count("spec_decode_num_drafts") == 0
    assert delta.http["2xx"] > 0


def test_a_restarted_engine_is_a_reset_and_not_a_number() -> None:
    before = counters.parse_metrics("process_start_time_seconds 100\nvllm:generation_tokens_total 50\n")
    after = counters.parse_metrics("process_start_time_seconds 170\nvllm:generation_tokens_total 80\n")
    assert "started again" in str(counters.difference(before, after).reset)
    back = counters.parse_metrics("process_start_time_seconds 100\nvllm:generation_tokens_total 20\n")
    assert "went back" in str(counters.difference(before, back).reset)


def test_nan_and_infinite_samples_are_no_data() -> None:
    found = counters.parse_metrics('vllm:num_requests_waiting{engine="0"} NaN\nvllm:kv_cache_usage_perc +Inf\n')
    assert found.get("num_requests_waiting") is None
    assert found.get("kv_cache_usage_perc") is None


def test_labels_with_escapes_and_braces_are_read() -> None:
    line = 'http_requests_total{handler="/v1/completions",note="a\\"}b",status="4xx"} 3.0\n'
    assert counters.parse_metrics(line).http == {"4xx": 3.0}


PLAN = {
    "minimum_requests": 5,
    "little_law_tolerance_ratio": 0.05,
    "client_lag_limit_seconds": 0.025,
    "client_lag_ratio": 0.1,
    "client_lag_mean_limit_seconds": 0.01,
}
GOOD = {
    "completed_requests": 20,
    "failed_requests": 0,
    "output_tokens": 640,
    "tpot_mean_seconds": 0.01,
    "client_lag_p99_seconds": 0.002,
    "e2e_mean_seconds": 0.5,
    "_lag_mean": 0.001,
    "_latency_sum": 10.0,
    "_by_time": [],
    "_first_error": "",
}
RAN = {
    "finished_length": 20.0,
    "request_generation_tokens_sum": 640.0,
    "e2e_request_latency_seconds_sum": 9.9,
}


def reason(summary: dict[str, Any] | None = None, counted: dict[str, float] | None = None, **delta: Any) -> str | None:
    run = {"requests": 20, "requests_per_second": 4.0}
    found = counters.Delta(delta.get("reset"), {**RAN, **(counted or {})}, {}, {})
    return validity.invalid_reason(PLAN, run, {**GOOD, **(summary or {})}, found, delta.get("waiting", []))


def test_a_clean_run_is_valid() -> None:
    assert reason() is None


def test_one_late_request_in_long_ones_does_not_spoil_a_run_and_an_unknown_lag_is_no_reason_here() -> None:
    assert reason({"client_lag_p99_seconds": 0.2, "e2e_mean_seconds": 4.0}) is None
    assert reason({"client_lag_p99_seconds": None, "_lag_mean": None}) is None


@pytest.mark.parametrize(
    ("changes", "counted", "expected"),
    [
        ({"completed_requests": 0, "failed_requests": 20, "_first_error": "Not Found"}, {}, "FailedRequests: 20 of 20"),
        ({"completed_requests": 19}, {}, "FailedRequests: 1 of 20"),
        ({"tpot_mean_seconds": 0.0}, {}, "NoTokens"),
        ({"tpot_mean_seconds": None}, {}, "NoTokens"),
        ({}, {"finished_length": 26.0}, "OtherTraffic: the pod finished 26 requests, we sent 20"),
        ({}, {"finished_length": 14.0}, "OtherTraffic"),
        ({"output_tokens": 500}, {}, "TokenMismatch"),
        ({"_latency_sum": 14.0}, {}, "LittlesLaw"),
        ({"client_lag_p99_seconds": 0.06}, {}, "ClientLag: send lag mean 1.0 ms, p99 60.0 ms"),
        ({"_lag_mean": 0.012, "client_lag_p99_seconds": 0.02}, {}, "ClientLag"),
    ],
)
def test_a_run_that_must_not_be_compared_says_why(
    changes: dict[str, Any], counted: dict[str, float], expected: str
) -> None:
    assert str(reason(changes, counted)).startswith(expected)


def test_a_restart_is_reported_before_what_follows_from_it() -> None:
    assert str(reason({"completed_requests": 3}, reset="went back")).startswith("PodRestarted")


def test_a_queue_that_grows_is_oversaturated_and_one_that_is_merely_long_is_not() -> None:
    growing = [(float(i), 0.05 + 0.2 * i) for i in range(20)]
    steady = [(float(i), 2.0 + 0.1 * (i % 3)) for i in range(20)]
    assert validity.grows(growing, [(1.0, 4.0)])
    assert not validity.grows(steady, [(1.0, 4.0)])
    assert not validity.grows(growing, [(1.0, 0.0)])


SOURCE = [{"prompt": f"text {i} " * 30, "slice": None} for i in range(5)] + [{"prompt": "own", "slice": "mine"}]


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(8, 600), st.floats(1.5, 6))
def test_prompts_have_the_length_that_was_asked_for_and_no_common_start(count: int, tokens: int, ratio: float) -> None:
    prompts = texts.build_prompts(SOURCE, "chat", count, tokens, ratio, "seed")
    assert len(prompts) == count
    assert len({prompt[:10] for prompt in prompts}) == count
    assert all(abs(len(prompt) - max(tokens * ratio, 27)) <= 12 for prompt in prompts)


def test_the_same_seed_gives_both_arms_the_same_prompts_and_another_run_different_ones() -> None:
    one = texts.build_prompts(SOURCE, "chat", 10, 100, 4.0, "a")
    assert one == texts.build_prompts(SOURCE, "chat", 10, 100, 4.0, "a")
    other = texts.build_prompts(SOURCE, "chat", 10, 100, 4.0, "b")
    assert not {prompt[:10] for prompt in one} & {prompt[:10] for prompt in other}


def test_a_repeated_run_has_the_same_texts_behind_other_starts() -> None:
    first = texts.build_prompts(SOURCE, "chat", 10, 100, 4.0, "a")
    again = texts.build_prompts(SOURCE, "chat", 10, 100, 4.0, "a", attempt=1)
    assert [prompt[11:] for prompt in first] == [prompt[11:] for prompt in again]
    assert not {prompt[:10] for prompt in first} & {prompt[:10] for prompt in again}


def test_another_tag_changes_nothing_but_the_tag() -> None:
    (one,) = texts.build_prompts(SOURCE, "chat", 1, 100, 4.0, "a")
    again = [texts.retagged(one, f"{part}/{index}") for part in range(6) for index in range(40)]
    assert {prompt[11:] for prompt in again} == {one[11:]}
    assert len({prompt[:10] for prompt in [one, *again]}) == 241


def test_a_prompt_file_may_hold_the_line_ends_of_unicode_and_says_where_it_is_no_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "one\u2028and\x85the same"}\r\n\n{"prompt": "two"}\n', encoding="utf-8")
    assert [one["prompt"] for one in texts.load_prompts(str(file))] == ["one\u2028and\x85the same", "two"]
    file.write_bytes('{"prompt": "caf\u00e9"}'.encode("latin-1"))
    with pytest.raises(CannotMeasureError, match=r"prompts\.jsonl cannot be read"):
        texts.load_prompts(str(file))


def test_prompts_labelled_with_the_slice_are_used_whole() -> None:
    assert all(prompt.endswith("] own") for prompt in texts.build_prompts(SOURCE, "mine", 3, 500, 4.0, "a"))


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_quantiles_are_numpys(values: list[float], share: float) -> None:
    assert summary.quantile(values, share) == pytest.approx(float(np.quantile(values, share)), rel=1e-9, abs=1e-9)


def test_a_quantile_of_nothing_is_none() -> None:
    assert summary.quantile([], 0.5) is None
    assert not math.isnan(summary.quantile([1.0], 0.99) or 0.0)


CALL = {"choices": [{"message": {"tool_calls": [{"function": {"arguments": '{"city": "Oslo"}'}}]}}]}
CUT = {"choices": [{"message": {"tool_calls": [{"function": {"arguments": '{"city": "Os'}}]}}]}


@pytest.mark.parametrize(
    ("expect", "answer", "kept"),
    [
        (None, {}, True),
        (["blue"], {"choices": [{"text": " blue"}]}, True),
        (["blue"], {"choices": [{"text": "bluegreen"}]}, False),
        (["blue"], {}, False),
        ("logprobs", {"choices": [{"logprobs": {"tokens": ["a"]}}]}, True),
        ("logprobs", {"choices": [{"logprobs": None}]}, False),
        ("tool_call", CALL, True),
        ("tool_call", CUT, False),
        ("tool_call", {"choices": [{"message": {"content": "sunny"}}]}, False),
    ],
)
def test_an_answer_that_breaks_its_own_request_is_not_taken_for_one(expect: Any, answer: Any, kept: bool) -> None:
    assert probes.as_asked(expect, answer) is kept


def warm_up_of_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, speeds: list[float | None], answered: int, outlasting_seconds: float = 0.0
) -> tuple[float | None, list[float]]:
    """The rate that the warm-up saw and how long each of its parts was asked to last; every part answers `answered`
    requests, takes that much longer than asked, and sees the next of `speeds`."""
    now = [100.0]
    asked: list[float] = []
    seen = iter(speeds)

    def load(*words: Any) -> tuple[int, float]:
        asked.append(words[5])
        lasted: float = words[5] + outlasting_seconds
        now[0] += lasted
        return answered, lasted

    monkeypatch.setattr(warming, "_load", load)
    monkeypatch.setattr(warming, "scrape", lambda url: counters.Counters(None, {}, {}, {}))
    monkeypatch.setattr(warming, "decode_seconds_per_token", lambda delta: next(seen))
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    run = {"warmup_seconds": 10, "concurrency": 4}
    return warming.warm_up({}, {"url": "http://nowhere"}, run, ["a"], lambda: None), asked


@pytest.mark.parametrize(
    ("speeds", "parts"),
    [
        ([20.0, 10.2, 10.0], 3),
        ([10.0, 10.0], 2),
        ([40.0, 30.0, 22.0, 16.0, 12.0, 9.0, 7.0], 6),
        ([None, None], 2),
    ],
    ids=["flat after a slow start", "flat at once", "never flat", "no tokens"],
)
def test_the_warm_up_goes_on_until_two_parts_agree_and_ends_at_three_times_what_was_asked(
    speeds: list[float | None], parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert warm_up_of_ten_seconds(monkeypatch, speeds, answered=30) == (6.0, [5.0] * parts)


def test_a_warm_up_whose_requests_outlast_its_parts_ends_at_three_times_what_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never_flat = [40.0, 30.0, 22.0, 16.0, 12.0, 9.0]
    rate, asked = warm_up_of_ten_seconds(monkeypatch, [*never_flat], answered=8, outlasting_seconds=13.0)
    assert rate == pytest.approx(8 / 18)
    assert len(asked) == 2


def test_without_a_warm_up_nothing_is_sent() -> None:
    assert warming.warm_up({}, {"url": "http://nowhere"}, {"warmup_seconds": 0}, ["a"], lambda: None) is None
