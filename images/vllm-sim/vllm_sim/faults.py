"""Faults that can be switched on while the engine runs: from a file polled each second, or by POST /sim/faults."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_sim.acceptance import HEALTHY, AcceptanceFault

FAULTS_SWITCH = "VLLM_SIM_FAULTS"
FAULTS_FILE = "VLLM_SIM_FAULTS_FILE"

# kind -> the fields it takes beyond the common ones (id, kind, arms, at, until, heals_on_restart)
KINDS: dict[str, frozenset[str]] = {
    "acceptance_decay": frozenset({"factor", "acceptance", "over_seconds"}),
    "slow_steps": frozenset({"factor", "over_seconds"}),
    "out_of_memory": frozenset({"exit_code", "running_at_least"}),
    "crash_on_request": frozenset({"exit_code"}),
    "hang": frozenset(),
    "error_share": frozenset({"share"}),
    "wrong_output": frozenset({"share"}),
    "phantom_drafts": frozenset({"per_request"}),
    "startup_failure": frozenset({"exit_code", "message"}),
}
_COMMON = frozenset({"id", "kind", "arms", "at", "until", "heals_on_restart"})
_ARM_FIELDS = frozenset({"speculation", "methods", "fingerprints", "served_names", "models", "draft_models"})


class FaultError(ValueError):
    """A fault document cannot be used; the text names the field."""


@dataclass(frozen=True)
class Identity:
    """What the selectors of a fault compare with."""

    method: str | None
    fingerprint: str | None
    served_names: tuple[str, ...]
    model: str
    draft_model: str | None
    started: float
    """Unix time at which this process began."""


@dataclass(frozen=True)
class Fault:
    """One fault of a document."""

    id: str
    kind: str
    at: float
    """Unix time from which it works."""
    until: float | None
    heals_on_restart: bool
    values: Mapping[str, Any] = field(default_factory=dict)

    def active(self, identity: Identity, now: float) -> bool:
        """Whether it works in this process now. One that a restart heals spares a process that began after it."""
        if now < self.at or (self.until is not None and now >= self.until):
            return False
        return not (self.heals_on_restart and identity.started > self.at)


@dataclass(frozen=True)
class ActiveFaults:
    """The sum of the active faults, as the engine looks at it."""

    ids: tuple[str, ...] = ()
    acceptance: AcceptanceFault = HEALTHY
    step_factor: float = 1.0
    hang: bool = False
    error_share: float = 0.0
    wrong_output_share: float = 0.0
    phantom_drafts_per_request: int = 0
    crash_on_request: int | None = None
    """Exit code, when the next request kills the engine."""
    out_of_memory: int | None = None
    """Exit code, when the engine dies once `out_of_memory_running` requests run."""
    out_of_memory_running: int = 0
    startup_failure: tuple[int, str] | None = None


NONE = ActiveFaults()


def parse_faults(document: object, identity: Identity, default_at: float) -> list[Fault]:
    """`{"faults": [...]}` or a bare list to the faults that concern this process. Raises FaultError."""
    entries = document.get("faults") if isinstance(document, dict) else document
    if not isinstance(entries, list):
        raise FaultError('faults must be a list, or an object with the list in "faults"')
    found = []
    for place, entry in enumerate(entries):
        path = f"faults[{place}]"
        if not isinstance(entry, dict):
            raise FaultError(f"{path} must be an object")
        kind = entry.get("kind")
        if kind not in KINDS:
            raise FaultError(f"{path}.kind must be one of {', '.join(KINDS)}, not {kind!r}")
        _check_fields(entry, kind, path)
        if not selects(entry.get("arms", {}), identity, f"{path}.arms"):
            continue
        found.append(
            Fault(
                id=str(entry.get("id", f"{kind}-{place}")),
                kind=kind,
                at=_number(entry.get("at", default_at), f"{path}.at"),
                until=None if entry.get("until") is None else _number(entry["until"], f"{path}.until"),
                heals_on_restart=bool(entry.get("heals_on_restart", False)),
                values=entry,
            )
        )
    return found


def _check_fields(entry: Mapping[str, Any], kind: str, path: str) -> None:
    for name, value in entry.items():
        if name not in _COMMON and name not in KINDS[kind]:
            allowed = ", ".join(sorted(_COMMON | KINDS[kind]))
            raise FaultError(f"{path}.{name}: unknown field for {kind}; known are {allowed}")
        if name in ("factor", "over_seconds", "share", "per_request", "running_at_least", "exit_code"):
            _number(value, f"{path}.{name}")
    rates = entry.get("acceptance")
    if rates is not None and not (
        isinstance(rates, list) and rates and all(isinstance(r, (int, float)) for r in rates)
    ):
        raise FaultError(f"{path}.acceptance must be a list of probabilities, one per position")


def _number(value: object, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise FaultError(f"{path} must be a number of at least 0, not {value!r}")
    return float(value)


def selects(arms: object, identity: Identity, path: str) -> bool:
    """Whether a selector means this process; an empty one means every process."""
    if not isinstance(arms, dict):
        raise FaultError(f"{path} must be an object")
    for name in arms:
        if name not in _ARM_FIELDS:
            raise FaultError(f"{path}.{name}: unknown field; known are {', '.join(sorted(_ARM_FIELDS))}")
    if "speculation" in arms and bool(arms["speculation"]) != (identity.method is not None):
        return False
    mine: dict[str, tuple[str | None, ...]] = {
        "methods": (identity.method or "none",),
        "fingerprints": (identity.fingerprint,),
        "served_names": identity.served_names,
        "models": (identity.model,),
        "draft_models": (identity.draft_model,),
    }
    return all(any(value in arms[name] for value in values) for name, values in mine.items() if name in arms)


def _ramp(fault: Fault, now: float) -> float:
    """0 at its beginning, 1 once `over_seconds` have passed."""
    over = float(fault.values.get("over_seconds", 0.0))
    return 1.0 if over <= 0 else min(1.0, max(0.0, (now - fault.at) / over))


def combine(faults: list[Fault], identity: Identity, now: float) -> ActiveFaults:
    """The effect of all faults at a moment."""
    active = [fault for fault in faults if fault.active(identity, now)]
    if not active:
        return NONE
    values: dict[str, Any] = {"ids": tuple(fault.id for fault in active)}
    factor, step_factor, rates = 1.0, 1.0, None
    for fault in active:
        body, ramp = fault.values, _ramp(fault, now)
        if fault.kind == "acceptance_decay":
            factor *= 1.0 + (float(body.get("factor", 1.0)) - 1.0) * ramp
            if "acceptance" in body and ramp >= 1.0:
                rates = tuple(float(rate) for rate in body["acceptance"])
        elif fault.kind == "slow_steps":
            step_factor *= 1.0 + (float(body.get("factor", 2.0)) - 1.0) * ramp
        elif fault.kind == "hang":
            values["hang"] = True
        elif fault.kind == "error_share":
            values["error_share"] = float(body.get("share", 1.0))
        elif fault.kind == "wrong_output":
            values["wrong_output_share"] = float(body.get("share", 1.0))
        elif fault.kind == "phantom_drafts":
            values["phantom_drafts_per_request"] = int(body.get("per_request", 1))
        elif fault.kind == "crash_on_request":
            values["crash_on_request"] = int(body.get("exit_code", 1))
        elif fault.kind == "out_of_memory":
            values["out_of_memory"] = int(body.get("exit_code", 1))
            values["out_of_memory_running"] = int(body.get("running_at_least", 0))
        elif fault.kind == "startup_failure":
            message = str(body.get("message", "RuntimeError: Engine core initialization failed. See root cause above."))
            values["startup_failure"] = (int(body.get("exit_code", 1)), message)
    return ActiveFaults(acceptance=AcceptanceFault(round(factor, 4), rates), step_factor=step_factor, **values)


class FaultSource:
    """The faults of the file and of the last POST."""

    def __init__(self, identity: Identity, environment: Mapping[str, str]) -> None:
        self._identity = identity
        path = environment.get(FAULTS_FILE, "")
        self._path = Path(path) if path else None
        self.http_allowed = environment.get(FAULTS_SWITCH, "") == "1"
        self._modified: float | None = None
        self._first_seen: dict[str, float] = {}
        self._from_file: list[Fault] = []
        self._posted: list[Fault] = []
        self.error = ""
        self.active = NONE

    def poll(self, now: float) -> ActiveFaults:
        """Read the file if it changed, and say what is active. A file that cannot be read keeps the last good one."""
        if self._path is not None:
            try:
                modified = self._path.stat().st_mtime
                if modified != self._modified:
                    self._modified = modified
                    text = self._path.read_text(encoding="utf-8").strip()
                    self._from_file = self._dated(json.loads(text) if text else [], modified)
                    self.error = ""
            except FileNotFoundError:
                self._modified, self._from_file = None, []
            except (OSError, ValueError) as error:
                self.error = f"{self._path}: {error}"
        # One fault told twice, by file and by POST, is one fault: the id says so, and the posted one counts.
        faults = {fault.id: fault for fault in (*self._from_file, *self._posted)}
        active = combine(list(faults.values()), self._identity, now)
        # The same effect keeps the same object: requests compare it by identity.
        if active != self.active:
            self.active = active
        return self.active

    def _dated(self, document: object, default_at: float) -> list[Fault]:
        """Faults without `at` begin when their id was first seen, not each time that the file changes."""
        faults = parse_faults(document, self._identity, default_at)
        dated = []
        for fault in faults:
            at = fault.at if "at" in fault.values else self._first_seen.setdefault(fault.id, fault.at)
            dated.append(Fault(fault.id, fault.kind, at, fault.until, fault.heals_on_restart, fault.values))
        return dated

    def post(self, document: object) -> ActiveFaults:
        """Replace the posted faults. Raises FaultError."""
        now = time.time()
        self._posted = parse_faults(document, self._identity, now)
        return self.poll(now)

    def describe(self) -> dict[str, Any]:
        """For GET /sim/faults."""
        return {
            "active": list(self.active.ids),
            "file": [dict(fault.values) for fault in self._from_file],
            "posted": [dict(fault.values) for fault in self._posted],
            "error": self.error,
        }
