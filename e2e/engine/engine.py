"""Starts one real engine, waits on conditions with deadlines, and keeps what it said."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.engine.set_up import environment, folder

START_SECONDS = 900
ANSWER_SECONDS = 300
STOP_SECONDS = 60
PROMPT = "the operator compares both arms and keeps the one that the evidence favours . the operator compares"


@dataclass
class Engine:
    """A running `vllm serve`, or one that has ended."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def said(self) -> str:
        """Everything it printed."""
        return self.log.read_text(errors="replace")

    def wait_until_ready(self) -> bool:
        """True when /health answers, False when the process ended first. Fails after the deadline."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                return False
            try:
                self.get("/health")
            except OSError:
                time.sleep(0.5)
            else:
                return True
        raise AssertionError(f"neither ready nor ended after {START_SECONDS} s:\n{self.said[-3000:]}")

    def wait_until_ended(self) -> int:
        """The exit code. Fails after the deadline."""
        try:
            return self.process.wait(ANSWER_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"still running:\n{self.said[-3000:]}") from error

    def get(self, path: str) -> str:
        """Text of a GET. Raises OSError."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def complete(self, model: str, **fields: Any) -> dict[str, Any]:
        """The JSON answer of a completion. Raises OSError."""
        body = {"model": model, "prompt": PROMPT, "max_tokens": 16, "temperature": 0, "ignore_eos": True, **fields}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            value: dict[str, Any] = json.load(answer)
        return value


@contextmanager
def running(args: Sequence[str], port: int, log: Path, with_suffix: bool = False, **variables: str) -> Iterator[Engine]:
    """An engine with these arguments; ended, with its children, at the end."""
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [str(folder() / "bin" / "vllm"), "serve", *args],
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**environment(with_suffix), **variables},
            start_new_session=True,
        )
        try:
            yield Engine(process, port, log)
        finally:
            _end(process)


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        if number is signal.SIGTERM and not _group_lives(process.pid):
            return


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
