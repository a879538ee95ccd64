"""A second load generator, for tests only: what aiperf or guidellm would be. Evenly spaced, results in columns.

python other_harness.py drive --plan PLAN       the driver, with this harness among those it knows
python other_harness.py load URL MODEL ...      one run
"""

import argparse
import json
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from specfleet.benchmark.driver import __main__ as driver
from specfleet.benchmark.driver.harness import HARNESSES, ClientRecord, Json


class Even:
    """Every request at its place on a grid; the result is one line per request, by tabs."""

    name = "even"

    def command(self, plan: Json, arm: Json, run: Json, dataset: Path, result: Path) -> list[str]:
        load = ["--rate", str(run["requests_per_second"])]
        if run.get("concurrency"):
            load = ["--concurrency", str(run["concurrency"])]
        words = [arm["url"] + plan["endpoint"], arm["model"], str(dataset), str(result), str(run["output_tokens"])]
        return [sys.executable, __file__, "load", *words, *load, *plan.get("mischief", [])]

    def prepared_command(self, plan: Json) -> list[str]:
        return []

    def intended_delays(self, run: Json) -> list[float] | None:
        rate = run.get("requests_per_second")
        return [place / rate for place in range(run["requests"])] if rate else None

    def read(self, result: Path) -> ClientRecord:
        lines = result.read_text().splitlines()
        prompt_tokens, seconds = int(lines[0].split("\t")[0]), float(lines[0].split("\t")[1])
        rows = [line.split("\t") for line in lines[1:]]
        tokens = [int(row[3]) for row in rows]
        return ClientRecord(
            duration_seconds=seconds,
            completed=sum(not row[4] for row in rows),
            failed=sum(bool(row[4]) for row in rows),
            prompt_tokens=prompt_tokens,
            output_tokens=sum(tokens),
            starts=[float(row[0]) for row in rows if row[0]],
            ttfts=[float(row[1]) for row in rows],
            latencies=[float(row[2]) for row in rows],
            output_lens=tokens,
            pauses=[[] for _ in rows],
            errors=[row[4] for row in rows],
        )

    def environment(self, work: Path) -> dict[str, str]:
        return {}


def load(options: argparse.Namespace) -> None:
    prompts = [json.loads(line)["prompt"] for line in Path(options.dataset).read_text().splitlines()]
    rows: list[list[Any]] = [[] for _ in prompts]
    usage = [0] * len(prompts)
    slots = threading.Semaphore(options.concurrency or len(prompts))

    def one(place: int) -> None:
        with slots:
            rows[place], usage[place] = ask(options, prompts[place])

    begun = time.time()
    threads = []
    for place in range(len(prompts)):
        if options.rate:
            time.sleep(max(0.0, begun + place / options.rate - time.time()))
        threads.append(threading.Thread(target=one, args=(place,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    if options.forget_starts:
        rows = [["", *row[1:]] for row in rows]
    if options.invent_tokens:
        rows = [[*row[:3], row[3] * 2, row[4]] for row in rows]
    head = f"{sum(usage)}\t{time.time() - begun}"
    text = "\n".join([head, *("\t".join(map(str, row)) for row in rows)])
    Path(options.result).write_text("garbage" if options.write_garbage else text)


def ask(options: argparse.Namespace, prompt: str) -> tuple[list[Any], int]:
    body = {
        "model": options.model,
        "prompt": prompt,
        "max_tokens": options.tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    request = urllib.request.Request(options.url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    started, first, used = time.time(), 0.0, {"completion_tokens": 0, "prompt_tokens": 0}
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            for raw in answer:
                line = raw.decode().strip()
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                first = first or time.time() - started
                used = json.loads(line[6:]).get("usage") or used
    except OSError as error:
        return [started, 0.0, 0.0, 0, str(error)], 0
    return [started, first, time.time() - started, used["completion_tokens"], ""], used["prompt_tokens"]


def main() -> int:
    if sys.argv[1] == "drive":
        HARNESSES[Even.name] = Even()
        return driver.main(sys.argv[2:])
    parser = argparse.ArgumentParser()
    for name in ("url", "model", "dataset", "result"):
        parser.add_argument(name)
    parser.add_argument("tokens", type=int)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--concurrency", type=int)
    for mischief in ("--forget-starts", "--invent-tokens", "--write-garbage"):
        parser.add_argument(mischief, action="store_true")
    load(parser.parse_args(sys.argv[2:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
