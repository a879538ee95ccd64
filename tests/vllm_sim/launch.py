"""Starts an engine for a test: the simulated one, or a real one named by SPECFLEET_REAL_ENGINE.

    SPECFLEET_REAL_ENGINE=/opt/engine/bin/vllm-cpu SPECFLEET_REAL_MODEL=models/target \
        SPECFLEET_REAL_DRAFT=models/draft pytest tests/vllm_sim

runs the conformance tests against a real engine; tests of the simulation itself are skipped then.
"""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parent / "recorded"
REAL_ENGINE = os.environ.get("SPECFLEET_REAL_ENGINE", "")
MODEL = os.environ.get("SPECFLEET_REAL_MODEL", "meta-llama/Llama-3.1-8B-Instruct") if REAL_ENGINE else "sim/target"
DRAFT = os.environ.get("SPECFLEET_REAL_DRAFT", "") if REAL_ENGINE else "sim/draft"
START_SECONDS = 300.0 if REAL_ENGINE else 30.0

FAST_PROFILE: dict[str, Any] = {
    "time_scale": 0.3,
    "startup_seconds": 0,
    "config_error_seconds": 0,
    "teardown_seconds": 0,
}
DRAFT_CONFIG = {"method": "draft_model", "model": DRAFT, "num_speculative_tokens": 3}


def command() -> list[str]:
    """The `vllm` command of the engine under test."""
    return shlex.split(REAL_ENGINE) if REAL_ENGINE else [sys.executable, "-m", "vllm_sim"]


def environment(profile: dict[str, Any] | None = None, **more: str) -> dict[str, str]:
    """The process environment of an engine or a bench."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT / "images" / "vllm-sim"),
        "VLLM_SIM_PROFILE": json.dumps(FAST_PROFILE | (profile or {})),
        **more,
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    header_names: list[str] = field(default_factory=list)

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class RunningEngine:
    process: "subprocess.Popen[bytes]"
    url: str
    log: Path

    def get(self, path: str) -> Answer:
        return self._exchange(urllib.request.Request(self.url + path))

    def post(self, path: str, body: object, headers: dict[str, str] | None = None) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json", **(headers or {})})
        return self._exchange(request)

    def complete(self, prompt: str, /, **fields: Any) -> Answer:
        body = {"model": "tiny", "prompt": prompt, "temperature": 0, "max_tokens": 16, **fields}
        return self.post("/v1/completions", body)

    def chat(self, text: str, **fields: Any) -> Answer:
        messages = [{"role": "user", "content": text}]
        body = {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 16, **fields}
        return self.post("/v1/chat/completions", body)

    def metrics(self) -> str:
        return self.get("/metrics").body.decode()

    def open_stream(self, prompt: str, **fields: Any) -> Any:
        """A streaming completion in flight; read it line by line."""
        body = {"model": "tiny", "prompt": prompt, "temperature": 0, "stream": True, "ignore_eos": True}
        body |= {"stream_options": {"include_usage": True}, **fields}
        request = urllib.request.Request(
            f"{self.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        return urllib.request.urlopen(request, timeout=120)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def exit_code(self, seconds: float = 60.0) -> int:
        return self.process.wait(timeout=seconds)

    def _exchange(self, request: urllib.request.Request) -> Answer:
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                names = [name for name, _ in answer.headers.items()]
                return Answer(answer.status, dict(answer.headers), answer.read(), names)
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, dict(error.headers), error.read())


def wait_until(condition: Any, seconds: float, what: str) -> None:
    """Poll a condition until it holds; fail with what was waited for."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.02)


@contextmanager
def running(
    folder: Path,
    *flags: str,
    profile: dict[str, Any] | None = None,
    speculative: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
) -> Iterator[RunningEngine]:
    """An engine that answers /health; killed at the end if it still runs."""
    port = free_port()
    log = folder / f"engine-{port}.log"
    words = [*command(), "serve", MODEL, "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--enforce-eager", "--max-model-len", "1024", "--fingerprint-mode", "custom"]
    words += ["--fingerprint-value", "TEST123", *flags]
    if speculative is not None:
        words += ["--speculative-config", json.dumps(speculative)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            words,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(profile, **(env or {})),
            start_new_session=True,
        )
    engine = RunningEngine(process, f"http://127.0.0.1:{port}", log)

    def answers() -> bool:
        if process.poll() is not None:
            raise AssertionError(f"the engine ended with {process.returncode}: {log.read_text()[-2000:]}")
        try:
            return engine.get("/health").status == 200
        except OSError:
            return False

    try:
        wait_until(answers, START_SECONDS, "/health")
        yield engine
    finally:
        # The whole group: a real engine has children that outlive a killed parent.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# ------------------------------------------------------------------------------------------------- reading a scrape


@dataclass
class Page:
    """A parsed /metrics page."""

    heads: list[str]
    """HELP and TYPE lines in order."""
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], float]

    def value(self, name: str, **labels: str) -> float:
        """Sum of the samples of a name that carry these labels."""
        wanted = set(labels.items())
        found = [value for (sample, pairs), value in self.samples.items() if sample == name and wanted <= set(pairs)]
        assert found, f"no sample {name} with {labels}"
        return sum(found)

    def has(self, name: str) -> bool:
        return any(sample == name for sample, _ in self.samples)

    def series(self) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
        return set(self.samples)


_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def parse_page(text: str) -> Page:
    heads: list[str] = []
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            heads.append(line)
        elif line:
            head, _, value = line.rpartition(" ")
            name, _, labels = head.partition("{")
            samples[(name, tuple(_LABEL.findall(labels)))] = float(value)
    return Page(heads, samples)


def recorded(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


def recorded_json(name: str) -> Any:
    return json.loads(recorded(name))


def shape(value: Any) -> Any:
    """The keys of a JSON value, in order, without its data."""
    if isinstance(value, dict):
        return {key: shape(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [shape(entry) for entry in value[:1]]
    return type(value).__name__ if isinstance(value, (bool, type(None))) else "value"


def key_order(value: Any) -> Any:
    """Nested key lists, so that order counts too."""
    if isinstance(value, dict):
        return [(key, key_order(entry)) for key, entry in value.items()]
    if isinstance(value, list):
        return [key_order(entry) for entry in value[:1]]
    return None


def events(text: str) -> list[Any]:
    """Server-sent events: parsed JSON, and the text of the closing one."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [json.loads(line) if line.startswith("{") else line for line in lines]
