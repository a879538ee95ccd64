"""Continuous traffic through the gateway: short requests at a Poisson rate and always a few streams of over a minute.

  python -m e2e.road.traffic --url http://GATEWAY --host NAME --model MODEL --log FILE [--rate 6] [--seconds 1800]

SIGTERM (or the end of --seconds) stops new requests; the open ones are read to their end. Every request is one line of
the log. No request is ever sent twice: a failure is a failure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import aiohttp

from e2e.road.outcomes import Outcome, fault_of, to_line

LONG_STREAM_SECONDS = 64.0
"""Aim of a long stream, a little over the minute that is asked for."""
FIRST_GUESS_TOKENS_PER_SECOND = 60.0
DRAIN_SECONDS = 240.0
PROSE = (
    "the operator keeps a plain arm beside the speculative one and asks the evidence which of them should serve "
    "because a draft that was right yesterday may be wrong today and nobody looks at the dashboard at night"
)
WORDS = PROSE.split(" ")
SAMPLED_SHARE = 0.3
PROMPT_WORDS = (12, 40, 120, 300)
ANSWER_TOKENS = (16, 32, 64, 96, 128, 160)
LONGEST_TOKENS = 100_000


@dataclass(frozen=True, slots=True)
class Aim:
    """Where traffic goes and how much of it."""

    url: str
    host: str
    model: str
    rate: float = 6.0
    """Short requests per second (Poisson)."""
    long_streams: int = 3
    """Long streams that are always open."""
    seconds: float = 1800.0
    most_requests: int = 40_000
    most_open: int = 400
    prompt_words: tuple[int, ...] = PROMPT_WORDS
    """Lengths of short requests' prompts; a real engine on two cores reads 100 tokens a second while it decodes."""
    answer_tokens: tuple[int, ...] = ANSWER_TOKENS
    sampled_share: float = SAMPLED_SHARE
    """Share of short requests with a temperature; drafts are accepted less often in them."""
    longest_tokens: int = LONGEST_TOKENS
    """Bound of a long stream: with its prompt it must fit in the engine's context."""


@dataclass
class Traffic:
    """One run. `stop` ends new requests, `run` returns when all are answered."""

    aim: Aim
    log: TextIO
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    sent: int = 0
    fastest: float = FIRST_GUESS_TOKENS_PER_SECOND
    """Decode speed of the quickest streams of late: a long stream must last over a minute on either arm."""
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    def stop(self) -> None:
        """Start no further request."""
        self._stopped.set()

    async def run(self) -> None:
        """Send until stopped or the bounds are reached, then wait for the open requests."""
        limits = aiohttp.TCPConnector(limit=0, keepalive_timeout=20)
        patience = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=120)
        async with aiohttp.ClientSession(connector=limits, timeout=patience) as session:
            loop = asyncio.get_running_loop()
            ends = loop.time() + self.aim.seconds
            longs = [asyncio.create_task(self._long_streams(session, place)) for place in range(self.aim.long_streams)]
            due = loop.time()
            while not self._stopped.is_set() and loop.time() < ends and self.sent < self.aim.most_requests:
                due += self.chance.expovariate(self.aim.rate)
                if await self._stopped_within(due - loop.time()):
                    break
                if len(self._open) < self.aim.most_open:
                    self._spawn(session, *self._short())
            self.stop()
            if self._open or longs:
                await asyncio.wait([*self._open, *longs], timeout=DRAIN_SECONDS)
            for task in (*self._open, *longs):
                task.cancel()
            await asyncio.gather(*self._open, *longs, return_exceptions=True)

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._stopped.wait(), max(0.0, seconds))
        except TimeoutError:
            return False
        return True

    def _spawn(self, session: aiohttp.ClientSession, kind: str, endpoint: str, body: dict[str, Any]) -> None:
        task = asyncio.create_task(self._send(session, self._next(), kind, endpoint, body))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _long_streams(self, session: aiohttp.ClientSession, place: int) -> None:
        """One long stream after the other; the first ones begin a while apart, so that they do not end together."""
        if await self._stopped_within(place * LONG_STREAM_SECONDS / max(1, self.aim.long_streams)):
            return
        while not self._stopped.is_set() and self.sent < self.aim.most_requests:
            tokens = min(self.aim.longest_tokens, int(self.fastest * LONG_STREAM_SECONDS))
            body = self._body(tokens, streamed=True) | {"prompt": self._text(60), "ignore_eos": True}
            await self._send(session, self._next(), "long", "/v1/completions", body)
            if await self._stopped_within(0.2):
                return

    def _next(self) -> int:
        """The number of one more request; counted when it is decided on, so that the bound holds."""
        self.sent += 1
        return self.sent

    def _short(self) -> tuple[str, str, dict[str, Any]]:
        streamed = self.chance.random() < 0.6
        body = self._body(self.chance.choice(self.aim.answer_tokens), streamed)
        text = self._text(self.chance.choice(self.aim.prompt_words))
        if self.chance.random() < self.aim.sampled_share:
            body["temperature"] = 0.7
        kind = "stream" if streamed else "plain"
        if self.chance.random() < 0.5:
            return kind, "/v1/chat/completions", body | {"messages": [{"role": "user", "content": text}]}
        return kind, "/v1/completions", body | {"prompt": text}

    def _body(self, tokens: int, streamed: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.aim.model, "max_tokens": tokens, "temperature": 0.0, "stream": streamed}
        if streamed:
            body["stream_options"] = {"include_usage": True}
        return body

    def _text(self, words: int) -> str:
        return " ".join(self.chance.choice(WORDS) for _ in range(words))

    async def _send(
        self, session: aiohttp.ClientSession, number: int, kind: str, endpoint: str, body: dict[str, Any]
    ) -> None:
        start = time.time()
        seen = _Seen()
        error: str | None = None
        try:
            headers = {"Host": self.aim.host}
            async with session.post(f"{self.aim.url}{endpoint}", json=body, headers=headers) as response:
                seen.status = response.status
                if body["stream"] and response.status == 200:
                    await seen.read_stream(response.content.iter_any())
                else:
                    seen.read_whole(await response.read())
        except asyncio.CancelledError:
            error = f"not answered {DRAIN_SECONDS:.0f} s after the end"
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        outcome = Outcome(
            number=number,
            kind=kind,
            endpoint=endpoint,
            start=start,
            end=time.time(),
            first_byte=seen.first_byte,
            status=seen.status,
            finish_reason=seen.finish_reason,
            tokens=seen.tokens,
            done_seen=seen.done,
            fingerprint=seen.fingerprint,
            fault=fault_of(seen.status, error, bool(body["stream"]), seen.finish_reason, seen.done),
        )
        self.log.write(to_line(outcome) + "\n")
        self.log.flush()
        self._learn(outcome)

    def _learn(self, outcome: Outcome) -> None:
        speed = outcome.decode_tokens_per_second
        if outcome.fault is None and speed is not None and outcome.tokens >= 128:
            self.fastest = max(speed, 0.98 * self.fastest + 0.02 * speed)


