"""The pods' own counters: what an engine did between two scrapes of /metrics."""

import http.client
import math
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass


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
