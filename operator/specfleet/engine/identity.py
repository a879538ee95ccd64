"""Whether a running engine is the one that was asked for."""

from collections.abc import Mapping
from typing import Any

from specfleet.api.model import EngineSpec
from specfleet.engine.findings import Finding, Severity
from specfleet.engine.versions import EngineVersion, version_of


def reported_version(answer: Any) -> str | None:
    """The version text in the JSON answer of GET /version (`{"version": "0.32.0"}`), None for anything else."""
    version = answer.get("version") if isinstance(answer, Mapping) else None
    return version if isinstance(version, str) else None


def contradiction(engine: EngineSpec, answer: Any) -> Finding | None:
    """A refusal when /version is not the version of the spec, None when it fits.

    Only the parts that the spec writes are compared: `0.32` fits 0.32.1; build suffixes never count.
    """
    asked = version_of(engine)
    said = reported_version(answer)
    running = EngineVersion.parse(said) if said is not None else None
    if asked is None or (running is not None and _fits(engine, asked, running)):
        return None
    where = "spec.engine.version" if engine.version is not None else "spec.engine.image"
    return Finding(
        "EngineVersionContradicted",
        Severity.REFUSE,
        where,
        "EngineVersionContradicted",
        f"the spec says vLLM {asked}, the running engine says {said!r}",
        "Correct engine.version, or use the image that holds that version: the rules were checked for the wrong one",
        "specfleet",
    )


def _fits(engine: EngineSpec, asked: EngineVersion, running: EngineVersion) -> bool:
    written = engine.version if engine.version is not None else None
    if written is not None and written.count(".") == 1:
        return asked.release[:2] == running.release[:2]
    return asked == running
