"""One turn of decide(): the status being worked out and what is to be done besides. Local to a single call."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import DecisionContext, DecisionRecord, DeploymentStatus, Phase, Verdict
from specfleet.decide.observation import Observation
from specfleet.decide.plan import PodRef
from specfleet.decide.watch_report import WatchReport
from specfleet.decide.watch_scope import counted_since, promoted_since

HISTORY = 20
COUNTED = (Phase.CANARY, Phase.SPECULATIVE, Phase.INVESTIGATING)
"""Phases in which the figures of the watch may decide."""


@dataclass
class Turn:
    """Collects the next status, decisions, evidence and restarts while the phases are walked through."""

    obs: Observation
    status: DeploymentStatus
    decisions: list[DecisionRecord] = field(default_factory=list)
    record: list[BenchmarkEvidenceSpec] = field(default_factory=list)
    restarts: list[PodRef] = field(default_factory=list)
    wake: list[float] = field(default_factory=list)
    about_promoted: bool = False
    """Decisions are about the promoted arm, although the phase is about a trial beside it."""

    @property
    def spec(self) -> DeploymentSpec:
        """spec of the deployment."""
        return self.obs.spec

    @property
    def now(self) -> datetime:
        """The clock, in whole seconds (metav1.Time has no fractions)."""
        return self.obs.now.replace(microsecond=0)

    def set(self, **fields: Any) -> None:
        """Replace fields of the status."""
        self.status = self.status.model_copy(update=fields)

    def enter(self, phase: Phase, reason: str, **fields: Any) -> None:
        """Go to a phase."""
        self.set(phase=phase, phase_since=self.now, phase_reason=reason, **fields)

    def decide(
        self,
        action: str,
        reason: str,
        message: str,
        verdict: Verdict | None = None,
        evidence: tuple[str, ...] = (),
    ) -> None:
        """Record a decision: it becomes an Event, a metric and an alert, and stays in the bounded history."""
        record = DecisionRecord(
            time=self.now,
            action=action,
            verdict=verdict,
            reason=reason,
            message=message[:2048],
            evidence=list(evidence)[:32],
            context=self._context(),
        )
        self.decisions.append(record)
        self.set(last_decision=record, history=[*self.status.history, record][-HISTORY:])

    def _context(self) -> DecisionContext:
        status = self.status
        promoted = status.stable.speculative if status.stable is not None else None
        if self.about_promoted:
            return DecisionContext(phase=status.phase, arm=promoted, since=promoted_since(status, self.now))
        return DecisionContext(
            phase=status.phase,
            arm=status.candidate or promoted,
            step=status.step,
            since=counted_since(status, self.now) if status.phase in COUNTED else None,
        )

    @property
    def promoted_watch(self) -> WatchReport:
        """What telemetry says about the promoted arm."""
        return self.obs.watch_of(self.status.stable.speculative if self.status.stable is not None else None)

    def look_again(self, seconds: float) -> None:
        """Ask for another turn after so many seconds even if nothing changes."""
        self.wake.append(max(0.5, seconds))

    def seconds_since(self, moment: datetime | None) -> float:
        """Seconds since a moment of the status; infinite when it never was."""
        return float("inf") if moment is None else (self.obs.now - moment).total_seconds()

    def act(self) -> None:
        """Count an automatic action against the daily budget and start the cool-down."""
        self.set(actions=[*self.status.actions, self.now][-HISTORY:])
        self.cool_down()

    def cool_down(self) -> None:
        """Start the cool-down alone: a trial's own steps leave the budget to what may be found on the same day."""
        self.set(last_change=self.now)
