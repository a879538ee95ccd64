"""Fingerprints: what makes two engines comparable, as a hash and as words.

*Requested*: from the spec. *Observed*: from running pods (a moved tag or another GPU shows only there).
"""

import hashlib
import json
import re
from collections.abc import Mapping
from itertools import takewhile

LENGTH = 12
LONGEST = 90
CONTEXT = 20
"""Characters of a value that are told, and of what precedes a difference."""
_COMMIT = re.compile(r"^[0-9a-f]{40}$")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
NONE = "none"


def fingerprint_of(inputs: Mapping[str, str]) -> str:
    """12 hexadecimal digits (DNS-safe) over all inputs, independent of their order."""
    text = json.dumps(dict(inputs), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def observed_inputs(
    requested: Mapping[str, str], image_digest: str | None, engine_version: str | None, gpu_type: str | None
) -> dict[str, str]:
    """Requested inputs plus what only running pods know; unknown parts are left out."""
    seen = {"image digest": image_digest, "running engine": engine_version, "GPU type": gpu_type}
    return {**requested, **{key: value for key, value in seen.items() if value is not None}}


def observed_fingerprint(requested: str, image_digest: str, engine_version: str, gpu_type: str) -> str:
    """12 hexadecimal digits. Pods of one requested fingerprint that differ here are two arms."""
    return fingerprint_of({"requested": requested, **observed_inputs({}, image_digest, engine_version, gpu_type)})


def describe_difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """What changed, for people: `engine 0.31.0 -> 0.32.0, draft revision a1b2c3d4 -> c3d4e5f6`; "" when nothing did."""
    keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    return ", ".join(f"{key} {_pair(before.get(key, NONE), after.get(key, NONE))}" for key in keys)


def _pair(before: str, after: str) -> str:
    short = _shorten(before), _shorten(after)
    left, right = short if short[0] != short[1] else (before, after)
    # Long values (histogram buckets, JSON) are told where they differ: the line stands in Events and in alerts.
    same = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(left, right, strict=False)))
    begin = max(0, same - CONTEXT) if max(len(left), len(right)) > LONGEST else 0
    return f"{_piece(left, begin)} -> {_piece(right, begin)}"


def _piece(text: str, begin: int) -> str:
    end = begin + LONGEST
    return f"{'...' if begin else ''}{text[begin:end]}{'...' if end < len(text) else ''}"


def _shorten(value: str) -> str:
    if _COMMIT.match(value):
        return value[:8]
    return _DIGEST.sub(lambda found: found[0][: len("sha256:") + 12], value)
