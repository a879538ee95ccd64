"""A loopback HTTP server that answers /api/v1/query from a Store the way Prometheus does, or misbehaves as told."""

import json
import re
import ssl
import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import numpy as np

from tests.telemetry.fleet import Store

INF = float("inf")


class FakePrometheus:
    """What the handler shares with the test."""

    def __init__(self) -> None:
        self.store = Store()
        self.status = 200
        self.body: bytes | None = None
        self.warnings: list[str] = []
        self.hold = threading.Event()
        self.hold.set()
        self.requests: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    def answer(self, form: dict[str, str]) -> bytes:
        if self.body is not None:
            return self.body
        query, at = form["query"], float(form["time"])
        quantile = re.fullmatch(r"quantile_over_time\(([0-9.]+), (.*)\)", query)
        found = re.fullmatch(r"\{(.*)\}\[(\d+)ms\]", quantile[2] if quantile else query)
        assert found, query
        matchers = re.findall(r'(\w+)=~"([^"]*)"', found[1])
        begin = at - int(found[2]) / 1000
        result = []
        for labels, samples in self.store.series.items():
            own = dict(labels)
            if all(re.fullmatch(pattern, own.get(name, "")) for name, pattern in matchers):
                first, last = bisect_right(samples, (begin, INF)), bisect_right(samples, (at, INF))
                values = [[when, _text(value)] for when, value in samples[first:last]]
                if values and quantile:
                    highest = float(np.quantile([float(value) for _, value in values], float(quantile[1])))
                    own.pop("__name__")
                    result.append({"metric": own, "value": [at, _text(highest)]})
                elif values:
                    result.append({"metric": own, "values": values})
        kind = "vector" if quantile else "matrix"
        answer: dict[str, Any] = {"status": "success", "data": {"resultType": kind, "result": result}}
        if self.warnings:
            answer["warnings"] = self.warnings
        return json.dumps(answer).encode()


def _text(value: float) -> str:
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(str(value), repr(value))


@contextmanager
def fake_prometheus(tls: ssl.SSLContext | None = None) -> Iterator[FakePrometheus]:
    fake = FakePrometheus()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            fake.requests.append({key: value[0] for key, value in form.items()})
            fake.headers.append(dict(self.headers))
            fake.hold.wait(20)
            body = fake.answer(fake.requests[-1])
            self.send_response(fake.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    fake.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        fake.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
