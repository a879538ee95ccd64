"""What a rule is: a pure function with its severity, its versions, its reason and its remedy in one place."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from specfleet.engine.findings import Finding, Severity
from specfleet.engine.rules.case import Case, ProposerCase

C = TypeVar("C", bound=Case)


class Shows(StrEnum):
    """When the engine itself would show the fault, if it ever does."""

    START = "at start"
    FIRST_REQUEST = "at the first request"
    LOAD = "only under load"
    SILENT = "never: it silently does something else"
    ADMISSION = "when the pod is created"
    OPERATION = "when specfleet compares or watches"


@dataclass(frozen=True, slots=True)
class Hit:
    """One violation: where and what, with the values."""

    path: str
    message: str
    remedy: str = ""
    """Only where it differs from the rule's own."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[C]):
    """One rule of the table."""

    id: str
    """CamelCase: the finding's rule and, in conditions, the reason."""
    severity: Severity
    shows: Shows
    why: str
    """The reason, for the reference."""
    remedy: str
    source: str
    since: str | None
    last: str | None
    """The vLLM releases (inclusive) that it holds for."""
    find: Callable[[C], Iterable[Hit]]

    def findings(self, case: C) -> list[Finding]:
        """The findings for this case; none when the rule does not hold for its version."""
        if not self._holds(case):
            return []
        return [
            Finding(self.id, self.severity, hit.path, self.id, hit.message, hit.remedy or self.remedy, self.source)
            for hit in self.find(case)
        ]

    def _holds(self, case: C) -> bool:
        if self.since is None and self.last is None:
            return True
        return case.version is not None and case.version.has(self.since, self.last)


def _decorator(
    severity: Severity, shows: Shows, why: str, remedy: str, source: str, since: str | None, last: str | None
) -> Callable[[Callable[[C], Iterable[Hit]]], Rule[C]]:
    def made(find: Callable[[C], Iterable[Hit]]) -> Rule[C]:
        name = "".join(part.capitalize() for part in find.__name__.split("_"))
        return Rule(name, severity, shows, why, remedy, source, since, last, find)

    return made


def spec_rule(
    severity: Severity,
    shows: Shows,
    *,
    why: str,
    remedy: str,
    source: str,
    since: str | None = None,
    last: str | None = None,
) -> Callable[[Callable[[Case], Iterable[Hit]]], Rule[Case]]:
    """Makes a rule about what both arms share. Its identifier is the function's name in CamelCase."""
    return _decorator(severity, shows, why, remedy, source, since, last)


def proposer_rule(
    severity: Severity,
    shows: Shows,
    *,
    why: str,
    remedy: str,
    source: str,
    since: str | None = None,
    last: str | None = None,
) -> Callable[[Callable[[ProposerCase], Iterable[Hit]]], Rule[ProposerCase]]:
    """Makes a rule about one proposer of the spec. Its identifier is the function's name in CamelCase."""
    return _decorator(severity, shows, why, remedy, source, since, last)
