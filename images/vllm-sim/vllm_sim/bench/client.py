"""One streamed request over a plain asyncio connection, timed per chunk. Small: at 20 requests/s it must not lag."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Outcome:
    """What became of one request. Seconds."""

    success: bool = False
    start_time: float = 0.0
    ttft: float = 0.0
    latency: float = 0.0
    queue_time: float = 0.0
    itl: list[float] = field(default_factory=list)
    text: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    error: str = ""
    chunk_times: list[float] = field(default_factory=list)


async def send(url: str, body: Mapping[str, Any], headers: Mapping[str, str], outcome: Outcome) -> None:
    """POST and read the stream; every fault ends up in `outcome.error`, none is raised (as in the real one)."""
    parts = urlsplit(url)
    begun = outcome.start_time = time.perf_counter()
    writer: asyncio.StreamWriter | None = None
    try:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80, limit=1 << 20)
        payload = json.dumps(body).encode()
        lines = [f"POST {parts.path} HTTP/1.1", f"Host: {parts.netloc}", "Content-Type: application/json"]
        lines += [f"Content-Length: {len(payload)}", "Connection: close", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + payload)
        await writer.drain()
        status_line = await reader.readline()
        chunked = False
        while (line := await reader.readline()) not in (b"\r\n", b""):
            chunked = chunked or line.lower().startswith(b"transfer-encoding: chunked")
        fields = status_line.split(None, 2)
        status = int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0
        if status != 200:
            outcome.error = fields[2].decode().strip() if len(fields) > 2 else "the server closed the connection"
            return
        await _read_events(reader, chunked, begun, outcome)
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        outcome.error = f"{type(error).__name__}: {error}"
    finally:
        if writer is not None:
            writer.close()


async def _read_events(reader: asyncio.StreamReader, chunked: bool, begun: float, outcome: Outcome) -> None:
    last = begun
    buffer = b""
    while True:
        data = await _next_data(reader, chunked)
        if not data:
            break
        buffer += data
        while (end := buffer.find(b"\n\n")) >= 0:
            event, buffer = buffer[:end].strip(), buffer[end + 2 :]
            if not event.startswith(b"data: ") or event == b"data: [DONE]":
                continue
            last = _take(json.loads(event[6:]), begun, last, outcome)
    if outcome.ttft > 0:
        outcome.success = True
        outcome.latency = last - begun
    elif not outcome.error:
        outcome.error = "Never received a valid chunk to calculate TTFT.This response will be marked as failed!"


async def _next_data(reader: asyncio.StreamReader, chunked: bool) -> bytes:
    if not chunked:
        return await reader.read(65536)
    size = int((await reader.readline()).split(b";")[0] or b"0", 16)
    if size == 0:
        return b""
    return (await reader.readexactly(size + 2))[:-2]


def _take(event: dict[str, Any], begun: float, last: float, outcome: Outcome) -> float:
    """One server-sent event: a gap per chunk, whatever the number of tokens in it (as the real one measures)."""
    usage = event.get("usage")
    if usage:
        outcome.output_tokens = usage.get("completion_tokens", 0)
        outcome.prompt_tokens = usage.get("prompt_tokens", 0)
    choices = event.get("choices")
    if not choices:
        return last
    now = time.perf_counter()
    if outcome.ttft == 0:
        outcome.ttft = now - begun
    else:
        outcome.itl.append(now - last)
    outcome.chunk_times.append(now)
    delta = choices[0].get("delta")
    outcome.text += (choices[0].get("text") if delta is None else delta.get("content")) or ""
    return now
