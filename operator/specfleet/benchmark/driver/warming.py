"""The load before a run, until the engine is as fast as it will be."""

import http.client
import threading
import time
from collections.abc import Callable, Sequence

from .completions import post
from .counters import decode_seconds_per_token, difference, scrape
from .harness import Json
from .summary import Run
from .texts import retagged


def warm_up(plan: Json, arm: Json, run: Run, prompts: Sequence[str], check: Callable[[], None]) -> float | None:
    """Load until the engine's TPOT is flat, at least warmup_seconds, with no part begun after three times that.

    A part of half of it lasts until its requests are answered: long answers leave time for two parts only.

    Returns the completed requests/s of the last part (the estimate that sizes a capacity run), None without warm-up.
    """
    part_seconds = run["warmup_seconds"] / 2
    if part_seconds <= 0:
        return None
    workers = min(run.get("concurrency") or 4, 64)
    previous: float | None = None
    rate: float | None = None
    begun = time.monotonic()
    for part in range(6):
        if part >= 2 and time.monotonic() - begun >= 3 * run["warmup_seconds"]:
            break
        before = scrape(arm["url"])
        done, seconds = _load(plan, arm, run, prompts, workers, part_seconds, check, part)
        rate = done / seconds
        now = decode_seconds_per_token(difference(before, scrape(arm["url"])))
        flat = previous is not None and now is not None and abs(now / previous - 1) < 0.05
        if part >= 1 and (flat or now is None):
            break
        previous = now
    return rate


def _load(
    plan: Json,
    arm: Json,
    run: Run,
    prompts: Sequence[str],
    workers: int,
    seconds: float,
    check: Callable[[], None],
    part: int,
) -> tuple[int, float]:
    begun = time.monotonic()
    done = [0] * workers

    def work(number: int) -> None:
        index = number
        while time.monotonic() - begun < seconds:
            body = {
                "model": arm["model"],
                # Never the same twice: a prompt that the prefix cache knows costs no prefill.
                "prompt": retagged(prompts[index % len(prompts)], f"{part}/{index}"),
                "max_tokens": run["output_tokens"],
                "temperature": run["temperature"],
                "top_p": run["top_p"],
            }
            index += workers
            try:
                status, _ = post(arm["url"], plan["endpoint"], body, timeout=max(60.0, 10 * seconds))
            except (OSError, http.client.HTTPException):
                status = 0
            if status == 200:
                done[number] += 1
            else:
                time.sleep(0.05)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(timeout=0.2)
            check()
    return sum(done), time.monotonic() - begun
