"""vLLM versions: parsed from a spec, an image tag or the answer of /version, and ordered."""

import re
from dataclasses import dataclass
from functools import total_ordering

from specfleet.api.model import EngineSpec

_VERSION = re.compile(
    r"v?(?P<major>\d+)\.(?P<minor>\d+)(?:\.(?P<patch>\d+))?(?:[.-]?(?P<stage>dev|a|b|rc)(?P<number>\d*))?(?![\d])",
    re.IGNORECASE,
)
_IN_TAG = re.compile(r"(?:^|vllm[-_]?|cpu[-_])(v?0\.\d+(?:\.\d+)?(?:[.-]?(?:dev|a|b|rc)\d*)?)", re.IGNORECASE)
_STAGES = {"dev": 0, "a": 1, "b": 2, "rc": 3}
_FINAL = 4


@total_ordering
@dataclass(frozen=True, slots=True)
class EngineVersion:
    """A vLLM version. Pre-releases sort before their release; build suffixes (`+cpu`, `-cu129`) do not count."""

    major: int
    minor: int
    patch: int = 0
    stage: int = _FINAL
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> "EngineVersion | None":
        """From `0.32.0`, `v0.32.0rc1`, `0.32`, `0.32.0+cpu`, `v0.32.0-cu129`; None when it is no version."""
        found = _VERSION.match(text.strip())
        if found is None:
            return None
        stage = found["stage"]
        return cls(
            int(found["major"]),
            int(found["minor"]),
            int(found["patch"] or 0),
            _STAGES[stage.lower()] if stage else _FINAL,
            int(found["number"] or 0) if stage else 0,
        )

    @property
    def release(self) -> tuple[int, int, int]:
        """The release this version is or leads to. Features are gated on it: 0.32.0rc1 has what 0.32.0 has."""
        return (self.major, self.minor, self.patch)

    def has(self, since: str | None, last: str | None = None) -> bool:
        """Whether a feature that exists since one release and last in another one (both inclusive) exists here.

        `last` without a patch number means every patch release of it.
        """
        if since is not None and self.release < release_of(since):
            return False
        if last is None:
            return True
        parts = last.count(".") + 1
        return self.release[:parts] <= release_of(last)[:parts]

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, EngineVersion):
            return NotImplemented
        return self._key() < other._key()

    def _key(self) -> tuple[int, int, int, int, int]:
        return (self.major, self.minor, self.patch, self.stage, self.number)

    def __str__(self) -> str:
        names = {number: name for name, number in _STAGES.items()}
        tail = "" if self.stage == _FINAL else f"{names[self.stage]}{self.number}"
        return f"{self.major}.{self.minor}.{self.patch}{tail}"


def release_of(text: str) -> tuple[int, int, int]:
    """The release tuple of a literal such as `0.21` in the rule table; raises ValueError for anything else."""
    version = EngineVersion.parse(text)
    if version is None:
        raise ValueError(f"{text!r} is not a vLLM version")
    return version.release


def tag_of(image: str) -> str | None:
    """Tag of an image reference, or None (`host:5000/name@sha256:...` has none)."""
    name = image.split("@", 1)[0].rsplit("/", 1)[-1]
    return name.split(":", 1)[1] if ":" in name else None


def version_in_tag(image: str) -> EngineVersion | None:
    """vLLM version that the tag spells out, else None.

    Only major version 0 is believed: vendors tag vLLM images with versions of their own (`25.09-py3`, `3.2.1`).
    """
    tag = tag_of(image)
    found = _IN_TAG.search(tag) if tag else None
    return EngineVersion.parse(found[1]) if found else None


def version_of(engine: EngineSpec) -> EngineVersion | None:
    """Version the spec asks for: engine.version, else the image tag, else None."""
    if engine.version is not None:
        return EngineVersion.parse(engine.version)
    return version_in_tag(engine.image)
