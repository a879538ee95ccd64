"""Runs one pair of the benchmark inside a Job's pod. Standard library only: it is mounted with harness.py and
prepared.py into the engine image.

    python3 driver.py --plan /specfleet/plan.json

Reads a plan (benchmark/plan.py writes it), runs its harness (harness.py) against pod addresses, takes its own /metrics
deltas from those pods, validates every run and leaves one termination message of at most 4096 bytes
(benchmark/result.py reads it). Exit code 0: measured, even if some runs are invalid. 1: could not measure. 2: the plan
cannot be used. 3: stopped by SIGTERM; the message holds what was finished.
"""

import argparse
import base64
import concurrent.futures
import hashlib
import http.client
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

if __package__:
    from specfleet.benchmark.harness import API_KEY, HARNESSES, ClientRecord, Harness
    from specfleet.benchmark.prepared import Prepared, PreparedError
else:  # As the Job runs it: files in one folder, without the package.
    from harness import API_KEY, HARNESSES, ClientRecord, Harness  # type: ignore[import-not-found,no-redef,unused-ignore]
    from prepared import Prepared, PreparedError  # type: ignore[import-not-found,no-redef,unused-ignore]

MESSAGE_LIMIT_BYTES = 4096
MESSAGE_VERSION = 1
PLAN_VERSION = 1
COMPRESSED_PREFIX = "z1:"
REASON_LIMIT = 120
TRANSIENT = ("ClientLag", "LittlesLaw", "OtherTraffic", "TokenMismatch", "MetricsUnreadable")
"""Reasons that lie outside the engines. A failed request, a restart or a growing queue is evidence and stays."""
OF_THE_CLIENT = ("BenchFailed", "TimedOut")
"""Reasons that may lie in a client that was forked instead of started."""
ARMS = ("baseline", "speculative")
NOT_AS_ASKED = 422
"""Stands for an answer with 200 that breaks its own request (a grammar, log-probabilities, a tool call)."""

# (RunSummary field, encoding). Encodings: text and list as they are, int rounded, milli and micro scaled integers.
# None is -1: no encoded quantity is negative. benchmark/encoding.py decodes by the same table; a test compares them.
FIELDS: tuple[tuple[str, str], ...] = (
    ("arm", "arm"),
    ("tier", "tier"),
    ("slice", "slice"),
    ("order", "int"),
    ("invalid_reason", "text"),
    ("started", "int"),
    ("duration_seconds", "milli"),
    ("planned_requests", "int"),
    ("completed_requests", "int"),
    ("failed_requests", "int"),
    ("requests_per_second", "milli"),
    ("concurrency", "int"),
    ("completed_requests_per_second", "milli"),
    ("prompt_tokens", "int"),
    ("output_tokens", "int"),
    ("output_tokens_per_second", "milli"),
    ("tpot_mean_seconds", "micro"),
    ("tpot_p95_seconds", "micro"),
    ("ttft_mean_seconds", "micro"),
    ("ttft_p95_seconds", "micro"),
    ("e2e_mean_seconds", "micro"),
    ("stall_p95_seconds", "micro"),
    ("ttft_over_slo_share", "micro"),
    ("tpot_over_slo_share", "micro"),
    ("client_lag_p99_seconds", "micro"),
    ("drafts", "int"),
    ("draft_tokens", "int"),
    ("accepted_tokens", "int"),
    ("accepted_per_position", "list"),
    ("engine_tpot_seconds", "micro"),
    ("preemptions", "int"),
    ("kv_cache_peak_ratio", "micro"),
    ("queue_time_mean_seconds", "micro"),
    ("client_errors", "int"),
    ("server_errors", "int"),
)
SCALE = {"int": 1, "milli": 1000, "micro": 1_000_000}

Json = dict[str, Any]
Run = dict[str, Any]


class StoppedError(Exception):
    """SIGTERM came: leave what is finished and go."""


class CannotMeasureError(Exception):
    """Nothing useful can be measured; the text says why, for a person."""


class BadPlanError(Exception):
    """The plan cannot be used."""


def say(text: str) -> None:
    """One progress line for a person; nothing parses it."""
    print(f"[specfleet] {text}", flush=True)


# ---------------------------------------------------------------------------------------------- the pods' own counters


@dataclass(frozen=True)
class Counters:
    """One scrape of a pod, summed over engines (label `engine`) and models. None: the family is absent."""

    started: float | None
    """process_start_time_seconds."""
    values: dict[str, float]
    per_position: dict[int, float]
    http: dict[str, float]
    """Answers of the completion endpoints by status class (2xx, 4xx, 5xx)."""

    def get(self, name: str) -> float | None:
        """Value of a family, None when absent."""
        return self.values.get(name)


