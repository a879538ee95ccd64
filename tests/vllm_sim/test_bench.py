"""`vllm bench serve` against runs recorded from vLLM 0.32."""

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from specfleet.benchmark.driver.harness import VllmBenchServe
from vllm_sim.bench.arguments import parse_bench_arguments
from vllm_sim.bench.arrivals import send_delays
from vllm_sim.bench.numpy_stream import NumpyStream
from vllm_sim.bench.requests import Outcome
from vllm_sim.bench.results import measured, summaries

from tests.vllm_sim.launch import MODEL, command, environment, free_port, recorded_json
from tests.vllm_sim.served import Served

RECORDED_FLAGS = [
    "--backend",
    "vllm",
    "--dataset-name",
    "random",
    "--random-input-len",
    "64",
    "--random-output-len",
    "32",
    "--num-prompts",
    "30",
    "--request-rate",
    "5",
    "--seed",
    "7",
    "--temperature",
    "0",
    "--percentile-metrics",
    "ttft,tpot,itl,e2el",
    "--metric-percentiles",
    "50,95,99",
    "--save-result",
    "--save-detailed",
]


def _bench(*words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*command(), "bench", "serve", *words],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def _run(served: Served, folder: Path, *words: str) -> dict[str, Any]:
    where = ["--base-url", served.engine.url, "--model", "tiny", "--tokenizer", MODEL]
    # As the benchmark's driver runs it: an engine without its extra `bench` reads no custom dataset.
    reader = VllmBenchServe().environment(folder)["PYTHONPATH"]
    path = os.pathsep.join(filter(None, [reader, environment().get("PYTHONPATH")]))
    done = _bench(*where, *words, "--result-dir", str(folder), "--result-filename", "result.json", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


@pytest.mark.parametrize(
    ("recording", "fixture"), [("bench-none.json", "plain"), ("bench-draft-good.json", "speculative")]
)
def test_a_run_has_the_recorded_keys_in_order(
    recording: str, fixture: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    flags = [*RECORDED_FLAGS, "--request-rate", "20", "--disable-tqdm"]
    result = _run(request.getfixturevalue(fixture), folder, *flags)
    theirs = recorded_json(recording)
    assert list(result) == list(theirs)
    assert (result["completed"], result["failed"]) == (30, 0)
    assert {name: type(value) for name, value in result.items() if value is not None} == {
        name: type(value) for name, value in theirs.items() if value is not None
    }


def test_acceptance_is_in_percent_and_positions_are_shares(speculative: Served, folder: Path) -> None:
    result = _run(speculative, folder, *RECORDED_FLAGS, "--request-rate", "inf", "--output-len", "64")
    drafts, accepted = result["spec_decode_num_drafts"], result["spec_decode_accepted_tokens"]
    positions = result["spec_decode_per_position_acceptance_rates"]
    assert result["spec_decode_acceptance_rate"] == pytest.approx(100 * accepted / result["spec_decode_draft_tokens"])
    assert result["spec_decode_acceptance_length"] == pytest.approx(1 + accepted / drafts)
    assert sum(positions) * drafts == pytest.approx(accepted)
    assert result["request_rate"] == "inf"
    # One gap per chunk, and a chunk carries several tokens.
    assert result["mean_itl_ms"] > 1.1 * result["mean_tpot_ms"]


@pytest.mark.parametrize("recording", ["bench-none.json", "bench-draft-good.json"])
def test_the_recorded_numbers_follow_from_the_recorded_requests(recording: str, simulated_only: None) -> None:
    theirs = recorded_json(recording)
    arguments = parse_bench_arguments(RECORDED_FLAGS)
    assert arguments is not None
    columns = (
        "input_lens",
        "generated_texts",
        "ttfts",
        "itls",
        "latencies",
        "start_times",
        "queue_times",
        "output_lens",
    )
    outcomes = [
        Outcome(
            prompt_len=prompt,
            success=True,
            text=text,
            ttft=ttft,
            itl=itl,
            latency=latency,
            start_time=start,
            queue_time=queued,
            output_tokens=tokens,
        )
        for prompt, text, ttft, itl, latency, start, queued, tokens in zip(
            *(theirs[column] for column in columns), strict=True
        )
    ]
    own = {**measured(arguments, outcomes, theirs["duration"]), **summaries(arguments, outcomes)}
    for name, value in own.items():
        assert value == pytest.approx(theirs[name]) if isinstance(value, float) else value == theirs[name], name


def test_requests_leave_when_the_recorded_ones_left(simulated_only: None) -> None:
    arguments = parse_bench_arguments(RECORDED_FLAGS)
    assert arguments is not None
    late = np.array(recorded_json("bench-none.json")["start_times"]) - np.array(send_delays(arguments, 30))
    assert late.max() - late.min() < 0.002


@pytest.mark.parametrize("shape", [0.3, 0.5, 1.0, 2.5, 8.0])
def test_gamma_variates_are_those_of_numpy(shape: float, simulated_only: None) -> None:
    np.random.seed(11)
    theirs = np.random.gamma(shape, 0.2, size=300)
    stream = NumpyStream(11)
    assert np.allclose([stream.gamma(shape, 0.2) for _ in range(300)], theirs, rtol=1e-12)


def test_an_even_stream_and_a_ramp_have_the_rates_that_were_asked_for(simulated_only: None) -> None:
    even = parse_bench_arguments(["--request-rate", "4", "--burstiness", "inf"])
    assert even is not None
    assert send_delays(even, 4) == pytest.approx([0.25, 0.5, 0.75, 1.0])
    words = [
        "--ramp-up-strategy",
        "linear",
        "--ramp-up-start-rps",
        "1",
        "--ramp-up-end-rps",
        "3",
        "--burstiness",
        "inf",
    ]
    ramp = parse_bench_arguments(words)
    assert ramp is not None
    assert send_delays(ramp, 3) == pytest.approx([1.0, 1.5, 1.5 + 1 / 3])
    assert not any(send_delays(parse_bench_arguments([]), 3))  # type: ignore[arg-type]


def _custom_dataset(folder: Path) -> list[str]:
    data = folder / "prompts.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"prompt number {n}"}) + "\n" for n in range(5)))
    words = f"--backend vllm --dataset-name custom --dataset-path {data} --custom-output-len 8 --num-prompts 7"
    return f"{words} --disable-shuffle --skip-chat-template --ignore-eos --temperature 0".split()


def test_a_custom_dataset_keeps_its_order_and_lengths(plain: Served, folder: Path) -> None:
    # One at a time: a batch's arithmetic is another one, and random weights have near-ties.
    words = [*_custom_dataset(folder), "--max-concurrency", "1", "--save-result", "--save-detailed"]
    result = _run(plain, folder, *words)
    assert result["output_lens"] == [8] * 7  # two more than there are: oversampled
    own = [plain.engine.complete(f"prompt number {n}", max_tokens=8, ignore_eos=True).json() for n in range(5)]
    assert result["generated_texts"][:5] == [answer["choices"][0]["text"] for answer in own]


def test_the_concurrency_limit_holds_and_waiting_is_counted(plain: Served, folder: Path) -> None:
    words = [
        "--backend",
        "vllm",
        "--random-input-len",
        "8",
        "--random-output-len",
        "10",
        "--num-prompts",
        "12",
        "--max-concurrency",
        "2",
    ]
    words += [
        "--temperature",
        "0",
        "--ignore-eos",
        "--save-result",
        "--save-detailed",
        "--num-warmups",
        "2",
        "--metadata",
        "tier=peak",
    ]
    result = _run(plain, folder, *words, "--goodput", "e2el:100000")
    starts, latencies = result["start_times"], result["latencies"]
    for start in starts:
        active = sum(s <= start < s + latency for s, latency in zip(starts, latencies, strict=True))
        assert active <= 2
    assert max(result["queue_times"]) > min(latencies)
    assert result["tier"] == "peak"
    assert result["request_goodput"] == pytest.approx(result["request_throughput"])


def test_chat_is_asked_for_as_chat(plain: Served, folder: Path) -> None:
    words = [
        "--backend",
        "openai-chat",
        "--endpoint",
        "/v1/chat/completions",
        "--random-input-len",
        "8",
        "--random-output-len",
        "6",
    ]
    words += ["--num-prompts", "4", "--temperature", "0", "--ignore-eos", "--save-result", "--save-detailed"]
    result = _run(plain, folder, *words)
    assert result["output_lens"] == [6] * 4
    # The role comes in a chunk of its own before the first token, as in 0.32.
    assert [len(gaps) for gaps in result["itls"]] == [6] * 4


def test_without_a_tokenizer_every_answer_has_one_token_and_latencies_per_token_are_left_out(
    plain: Served, folder: Path
) -> None:
    words = [*_custom_dataset(folder), "--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result", "--save-detailed"]
    result = _run(plain, folder, *words, "--skip-tokenizer-init")
    assert result["output_lens"] == [1] * 7, "whatever --custom-output-len says"
    assert "mean_tpot_ms" not in result
    assert "mean_e2el_ms" in result


def test_random_prompts_need_a_tokenizer(plain: Served) -> None:
    where = ["--base-url", plain.engine.url, "--model", "tiny", "--tokenizer", MODEL]
    done = _bench(*where, *RECORDED_FLAGS, "--skip-tokenizer-init")
    assert done.returncode == 1
    assert "Tokenizer must be initialized for the 'random' dataset." in done.stderr


@pytest.mark.parametrize("model", ["nosuch", "tiny"])
def test_failed_requests_still_end_with_0(model: str, plain: Served, folder: Path) -> None:
    url = plain.engine.url if model == "nosuch" else f"http://127.0.0.1:{free_port()}"
    words = ["--backend", "vllm", "--base-url", url, "--model", model, "--tokenizer", MODEL, "--num-prompts", "4"]
    words += ["--random-input-len", "8", "--random-output-len", "4", "--save-result", "--save-detailed"]
    done = _bench(*words, "--result-dir", str(folder), "--result-filename", "result.json")
    assert done.returncode == 0, done.stderr
    result = json.loads((folder / "result.json").read_text())
    assert (result["completed"], result["failed"], result["mean_tpot_ms"], result["p99_tpot_ms"]) == (0, 4, 0.0, 0.0)
    assert all(result["errors"])


def test_a_failed_ready_check_ends_with_1() -> None:
    words = ["--backend", "vllm", "--base-url", f"http://127.0.0.1:{free_port()}", "--model", "tiny"]
    words += ["--tokenizer", MODEL, "--num-prompts", "1", "--ready-check-timeout-sec", "1"]
    done = _bench(*words)
    assert done.returncode == 1
    assert "Initial test run failed" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--no-such-flag"],
        ["--dataset-name", "sonnet"],
        ["--goodput", "itl:5"],
        ["--ramp-up-strategy", "linear", "--request-rate", "3"],
        ["--extra-body", "[1]"],
    ],
)
def test_bad_command_lines_end_with_2(words: list[str], simulated_only: None) -> None:
    assert _bench(*words).returncode == 2


def test_rates_are_infinite_by_default(simulated_only: None) -> None:
    arguments = parse_bench_arguments([])
    assert arguments is not None
    assert math.isinf(arguments.request_rate)
