"""What the watch is asked to look at: one deployment, its arms and pods, and the limits of its spec. Plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from specfleet.api.benchmark import GuardrailsSpec
from specfleet.api.operation import FalseAlarmBudget
from specfleet.api.speculation import Method
from specfleet.api.status import ArmRole, Calibration

Key = tuple[str, str, str]
"""namespace, name, uid of a SpeculativeDeployment."""


@dataclass(frozen=True, slots=True)
class TargetPod:
    """A pod whose counters are read; `started_at` is when its engine began to answer (warm-up is counted from it)."""

    name: str
    uid: str
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class Target:
    """One deployment under watch."""

    key: Key
    arms: Mapping[ArmRole, tuple[TargetPod, ...]]
    """Serving pods per arm; arms without pods may be left out."""
    since: datetime
    """Start of the present canary step or attribution: `WatchReport.step`, `pods` and `comparison` count from here."""
    window_seconds: float
    scrape_interval_seconds: float = 15.0
    """As configured; only a hint for the first read, the observed interval is what counts."""
    warmup_seconds: float = 900.0
    confirm_seconds: float = 600.0
    traffic_window_seconds: float = 86400.0
    min_requests: int = 200
    """Requests that each arm must finish before the comparison may Pass."""
    fingerprint: str = ""
    """Of the speculative arm. When it changes, everything learned about the old one is dropped."""
    calibration: Calibration | None = None
    method: Method | None = None
    scheduled_depth: bool = False
    """k follows the batch size: then only the position-0 rate is watched, the overall rate moves with the load."""
    guardrails: GuardrailsSpec = field(default_factory=GuardrailsSpec)
    interesting_drop_ratio: float = 0.15
    rollback_error_share_ratio: float = 0.01
    false_alarms: FalseAlarmBudget = field(default_factory=FalseAlarmBudget)
    namespace_label: str = "namespace"
    pod_label: str = "pod"

    @property
    def normal(self) -> Calibration | None:
        """The calibration, if it is of the arm that is judged: in the trial of another arm it says nothing."""
        known = self.calibration
        return known if known is not None and known.fingerprint == self.fingerprint else None
