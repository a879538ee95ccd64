"""One run: warm-up, scrape, load, scrape, validation."""

import http.client
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .bench import Bench
from .counters import Counters, Sampler, difference, wait_idle
from .failures import CannotMeasureError
from .harness import Json
from .limits import time_limit_seconds
from .progress import say
from .returning import await_return, process_is_gone
from .session import Session
from .summary import Run, engine_side, summarise
from .texts import build_prompts
from .validity import invalid_reason
from .warming import warm_up

TRANSIENT = ("ClientLag", "LittlesLaw", "OtherTraffic", "TokenMismatch", "MetricsUnreadable")
"""Reasons that lie outside the engines. A failed request, a restart or a growing queue is evidence and stays."""
OF_THE_CLIENT = ("BenchFailed", "TimedOut")
"""Reasons that may lie in a client that was forked instead of started."""


def measure(session: Session, run: Run) -> Run:
    """One run, repeated at once when something outside the engines spoilt it. Only StoppedError and
    CannotMeasureError escape."""
    summary = attempt_run(session, run, 0)
    if (summary.get("invalid_reason") or "").startswith(OF_THE_CLIENT) and session.bench.give_up_prepared():
        say(f"  repeated with a client of its own: {summary['invalid_reason']}")
        # Beyond the loop's attempts: the prompts of the first one may be in the engine's prefix cache.
        summary = attempt_run(session, run, session.plan["run_repeats"] + 1)
    for attempt in range(1, session.plan["run_repeats"] + 1):
        reason = summary.get("invalid_reason") or ""
        if not reason.startswith(TRANSIENT):
            break
        say(f"  repeated: {reason}")
        summary = attempt_run(session, run, attempt)
    return summary


def attempt_run(session: Session, run: Run, attempt: int) -> Run:
    """Warm-up, scrape, bench, scrape, validation. Always a summary."""
    plan, arm = session.plan, session.plan["arms"][run["arm"]]
    blank = _blank(run)
    try:
        # A Job that is made again finds the engines, and their prefix caches, as the one before left them.
        return _measured(session, {**run, "attempt": plan["first_attempt"] + attempt}, blank, arm, plan)
    except (OSError, http.client.HTTPException) as error:
        reset = _reset_since(session, run, error)
        unreadable = f"MetricsUnreadable: {arm['pod']} {type(error).__name__} {error}"
        return {**blank, "invalid_reason": unreadable if reset is None else f"PodRestarted: {reset}"}


def _reset_since(session: Session, run: Run, error: Exception) -> str | None:
    """What says that the engine ended under our load: its process was gone, and another one is there."""
    plan, last = session.plan, session.seen.get(run["arm"])
    if not process_is_gone(error):
        return None
    say(f"  the engine is gone ({error}); waiting for it up to {plan['return_seconds']:.0f} s")
    back = await_return(plan["arms"][run["arm"]], plan["return_seconds"], session.bench.check)
    if back is None or last is None:
        return None
    session.seen[run["arm"]] = back
    return difference(last, back).reset


def not_measured(run: Run, why: str) -> Run:
    """The summary of a run that never began: its cell is in the evidence, and no pair is whole without it."""
    return {**_blank(run), "invalid_reason": f"NotMeasured: {why}"}


def _blank(run: Run) -> Run:
    blank: Run = {
        **{key: run[key] for key in ("arm", "tier", "slice", "order")},
        "requests_per_second": run.get("requests_per_second"),
        "concurrency": run.get("concurrency"),
        "started": time.time(),
        "planned_requests": run["requests"] or 0,
    }
    zero = {"duration_seconds": 0.0, "completed_requests": 0, "failed_requests": 0, "prompt_tokens": 0}
    blank.update(zero, output_tokens=0, completed_requests_per_second=0.0, output_tokens_per_second=0.0)
    return blank


def _measured(session: Session, run: Run, blank: Run, arm: Json, plan: Json) -> Run:
    bench = session.bench
    length, ratio = run["prompt_tokens"], session.characters_per_token
    warm = build_prompts(session.source, run["slice"], 64, length, ratio, run["prompt_seed"] + "/warm", run["attempt"])
    rate = warm_up(plan, arm, run, warm, bench.check)
    if run["requests"] is None:
        wanted = math.ceil((rate or 0.0) * run["run_seconds"])
        run = {**run, "requests": max(wanted, plan["minimum_requests"], 2 * (run.get("concurrency") or 1))}
        blank["planned_requests"] = run["requests"]
    name = f"{run['order']}-{run['arm']}-{run['tier']}-{run['slice']}"
    dataset, result = session.work / f"{name}.jsonl", session.work / f"{name}.json"
    seed, count = run["prompt_seed"], run["requests"]
    prompts = build_prompts(session.source, run["slice"], count, length, ratio, seed, run["attempt"])
    with _here(bench):
        dataset.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts), encoding="utf-8")
        result.unlink(missing_ok=True)
    before = wait_idle(arm["url"], 60.0, bench.check)
    last, session.seen[run["arm"]] = session.seen.get(run["arm"], before), before
    since = difference(last, before).reset
    if since is not None:
        return {**blank, "invalid_reason": f"PodRestarted: {since}"}
    sampler = Sampler(arm["url"], max(0.25, min(2.0, run["run_seconds"] / 20)))
    sampler.start()
    blank["started"] = time.time()
    log = session.work / f"{name}.log"
    try:
        command, limit = bench.harness.command(plan, arm, run, dataset, result), time_limit_seconds(run, rate)
        with _here(bench):
            code = bench.run(command, log, limit)
    finally:
        sampler.finish()
    after = _settled(arm["url"], before, run["requests"], bench.check)
    session.seen[run["arm"]] = after
    delta = difference(before, after)
    blank.update(engine_side(delta, sampler))
    if code is None:
        return {**blank, "invalid_reason": f"TimedOut: the run took more than {limit:.0f} s"}
    if code != 0 or not result.exists():
        tail = " ".join(log.read_text(errors="replace").split())[-80:]
        return {**blank, "invalid_reason": f"BenchFailed: {bench.harness.name} ended with {code}: {tail}"}
    try:
        seen = bench.harness.read(result)
        summary = {**blank, **summarise(seen, bench.harness.intended_delays(run), plan.get("slo") or {})}
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        said = f"{bench.harness.name} left no usable result: {type(error).__name__} {error}"
        return {**blank, "invalid_reason": f"BenchFailed: {said}"}
    if not delta.http:
        summary["server_errors"] = max(summary["server_errors"], summary["failed_requests"])
    summary["invalid_reason"] = invalid_reason(plan, run, summary, delta, sampler.waiting)
    return summary


@contextmanager
def _here(bench: Bench) -> Iterator[None]:
    """What fails in the client's own pod says nothing about an engine, and fails again: a full disk, no command."""
    try:
        yield
    except OSError as error:
        raise CannotMeasureError(f"{bench.harness.name} cannot be run in the client's pod: {error}") from error


def _settled(base_url: str, before: Counters, requests: int, check: Callable[[], None]) -> Counters:
    deadline = time.monotonic() + 3.0
    while True:
        now = wait_idle(base_url, 30.0, check)
        if difference(before, now).finished >= requests or time.monotonic() > deadline:
            return now
        time.sleep(0.1)
