"""/metrics against pages recorded from vLLM 0.32 after 40 requests."""

import pytest

from tests.vllm_sim.launch import Page, parse_page, recorded, running
from tests.vllm_sim.served import Served

# What depends on the machine or the configuration, not on the contract.
_FREE_LABELS = {"vllm:cache_config_info", "python_info"}


def _contract(page: Page) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """Names, labels and label values (buckets included) of every series."""
    return {(name, () if name in _FREE_LABELS else labels) for name, labels in page.series()}


def _label_names(page: Page, sample: str) -> set[str]:
    return {label for name, labels in page.series() if name == sample for label, _ in labels}


@pytest.mark.parametrize(
    ("recording", "fixture"), [("none-after.prom", "plain"), ("draft-good-after.prom", "speculative")]
)
def test_every_family_has_the_recorded_name_help_type_and_place(
    recording: str, fixture: str, request: pytest.FixtureRequest
) -> None:
    served: Served = request.getfixturevalue(fixture)
    assert served.after.heads == parse_page(recorded(recording)).heads


@pytest.mark.parametrize(
    ("recording", "fixture"), [("none-after.prom", "plain"), ("draft-good-after.prom", "speculative")]
)
def test_every_series_has_the_recorded_labels_and_buckets(
    recording: str, fixture: str, request: pytest.FixtureRequest
) -> None:
    served: Served = request.getfixturevalue(fixture)
    assert _contract(served.after) == _contract(parse_page(recorded(recording)))


@pytest.mark.parametrize(
    ("recording", "fixture"), [("none-before.prom", "plain"), ("draft-good-before.prom", "speculative")]
)
def test_a_fresh_engine_shows_the_same_series_as_a_recorded_fresh_one(
    recording: str, fixture: str, request: pytest.FixtureRequest
) -> None:
    served: Served = request.getfixturevalue(fixture)
    assert _contract(served.before) == _contract(parse_page(recorded(recording)))


def test_the_cache_configuration_has_the_recorded_labels(plain: Served) -> None:
    name = "vllm:cache_config_info"
    assert _label_names(plain.after, name) == _label_names(parse_page(recorded("none-after.prom")), name)


def test_speculative_counters_are_zero_at_first_and_absent_without_speculation(
    plain: Served, speculative: Served
) -> None:
    assert speculative.before.value("vllm:spec_decode_num_drafts_total") == 0
    assert not any(name.startswith("vllm:spec_decode") for name, _ in plain.after.series())


def test_the_number_of_position_series_is_k(speculative: Served) -> None:
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    positions = {dict(labels)["position"] for sample, labels in speculative.after.series() if sample == name}
    assert positions == {"0", "1", "2"}


def _checks(served: Served) -> tuple[float, float, float]:
    page = served.after
    generated = page.value("vllm:generation_tokens_total")
    first = page.value("vllm:time_to_first_token_seconds_count")
    steps = page.value("vllm:inter_token_latency_seconds_count")
    return generated, first, steps


def test_without_speculation_each_decode_step_is_one_token(plain: Served) -> None:
    generated, first, steps = _checks(plain)
    assert (generated, first) == (plain.completion_tokens, 40)
    assert steps == generated - first


def test_with_a_draft_model_each_decode_step_is_one_draft_and_carries_several_tokens(speculative: Served) -> None:
    page = speculative.after
    generated, first, steps = _checks(speculative)
    accepted = page.value("vllm:spec_decode_num_accepted_tokens_total")
    assert generated == speculative.completion_tokens
    assert steps == page.value("vllm:spec_decode_num_drafts_total")
    assert page.value("vllm:spec_decode_num_draft_tokens_total") == 3 * steps
    # Accepted tokens are counted before an answer is cut at max_tokens: a little more than what came out.
    assert steps + accepted >= generated - first > steps


def test_ngram_steps_without_a_match_are_not_counted_as_drafts(ngram: Served) -> None:
    _, _, steps = _checks(ngram)
    assert 0 < ngram.after.value("vllm:spec_decode_num_drafts_total") < steps


@pytest.mark.parametrize("fixture", ["plain", "speculative", "ngram"])
def test_histograms_of_requests_count_each_request_once(fixture: str, request: pytest.FixtureRequest) -> None:
    page: Page = request.getfixturevalue(fixture).after
    for name in (
        "request_time_per_output_token_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "request_inference_time_seconds",
        "request_prompt_tokens",
        "request_generation_tokens",
        "request_params_n",
        "request_params_max_tokens",
        "request_num_preemptions",
        "request_prefill_kv_computed_tokens",
    ):
        assert page.value(f"vllm:{name}_count") == 40, name
    assert page.value("vllm:request_success_total") == 40
    assert page.value("vllm:request_params_max_tokens_sum") == 40 * 64


@pytest.mark.parametrize("fixture", ["plain", "speculative"])
def test_sums_agree_with_each_other(fixture: str, request: pytest.FixtureRequest) -> None:
    page: Page = request.getfixturevalue(fixture).after
    value = page.value
    assert value("vllm:iteration_tokens_total_sum") == value("vllm:prompt_tokens_total") + value(
        "vllm:generation_tokens_total"
    )
    assert value("vllm:request_decode_time_seconds_sum") == pytest.approx(
        value("vllm:inter_token_latency_seconds_sum"), rel=1e-6
    )
    assert value("vllm:request_inference_time_seconds_sum") == pytest.approx(
        value("vllm:request_prefill_time_seconds_sum") + value("vllm:request_decode_time_seconds_sum"), rel=1e-6
    )


def test_http_requests_are_counted_by_handler_and_status_class_without_probes(plain: Served) -> None:
    value = plain.after.value
    assert value("http_requests_total", handler="/v1/completions", method="POST", status="2xx") == 40
    assert not any(dict(labels).get("handler") in ("/health", "/metrics") for _, labels in plain.after.series())


def test_the_page_says_what_it_is(plain: Served) -> None:
    assert plain.engine.get("/metrics").headers["content-type"].startswith("text/plain; version=")


def test_disable_log_stats_takes_every_engine_series_away(folder) -> None:
    with running(folder, "--disable-log-stats") as engine:
        page = parse_page(engine.metrics())
    assert not any(name.startswith("vllm:") for name, _ in page.series())
    assert page.has("process_start_time_seconds")


def test_custom_buckets_replace_those_of_itl_and_tpot(folder) -> None:
    buckets = '{"inter_token_latency":[0.002,0.004],"request_latency":[0.1,0.2],"time_to_first_token":[0.05]}'
    with running(folder, "--custom-histogram-buckets", buckets) as engine:
        page = parse_page(engine.metrics())

    def edges(name: str) -> list[str]:
        return [dict(labels)["le"] for sample, labels in page.samples if sample == f"vllm:{name}_bucket"]

    assert edges("inter_token_latency_seconds") == ["0.002", "0.004", "+Inf"]
    assert edges("request_time_per_output_token_seconds") == ["0.002", "0.004", "+Inf"]
    assert edges("time_to_first_token_seconds") == ["0.05", "+Inf"]
    assert edges("e2e_request_latency_seconds") == ["0.1", "0.2", "+Inf"]
