"""The adapter and the collector against a real Prometheus that scrapes engines over loopback."""

import asyncio
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from specfleet.api.speculation import Method
from specfleet.api.status import ArmRole
from specfleet.decide.watch import Watch
from specfleet.decide.watch_report import Answer, WatchReport
from specfleet.decide.watch_target import Target, TargetPod
from specfleet.telemetry.collector import Collector
from specfleet.telemetry.prometheus import Prometheus, PrometheusRefused
from specfleet.telemetry.servers import MetricsServer

from tests.telemetry.fleet import EngineModel

DEADLINE_SECONDS = 90
BINARIES = sorted(Path.home().glob(".cache/specfleet/parts/prometheus-*/prometheus"))
BINARY = os.environ.get("SPECFLEET_PROMETHEUS") or (str(BINARIES[-1]) if BINARIES else "")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not BINARY, reason="no Prometheus binary: run `make cluster-up` once or set SPECFLEET_PROMETHEUS"
    ),
]


@contextmanager
def exposed(engine: EngineModel) -> Iterator[int]:
    """An engine's /metrics; its counters grow with the wall clock. Yields the port."""
    last = [time.time()]
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with lock:
                now = time.time()
                engine.run(now - last[0], lambda mean: mean)
                last[0] = now
                lines = []
                for name, value in engine.exposition().items():
                    bare, _, labels = name.partition("{")
                    inner = ",".join(part for part in ('engine="0",model_name="m"', labels.rstrip("}")) if part)
                    lines.append(f"{bare}{{{inner}}} {value!r}")
            body = ("\n".join(lines) + "\n").encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def prometheus(folder: Path, ports: dict[str, int]) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    targets = [{"targets": [f"127.0.0.1:{at}"], "labels": {"namespace": "ns", "pod": pod}} for pod, at in ports.items()]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "vllm", "static_configs": targets}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        BINARY,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.terminate()
        process.wait(20)


def until(condition, ask):
    """Ask until the condition holds; fails with the last answer."""
    pause = threading.Event()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        found = ask()
        if condition(found):
            return found
        assert time.monotonic() < deadline, found
        pause.wait(0.5)


def test_a_real_prometheus_gives_the_figures_of_the_engines_and_its_death_is_typed(tmp_path):
    start = time.time()
    spec, plain = EngineModel(start_time=start - 60), EngineModel(acceptance=None, start_time=start - 60)
    born = datetime.fromtimestamp(start - 60, UTC)
    target = Target(
        key=("ns", "chat", "u"),
        arms={
            ArmRole.SPECULATIVE: (TargetPod("spec-0", "a", born),),
            ArmRole.BASELINE: (TargetPod("plain-0", "b", born),),
        },
        since=datetime.fromtimestamp(start, UTC),
        window_seconds=4,
        scrape_interval_seconds=1,
        warmup_seconds=1,
        fingerprint="f",
        method=Method.EAGLE3,
    )
    collector, watch = Collector(), Watch()
    with (
        exposed(spec) as spec_port,
        exposed(plain) as plain_port,
        prometheus(tmp_path, {"spec-0": spec_port, "plain-0": plain_port}) as (url, process),
    ):
        server = MetricsServer(url, timeout_seconds=5)

        def report() -> WatchReport:
            now = datetime.now(UTC)
            watch.observe(now, asyncio.run(collector.tick({server: [target]}, now)))
            return watch.report(target.key)

        def covered(found: WatchReport) -> bool:
            window = found.step.get(ArmRole.SPECULATIVE)
            ended = window is not None and window.end is not None and window.start is not None
            return found.answer is Answer.OK and ended and (window.end - window.start).total_seconds() >= 12

        found = until(covered, report)
        ours, theirs = found.step[ArmRole.SPECULATIVE], found.step[ArmRole.BASELINE]
        assert ours.acceptance_rate == pytest.approx(1.55 / 3)
        assert ours.tpot_seconds == pytest.approx(0.02 / 2.55)
        assert theirs.tpot_seconds == pytest.approx(0.02)
        assert ours.requests_per_second_per_pod == pytest.approx(2.0, rel=0.2)

        fresh_collector, fresh = Collector(), Watch()
        now = datetime.now(UTC)
        fresh.observe(now, asyncio.run(fresh_collector.tick({server: [target]}, now)))
        watch.observe(now, asyncio.run(collector.tick({server: [target]}, now)))
        assert fresh.report(target.key).step == watch.report(target.key).step, "replay gives the same sums"

        with pytest.raises(PrometheusRefused, match="parse error"):
            asyncio.run(Prometheus(server).range_vector("{__name__=~", time.time()))

        process.terminate()
        process.wait(20)
        dead = until(lambda one: one.answer is Answer.UNAVAILABLE, report)
        assert url in dead.message
