"""Answer bodies, streams, headers and errors against those recorded from vLLM 0.32."""

import json
from typing import Any

import pytest

from tests.vllm_sim.launch import (
    DRAFT_CONFIG,
    MODEL,
    events,
    key_order,
    recorded,
    recorded_json,
    running,
    shape,
)
from tests.vllm_sim.served import Served

PROMPT = "The quick brown fox jumps over the lazy dog"


def test_a_completion_has_the_recorded_keys_in_order(plain: Served) -> None:
    answer = plain.engine.complete(PROMPT, ignore_eos=True).json()
    assert key_order(answer) == key_order(recorded_json("none-completion.json"))
    assert answer["usage"]["completion_tokens"] == 16
    assert answer["system_fingerprint"] == "TEST123"


def test_a_chat_completion_has_the_recorded_keys_in_order(plain: Served) -> None:
    assert key_order(plain.engine.chat(PROMPT).json()) == key_order(recorded_json("none-chat.json"))


def test_nulls_are_where_the_recorded_answer_has_nulls(plain: Served) -> None:
    assert shape(plain.engine.complete(PROMPT).json()) == shape(recorded_json("none-completion.json"))
    assert shape(plain.engine.chat(PROMPT).json()) == shape(recorded_json("none-chat.json"))


def _stream(served: Served, **fields: Any) -> list[Any]:
    with served.engine.open_stream(PROMPT, max_tokens=16, **fields) as answer:
        return events(answer.read().decode())


@pytest.mark.parametrize(
    ("recording", "fixture"), [("none-completion.sse", "plain"), ("draft-good-completion.sse", "speculative")]
)
def test_a_stream_has_the_recorded_kinds_of_chunks(
    recording: str, fixture: str, request: pytest.FixtureRequest
) -> None:
    own = _stream(request.getfixturevalue(fixture))
    theirs = events(recorded(recording))
    for place in (0, 1, -3, -2):  # first chunk, a later one, the one with the finish reason, usage
        assert key_order(own[place]) == key_order(theirs[place])
    assert own[-1] == theirs[-1] == "[DONE]"
    assert own[-3]["choices"][0]["finish_reason"] == "length"
    assert own[-2]["usage"]["completion_tokens"] == 16
    assert own[-2]["system_fingerprint"] == "TEST123"


def test_without_speculation_each_chunk_is_one_token(plain: Served, simulated_only: None) -> None:
    # The real one's chunks carry more than a token when its frontend lags.
    assert len(_stream(plain)) == 16 + 2


def test_with_speculation_a_chunk_carries_up_to_k_plus_one_tokens(speculative: Served) -> None:
    chunks = _stream(speculative)[:-2]
    assert len(chunks) < 16
    assert max(len(chunk["choices"][0]["text"].split()) for chunk in chunks) <= 4


def test_streamed_and_whole_answers_say_the_same(plain: Served) -> None:
    whole = plain.engine.complete(PROMPT, ignore_eos=True).json()["choices"][0]["text"]
    assert "".join(chunk["choices"][0]["text"] for chunk in _stream(plain)[:-2]) == whole


def test_greedy_answers_do_not_depend_on_the_proposer(plain: Served, speculative: Served, ngram: Served) -> None:
    def texts(served: Served) -> list[str]:
        return [served.engine.complete(f"{PROMPT} {n}").json()["choices"][0]["text"] for n in range(5)]

    assert texts(plain) == texts(speculative) == texts(ngram)


def test_per_request_metrics_have_the_recorded_keys(folder) -> None:
    flags = ("--per-request-spec-decode-metrics", "detailed")
    with running(folder, *flags, speculative=DRAFT_CONFIG) as engine:
        answer = engine.complete(PROMPT).json()
        with engine.open_stream(PROMPT, max_tokens=16) as stream:
            usage = events(stream.read().decode())[-2]
    assert key_order(answer["metrics"]) == key_order(recorded_json("per-request-detailed-completion.json")["metrics"])
    theirs = events(recorded("per-request-detailed-completion.sse"))[-2]
    assert key_order(usage["metrics"]) == key_order(theirs["metrics"])
    found = answer["metrics"]["speculative_decoding"]
    assert sum(found["acceptance_histogram"]) == found["num_spec_steps"] == len(found["per_step_accepted"])


