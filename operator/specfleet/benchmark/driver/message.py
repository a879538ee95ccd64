"""The termination message: at most 4096 bytes that hold every run (benchmark/result.py reads it)."""

import base64
import json
import math
import zlib
from collections.abc import Sequence
from typing import Any

from .failures import CannotMeasureError
from .harness import Json
from .session import Session
from .summary import Run

MESSAGE_LIMIT_BYTES = 4096
MESSAGE_VERSION = 1
COMPRESSED_PREFIX = "z1:"
REASON_LIMIT = 120
ARMS = ("baseline", "speculative")
# (RunSummary field, encoding). Encodings: text and list as they are, int rounded, milli and micro scaled integers.
# None is -1: no encoded quantity is negative. benchmark/encoding.py decodes by this table.
FIELDS: tuple[tuple[str, str], ...] = (
    ("arm", "arm"),
    ("tier", "tier"),
    ("slice", "slice"),
    ("order", "int"),
    ("invalid_reason", "text"),
    ("started", "int"),
    ("duration_seconds", "milli"),
    ("planned_requests", "int"),
    ("completed_requests", "int"),
    ("failed_requests", "int"),
    ("requests_per_second", "milli"),
    ("concurrency", "int"),
    ("completed_requests_per_second", "milli"),
    ("prompt_tokens", "int"),
    ("output_tokens", "int"),
    ("output_tokens_per_second", "milli"),
    ("tpot_mean_seconds", "micro"),
    ("tpot_p95_seconds", "micro"),
    ("ttft_mean_seconds", "micro"),
    ("ttft_p95_seconds", "micro"),
    ("e2e_mean_seconds", "micro"),
    ("stall_p95_seconds", "micro"),
    ("ttft_over_slo_share", "micro"),
    ("tpot_over_slo_share", "micro"),
    ("client_lag_p99_seconds", "micro"),
    ("drafts", "int"),
    ("draft_tokens", "int"),
    ("accepted_tokens", "int"),
    ("accepted_per_position", "list"),
    ("engine_tpot_seconds", "micro"),
    ("preemptions", "int"),
    ("kv_cache_peak_ratio", "micro"),
    ("queue_time_mean_seconds", "micro"),
    ("client_errors", "int"),
    ("server_errors", "int"),
)
SCALE = {"int": 1, "milli": 1000, "micro": 1_000_000}


def encode_run(run: Run, tiers: Sequence[str], slices: Sequence[str]) -> list[Any]:
    """One run as the row of FIELDS."""
    row: list[Any] = []
    for name, kind in FIELDS:
        value = run.get(name)
        if kind == "arm":
            row.append(ARMS.index(str(value)))
        elif kind == "tier":
            row.append(tiers.index(str(value)))
        elif kind == "slice":
            row.append(slices.index(str(value)))
        elif kind == "text":
            row.append("" if value is None else str(value)[:REASON_LIMIT])
        elif kind == "list":
            row.append(list(value or []))
        else:
            row.append(-1 if value is None or not math.isfinite(value) else round(value * SCALE[kind]))
    return row


def encode_message(session: Session) -> str:
    """The termination message: JSON, without positions if too long, compressed if still too long.

    Raises CannotMeasureError when even that does not fit in 4096 bytes.
    """
    tiers = sorted({run["tier"] for run in session.runs})
    slices = sorted({run["slice"] for run in session.runs})
    message: Json = {
        "v": MESSAGE_VERSION,
        "tiers": tiers,
        "slices": slices,
        "pods": [session.plan["arms"].get(role, {}).get("pod") for role in ARMS],
        "runs": [encode_run(run, tiers, slices) for run in session.runs],
    }
    if session.capacity_requests_per_second is not None:
        message["capacity"] = round(session.capacity_requests_per_second, 4)
    if session.texts:
        message["texts"] = {name: "".join(texts) for name, texts in session.texts.items()}
    if session.requests:
        message["requests"] = session.requests
    if session.error:
        message["error"] = session.error[:400]
    text = json.dumps(message, separators=(",", ":"))
    if len(text.encode()) <= MESSAGE_LIMIT_BYTES:
        return text
    text = _compressed(message)
    if len(text) <= MESSAGE_LIMIT_BYTES:
        return text
    place = [name for name, _ in FIELDS].index("accepted_per_position")
    for row in message["runs"]:
        row[place] = []
    text = _compressed(message)
    if len(text) > MESSAGE_LIMIT_BYTES:
        raise CannotMeasureError(
            f"{len(session.runs)} runs do not fit in a termination message: measure fewer cells per Job"
        )
    return text


def _compressed(message: Json) -> str:
    packed = zlib.compress(json.dumps(message, separators=(",", ":")).encode(), 9)
    return COMPRESSED_PREFIX + base64.b85encode(packed).decode()
