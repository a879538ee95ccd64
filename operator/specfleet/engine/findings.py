"""What a rule says about a spec."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """REFUSE: the arm is not started. WARN: it is started, and the user is told."""

    REFUSE = "refuse"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class Finding:
    """One violated rule."""

    rule_id: str
    """Stable identifier, listed in docs/reference/engine-rules.md."""
    severity: Severity
    field_path: str
    """Where, for example `spec.speculation.draft.model` or `spec.speculation.candidates[1].numSpeculativeTokens`."""
    reason: str
    """CamelCase, fit for a condition."""
    message: str
    """What is wrong, in one sentence with the values."""
    remedy: str
    """What to do instead."""
    source: str
    """Where this is known from: a public issue such as `vllm#57817`, `vllm 0.32 source`, or `specfleet`."""
    tokens: int | None = None
    """Which of the proposers at the path is meant (numSpeculativeTokensRange); None: all of them."""

    def sentence(self) -> str:
        """Path, message and remedy in one line, for conditions and terminals."""
        return f"{self.field_path}: {self.message}. {self.remedy}"


def refusals(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Those that keep an arm from starting."""
    return tuple(finding for finding in findings if finding.severity is Severity.REFUSE)


def warnings(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Those that only warn."""
    return tuple(finding for finding in findings if finding.severity is Severity.WARN)
