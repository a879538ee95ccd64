"""Conditions with kstatus meaning: Ready, Reconciling and Stalled, and specfleet's own types."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from pydantic import Field

from specfleet.api.base import StatusModel


class ConditionType(StrEnum):
    """Condition types. Reconciling and Stalled are abnormal-true (kstatus), the others normal-true or descriptive."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    BASELINE_READY = "BaselineReady"
    BENCHMARK_PASSED = "BenchmarkPassed"
    METRICS_AVAILABLE = "MetricsAvailable"
    SPECULATION_ACTIVE = "SpeculationActive"
    DRIFT_DETECTED = "DriftDetected"


class ConditionStatus(StrEnum):
    """True, False or Unknown, as strings (Kubernetes API convention)."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(StatusModel):
    """metav1.Condition."""

    type: ConditionType
    status: ConditionStatus
    reason: str = Field(
        min_length=1,
        max_length=1024,
        pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        description="CamelCase reason, the same as in the Event and the alert.",
    )
    message: str = Field("", max_length=32768, description="The reason in words and numbers.")
    last_transition_time: datetime = Field(description="When the status of the condition last changed.")
    observed_generation: int = Field(ge=0, description="metadata.generation that the condition speaks of.")


def merge_conditions(old: Iterable[Condition], new: Iterable[Condition]) -> list[Condition]:
    """New conditions sorted by type; a condition whose status did not change keeps its lastTransitionTime."""
    before = {condition.type: condition for condition in old}
    merged = []
    for condition in sorted(new, key=lambda one: one.type):
        previous = before.get(condition.type)
        if previous is condition:
            merged.append(condition)
            continue
        if previous is not None and previous.status == condition.status:
            condition = condition.model_copy(update={"last_transition_time": previous.last_transition_time})
        merged.append(condition)
    return merged


def find_condition(conditions: Iterable[Condition], type_: ConditionType) -> Condition | None:
    """The condition of that type, or None."""
    return next((condition for condition in conditions if condition.type == type_), None)
