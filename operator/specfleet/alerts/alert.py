"""An alert as plain data, and the port through which alerts leave the process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

Labels = Mapping[str, str]


class AlertSeverity(StrEnum):
    """Label `severity`, with the meaning most Alertmanager routes give it."""

    CRITICAL = "critical"
    """Requests fail, or what was asked for does not serve: wake somebody."""
    WARNING = "warning"
    """Something was decided or is missing that a person should look at in working hours."""
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Alert:
    """One firing alert. Its labels are its identity: Alertmanager groups, silences and resolves by them."""

    name: str
    severity: AlertSeverity
    starts_at: datetime
    summary: str
    description: str
    labels: Labels = field(default_factory=dict)
    runbook_url: str | None = None

    @property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """All labels, sorted."""
        return tuple(sorted(self.all_labels().items()))

    def all_labels(self) -> dict[str, str]:
        """Labels as they are sent."""
        return {**self.labels, "alertname": self.name, "severity": self.severity.value}

    def annotations(self) -> dict[str, str]:
        """Annotations as they are sent."""
        said = {"summary": self.summary, "description": self.description}
        return said if self.runbook_url is None else {**said, "runbook_url": self.runbook_url}


class Sender(Protocol):
    """Somewhere alerts go."""

    failures: int
    """Rounds that were not taken, since the start."""

    async def send(self, alerts: Sequence[Alert]) -> None:
        """Tell which alerts fire now; those that fired before and are left out are resolved. Never raises."""