def _labels(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        equals = text.find('="', position)
        if equals < 0:
            break
        name = text[position:equals].strip(" ,")
        end = equals + 2
        while end < len(text) and text[end] != '"':
            end += 2 if text[end] == "\\" else 1
        found[name] = text[equals + 2 : end]
        position = end + 1
    return found


def parse_metrics(text: str) -> Counters:
    """Prometheus text format to the sums that a comparison needs.

    `finished_<reason>` comes from request_success. NaN and infinities are left out: no data is not zero.
    """
    values: dict[str, float] = {}
    per_position: dict[int, float] = {}
    answers: dict[str, float] = {}
    started: float | None = None
    for line in text.splitlines():
        if not line or line[0] == "#":
            continue
        brace = line.find("{")
        if brace >= 0:
            close = line.rfind("}")
            name, labels, rest = line[:brace], _labels(line[brace + 1 : close]), line[close + 1 :].split()
        else:
            name, *rest = line.split()
            labels = {}
        try:
            value = float(rest[0])
        except (IndexError, ValueError):
            continue
        if not math.isfinite(value):
            continue
        if name == "process_start_time_seconds":
            started = value
        elif name == "http_requests_total" and labels.get("handler", "").endswith("/completions"):
            status = labels.get("status", "")
            answers[status] = answers.get(status, 0.0) + value
        elif name.startswith("vllm:") and not name.endswith("_bucket"):
            key = name[5:].removesuffix("_total")
            if key == "spec_decode_num_accepted_tokens_per_pos" and labels.get("position", "").isdigit():
                position = int(labels["position"])
                per_position[position] = per_position.get(position, 0.0) + value
            elif key == "request_success":
                key = "finished_" + labels.get("finished_reason", "unknown")
                values[key] = values.get(key, 0.0) + value
            elif key == "kv_cache_usage_perc":
                values[key] = max(values.get(key, 0.0), value)
            else:
                values[key] = values.get(key, 0.0) + value
    return Counters(started, values, per_position, answers)


def scrape(base_url: str, timeout: float = 5.0) -> Counters:
    """GET /metrics of a pod. Raises OSError when it does not answer."""
    with urllib.request.urlopen(f"{base_url}/metrics", timeout=timeout) as answer:  # noqa: S310
        return parse_metrics(answer.read().decode("utf-8", "replace"))


@dataclass(frozen=True)
class Delta:
    """What a pod did between two scrapes. `reset` says why the difference means nothing."""

    reset: str | None
    values: dict[str, float]
    per_position: dict[int, float]
    http: dict[str, float]

    def count(self, name: str) -> int:
        """Difference of a counter, 0 when the family is absent."""
        return round(self.values.get(name, 0.0))

    @property
    def finished(self) -> int:
        """Requests that the engine finished, for whatever reason."""
        return sum(round(value) for name, value in self.values.items() if name.startswith("finished_"))


def difference(before: Counters, after: Counters) -> Delta:
    """Counter differences of one pod; a restart or a falling counter is a reset, never a number."""
    reset: str | None = None
    if before.started is not None and after.started is not None and abs(after.started - before.started) > 1e-3:
        reset = "the engine process was started again during the run"
    values = {name: value - before.values.get(name, 0.0) for name, value in after.values.items()}
    monotone = ("generation_tokens", "request_generation_tokens_sum", "request_generation_tokens_count")
    if reset is None and any(values.get(name, 0.0) < 0 for name in monotone):
        reset = "the engine's counters went back during the run"
    return Delta(
        reset,
        values,
        {position: value - before.per_position.get(position, 0.0) for position, value in after.per_position.items()},
        {status: value - before.http.get(status, 0.0) for status, value in after.http.items()},
    )


def decode_seconds_per_token(delta: Delta) -> float | None:
    """Exact token-weighted TPOT in seconds: decode time over tokens after the first; None without tokens."""
    tokens = delta.values.get("request_generation_tokens_sum", 0.0)
    tokens -= delta.values.get("request_generation_tokens_count", 0.0)
    seconds = delta.values.get("request_decode_time_seconds_sum")
    return seconds / tokens if seconds is not None and tokens > 0 else None


def mean_of(delta: Delta, family: str) -> float | None:
    """Mean of a histogram over the run in its unit; None without observations."""
    count = delta.values.get(f"{family}_count", 0.0)
    total = delta.values.get(f"{family}_sum")
    return total / count if total is not None and count > 0 else None


class Sampler(threading.Thread):
    """Reads a pod's gauges while a run is on: KV-cache peak and queue length."""

    def __init__(self, base_url: str, interval_seconds: float) -> None:
        super().__init__(daemon=True)
        self._base_url = base_url
        self._interval_seconds = interval_seconds
        self._stop_event = threading.Event()
        self.kv_cache_peak_ratio: float | None = None
        self.waiting: list[tuple[float, float]] = []

    def run(self) -> None:
        """Sample until stopped."""
        while not self._stop_event.is_set():
            try:
                now = scrape(self._base_url)
            except (OSError, http.client.HTTPException):
                pass
            else:
                usage = now.get("kv_cache_usage_perc")
                if usage is not None:
                    self.kv_cache_peak_ratio = max(self.kv_cache_peak_ratio or 0.0, usage)
                waiting = now.get("num_requests_waiting")
                if waiting is not None:
                    self.waiting.append((time.time(), waiting))
            self._stop_event.wait(self._interval_seconds)

    def finish(self) -> None:
        """Stop and wait for the last sample."""
        self._stop_event.set()
        self.join(timeout=10.0)


# ------------------------------------------------------------------------------------------------------------ requests


def post(base_url: str, path: str, body: Json, timeout: float) -> tuple[int, Json]:
    """POST JSON; (status, answer). An HTTP error is an answer, a dead server raises OSError.

    The Job has the engines' own environment: the key that they ask for is the one that they were given.
    """
    request = urllib.request.Request(  # noqa: S310
        base_url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    key = os.environ.get(API_KEY)
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
            return answer.status, _json_or_empty(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _json_or_empty(error.read())


def _json_or_empty(body: bytes) -> Json:
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def completion_text(answer: Json) -> str:
    """Text of the first choice; empty when there is none."""
    choices = answer.get("choices") or [{}]
    return str(choices[0].get("text", ""))


# ------------------------------------------------------------------------------------------------------------- prompts


def load_prompts(path: str) -> list[Json]:
    """prompts.jsonl: one object with `prompt` (and optionally `slice`) per line."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise CannotMeasureError(f"the prompt file {path} cannot be read: {error}") from error
    prompts: list[Json] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            prompts.append({"prompt": str(entry["prompt"]), "slice": entry.get("slice")})
        except (ValueError, KeyError, TypeError) as error:
            raise CannotMeasureError(
                f'{path} line {number} is not {{"prompt": "...", "slice": "..."}}: {type(error).__name__} {error}'
            ) from error
    if not prompts:
        raise CannotMeasureError(f"{path} has no prompts")
    return prompts


def build_prompts(
    source: Sequence[Json],
    slice_name: str,
    count: int,
    prompt_tokens: int,
    characters_per_token: float,
    seed: str,
    attempt: int = 0,
) -> list[str]:
    """`count` prompts for one run. The same seed gives the same prompts; another seed shares no prefix with them.

    Another attempt has the same texts behind other tags: comparable with the other arm's run, unknown to the cache.

    Prompts that the source labels with this slice are used whole; otherwise texts are joined and cut to length.
    The tag in front is different in every prompt, so that no prefix cache can serve one run from another.
    """
    chooser = random.Random(seed)  # noqa: S311
    own = [entry["prompt"] for entry in source if entry["slice"] == slice_name]
    texts = own or [entry["prompt"] for entry in source if entry["slice"] is None] or [e["prompt"] for e in source]
    order = list(range(len(texts)))
    chooser.shuffle(order)
    prompts = []
    for index in range(count):
        tag = hashlib.sha256(f"{seed}/{attempt}/{index}".encode()).hexdigest()[:8]
        head = f"[{tag}] "
        if own:
            prompts.append(head + texts[order[index % len(order)]])
            continue
        characters = max(16, round(prompt_tokens * characters_per_token) - len(head))
        step = index
        text = texts[order[step % len(order)]]
        while len(text) < characters:
            step += 1
            text += "\n\n" + texts[order[step % len(order)]]
        prompts.append(head + text[:characters])
    return prompts


def characters_per_token(base_url: str, model: str, source: Sequence[Json]) -> float:
    """Measured on the engine's own tokenizer, so that promptTokens means what the user wrote."""
    sample = "\n\n".join(entry["prompt"] for entry in source[:4])[:1200]
    status, answer = post(base_url, "/v1/completions", {"model": model, "prompt": sample, "max_tokens": 1}, 120.0)
    tokens = (answer.get("usage") or {}).get("prompt_tokens")
    if status in (401, 403):
        raise CannotMeasureError(
            f"{base_url} refuses our API key (HTTP {status}); give it as {API_KEY} in spec.engine.env, and start pods "
            "again that were started with another one"
        )
    if status != 200 or not isinstance(tokens, int) or tokens < 1:
        raise CannotMeasureError(
            f"{base_url} does not answer a completion for model {model!r} (HTTP {status}: {str(answer)[:200]}); "
            "check model.servedName and that the pod is ready"
        )
    return len(sample) / tokens


# ------------------------------------------------------------------------------------------------------------- warm-up


def warm_up(plan: Json, arm: Json, run: Run, prompts: Sequence[str], check: Callable[[], None]) -> float | None:
    """Load until the engine's TPOT is flat, at least warmup_seconds and at most three times that.

    Returns the completed requests/s of the last part (the estimate that sizes a capacity run), None without warm-up.
    """
    part_seconds = run["warmup_seconds"] / 2
    if part_seconds <= 0:
        return None
    workers = min(run.get("concurrency") or 4, 64)
    previous: float | None = None
    rate: float | None = None
    for part in range(6):
        before = scrape(arm["url"])
        done, seconds = _load(plan, arm, run, prompts, workers, part_seconds, check)
        rate = done / seconds
        now = decode_seconds_per_token(difference(before, scrape(arm["url"])))
        flat = previous is not None and now is not None and abs(now / previous - 1) < 0.05
        if part >= 1 and (flat or now is None):
            break
        previous = now
    return rate


def _load(
    plan: Json, arm: Json, run: Run, prompts: Sequence[str], workers: int, seconds: float, check: Callable[[], None]
) -> tuple[int, float]:
    begun = time.monotonic()
    done = [0] * workers

    def work(number: int) -> None:
        index = number
        while time.monotonic() - begun < seconds:
            body = {
                "model": arm["model"],
                "prompt": prompts[index % len(prompts)],
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


def wait_idle(base_url: str, timeout_seconds: float, check: Callable[[], None]) -> Counters:
    """Wait until the pod works on nothing, and return that scrape."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        check()
        now = scrape(base_url)
        busy = (now.get("num_requests_running") or 0.0) + (now.get("num_requests_waiting") or 0.0)
        if busy == 0 or time.monotonic() > deadline:
            return now
        time.sleep(0.1)


# -------------------------------------------------------------------------------------------------- intended send times


def send_lags(starts: Sequence[float], intended: Sequence[float]) -> list[float] | None:
    """How late each request left, in seconds, against the most punctual one. None: unknown (no start times)."""
    if len(starts) != len(intended) or not starts or any(start <= 0 for start in starts):
        return None
    late = [start - due for start, due in zip(starts, intended, strict=True)]
    earliest = min(late)
    return [value - earliest for value in late]


def quantile(values: Sequence[float], share: float) -> float | None:
    """Linear-interpolation quantile; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


# ----------------------------------------------------------------------------------------------------------- the bench


@dataclass
class Bench:
    """The harness's process in flight, so that SIGTERM can end it."""

    harness: Harness
    child: "subprocess.Popen[bytes] | None" = None
    stop: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    """Beside our own; see Harness.environment."""
    prepared: Prepared | None = None

    def prepare(self, command: Sequence[str]) -> None:
        """Let the command's imports begin, so that no run waits for them; without effect where that cannot work."""
        if not command:
            return
        try:
            self.prepared = Prepared(command, {**os.environ, **self.environment})
        except PreparedError as error:
            say(f"every run starts its client anew: {error}")

    def give_up_prepared(self) -> bool:
        """From now on start every run's process anew. Returns whether that is a change."""
        if self.prepared is None:
            return False
        self.prepared.end()
        self.prepared = None
        return True

    def check(self) -> None:
        """Raise StoppedError once SIGTERM has come."""
        if self.stop:
            raise StoppedError

    def run(self, command: Sequence[str], log: Path, timeout_seconds: float) -> int | None:
        """Exit code, None on time-out. The child gets its own group and ends with us."""
        if self.prepared is not None and self.prepared.fits(command):
            try:
                return self.prepared.run(command, log, timeout_seconds, self.check)
            except PreparedError as error:
                say(f"  every run starts its client anew: {error}")
                self.give_up_prepared()
        with log.open("wb") as output:
            environment = {**os.environ, **self.environment}
            self.child = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, env=environment
            )
            deadline = time.monotonic() + timeout_seconds
            try:
                while self.child.poll() is None:
                    self.check()
                    if time.monotonic() > deadline:
                        return None
                    try:
                        self.child.wait(timeout=0.1)
                    except subprocess.TimeoutExpired:
                        continue
                return self.child.returncode
            finally:
                if self.child.poll() is None:
                    os.killpg(self.child.pid, signal.SIGKILL)
                    self.child.wait()
                self.child = None


def summarise(seen: ClientRecord, intended: Sequence[float] | None, slo: Json) -> Run:
    """The client's side of a run. Latencies count from the intended send."""
    lags = send_lags(seen.starts, intended) if intended is not None else None
    ttfts, lengths, errors, latencies = seen.ttfts, seen.output_lens, seen.errors, seen.latencies
    good = [i for i in range(min(len(ttfts), len(lengths))) if lengths[i] > 0 and not (i < len(errors) and errors[i])]
    late = [lags[i] if lags is not None and i < len(lags) else 0.0 for i in range(len(ttfts))]
    tpots = [(latencies[i] - ttfts[i]) / (lengths[i] - 1) for i in good if lengths[i] > 1]
    waits = [ttfts[i] + late[i] for i in good]
    timed = len(seen.starts) == len(ttfts)
    seconds = seen.duration_seconds
    return {
        "duration_seconds": seconds,
        "completed_requests": seen.completed,
        "failed_requests": seen.failed,
        "completed_requests_per_second": seen.completed / seconds if seconds > 0 else 0.0,
        "prompt_tokens": seen.prompt_tokens,
        "output_tokens": seen.output_tokens,
        "output_tokens_per_second": seen.output_tokens / seconds if seconds > 0 else 0.0,
        "tpot_mean_seconds": statistics.fmean(tpots) if tpots else None,
        "tpot_p95_seconds": quantile(tpots, 0.95),
        "ttft_mean_seconds": statistics.fmean(waits) if waits else None,
        "ttft_p95_seconds": quantile(waits, 0.95),
        "e2e_mean_seconds": statistics.fmean(latencies[i] + late[i] for i in good) if good else None,
        "stall_p95_seconds": quantile([gap for gaps in seen.pauses for gap in gaps], 0.95),
        "ttft_over_slo_share": _share_over(waits, slo.get("ttft_slo_seconds")),
        "tpot_over_slo_share": _share_over(tpots, slo.get("tpot_slo_seconds")),
        "client_lag_p99_seconds": quantile(lags, 0.99) if lags is not None else None,
        "_lag_mean": statistics.fmean(lags) if lags else None,
        "_latency_sum": sum(latencies[i] for i in good),
        "_by_time": sorted((seen.starts[i], ttfts[i]) for i in good) if timed else [],
        "_first_error": next((error for error in errors if error), ""),
    }


def _share_over(values: Sequence[float], limit: float | None) -> float | None:
    return sum(value > limit for value in values) / len(values) if limit is not None and values else None


def engine_side(delta: Delta, sampler: Sampler) -> Run:
    """The pod's side of a run, from its own counters."""
    answered = delta.http
    return {
        "drafts": delta.count("spec_decode_num_drafts"),
        "draft_tokens": delta.count("spec_decode_num_draft_tokens"),
        "accepted_tokens": delta.count("spec_decode_num_accepted_tokens"),
        "accepted_per_position": [round(delta.per_position[place]) for place in sorted(delta.per_position)],
        "engine_tpot_seconds": decode_seconds_per_token(delta),
        "preemptions": delta.count("num_preemptions"),
        "kv_cache_peak_ratio": sampler.kv_cache_peak_ratio,
        "queue_time_mean_seconds": mean_of(delta, "request_queue_time_seconds"),
        "client_errors": round(sum(value for status, value in answered.items() if status.startswith("4"))),
        "server_errors": round(sum(value for status, value in answered.items() if status.startswith("5")))
        + delta.count("finished_abort")
        + delta.count("finished_error"),
    }


# ---------------------------------------------------------------------------------------------------------- validation


def grows(by_time: Sequence[tuple[float, float]], waiting: Sequence[tuple[float, float]]) -> bool:
    """Whether the queue grew over an open-loop run: TTFT rises with time far beyond noise, and requests wait."""
    if len(by_time) < 12 or not waiting or max(value for _, value in waiting) < 1:
        return False
    times = [time_ for time_, _ in by_time]
    values = [value for _, value in by_time]
    mean_time, mean_value = statistics.fmean(times), statistics.fmean(values)
    spread = sum((time_ - mean_time) ** 2 for time_ in times)
    if spread <= 0 or mean_value <= 0:
        return False
    slope = sum((t - mean_time) * (v - mean_value) for t, v in by_time) / spread
    noise = sum((v - mean_value - slope * (t - mean_time)) ** 2 for t, v in by_time) / (len(by_time) - 2)
    error = math.sqrt(noise / spread)
    rise = slope * (times[-1] - times[0])
    return rise > 1.5 * mean_value and (error == 0 or slope / error > 4)


def starved(plan: Json, summary: Run) -> str | None:
    """Whether the client sent so late that latencies from the intended send say more about it than about the engine.

    The mean goes into the mean TTFT as it is. The tail may reach a share of a request: beyond that, arrivals are no
    longer those that were planned.
    """
    tail, mean = summary["client_lag_p99_seconds"], summary["_lag_mean"]
    if tail is None or mean is None:
        return None
    tail_limit = max(plan["client_lag_limit_seconds"], plan["client_lag_ratio"] * (summary["e2e_mean_seconds"] or 0.0))
    if mean <= plan["client_lag_mean_limit_seconds"] and tail <= tail_limit:
        return None
    return f"ClientLag: send lag mean {1000 * mean:.1f} ms, p99 {1000 * tail:.1f} ms; the client is starved"


def invalid_reason(
    plan: Json, run: Run, summary: Run, delta: Delta, waiting: Sequence[tuple[float, float]]
) -> str | None:
    """Why a finished run must not be compared, None when it may. Exit code 0 of the bench proves nothing."""
    planned, completed = run["requests"], summary["completed_requests"]
    if delta.reset is not None:
        return f"PodRestarted: {delta.reset}"
    if summary["failed_requests"] > 0 or completed != planned:
        shown = " ".join(summary["_first_error"].split())[-60:]
        return f"FailedRequests: {planned - completed} of {planned} failed {shown}".rstrip()
    if completed < plan["minimum_requests"]:
        return f"TooFewRequests: {completed} completed, minimumRequests is {plan['minimum_requests']}"
    if not summary["tpot_mean_seconds"] or summary["tpot_mean_seconds"] <= 0:
        return "NoTokens: no request produced two tokens, so there is no time per output token"
    if delta.finished != planned:
        return f"OtherTraffic: the pod finished {delta.finished} requests, we sent {planned}"
    generated = delta.count("request_generation_tokens_sum")
    if abs(generated - summary["output_tokens"]) > max(2, 0.01 * summary["output_tokens"]):
        return f"TokenMismatch: the pod generated {generated} tokens, the client counted {summary['output_tokens']}"
    engine_seconds = delta.values.get("e2e_request_latency_seconds_sum")
    client_seconds = summary["_latency_sum"]
    # HTTP and tokenisation lie outside the engine's clock: a constant per request, which is no violation.
    slack = plan["little_law_tolerance_ratio"] * client_seconds + 0.05 * planned
    if engine_seconds is not None and abs(client_seconds - engine_seconds) > slack:
        return f"LittlesLaw: {client_seconds:.2f} s in flight at the client, {engine_seconds:.2f} s at the pod"
    if run.get("requests_per_second"):
        late = starved(plan, summary)
        if late is not None:
            return late
        if grows(summary["_by_time"], waiting):
            return "Oversaturated: the queue grew during the run, so its latency depends on the run's length"
    return None


# ------------------------------------------------------------------------------------------------------------- one run


@dataclass
class Session:
    """What a pair keeps between its runs."""

    plan: Json
    source: list[Json]
    bench: Bench
    work: Path
    characters_per_token: float = 0.0
    runs: list[Run] = field(default_factory=list)
    capacity_requests_per_second: float | None = None
    texts: dict[str, list[str]] = field(default_factory=dict)
    requests: dict[str, list[int]] = field(default_factory=dict)
    error: str | None = None


def measure(session: Session, run: Run) -> Run:
    """One run, repeated at once when something outside the engines spoilt it. Only StoppedError escapes."""
    summary = attempt_run(session, run, 0)
    if (summary.get("invalid_reason") or "").startswith(OF_THE_CLIENT) and session.bench.give_up_prepared():
        say(f"  repeated with a client of its own: {summary['invalid_reason']}")
        summary = attempt_run(session, run, 0)
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
    blank: Run = {
        **{key: run[key] for key in ("arm", "tier", "slice", "order")},
        "requests_per_second": run.get("requests_per_second"),
        "concurrency": run.get("concurrency"),
        "started": time.time(),
        "planned_requests": run["requests"] or 0,
    }
    zero = {"duration_seconds": 0.0, "completed_requests": 0, "failed_requests": 0, "prompt_tokens": 0}
    blank.update(zero, output_tokens=0, completed_requests_per_second=0.0, output_tokens_per_second=0.0)
    try:
        return _measured(session, {**run, "attempt": attempt}, blank, arm, plan)
    except (OSError, http.client.HTTPException) as error:
        return {**blank, "invalid_reason": f"MetricsUnreadable: {arm['pod']} {type(error).__name__} {error}"}


def _measured(session: Session, run: Run, blank: Run, arm: Json, plan: Json) -> Run:
    bench = session.bench
    length, ratio = run["prompt_tokens"], session.characters_per_token
    warm = build_prompts(session.source, run["slice"], 64, length, ratio, run["prompt_seed"] + "/warm")
    rate = warm_up(plan, arm, run, warm, bench.check)
    if run["requests"] is None:
        wanted = math.ceil((rate or 0.0) * run["run_seconds"])
        run = {**run, "requests": max(wanted, plan["minimum_requests"], 2 * (run.get("concurrency") or 1))}
        blank["planned_requests"] = run["requests"]
    name = f"{run['order']}-{run['arm']}-{run['tier']}-{run['slice']}"
    dataset, result = session.work / f"{name}.jsonl", session.work / f"{name}.json"
    seed, count = run["prompt_seed"], run["requests"]
    prompts = build_prompts(session.source, run["slice"], count, length, ratio, seed, run["attempt"])
    dataset.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts), encoding="utf-8")
    result.unlink(missing_ok=True)
    before = wait_idle(arm["url"], 60.0, bench.check)
    sampler = Sampler(arm["url"], max(0.25, min(2.0, run["run_seconds"] / 20)))
    sampler.start()
    blank["started"] = time.time()
    log = session.work / f"{name}.log"
    try:
        command, limit = bench.harness.command(plan, arm, run, dataset, result), 3 * run["run_seconds"] + 180
        code = bench.run(command, log, limit)
    finally:
        sampler.finish()
    after = _settled(arm["url"], before, run["requests"], bench.check)
    delta = difference(before, after)
    blank.update(engine_side(delta, sampler))
    if code is None:
        return {**blank, "invalid_reason": f"TimedOut: the run took more than {3 * run['run_seconds'] + 180:.0f} s"}
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


def _settled(base_url: str, before: Counters, requests: int, check: Callable[[], None]) -> Counters:
    deadline = time.monotonic() + 3.0
    while True:
        now = wait_idle(base_url, 30.0, check)
        if difference(before, now).finished >= requests or time.monotonic() > deadline:
            return now
        time.sleep(0.1)


# -------------------------------------------------------------------------------------------------------------- probes


AGREEMENT_AT_ONCE = 8


def probe_agreement(session: Session) -> None:
    """Greedy texts of each arm; the plain arm twice, because it does not always agree with itself."""
    probe = session.plan.get("agreement")
    if not probe:
        return
    prompts = build_prompts(session.source, "", probe["prompts"], 64, session.characters_per_token, probe["seed"])
    greedy = {"max_tokens": probe["max_tokens"], "temperature": 0}
    for name, role in (("baseline", "baseline"), ("baseline-again", "baseline"), ("speculative", "speculative")):
        arm = session.plan["arms"].get(role)
        if arm is None:
            continue
        session.bench.check()

        def ask(prompt: str, url: str = arm["url"], model: str = arm["model"]) -> str:
            status, answer = post(url, "/v1/completions", {**greedy, "model": model, "prompt": prompt}, 120.0)
            return hashlib.sha256(completion_text(answer).encode()).hexdigest()[:4] if status == 200 else "----"

        # A few at a time, the same for all three: one by one they would take longer than a short benchmark.
        with concurrent.futures.ThreadPoolExecutor(AGREEMENT_AT_ONCE) as pool:
            session.texts[name] = list(pool.map(ask, prompts))


def as_asked(expect: Any, answer: Json) -> bool:
    """Whether an answer keeps what the request demanded: one of the given texts, log-probabilities, a tool call."""
    choice = (answer.get("choices") or [{}])[0]
    if isinstance(expect, list):
        return completion_text(answer).strip() in expect
    if expect == "logprobs":
        return bool(choice.get("logprobs"))
    if expect == "tool_call":
        calls = (choice.get("message") or {}).get("tool_calls") or [{}]
        try:
            return isinstance(json.loads((calls[0].get("function") or {}).get("arguments", "")), dict)
        except (ValueError, TypeError):
            return False
    return True


def probe_requests(session: Session) -> None:
    """HTTP status of each known-to-break kind of request, per arm. 0: no answer; NOT_AS_ASKED: 200, but wrong."""
    for probe in session.plan.get("request_probes") or []:
        statuses = []
        for role in ARMS:
            arm = session.plan["arms"].get(role)
            if arm is None:
                statuses.append(-1)
                continue
            session.bench.check()
            body = {"model": arm["model"], "max_tokens": 8, "temperature": 0, **probe["body"]}
            try:
                status, answer = post(arm["url"], probe["path"], body, 60.0)
            except (OSError, http.client.HTTPException):
                status, answer = 0, {}
            if status == 200 and not as_asked(probe.get("expect"), answer):
                status = NOT_AS_ASKED
            statuses.append(status)
        session.requests[probe["name"]] = statuses


# ------------------------------------------------------------------------------------------------- termination message


def encode_run(run: Run, tiers: Sequence[str], slices: Sequence[str]) -> list[Any]:
    """One run as the row of FIELDS."""
    row: list[Any] = []
    for name, kind in FIELDS:
        value = run.get(name)
        if kind == "arm":
            row.append(ARMS.index(str(value)))
        elif kind == "tier":
            row.append(tiers.index(str(value)))
        elif kind == "slice":
            row.append(slices.index(str(value)))
        elif kind == "text":
            row.append("" if value is None else str(value)[:REASON_LIMIT])
        elif kind == "list":
            row.append(list(value or []))
        else:
            row.append(-1 if value is None or not math.isfinite(value) else round(value * SCALE[kind]))
    return row


def encode_message(session: Session) -> str:
    """The termination message: JSON, without positions if too long, compressed if still too long.

    Raises CannotMeasureError when even that does not fit in 4096 bytes.
    """
    tiers = sorted({run["tier"] for run in session.runs})
    slices = sorted({run["slice"] for run in session.runs})
    message: Json = {
        "v": MESSAGE_VERSION,
        "tiers": tiers,
        "slices": slices,
        "pods": [session.plan["arms"].get(role, {}).get("pod") for role in ARMS],
        "runs": [encode_run(run, tiers, slices) for run in session.runs],
    }
    if session.capacity_requests_per_second is not None:
        message["capacity"] = round(session.capacity_requests_per_second, 4)
    if session.texts:
        message["texts"] = {name: "".join(texts) for name, texts in session.texts.items()}
    if session.requests:
        message["requests"] = session.requests
    if session.error:
        message["error"] = session.error[:400]
    text = json.dumps(message, separators=(",", ":"))
    if len(text.encode()) <= MESSAGE_LIMIT_BYTES:
        return text
    text = _compressed(message)
    if len(text) <= MESSAGE_LIMIT_BYTES:
        return text
    place = [name for name, _ in FIELDS].index("accepted_per_position")
    for row in message["runs"]:
        row[place] = []
    text = _compressed(message)
    if len(text) > MESSAGE_LIMIT_BYTES:
        raise CannotMeasureError(
            f"{len(session.runs)} runs do not fit in a termination message: measure fewer cells per Job"
        )
    return text


def _compressed(message: Json) -> str:
    packed = zlib.compress(json.dumps(message, separators=(",", ":")).encode(), 9)
    return COMPRESSED_PREFIX + base64.b85encode(packed).decode()


# ---------------------------------------------------------------------------------------------------------------- main


def run_pair(session: Session) -> None:
    """All probes and runs of the plan, in its order."""
    plan = session.plan
    first = plan["arms"][plan["runs"][0]["arm"]] if plan["runs"] else next(iter(plan["arms"].values()))
    try:
        session.characters_per_token = characters_per_token(first["url"], first["model"], session.source)
        probe_requests(session)
        probe_agreement(session)
    except (OSError, http.client.HTTPException) as error:
        raise CannotMeasureError(f"{first['url']} does not answer: {error}") from error
    begun = time.monotonic()
    for number, run in enumerate(plan["runs"], 1):
        session.bench.check()
        load = (
            f"{run['concurrency']} in flight" if run.get("concurrency") else f"{run['requests_per_second']:.3g} req/s"
        )
        say(f"pair {plan['pair']} run {number}/{len(plan['runs'])}: {run['tier']}/{run['slice']} {run['arm']}, {load}")
        if time.monotonic() - begun > plan["deadline_seconds"]:
            session.error = f"the time budget of {plan['deadline_seconds']} s ended before run {number}"
            say(session.error)
            break
        session.runs.append(measure(session, run))
        say(describe(session.runs[-1]))
    if plan["purpose"] == "Capacity":
        set_capacity(session)


def set_capacity(session: Session) -> None:
    """The smallest rate over the slices. One slice without a valid run leaves no unit for the tiers: no report."""
    if len(session.runs) < len(session.plan["runs"]):
        session.runs.clear()
        raise CannotMeasureError(session.error or "not every slice's capacity was measured")
    bad = next((run for run in session.runs if run.get("invalid_reason") is not None), None)
    if bad is not None:
        session.runs.clear()
        raise CannotMeasureError(f"the plain arm's capacity in slice {bad['slice']}: {bad['invalid_reason']}")
    session.capacity_requests_per_second = min(run["completed_requests_per_second"] for run in session.runs)


def describe(summary: Run) -> str:
    """A run in words."""
    if summary.get("invalid_reason"):
        return f"  invalid: {summary['invalid_reason']}"
    tpot, ttft = summary["tpot_mean_seconds"], summary["ttft_mean_seconds"]
    text = f"  {summary['completed_requests']} requests, {summary['completed_requests_per_second']:.3g} req/s, "
    text += f"TPOT {1000 * tpot:.2f} ms, TTFT {1000 * ttft:.1f} ms"
    if summary.get("draft_tokens"):
        text += f", acceptance {summary['accepted_tokens'] / summary['draft_tokens']:.3f}"
    return text


def read_plan(path: str) -> Json:
    """The plan as benchmark/plan.py wrote it. Raises BadPlanError."""
    try:
        plan = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadPlanError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(plan, dict) or plan.get("version") != PLAN_VERSION:
        raise BadPlanError(f"{path} is not a plan of version {PLAN_VERSION}: operator and driver differ")
    if plan.get("harness") not in HARNESSES:
        known = ", ".join(sorted(HARNESSES))
        raise BadPlanError(f"{path}: the harness {plan.get('harness')!r} is not known; there are: {known}")
    return plan


def finish(session: Session, code: int, path: str) -> int:
    """Write the termination message; a message that does not fit is itself a failure to measure."""
    try:
        text = encode_message(session)
    except CannotMeasureError as error:
        text, code = json.dumps({"v": MESSAGE_VERSION, "tiers": [], "slices": [], "runs": [], "error": str(error)}), 1
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        say(f"the termination message cannot be written to {path}: {error}")
        return 1
    say(f"{len(session.runs)} runs recorded in {len(text.encode())} bytes, exit {code}")
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code (see the module's text)."""
    parser = argparse.ArgumentParser(description="Run one pair of the specfleet benchmark.")
    parser.add_argument("--plan", required=True, help="plan file (JSON)")
    options = parser.parse_args(arguments)
    try:
        plan = read_plan(options.plan)
    except BadPlanError as error:
        say(str(error))
        return 2
    work = Path(plan["work_dir"])
    work.mkdir(parents=True, exist_ok=True)
    harness = HARNESSES[plan["harness"]]
    bench = Bench(harness, environment=harness.environment(work))
    session = Session(plan=plan, source=[], bench=bench, work=work)

    def stop(_signal: int, _frame: object) -> None:
        bench.stop = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    bench.prepare(harness.prepared_command(plan))
    try:
        session.source = load_prompts(plan["prompts_file"])
        run_pair(session)
        code = 0
    except StoppedError:
        session.error, code = "stopped by SIGTERM before the pair was complete", 3
    except CannotMeasureError as error:
        session.error, code = str(error), 1
    finally:
        bench.give_up_prepared()
    if session.error:
        say(session.error)
    return finish(session, code, plan["termination_path"])


def _exit() -> NoReturn:
    sys.exit(main())


if __name__ == "__main__":
    _exit()
