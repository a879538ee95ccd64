"""A small HTTP/1.1 server that answers like uvicorn: keep-alive, chunked streams, no task per request."""

import asyncio
import http
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate

MAX_HEAD_BYTES = 65_536
MAX_BODY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Header names are lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    client: str
    begun: float


Handler = Callable[[Request, "Response"], None]
Answered = Callable[[Request, int, float, int], None]


class _Date:
    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def text(self) -> str:
        second = int(time.time())
        if second != self._second:
            self._second, self._text = second, formatdate(second, usegmt=True)
        return self._text


_DATE = _Date()


class Response:
    """The answer to one request: `send` once, or `start_stream`, `write` ..., `end_stream`."""

    __slots__ = ("_connection", "_request", "_streaming", "closed", "on_disconnect", "status")

    def __init__(self, connection: "HttpConnection", request: Request) -> None:
        self._connection = connection
        self._request = request
        self._streaming = False
        self.closed = False
        self.status = 0
        self.on_disconnect: Callable[[], None] | None = None

    def send(
        self, status: int, body: bytes = b"", content_type: str | None = "application/json", allow: str = ""
    ) -> None:
        """Send a whole answer. `allow`: the methods that a 405 names."""
        if self.closed:
            return
        self.closed = True
        self.status = status
        kind = f"content-type: {content_type}\r\n" if body and content_type else ""
        head = self._head(status, f"content-length: {len(body)}\r\n{kind}vary: Origin\r\n", allow)
        self._connection.write(head if self._request.method == "HEAD" else head + body)
        self._connection.finished(self._request, status, len(body))

    def start_stream(self, content_type: str = "text/event-stream; charset=utf-8") -> None:
        """Begin a chunked answer with status 200."""
        if self.closed:
            return
        self._streaming = True
        self.status = 200
        head = self._head(200, f"content-type: {content_type}\r\nvary: Origin\r\n")
        self._connection.write(head[:-2] + b"transfer-encoding: chunked\r\n\r\n")

    def write(self, data: bytes) -> None:
        """Send one chunk."""
        if not self.closed:
            self._connection.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self, data: bytes = b"") -> None:
        """Send the last chunk (if any) and the end."""
        if self.closed:
            return
        self.closed = True
        last = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        self._connection.write(last + b"0\r\n\r\n")
        self._connection.finished(self._request, self.status, 0)

    def _head(self, status: int, lines: str, allow: str = "") -> bytes:
        phrase = http.HTTPStatus(status).phrase
        asked = self._request.headers.get("connection", "").lower() == "close"
        close = "connection: close\r\n" if asked or self._connection.closing else ""
        first = f"HTTP/1.1 {status} {phrase}\r\ndate: {_DATE.text()}\r\nserver: uvicorn\r\n"
        allowed = f"allow: {allow}\r\n" if allow else ""
        return f"{first}{allowed}{lines}{close}\r\n".encode()

    def lost(self) -> None:
        """The client went away."""
        if not self.closed:
            self.closed = True
            if self.on_disconnect is not None:
                self.on_disconnect()


