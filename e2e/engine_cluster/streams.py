"""Streams straight to a pod, and what became of them."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.request
from dataclasses import dataclass, field

HANGS_SECONDS = 40.0


@dataclass
class PodStream:
    """One streaming completion, read in the background."""

    address: str
    tokens: int
    started: threading.Event = field(default_factory=threading.Event)
    finish_reason: str | None = None
    done: bool = False
    error: str | None = None
    said: str | None = None
    """The engine's own word in the stream that it gives up: an error object, after an answer of status 200."""
    chunks: int = 0
    thread: threading.Thread | None = None

    def start(self) -> None:
        """Send the request."""
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for its end, for so long at most."""
        assert self.thread is not None
        self.thread.join(seconds)

    @property
    def whole(self) -> bool:
        """Whether the answer came to its own end."""
        return self.done and self.finish_reason == "length" and self.error is None and self.said is None

    @property
    def end(self) -> str:
        """How it ended, in words."""
        if self.whole:
            return f"whole ({self.chunks} chunks)"
        if self.error is not None:
            return f"cut after {self.chunks} chunks: {self.error}"
        if self.finish_reason is not None:
            return f"cut after {self.chunks} chunks: finish_reason {self.finish_reason}"
        if self.said is not None:
            return f"cut after {self.chunks} chunks: error object {self.said[:80]!r}{', [DONE]' if self.done else ''}"
        if self.done:
            return f"cut after {self.chunks} chunks: [DONE] without a finish_reason"
        return f"hanging after {self.chunks} chunks"

    def _read(self) -> None:
        body = {"model": "target", "prompt": "a long answer", "max_tokens": self.tokens, "temperature": 0}
        body |= {"stream": True, "ignore_eos": True}
        request = urllib.request.Request(
            f"http://{self.address}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=HANGS_SECONDS) as answer:
                for line in answer:
                    self._line(line.decode().strip())
            if not self.done:
                self.error = "the stream ended without [DONE]"
        except (OSError, http.client.HTTPException) as error:
            self.error = f"{type(error).__name__} {error}"

    def _line(self, line: str) -> None:
        if not line.startswith("data:"):
            return
        text = line.removeprefix("data:").strip()
        if text == "[DONE]":
            self.done = True
            return
        chunk = json.loads(text)
        if "error" in chunk:
            self.said = str(chunk["error"].get("message"))
            return
        self.chunks += 1
        self.started.set()
        for choice in chunk.get("choices", []):
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
