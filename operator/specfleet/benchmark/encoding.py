"""Reads back the compact rows that the driver leaves in its termination message.

The driver is mounted alone into the engine image and imports nothing of this package, so the table is written twice;
tests/benchmark/test_encoding.py holds the two together.
"""

import base64
import binascii
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from specfleet.api.evidence import RunSummary
from specfleet.api.status import ArmRole

MESSAGE_VERSION = 1
COMPRESSED_PREFIX = "z1:"
ARMS = (ArmRole.BASELINE, ArmRole.SPECULATIVE)
SCALE = {"int": 1, "milli": 1000, "micro": 1_000_000}

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
_REQUIRED = frozenset(name for name, field in RunSummary.model_fields.items() if field.is_required())


def unpack(text: str) -> Any:
    """The message's JSON value, decompressed if need be. Raises ValueError when it is neither."""
    if text.startswith(COMPRESSED_PREFIX):
        try:
            text = zlib.decompress(base64.b85decode(text[len(COMPRESSED_PREFIX) :])).decode()
        except (zlib.error, ValueError, binascii.Error) as error:
            raise ValueError(f"the compressed message is damaged: {error}") from error
    return json.loads(text)


def decode_run(
    row: Sequence[Any], tiers: Sequence[str], slices: Sequence[str], pods: Mapping[ArmRole, str | None]
) -> RunSummary:
    """One row of FIELDS as a RunSummary. Raises ValueError on a row that does not fit the table."""
    if len(row) != len(FIELDS):
        raise ValueError(f"a run has {len(row)} values instead of {len(FIELDS)}: operator and driver differ")
    values: dict[str, Any] = {}
    for (name, kind), value in zip(FIELDS, row, strict=True):
        if kind == "arm":
            values[name] = ARMS[value]
        elif kind == "tier":
            values[name] = tiers[value]
        elif kind == "slice":
            values[name] = slices[value]
        elif kind == "text":
            values[name] = value or None
        elif kind == "list":
            values[name] = [int(item) for item in value]
        elif value != -1:
            values[name] = int(value) if kind == "int" else value / SCALE[kind]
    for name in _REQUIRED:
        if name not in values and name != "valid":
            raise ValueError(f"a run has no {name}")
    values["valid"] = values["invalid_reason"] is None
    values["pod"] = pods.get(values["arm"])
    return RunSummary(**values)
