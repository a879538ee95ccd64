"""What runs inside the engine's container, as it is run there: python3 -c, told what to do by its environment."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from specfleet.resources.scripts import DRAIN, PROVE

Answer = Callable[[BaseHTTPRequestHandler], None]


def said(running: int) -> Answer:
    """The engine's gauges, as vLLM exposes them."""
    text = f'vllm:num_requests_running{{engine="0"}} {running}.0\nvllm:num_requests_waiting{{engine="0"}} 0.0\n'

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text.encode())

    return answer


def completed(handler: BaseHTTPRequestHandler) -> None:
    """A completion with the expected fingerprint."""
    text = json.dumps({"choices": [{"text": "yes"}], "system_fingerprint": "f1"}).encode()
    handler.rfile.read(int(handler.headers["Content-Length"]))
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(text)))
    handler.end_headers()
    handler.wfile.write(text)


def late(handler: BaseHTTPRequestHandler) -> None:
    """Nothing within the five seconds that are waited for."""
    threading.Event().wait(6.0)


def half(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"vllm:num_requests_running")
    handler.close_connection = True


def broken(handler: BaseHTTPRequestHandler) -> None:
    handler.send_error(500)


@contextmanager
def engine(*answers: Answer) -> Iterator[tuple[int, list[int]]]:
    """Its port and the numbers of the answers that were asked for; the last answer is given again and again."""
    asked: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(len(asked))
            answers[min(asked[-1], len(answers) - 1)](self)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1], asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def drain(port: int, seconds: float, host: str = "127.0.0.1") -> None:
    told = {
        "SPECFLEET_DRAIN_HOST": host,
        "SPECFLEET_PORT": str(port),
        "SPECFLEET_DRAIN_SECONDS": str(seconds),
        "SPECFLEET_SETTLE_SECONDS": "0",
    }
    subprocess.run([sys.executable, "-c", DRAIN], env={**os.environ, **told}, check=True, timeout=600)


def prove(port: int) -> None:
    told = {
        "SPECFLEET_PORT": str(port),
        "SPECFLEET_MODEL": "tiny",
        "SPECFLEET_FINGERPRINT": "f1",
        "SPECFLEET_PROVE_TIMEOUT": "60",
    }
    subprocess.run([sys.executable, "-c", PROVE], env={**os.environ, **told}, check=True, timeout=600)


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An environment whose proxy answers nothing, as one does that is only for downloads."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{nobody.getsockname()[1]}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield


def test_a_proxy_in_the_engines_environment_does_not_stand_between_the_probe_and_the_engine(proxied: None) -> None:
    with engine(completed) as (port, asked):
        prove(port)
    assert asked


def test_a_proxy_in_the_engines_environment_does_not_hide_running_requests_from_the_drain(proxied: None) -> None:
    with engine(said(1), said(0)) as (port, asked):
        drain(port, 3600)
    assert len(asked) == 3, "busy, and twice quiet"


@pytest.mark.parametrize("trouble", [late, half, broken])
def test_an_engine_whose_metrics_fail_once_is_still_waited_for(trouble: Answer) -> None:
    with engine(said(1), trouble, said(1), said(0)) as (port, asked):
        drain(port, 3600)
    assert len(asked) == 5, "busy, trouble, busy, and twice quiet"


def test_an_engine_that_is_gone_is_not_waited_for() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        drain(nobody.getsockname()[1], 3600)


def test_a_worker_does_not_wait_for_a_leader_whose_name_is_gone() -> None:
    drain(8000, 3600, "leader.invalid")


def test_an_engine_that_stays_busy_is_let_go_at_the_time_out() -> None:
    with engine(said(1)) as (port, asked):
        drain(port, 2)
    assert asked