class HttpConnection(asyncio.Protocol):
    """One client connection: one request at a time, later ones wait in the buffer."""

    def __init__(self, server: "HttpServer") -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._response: Response | None = None
        self._client = "-"
        self._idle: asyncio.TimerHandle | None = None
        self._parsing = False
        self.closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("-", 0)
        self._client = f"{peer[0]}:{peer[1]}"
        self._server.connections.add(self)

    def connection_lost(self, _: Exception | None) -> None:
        """The client, or we, closed."""
        self._server.connections.discard(self)
        self._stop_idle()
        response, self._response = self._response, None
        if response is not None:
            response.lost()

    def data_received(self, data: bytes) -> None:
        """Bytes of one or more requests."""
        self._stop_idle()
        self._buffer += data
        self._parse()

    def write(self, data: bytes) -> None:
        """Send bytes, if the client is still there."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def finished(self, request: Request, status: int, length: int) -> None:
        """The current request is answered: close or go on."""
        self._response = None
        self._server.answered(request, status, time.monotonic() - request.begun, length)
        if self.closing or request.headers.get("connection", "").lower() == "close":
            self.close()
        elif not self._parsing:
            self._parse()
            self._start_idle()

    def close_when_idle(self) -> None:
        """Close now, or after the current answer."""
        self.closing = True
        if self._response is None:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def _start_idle(self) -> None:
        if self._response is None and self._transport is not None and not self._transport.is_closing():
            self._stop_idle()
            self._idle = asyncio.get_running_loop().call_later(self._server.keep_alive_seconds, self.close)

    def _stop_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _parse(self) -> None:
        self._parsing = True
        try:
            while self._response is None and self._buffer:
                request = self._next_request()
                if request is None:
                    break
                response = self._response = Response(self, request)
                self._server.handler(request, response)
        except _BadRequestError as error:
            self._buffer.clear()
            self.closing = True
            body = str(error).encode()
            self.write(
                b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n%b" % (len(body), body)
            )
            self.close()
        finally:
            self._parsing = False
        self._start_idle()

    def _next_request(self) -> Request | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise _BadRequestError("Invalid HTTP request received.")
            return None
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise _BadRequestError("Invalid HTTP request received.")
        headers = {}
        for line in lines[1:]:
            name, separator, value = line.partition(":")
            if not separator:
                raise _BadRequestError("Invalid HTTP request received.")
            headers[name.strip().lower()] = value.strip()
        body = self._body(headers, end + 4)
        if body is None:
            return None
        if words[2] == "HTTP/1.0" and headers.get("connection", "").lower() != "keep-alive":
            headers["connection"] = "close"
        path, _, query = words[1].partition("?")
        return Request(words[0], path, query, headers, body, self._client, time.monotonic())

    def _body(self, headers: Mapping[str, str], start: int) -> bytes | None:
        """The body, taken out of the buffer; None while it is incomplete."""
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return self._chunked_body(start)
        text = headers.get("content-length", "0")
        if not text.isdigit() or int(text) > MAX_BODY_BYTES:
            raise _BadRequestError("Invalid HTTP request received.")
        stop = start + int(text)
        if len(self._buffer) < stop:
            self._expect_continue(headers)
            return None
        body = bytes(self._buffer[start:stop])
        del self._buffer[:stop]
        return body

    def _expect_continue(self, headers: Mapping[str, str]) -> None:
        if headers.get("expect", "").lower() == "100-continue" and self._buffer.endswith(b"\r\n\r\n"):
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _chunked_body(self, start: int) -> bytes | None:
        found, place = bytearray(), start
        while True:
            line_end = self._buffer.find(b"\r\n", place)
            if line_end < 0:
                return None
            try:
                size = int(bytes(self._buffer[place:line_end]).split(b";")[0], 16)
            except ValueError as error:
                raise _BadRequestError("Invalid HTTP request received.") from error
            place = line_end + 2
            if len(found) + size > MAX_BODY_BYTES:
                raise _BadRequestError("Invalid HTTP request received.")
            if len(self._buffer) < place + size + 2:
                return None
            if size == 0:
                del self._buffer[: place + 2]
                return bytes(found)
            found += self._buffer[place : place + size]
            place += size + 2


class _BadRequestError(Exception):
    """Not HTTP."""


class HttpServer:
    """Listens, and hands requests to one handler."""

    def __init__(self, handler: Handler, answered: Answered, keep_alive_seconds: float) -> None:
        self.handler = handler
        self.answered = answered
        self.keep_alive_seconds = keep_alive_seconds
        self.connections: set[HttpConnection] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, host: str | None, port: int) -> int:
        """Bind and listen; the port that was bound."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: HttpConnection(self), host or None, port, backlog=2048)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def close(self) -> None:
        """Take no new connection, close idle ones; the busy ones close after their answer."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self.connections):
            connection.close_when_idle()

    async def wait_until_closed(self) -> None:
        """Until the busy connections have their answer, or their clients are gone."""
        while self.connections:
            await asyncio.sleep(0.02)
