"""The HTTP server at the level of bytes."""

import socket
from urllib.parse import urlsplit

import pytest

from tests.vllm_sim.served import Served

pytestmark = pytest.mark.usefixtures("simulated_only")
BODY = b'{"model":"tiny","prompt":"hello","max_tokens":1,"temperature":0}'


def _talk(served: Served, data: bytes, answers: int = 1) -> bytes:
    """Send bytes, read until `answers` heads and their bodies are here or the server closes."""
    parts = urlsplit(served.engine.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        connection.sendall(data)
        found = b""
        while found.count(b"HTTP/1.1 ") < answers or not _complete(found):
            piece = connection.recv(65536)
            if not piece:
                break
            found += piece
        return found


def _complete(found: bytes) -> bool:
    head, _, body = found.rpartition(b"HTTP/1.1 ")[2].partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length: "):
            return len(body) >= int(line[16:])
    return False


def test_a_chunked_request_body_is_read(plain: Served) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (BODY[:10], BODY[10:])) + b"0\r\n\r\n"
    assert _talk(plain, head + chunks).startswith(b"HTTP/1.1 200 OK")


def test_two_requests_in_one_packet_get_two_answers_in_order(plain: Served) -> None:
    one = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
    two = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
    found = _talk(plain, one + two, answers=2)
    assert found.index(b"text_completion") < found.index(b'{"version"')


def test_a_close_is_honoured(plain: Served) -> None:
    found = _talk(plain, b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", answers=2)
    assert found.count(b"HTTP/1.1 200") == 1


def test_what_is_not_http_gets_a_400(plain: Served) -> None:
    assert _talk(plain, b"hello\r\n\r\n", answers=2).startswith(b"HTTP/1.1 400")


def test_a_wrong_method_is_a_405(plain: Served) -> None:
    answer = plain.engine.get("/v1/completions")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
