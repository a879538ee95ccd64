"""SIGTERM as measured on vLLM 0.32."""

import json
import re
import subprocess
import threading
from pathlib import Path

import pytest

from tests.vllm_sim.launch import REAL_ENGINE, RunningEngine, events, parse_page, recorded, running, wait_until

# Slow enough that a stream is in flight for some seconds.
SLOW = {"time_scale": 3.0}


def _in_flight(engine: RunningEngine) -> float:
    return parse_page(engine.metrics()).value("vllm:num_requests_running")


class Stream(threading.Thread):
    """A streaming completion read to its end."""

    def __init__(self, engine: RunningEngine, max_tokens: int) -> None:
        super().__init__(daemon=True)
        self._engine = engine
        self._max_tokens = max_tokens
        self.text = ""
        self.error: Exception | None = None
        self.start()
        wait_until(lambda: _in_flight(engine) == 1, 20, "the request runs")

    def run(self) -> None:
        try:
            with self._engine.open_stream("a long answer", max_tokens=self._max_tokens) as answer:
                self.text = answer.read().decode()
        except Exception as error:
            self.error = error

    def result(self) -> list[object]:
        self.join(60)
        assert self.error is None
        return events(self.text)


def _said_at_shutdown(log: str) -> list[str]:
    """What was said since SIGTERM, without times, processes and counts."""
    found = []
    for line in log[log.index("[shutdown]") :].splitlines():
        said = line.partition("[shutdown] ")[2] or line.partition("INFO:     ")[2]
        if said and "HTTP/1.1" not in said:
            found.append(re.sub(r"count=\d+", "count=N", said))
    return found


def _in_recorded_order(said: list[str], recording: str) -> bool:
    """Whether every line was recorded, in this order; the real one's other processes speak when they like."""
    if REAL_ENGINE:
        return True
    rest = iter(_said_at_shutdown(recorded(f"sigterm/{recording}.txt")))
    return all(line in rest for line in said)


def test_with_a_shutdown_timeout_requests_finish_while_new_ones_get_500(folder: Path) -> None:
    with running(folder, "--shutdown-timeout", "30", profile=SLOW) as engine:
        stream = Stream(engine, 60)
        engine.terminate()
        wait_until(lambda: engine.complete("another").status == 500, 10, "new requests are refused")
        refused = engine.complete("another")
        assert refused.json()["error"]["message"] == "cannot schedule new futures after shutdown"
        assert engine.get("/health").status == 200
        assert engine.get("/v1/models").status == 200
        chunks = stream.result()
        assert chunks[-2]["usage"]["completion_tokens"] == 60
        assert chunks[-3]["choices"][0]["finish_reason"] == "length"
        assert engine.exit_code() == 0
        said = _said_at_shutdown(engine.log.read_text())
    assert said[0] == "API server: shutdown triggered"
    assert said[-1] == "Application shutdown complete."
    assert _in_recorded_order(said, "timeout30")


def test_an_idle_engine_with_a_shutdown_timeout_leaves_with_0(folder: Path) -> None:
    with running(folder, "--shutdown-timeout", "60") as engine:
        engine.terminate()
        assert engine.exit_code() == 0


def test_without_a_shutdown_timeout_streams_end_with_abort(folder: Path, simulated_only: None) -> None:
    with running(folder, profile=SLOW) as engine:
        stream = Stream(engine, 900)
        engine.terminate()
        chunks = stream.result()
        assert engine.exit_code() == 0
    assert chunks[-3]["choices"][0]["finish_reason"] == "abort"
    assert chunks[-2]["usage"]["completion_tokens"] < 900
    assert chunks[-1] == "[DONE]"


def test_the_other_measured_kind_stalls_streams_and_ignores_a_second_sigterm(folder: Path) -> None:
    with running(folder, profile={**SLOW, "sigterm_without_timeout": "hold"}) as engine:
        answer = engine.open_stream("a long answer", max_tokens=900)
        assert answer.readline().startswith(b"data: ")
        engine.terminate()
        wait_until(lambda: "Waiting for connections to close." in engine.log.read_text(), 20, "it waits for the client")
        assert _in_recorded_order(_said_at_shutdown(engine.log.read_text()), "second-sigterm")
        engine.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            engine.exit_code(0.5)
        answer.close()
        assert engine.exit_code() == 0
        said = _said_at_shutdown(engine.log.read_text())
    # In the recording the engine process was killed before it could count its requests.
    assert _in_recorded_order([line for line in said if not line.startswith("EngineCore:")], "client-close")


def test_a_shutdown_timeout_that_passes_cuts_the_rest(folder: Path, simulated_only: None) -> None:
    with running(folder, "--shutdown-timeout", "0.2", profile=SLOW) as engine:
        stream = Stream(engine, 900)
        engine.terminate()
        chunks = stream.result()
        assert engine.exit_code() == 0
    assert chunks[-3]["choices"][0]["finish_reason"] == "abort"


def test_a_client_that_leaves_ends_its_request(folder: Path) -> None:
    with running(folder, profile=SLOW) as engine:
        answer = engine.open_stream("a long answer", max_tokens=900)
        assert json.loads(answer.readline().removeprefix(b"data: "))["choices"]
        answer.close()
        wait_until(lambda: _in_flight(engine) == 0, 20, "the request is gone")
        page = parse_page(engine.metrics())
    # It was served and is not counted as a request: neither as a success nor as an abort.
    assert page.value("vllm:generation_tokens_total") > 0
    assert page.value("vllm:request_success_total") == 0
    assert page.value("vllm:request_generation_tokens_count") == 0
    assert page.value("vllm:kv_cache_usage_perc") == pytest.approx(0.0)
