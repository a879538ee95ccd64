"""A small HTTP/1.1 client on asyncio protocols: keep-alive, and a callback for each piece of a streamed body."""

import asyncio
import ssl
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


class ConnectionLostError(Exception):
    """The server closed the connection before the answer was complete."""


@dataclass(slots=True)
class HttpAnswer:
    """A complete answer."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytearray = field(default_factory=bytearray)
    """Empty when the body went to the callback."""


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._answer: HttpAnswer | None = None
        self._done: asyncio.Future[HttpAnswer] | None = None
        self._on_data: Callable[[bytes], None] | None = None
        self._left: int | None = 0
        self.received = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionLostError(str(exc or "server disconnected")))

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def exchange(self, data: bytes, on_data: Callable[[bytes], None] | None) -> HttpAnswer:
        if self._transport is None:
            raise ConnectionLostError("server disconnected")
        self._answer, self.received = None, False
        self._on_data = on_data
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return await self._done

    def data_received(self, data: bytes) -> None:
        self.received = True
        self._buffer += data
        try:
            self._advance()
        except (ValueError, IndexError) as error:
            if self._done is not None and not self._done.done():
                self._done.set_exception(ConnectionLostError(f"not HTTP: {error}"))
            self.close()

    def _advance(self) -> None:
        if self._answer is None and not self._head():
            return
        answer = self._answer
        assert answer is not None
        if self._left is None:
            if not self._chunks(answer):
                return
        else:
            part = bytes(self._buffer[: self._left])
            del self._buffer[: self._left]
            self._left -= len(part)
            self._deliver(answer, part)
            if self._left:
                return
        if self._done is not None and not self._done.done():
            self._done.set_result(answer)

    def _head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        words = lines[0].split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if words[1] == "100":
            return self._head()
        self._answer = HttpAnswer(int(words[1]), words[2] if len(words) > 2 else "", headers)
        chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._left = None if chunked else int(headers.get("content-length", "0"))
        return True

    def _chunks(self, answer: HttpAnswer) -> bool:
        """Deliver complete chunks; True after the last."""
        buffer, place = self._buffer, 0
        while True:
            line_end = buffer.find(b"\r\n", place)
            if line_end < 0:
                break
            size = int(bytes(buffer[place:line_end]).split(b";")[0], 16)
            start = line_end + 2
            if len(buffer) < start + size + 2:
                break
            place = start + size + 2
            if size == 0:
                del buffer[:place]
                return True
            self._deliver(answer, bytes(buffer[start : start + size]))
        del buffer[:place]
        return False

    def _deliver(self, answer: HttpAnswer, part: bytes) -> None:
        if self._on_data is not None and answer.status == 200:
            self._on_data(part)
        else:
            answer.body += part


class HttpClient:
    """Connections to one server, kept open between requests."""

    def __init__(self, base_url: str, insecure: bool = False) -> None:
        parts = urllib.parse.urlsplit(base_url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or (443 if self._secure else 80)
        self._authority = parts.netloc
        self._prefix = parts.path.rstrip("/")
        self._free: list[_Connection] = []
        self._tls: ssl.SSLContext | None = None
        if self._secure:
            self._tls = ssl._create_unverified_context() if insecure else ssl.create_default_context()  # noqa: S323

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls)
        return connection

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        on_data: Callable[[bytes], None] | None = None,
    ) -> HttpAnswer:
        """One exchange. Raises OSError or ConnectionLostError."""
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", f"Host: {self._authority}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        data = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
        while True:
            connection = self._reused()
            fresh = connection is None
            if connection is None:
                connection = await self._connect()
            try:
                answer = await connection.exchange(data, on_data)
            except ConnectionLostError:
                if fresh or connection.received:
                    raise
                # A kept connection that the server closed just now: the request was not seen.
                continue
            except asyncio.CancelledError:
                connection.close()
                raise
            if answer.headers.get("connection", "").lower() == "close":
                connection.close()
            else:
                self._free.append(connection)
            return answer

    def _reused(self) -> _Connection | None:
        while self._free:
            connection = self._free.pop()
            if connection.usable:
                return connection
        return None

    def close(self) -> None:
        """Close what is open."""
        for connection in self._free:
            connection.close()
        self._free.clear()
