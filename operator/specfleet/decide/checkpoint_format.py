"""Checkpoints of many deployments as bytes, and back. Floats are exact; what does not fit is refused, never guessed.

A first line with the version, then zlib: length of a JSON header, the header, and the float64 columns, like bytes of
all numbers side by side (so they compress better).
"""

import json
import math
import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from specfleet.api.status import ArmRole
from specfleet.decide.checkpoint import LAYOUT, PAIR_SIZE, POD_SIZE, ROW_SIZE, Checkpoint
from specfleet.decide.watch_target import Key

VERSION = b"specfleet watch 1\n"
LIMIT_BYTES = 900_000
"""Of one object; a ConfigMap may hold 1 MiB."""
LIMIT_RAW_BYTES = 32 * 1024 * 1024
"""Before compression: what is read is not trusted to be what was written."""
SHARDS = 64
LEVEL = 6

_LENGTH = struct.Struct("<I")


class CheckpointError(ValueError):
    """The bytes are not checkpoints of this version. The message says why."""


def shard_of(key: Key) -> int:
    """In which of SHARDS objects a deployment is kept: by namespace and name, the same in every process."""
    return zlib.crc32(f"{key[0]}/{key[1]}".encode()) % SHARDS


def encode(found: Sequence[Checkpoint], limit: int = LIMIT_BYTES) -> tuple[bytes, list[Key]]:
    """Bytes of at most `limit`, and what had no room: the least suspicious, and of those the largest first."""
    kept = sorted(found, key=lambda one: (-one.suspicion, one.pairs.size, one.key))
    left_out: list[Key] = []
    while True:
        raw = _raw(kept)
        data = VERSION + zlib.compress(raw, LEVEL)
        part = min(1.0, limit / len(data), LIMIT_RAW_BYTES / len(raw))
        if part >= 1.0 or not kept:
            return data, left_out
        room = min(len(kept) - 1, math.floor(len(kept) * part))
        left_out += [one.key for one in kept[room:]]
        kept = kept[:room]


def decode(data: bytes) -> list[Checkpoint]:
    """The opposite of `encode`. Raises CheckpointError."""
    if not data.startswith(VERSION):
        raise CheckpointError("they are not checkpoints of this version of the format")
    try:
        found = _rows(_unpacked(data[len(VERSION) :]))
    except CheckpointError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, struct.error) as error:
        raise CheckpointError(f"they are damaged ({type(error).__name__})") from error
    return found


def _raw(kept: Sequence[Checkpoint]) -> bytes:
    header = json.dumps({"layout": LAYOUT, "rows": [_head(one) for one in kept]}, separators=(",", ":")).encode()
    parts = [
        np.array([one.state for one in kept]).reshape(-1, ROW_SIZE).T,
        np.array([state for one in kept for _, state in one.pods.values()]).reshape(-1, POD_SIZE).T,
        *(one.acceptance for one in kept),
        *(one.pairs.T for one in kept),
    ]
    numbers = np.concatenate([part.ravel() for part in parts]).astype("<f8")
    body: bytes = numbers.view(np.uint8).reshape(-1, 8).T.tobytes()
    return _LENGTH.pack(len(header)) + header + body


def _head(one: Checkpoint) -> dict[str, Any]:
    return {
        "key": one.key,
        "fingerprint": one.fingerprint,
        "since": one.since,
        "calibration": one.calibration,
        "until": one.until,
        "suspicion": one.suspicion,
        "said": {role.value: message for role, message in one.said.items()},
        "dispersion": one.dispersion,
        "pods": [[name, role.value] for name, (role, _) in one.pods.items()],
        "acceptance": one.acceptance.shape[1],
        "pairs": one.pairs.shape[0],
    }


def _unpacked(data: bytes) -> bytes:
    machine = zlib.decompressobj()
    try:
        raw = machine.decompress(data, LIMIT_RAW_BYTES + 1)
    except zlib.error as error:
        raise CheckpointError(f"they are damaged ({error})") from error
    if len(raw) > LIMIT_RAW_BYTES:
        raise CheckpointError(f"they are larger than {LIMIT_RAW_BYTES} bytes")
    if not machine.eof or machine.unused_data:
        raise CheckpointError("they are cut off, or something follows them")
    return raw


def _rows(raw: bytes) -> list[Checkpoint]:
    (length,) = _LENGTH.unpack_from(raw)
    header = json.loads(raw[_LENGTH.size : _LENGTH.size + length])
    if header["layout"] != LAYOUT:
        raise CheckpointError("an operator that watches other numbers has written them")
    rows = header["rows"]
    body = np.frombuffer(raw, np.uint8, offset=_LENGTH.size + length)
    numbers = np.ascontiguousarray(body.reshape(8, -1).T).view("<f8").ravel().astype(np.float64)
    pods = sum(len(row["pods"]) for row in rows)
    sizes = [ROW_SIZE * len(rows), POD_SIZE * pods]
    sizes += [2 * _count(row["acceptance"]) for row in rows] + [PAIR_SIZE * _count(row["pairs"]) for row in rows]
    if sum(sizes) != numbers.size:
        raise CheckpointError("they hold more or fewer numbers than they say")
    edges = np.cumsum([0, *sizes])
    states, of_pods, *others = (numbers[begin:end] for begin, end in pairwise(edges))
    acceptance, pairs = others[: len(rows)], others[len(rows) :]
    states, each_pod = states.reshape(ROW_SIZE, -1).T.copy(), iter(of_pods.reshape(POD_SIZE, -1).T.copy())
    return [
        Checkpoint(
            **_identity(row),
            state=states[index],
            pods={str(name): (ArmRole(role), next(each_pod)) for name, role in row["pods"]},
            acceptance=acceptance[index].reshape(2, -1).copy(),
            pairs=pairs[index].reshape(PAIR_SIZE, -1).T.copy(),
        )
        for index, row in enumerate(rows)
    ]


def _identity(row: dict[str, Any]) -> dict[str, Any]:
    namespace, name, uid = row["key"]
    dispersion = row["dispersion"]
    return {
        "key": (str(namespace), str(name), str(uid)),
        "fingerprint": str(row["fingerprint"]),
        "since": float(row["since"]),
        "calibration": str(row["calibration"]),
        "until": float(row["until"]),
        "suspicion": float(row["suspicion"]),
        "said": {ArmRole(role): str(message) for role, message in row["said"].items()},
        "dispersion": None if dispersion is None else float(dispersion),
    }


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise CheckpointError("they are damaged (a number of windows is none)")
    return value
