"""`vllm bench serve`: prompts, warm-up, the run, the result."""

import asyncio
import gc
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm_sim.bench.arguments import BenchArguments, BenchArgumentsError, parse_bench_arguments
from vllm_sim.bench.arrivals import send_delays
from vllm_sim.bench.datasets import DatasetError, Prompt, load_prompts
from vllm_sim.bench.http_client import ConnectionLostError, HttpClient
from vllm_sim.bench.report import table
from vllm_sim.bench.requests import Outcome, Sender
from vllm_sim.bench.results import (
    DETAIL_KEYS,
    SpeculativeCounters,
    measured,
    parse_speculative_counters,
    speculative_results,
    summaries,
)

READY_RETRY_SECONDS = 1.0


class _StartError(Exception):
    """The run cannot start: exit code 1."""


def bench_serve(words: Sequence[str]) -> int:
    """Exit code: 0 even when every request fails, as measured; 1 when it cannot start; 2 for a bad command line."""
    try:
        arguments = parse_bench_arguments(words)
    except BenchArgumentsError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments is None:
        return 0
    print(arguments.shown, flush=True)
    try:
        _check_tokenizer(arguments)
        asyncio.run(_run(arguments))
    except (DatasetError, _StartError) as error:
        print(f"Traceback (most recent call last):\n{error}", file=sys.stderr)
        return 1
    return 0


def _check_tokenizer(arguments: BenchArguments) -> None:
    name = arguments.tokenizer or arguments.model or ""
    if not arguments.skip_tokenizer_init and name.startswith(("/", "./", "../")) and not Path(name).exists():
        raise _StartError(
            f"OSError: Can't load tokenizer for {name!r}. If you were trying to load it from "
            "'https://huggingface.co/models', make sure you don't have a local directory with the same name."
        )


async def _run(arguments: BenchArguments) -> None:
    client = HttpClient(arguments.base_url, arguments.insecure)
    try:
        model = arguments.model or await _first_model(client)
        prompts = load_prompts(arguments)
        sender = Sender(arguments, client, model)
        await _ready(arguments, sender, prompts[0])
        if arguments.num_warmups:
            print(f"Warming up with {arguments.num_warmups} requests...", flush=True)
            await asyncio.gather(*(sender.send(prompts[0], -1 - number) for number in range(arguments.num_warmups)))
            print("Warmup run completed.")
        _announce(arguments)
        before = await _counters(client)
        outcomes, duration = await _main_run(arguments, sender, prompts)
        after = await _counters(client)
    finally:
        client.close()
    result = _document(arguments, model, outcomes, duration, before, after)
    print(table(arguments, result), flush=True)
    if arguments.save_result:
        _save(arguments, result)


async def _first_model(client: HttpClient) -> str:
    print("Model not specified, fetching first model from server...")
    try:
        answer = await client.request("GET", "/v1/models")
        return str(json.loads(answer.body)["data"][0]["id"])
    except (OSError, ConnectionLostError, ValueError, LookupError, TypeError) as error:
        raise _StartError(f"RuntimeError: Failed to fetch models from server: {error}") from error


async def _ready(arguments: BenchArguments, sender: Sender, prompt: Prompt) -> None:
    print("Starting initial single prompt test run...")
    if arguments.ready_check_timeout_sec <= 0:
        print("Skipping endpoint ready check.")
        return
    print(f"Waiting for endpoint to become up in {arguments.ready_check_timeout_sec} seconds", flush=True)
    deadline = time.monotonic() + arguments.ready_check_timeout_sec
    while True:
        outcome = await sender.send(prompt, 0)
        if outcome.success:
            print("Initial test run completed.")
            return
        if time.monotonic() >= deadline:
            raise _StartError(
                "ValueError: Initial test run failed - Please make sure benchmark arguments are correctly specified. "
                f"Error: {outcome.error}"
            )
        await asyncio.sleep(READY_RETRY_SECONDS)


def _announce(arguments: BenchArguments) -> None:
    kind = "Poisson process" if arguments.burstiness == 1.0 else "Gamma distribution"
    print("Starting main benchmark run...")
    if arguments.ramp_up_strategy:
        print(f"Traffic ramp-up strategy: {arguments.ramp_up_strategy}.")
        first, last = arguments.ramp_up_start_rps, arguments.ramp_up_end_rps
        print(f"Will increase RPS from {first} to {last} RPS over the duration of the benchmark.")
    else:
        print(f"Traffic request rate: {arguments.request_rate}")
    print(f"Burstiness factor: {arguments.burstiness} ({kind})")
    print(f"Maximum request concurrency: {arguments.max_concurrency}", flush=True)


async def _counters(client: HttpClient) -> SpeculativeCounters | None:
    try:
        answer = await client.request("GET", "/metrics")
    except (OSError, ConnectionLostError):
        return None
    return parse_speculative_counters(answer.body.decode("utf-8", "replace")) if answer.status == 200 else None


async def _main_run(
    arguments: BenchArguments, sender: Sender, prompts: Sequence[Prompt]
) -> tuple[list[Outcome], float]:
    delays = send_delays(arguments, len(prompts))
    gc.collect()
    gc.freeze()
    begun, start = time.perf_counter(), time.monotonic()
    tasks: list[asyncio.Task[Outcome]] = []
    for number, (prompt, delay) in enumerate(zip(prompts, delays, strict=True)):
        wait = start + delay - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(sender.send(prompt, number)))
    outcomes = list(await asyncio.gather(*tasks))
    return outcomes, time.perf_counter() - begun


def _document(
    arguments: BenchArguments,
    model: str,
    outcomes: Sequence[Outcome],
    duration: float,
    before: SpeculativeCounters | None,
    after: SpeculativeCounters | None,
) -> dict[str, Any]:
    rate = arguments.request_rate
    head: dict[str, Any] = {
        "date": time.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": arguments.backend,
        "backend": arguments.backend,
        "label": arguments.label,
        "model_id": model,
        "tokenizer_id": arguments.tokenizer or model,
        "num_prompts": arguments.num_prompts,
        **arguments.metadata,
        "request_rate": "inf" if math.isinf(rate) else rate,
        "burstiness": arguments.burstiness,
        "max_concurrency": arguments.max_concurrency,
    }
    if arguments.ramp_up_strategy:
        head["ramp_up_strategy"] = arguments.ramp_up_strategy
        head["ramp_up_start_rps"] = arguments.ramp_up_start_rps
        head["ramp_up_end_rps"] = arguments.ramp_up_end_rps
    body = measured(arguments, outcomes, duration)
    return {**head, **body, **speculative_results(before, after), **summaries(arguments, outcomes)}


def _save(arguments: BenchArguments, result: dict[str, Any]) -> None:
    if not arguments.save_detailed:
        result = {name: value for name, value in result.items() if name not in DETAIL_KEYS}
    name = arguments.result_filename
    if name is None:
        limit = f"-concurrency{arguments.max_concurrency}" if arguments.max_concurrency is not None else ""
        model = str(result["model_id"]).rsplit("/", 1)[-1]
        what = arguments.label or arguments.backend
        name = f"{what}-{arguments.request_rate}qps{limit}-{model}-{result['date']}.json"
    path = Path(arguments.result_dir or ".") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = "a" if arguments.append_result else "w"
    with path.open(mode, encoding="utf-8") as file:
        if arguments.append_result and file.tell() > 0:
            file.write("\n")
        json.dump(result, file)