@dataclass
class _Seen:
    """What of an answer has arrived."""

    status: int | None = None
    first_byte: float | None = None
    finish_reason: str | None = None
    tokens: int = 0
    done: bool = False
    fingerprint: str | None = None

    async def read_stream(self, chunks: AsyncIterator[bytes]) -> None:
        """Server-sent events to their end."""
        rest = b""
        async for chunk in chunks:
            if self.first_byte is None:
                self.first_byte = time.time()
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    self._event(line[5:].strip())

    def _event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        self._take(json.loads(data))

    def read_whole(self, data: bytes) -> None:
        """One JSON answer."""
        self.first_byte = time.time()
        if self.status == 200:
            self._take(json.loads(data))

    def _take(self, answer: dict[str, Any]) -> None:
        if "error" in answer:
            self.finish_reason = f"error: {answer['error']}"
        for choice in answer.get("choices", []):
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.fingerprint = answer.get("system_fingerprint") or self.fingerprint
        usage = answer.get("usage")
        if usage:
            self.tokens = int(usage.get("completion_tokens", 0))


def read_arguments(arguments: list[str] | None = None) -> tuple[Aim, Path]:
    """What to send, and the path of the log."""
    parser = argparse.ArgumentParser(prog="python -m e2e.road.traffic", description=__doc__)
    parser.add_argument("--url", required=True, help="base address of the gateway")
    parser.add_argument("--host", required=True, help="hostname of the route")
    parser.add_argument("--model", required=True, help="model name that clients use")
    parser.add_argument("--log", required=True, type=Path, help="JSON lines, one per request")
    parser.add_argument("--rate", type=float, default=6.0, help="short requests per second")
    parser.add_argument("--long-streams", type=int, default=3, help="streams of over a minute that are always open")
    parser.add_argument("--seconds", type=float, default=1800.0, help="end by itself after so long")
    parser.add_argument("--prompt-words", type=_numbers, default=PROMPT_WORDS, help="lengths, separated by commas")
    parser.add_argument("--answer-tokens", type=_numbers, default=ANSWER_TOKENS, help="likewise")
    parser.add_argument("--sampled-share", type=float, default=SAMPLED_SHARE, help="share with a temperature")
    parser.add_argument("--longest-tokens", type=int, default=LONGEST_TOKENS, help="bound of a long stream")
    given = parser.parse_args(arguments)
    aim = Aim(
        given.url,
        given.host,
        given.model,
        given.rate,
        given.long_streams,
        given.seconds,
        prompt_words=given.prompt_words,
        answer_tokens=given.answer_tokens,
        sampled_share=given.sampled_share,
        longest_tokens=given.longest_tokens,
    )
    return aim, given.log


def main() -> None:
    """Run until --seconds or SIGTERM."""
    aim, path = read_arguments()
    with path.open("w", encoding="utf-8") as log:
        asyncio.run(_run(aim, log))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


async def _run(aim: Aim, log: TextIO) -> None:
    traffic = Traffic(aim, log)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, traffic.stop)
    await traffic.run()
    print(f"traffic: {traffic.sent} requests sent", file=sys.stderr)


if __name__ == "__main__":
    main()
