"""What the watch keeps of one deployment besides its columns."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from specfleet.api.status import ArmRole, Calibration
from specfleet.decide.calibration import WindowPair
from specfleet.decide.counters import Floats
from specfleet.decide.pod_columns import PodPlace
from specfleet.decide.watch_report import Answer, WatchReport
from specfleet.decide.watch_target import Target


@dataclass
class Record:
    """One deployment under watch."""

    row: int
    target: Target
    answers: Mapping[ArmRole, tuple[Answer, str]] = field(default_factory=dict)
    said: dict[ArmRole, str] = field(default_factory=dict)
    """What was said of the last window of each arm."""
    pods: dict[str, PodPlace] = field(default_factory=dict)
    pairs: list[WindowPair] = field(default_factory=list)
    """Windows for a first calibration; empty once there is one."""
    acceptance: Floats = field(default_factory=lambda: np.zeros((2, 0)))
    """Accepted and drafted tokens of the first windows after a calibration that has no measured dispersion."""
    dispersion: float | None = None
    """Measured from them."""
    week: int | None = None
    """Slot of its first week, while the calibration is not yet one of a whole week."""
    report: WatchReport | None = None
    """The report, until something changes: most ticks bring nothing new for most deployments."""

    @property
    def normal(self) -> Calibration | None:
        """See Target.normal."""
        return self.target.normal