def test_models_have_the_recorded_keys_and_the_model_as_root(plain: Served) -> None:
    answer = plain.engine.get("/v1/models").json()
    assert key_order(answer) == key_order(recorded_json("none-models.json"))
    assert answer["data"][0]["id"] == "tiny"
    assert answer["data"][0]["root"] == MODEL
    assert answer["data"][0]["max_model_len"] == 1024


def test_a_wrong_model_gets_the_recorded_404(plain: Served) -> None:
    status, _, body = recorded("none-wrongmodel.json").partition(" ")
    answer = plain.engine.complete(PROMPT, model="nosuch")
    assert (answer.status, answer.json()) == (int(status), json.loads(body))


def test_response_headers_are_the_recorded_ones(plain: Served) -> None:
    answer = plain.engine.complete(PROMPT)
    # urllib asks for a close, which the recording's client did not: the real one then says so, before any chunking.
    assert [name.lower() for name in answer.header_names] == [
        *recorded_json("none-completion.headers.json"),
        "connection",
    ]
    with plain.engine.open_stream(PROMPT, max_tokens=2) as stream:
        headers = {name.lower(): value for name, value in stream.headers.items()}
        stream.read()
    theirs = recorded_json("none-stream.headers.json")
    assert headers.pop("connection") == "close"
    assert list(headers) == list(theirs)
    assert {**headers, "date": ""} == {**theirs, "date": ""}


def test_health_version_and_ping(plain: Served) -> None:
    health = plain.engine.get("/health")
    assert (health.status, health.body) == (200, b"")
    assert set(plain.engine.get("/version").json()) == {"version"}
    assert plain.engine.get("/ping").status == 200
    assert plain.engine.get("/nosuch").status == 404


@pytest.mark.parametrize("fields", [{"min_p": 0.1, "temperature": 1.0}, {"logit_bias": {"17": 5.0}}])
def test_min_p_and_logit_bias_are_refused_only_with_speculation(
    fields: dict[str, Any], plain: Served, speculative: Served
) -> None:
    refused = speculative.engine.complete(PROMPT, **fields)
    assert refused.status == 400
    assert refused.json()["error"]["code"] == 400
    assert "min_p and logit_bias" in refused.json()["error"]["message"]
    assert plain.engine.complete(PROMPT, **fields).status == 200


def test_min_p_is_forgotten_and_so_accepted_where_decoding_is_greedy(speculative: Served) -> None:
    assert speculative.engine.complete(PROMPT, min_p=0.1).status == 200


REFUSED = recorded_json("refused-requests.json")


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_a_bad_request_gets_the_recorded_answer(case: str, plain: Served) -> None:
    asked = REFUSED[case]["asked"]
    path = "/v1/chat/completions" if case.startswith("chat-") else "/v1/completions"
    answer = plain.engine.post(path, asked.encode() if isinstance(asked, str) else asked)
    assert (answer.status, answer.json()) == (REFUSED[case]["status"], REFUSED[case]["answer"])


def test_a_prompt_that_is_too_long_is_counted_to_one_beyond_the_limit(plain: Served) -> None:
    # Of more characters than the tokenizer's longest tokens could make of the limit, the engine counts no tokens.
    answer = plain.engine.complete("word " * 1300)
    assert answer.status == 400
    # Recorded: the same words, whatever the length of the prompt.
    assert answer.json()["error"]["message"] == (
        "This model's maximum context length is 1024 tokens. However, your prompt contains at least 1025 input tokens, "
        "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. "
        "(parameter=input_tokens, value=1025)"
    )


def test_prompt_and_answer_together_beyond_the_limit_are_cut_and_not_refused(plain: Served) -> None:
    answer = plain.engine.complete(PROMPT, max_tokens=1023, ignore_eos=True)
    assert answer.status == 200
    assert answer.json()["usage"]["total_tokens"] == 1024


