"""`vllm bench serve` itself. Exit code 0 even when every request failed: that is how the real one behaves."""

import argparse
import asyncio
import json
import math
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm_sim.bench.arrivals import arrival_delays, numpy_stream
from vllm_sim.bench.client import Outcome, send
from vllm_sim.bench.datasets import Prompt, load_prompts
from vllm_sim.bench.options import parse
from vllm_sim.bench.results import summarise, table, without_details

SPEC = re.compile(r"^vllm:spec_decode_num_(\w+?)_total\{([^}]*)\} (\S+)$", re.M)
POSITION = re.compile(r'position="(\d+)"')


def bench_serve(words: Sequence[str]) -> int:
    """Run one benchmark."""
    try:
        options = parse(words)
        base = options.base_url or f"http://{options.host}:{options.port}"
        _find_model(options, base)
        prompts = load_prompts(options)
    except (ValueError, OSError, KeyError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print("Starting initial single prompt test run...")
    if options.ready_check_timeout_sec > 0:
        if not _ready(base, options.ready_check_timeout_sec):
            print(
                "ValueError: Initial test run failed - Please make sure benchmark arguments are correctly specified.",
                file=sys.stderr,
            )
            return 1
        print("Initial test run completed.")
    else:
        print("Skipping endpoint ready check.")
    print("Starting main benchmark run...")
    result = asyncio.run(_run(options, base, prompts))
    print(table(options, result))
    if options.save_result or options.append_result:
        _save(options, result)
    return 0


def _find_model(options: argparse.Namespace, base: str) -> None:
    """Without --model the first served one is taken; then the server has to answer."""
    if options.model is None:
        with urllib.request.urlopen(f"{base}/v1/models", timeout=10) as response:  # noqa: S310 - the user's own server
            options.model = json.load(response)["data"][0]["id"]


def _ready(base: str, timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{base}/v1/models", timeout=5):  # noqa: S310 - the user's own server
                return True
        except OSError:
            time.sleep(0.2)
    return False


async def _run(options: argparse.Namespace, base: str, prompts: Sequence[Prompt]) -> dict[str, Any]:
    url, headers = base + options.endpoint, _headers(options)
    limit = asyncio.Semaphore(options.max_concurrency) if options.max_concurrency else None
    for prompt in list(prompts)[: options.num_warmups]:
        await send(url, _body(options, prompt), headers, Outcome())
    before = await asyncio.to_thread(_spec_counters, base)
    stream = numpy_stream(options.seed)
    delays = _ramped(options, len(prompts)) or arrival_delays(
        stream, len(prompts), options.request_rate, options.burstiness
    )
    outcomes = [Outcome() for _ in prompts]
    begun = time.perf_counter()
    tasks = []
    for index, (prompt, delay) in enumerate(zip(prompts, delays, strict=True)):
        wait = begun + delay - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        body = _body(options, prompt)
        request = {**headers, "x-request-id": f"{options.request_id_prefix}{index}"}
        tasks.append(asyncio.create_task(_limited(limit, url, body, request, outcomes[index])))
    await asyncio.gather(*tasks)
    seconds = time.perf_counter() - begun
    after = await asyncio.to_thread(_spec_counters, base)
    return summarise(options, prompts, outcomes, seconds, _speculation(before, after))


async def _limited(
    limit: asyncio.Semaphore | None, url: str, body: dict[str, Any], headers: dict[str, str], outcome: Outcome
) -> None:
    asked = time.perf_counter()
    if limit is None:
        await send(url, body, headers, outcome)
        outcome.queue_time = outcome.start_time - asked
        return
    async with limit:
        await send(url, body, headers, outcome)
        outcome.queue_time = outcome.start_time - asked


def _ramped(options: argparse.Namespace, count: int) -> list[float]:
    """Arrivals under --ramp-up-strategy: the rate grows request by request."""
    if not options.ramp_up_strategy:
        return []
    low, high = float(options.ramp_up_start_rps), float(options.ramp_up_end_rps)
    moment, delays = 0.0, []
    for index in range(count):
        share = index / max(count - 1, 1)
        rate = low + (high - low) * share if options.ramp_up_strategy == "linear" else low * (high / low) ** share
        moment += 1.0 / rate
        delays.append(moment)
    return delays


def _headers(options: argparse.Namespace) -> dict[str, str]:
    return {name.strip(): value.strip() for name, _, value in (text.partition("=") for text in options.header)}


def _body(options: argparse.Namespace, prompt: Prompt) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": options.served_model_name or options.model,
        "max_tokens": prompt.output_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if options.backend == "openai-chat":
        body["messages"] = [{"role": "user", "content": prompt.text}]
    else:
        body["prompt"] = prompt.text
    for name in ("temperature", "top_p", "top_k", "min_p", "logprobs"):
        if getattr(options, name) is not None:
            body[name] = getattr(options, name)
    if options.ignore_eos:
        body["ignore_eos"] = True
    return {**body, **(options.extra_body or {})}


def _spec_counters(base: str) -> dict[str, float]:
    """Speculation counters of base_url: through a Service this scrapes any pod, as the real one does."""
    try:
        with urllib.request.urlopen(f"{base}/metrics", timeout=5) as response:  # noqa: S310 - the user's own server
            text = response.read().decode()
    except OSError:
        return {}
    found: dict[str, float] = {}
    for name, labels, value in SPEC.findall(text):
        position = POSITION.search(labels)
        key = f"{name}/{position.group(1)}" if position else name
        found[key] = found.get(key, 0.0) + float(value)
    return found


def _speculation(before: dict[str, float], after: dict[str, float]) -> dict[str, Any] | None:
    """The result's speculation keys; absent when no draft happened."""
    delta = {key: value - before.get(key, 0.0) for key, value in after.items()}
    drafts, drafted, accepted = (delta.get(key, 0.0) for key in ("drafts", "draft_tokens", "accepted_tokens"))
    if drafts <= 0 or drafted <= 0:
        return None
    places = sorted((int(key.split("/")[1]), value) for key, value in delta.items() if "/" in key)
    return {
        "spec_decode_acceptance_rate": 100 * accepted / drafted,
        "spec_decode_acceptance_length": 1 + accepted / drafts,
        "spec_decode_num_drafts": int(drafts),
        "spec_decode_draft_tokens": int(drafted),
        "spec_decode_accepted_tokens": int(accepted),
        "spec_decode_per_position_acceptance_rates": [value / drafts for _, value in places],
    }


def _save(options: argparse.Namespace, result: dict[str, Any]) -> None:
    rate = "inf" if math.isinf(options.request_rate) else f"{options.request_rate}"
    name = (
        options.result_filename or f"{options.backend}-{rate}qps-{options.model.split('/')[-1]}-{result['date']}.json"
    )
    path = Path(options.result_dir or ".") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = result if options.save_detailed else without_details(result)
    with path.open("a" if options.append_result else "w", encoding="utf-8") as file:
        if options.append_result and file.tell():
            file.write("\n")
        json.dump(kept, file)
