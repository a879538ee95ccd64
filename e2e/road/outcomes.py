"""What became of every request that the client sent: one JSON line each, written and read here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request as its client saw it. Times are Unix seconds."""

    number: int
    kind: str
    """stream, plain or long: a long one is a stream that is meant to last over a minute."""
    endpoint: str
    start: float
    end: float
    first_byte: float | None = None
    status: int | None = None
    """HTTP status; None when no answer came."""
    finish_reason: str | None = None
    tokens: int = 0
    """Completion tokens, as the server counted them."""
    done_seen: bool = False
    """Streams: [DONE] arrived."""
    fault: str | None = None
    """Why the request counts as failed or cut; None when it was served whole."""
    fingerprint: str | None = None
    """system_fingerprint of the answer: which arm gave it."""

    @property
    def seconds(self) -> float:
        """From the first byte sent to the last one received."""
        return self.end - self.start

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Speed after the first token; None for short or non-streamed answers."""
        if self.first_byte is None or self.tokens < 8 or self.kind == "plain":
            return None
        return (self.tokens - 1) / max(1e-6, self.end - self.first_byte)

    def open_at(self, moment: float) -> bool:
        """Whether the request was in flight at a moment."""
        return self.start < moment < self.end


def fault_of(
    status: int | None, error: str | None, streamed: bool, finish_reason: str | None, done_seen: bool
) -> str | None:
    """Why a request counts as failed or cut, in words; None when it was served whole."""
    if error is not None:
        return error
    if status is None:
        return "no answer"
    if status >= 400:
        return f"HTTP {status}"
    if finish_reason is None:
        return "the answer has no finish_reason: it was cut"
    if finish_reason not in ("stop", "length"):
        return f"finish_reason {finish_reason}"
    if streamed and not done_seen:
        return "the stream ended without [DONE]: it was cut"
    return None


def to_line(outcome: Outcome) -> str:
    """One line of the log."""
    return json.dumps(asdict(outcome), separators=(",", ":"))


def read_log(path: Path) -> list[Outcome]:
    """All outcomes of a log; a last line that is still being written is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(Outcome(**json.loads(line)))
        except ValueError:
            continue
    return found


@dataclass(frozen=True, slots=True)
class Totals:
    """A log in a few numbers."""

    requests: int
    failed: int
    seconds: float
    long_streams: int
    """Streams that were served whole and lasted over a minute."""
    faults: tuple[str, ...]

    @property
    def requests_per_second(self) -> float:
        """Mean rate at which requests began."""
        return self.requests / self.seconds if self.seconds > 0 else 0.0


LONG_SECONDS = 60.0


def totals(outcomes: Iterable[Outcome]) -> Totals:
    """Sum a log up. The rate counts from the first to the last start of a request."""
    listed = list(outcomes)
    faults = [f"#{one.number} {one.kind} {one.endpoint}: {one.fault}" for one in listed if one.fault is not None]
    starts = [one.start for one in listed]
    return Totals(
        requests=len(listed),
        failed=len(faults),
        seconds=max(starts) - min(starts) if starts else 0.0,
        long_streams=sum(one.fault is None and one.seconds > LONG_SECONDS for one in listed),
        faults=tuple(faults),
    )