@pytest.mark.parametrize(
    ("recording", "options"),
    [
        ("none-completion-without-usage.sse", {}),
        ("none-completion-continuous-usage.sse", {"include_usage": True, "continuous_usage_stats": True}),
    ],
)
def test_the_usage_and_the_fingerprint_of_a_stream_are_where_they_were_recorded(
    recording: str, options: dict[str, Any], plain: Served
) -> None:
    own, theirs = _stream(plain, stream_options=options), events(recorded(recording))
    for place in (0, -3, -2):
        assert key_order(own[place]) == key_order(theirs[place])
    assert own[-1] == "[DONE]"
    assert own[-2]["system_fingerprint"] == "TEST123"


@pytest.mark.parametrize(
    ("recording", "options"), [("none-chat.sse", {}), ("none-chat-usage.sse", {"include_usage": True})]
)
def test_a_chat_stream_has_the_recorded_chunks(recording: str, options: dict[str, Any], plain: Served) -> None:
    answer = plain.engine.chat(PROMPT, stream=True, stream_options=options)
    own, theirs = events(answer.body.decode()), events(recorded(recording))
    for place in (0, 1, -3, -2):
        assert key_order(own[place]) == key_order(theirs[place])
    assert own[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}


def test_log_probabilities_have_the_recorded_form(plain: Served) -> None:
    whole = plain.engine.complete(PROMPT, logprobs=1, max_tokens=2).json()["choices"][0]["logprobs"]
    theirs = recorded_json("none-completion-logprobs.json")["choices"][0]["logprobs"]
    assert {name: len(value) for name, value in whole.items()} == {name: len(value) for name, value in theirs.items()}
    assert list(whole["top_logprobs"][0]) == whole["tokens"][:1]
    chat = plain.engine.chat(PROMPT, logprobs=True, top_logprobs=1, max_tokens=1).json()
    assert key_order(chat) == key_order(recorded_json("none-chat-logprobs.json"))


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"max_tokens": 5000}, 400),
        ({"prompt": None}, 400),
        ({"logprobs": 1}, 200),
        ({"seed": 7, "temperature": 1.0}, 200),
    ],
)
def test_parameters_are_checked(fields: dict[str, Any], status: int, plain: Served) -> None:
    body = {"model": "tiny", "prompt": PROMPT, "temperature": 0, "max_tokens": 16, **fields}
    answer = plain.engine.post("/v1/completions", body)
    assert answer.status == status, answer.body
    if status == 400:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_text_that_is_not_json_is_a_400(plain: Served) -> None:
    assert plain.engine.post("/v1/completions", b"{not json").status == 400


def test_a_stop_string_ends_the_answer_before_it(simulated_only: None, speculative: Served) -> None:
    text = speculative.engine.complete(PROMPT).json()["choices"][0]["text"]
    stop = text.split()[5]
    answer = speculative.engine.complete(PROMPT, stop=[stop])
    choice = answer.json()["choices"][0]
    assert choice["text"] == text[: text.index(stop)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    with speculative.engine.open_stream(PROMPT, max_tokens=16, stop=[stop]) as stream:
        chunks = events(stream.read().decode())[:-2]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == choice["text"]


def test_a_required_tool_is_called(plain: Served, simulated_only: None) -> None:
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    choice = plain.engine.chat("rain?", tools=tools, tool_choice="required").json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "weather"


def test_a_json_response_format_gives_json(plain: Served, simulated_only: None) -> None:
    answer = plain.engine.chat("give json", response_format={"type": "json_object"}, max_tokens=200).json()
    assert isinstance(json.loads(answer["choices"][0]["message"]["content"]), dict)


def test_an_api_key_guards_v1_only(folder) -> None:
    with running(folder, "--api-key", "secret") as engine:
        assert engine.complete(PROMPT).status == 401
        assert engine.get("/metrics").status == 200
        body = {"model": "tiny", "prompt": PROMPT}
        assert engine.post("/v1/completions", body, {"Authorization": "Bearer secret"}).status == 200


def test_another_served_name_is_an_alias_and_the_first_one_is_in_the_answer_and_labels_the_metrics(folder) -> None:
    # argparse takes the last --served-model-name.
    with running(folder, "--served-model-name", "first", "second@hash") as engine:
        answer = engine.complete(PROMPT, model="second@hash", max_tokens=16, ignore_eos=True).json()
        assert answer["model"] == "first"
        assert 'vllm:generation_tokens_total{engine="0",model_name="first"} 16.0' in engine.metrics()
