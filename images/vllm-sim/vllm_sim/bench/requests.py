"""One benchmark request: send it, stamp what comes back."""

import asyncio
import json
import os
import sys
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from vllm_sim.bench.arguments import BenchArguments
from vllm_sim.bench.datasets import Prompt
from vllm_sim.bench.http_client import HttpClient
from vllm_sim.tokens import count_tokens


@dataclass(slots=True)
class Outcome:
    """What one request gave. Times in seconds; `start_time` is the client's performance counter."""

    prompt_len: int
    success: bool = False
    text: str = ""
    ttft: float = 0.0
    itl: list[float] = field(default_factory=list)
    latency: float = 0.0
    start_time: float = 0.0
    queue_time: float = 0.0
    """Waiting in the client: for the concurrency limit."""
    output_tokens: int | None = None
    error: str = ""

    def output_len(self) -> int:
        """Tokens as the server counted them, else counted here."""
        return count_tokens(self.text) if self.output_tokens is None else self.output_tokens


class _Stream:
    """Server-sent events of one answer."""

    __slots__ = ("_buffer", "_chat", "_last", "_outcome", "_parts", "seen")

    def __init__(self, outcome: Outcome, chat: bool) -> None:
        self._outcome = outcome
        self._chat = chat
        self._buffer = b""
        self._last = outcome.start_time
        self._parts: list[str] = []
        self.seen = False

    def feed(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        *events, self._buffer = data.split(b"\n\n")
        for event in events:
            if event.startswith(b"data: ") and event != b"data: [DONE]":
                self._event(json.loads(event[6:]))

    def _event(self, message: dict[str, Any]) -> None:
        choices = message.get("choices")
        if not choices:
            usage = message.get("usage")
            if usage:
                self._outcome.output_tokens = usage.get("completion_tokens")
            return
        choice = choices[0]
        text = (choice["delta"].get("content") if self._chat else choice.get("text")) or ""
        now = time.perf_counter()
        if self.seen:
            self._outcome.itl.append(now - self._last)
        else:
            self.seen = True
            self._outcome.ttft = now - self._outcome.start_time
        self._last = now
        if text:
            self._parts.append(text)

    def finish(self) -> None:
        outcome = self._outcome
        outcome.text = "".join(self._parts)
        outcome.latency = self._last - outcome.start_time
        outcome.success = self.seen
        if not self.seen:
            outcome.error = "Never received a valid chunk to calculate TTFT. This response will be marked as failed!"


class Sender:
    """Sends requests as the arguments say."""

    def __init__(self, arguments: BenchArguments, client: HttpClient, model: str) -> None:
        self._arguments = arguments
        self._client = client
        self._model = arguments.served_model_name or model
        self._chat = arguments.endpoint.endswith("chat/completions")
        limit = arguments.max_concurrency
        self._slots = asyncio.Semaphore(limit) if limit else None

    def body(self, prompt: Prompt) -> bytes:
        """The JSON of a request."""
        body: dict[str, Any] = {"model": self._model}
        if self._chat:
            body["messages"] = [{"role": "user", "content": [{"type": "text", "text": prompt.text}]}]
            body["max_completion_tokens"] = prompt.output_len
        else:
            body |= {
                "prompt": prompt.text,
                "repetition_penalty": 1.0,
                "max_tokens": prompt.output_len,
                "logprobs": None,
            }
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self._arguments.ignore_eos:
            body["ignore_eos"] = True
        return json.dumps(body | self._arguments.sampling).encode()

    async def send(self, prompt: Prompt, number: int) -> Outcome:
        """Wait for a slot, send, read to the end."""
        due = time.perf_counter()
        body = self.body(prompt)
        if self._slots is None:
            return await self._exchange(prompt, body, number, due)
        async with self._slots:
            return await self._exchange(prompt, body, number, due)

    async def _exchange(self, prompt: Prompt, body: bytes, number: int, due: float) -> Outcome:
        outcome = Outcome(prompt.prompt_len)
        headers = {"x-request-id": f"{self._arguments.request_id_prefix}{number}"}
        if os.environ.get("OPENAI_API_KEY"):
            headers["Authorization"] = f"Bearer {os.environ['OPENAI_API_KEY']}"
        headers |= self._arguments.headers
        outcome.start_time = time.perf_counter()
        outcome.queue_time = outcome.start_time - due
        stream = _Stream(outcome, self._chat)
        try:
            answer = await self._client.request("POST", self._arguments.endpoint, body, headers, stream.feed)
        except Exception:
            # Whatever goes wrong with one request is a failed request, never the end of the run.
            outcome.error = "".join(traceback.format_exception(*sys.exc_info()))
            return outcome
        if answer.status != 200:
            outcome.error = answer.reason
            return outcome
        stream.finish()
        return outcome
