"""Reads back the compact rows that the driver leaves in its termination message, by the driver's own table."""

import base64
import binascii
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from specfleet.api.evidence import RunSummary
from specfleet.api.status import ArmRole
from specfleet.benchmark.driver.message import ARMS as ARM_NAMES
from specfleet.benchmark.driver.message import COMPRESSED_PREFIX, FIELDS, SCALE

ARMS = tuple(ArmRole(one) for one in ARM_NAMES)
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
