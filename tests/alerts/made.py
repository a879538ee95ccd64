"""Deployments in the states that alerts and metrics are about."""

from datetime import UTC, datetime, timedelta
from typing import Any

from specfleet.api.conditions import Condition, ConditionStatus, ConditionType
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import DecisionRecord, DeploymentStatus, Verdict

NOON = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def decision(action: str = "RollBack", reason: str = "AcceptanceDrift", **more: Any) -> DecisionRecord:
    fields: dict[str, Any] = {
        "time": NOON,
        "verdict": Verdict.FAIL,
        "message": "acceptance 0.21, expected 0.70 (statistic 31.0, threshold 9.2)",
        "evidence": ["llama-b2-p0", "llama-b2-p1"],
    }
    return DecisionRecord(action=action, reason=reason, **{**fields, **more})


def condition(type_: ConditionType, status: ConditionStatus, reason: str, message: str = "") -> Condition:
    return Condition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=NOON + timedelta(minutes=1),
        observed_generation=1,
    )


def deployment(name: str = "llama", **status: Any) -> SpeculativeDeployment:
    return SpeculativeDeployment.model_validate(
        {
            "metadata": {"name": name, "namespace": "models", "uid": f"uid-of-{name}"},
            "spec": {"model": {"name": "m"}, "engine": {"image": "vllm:v0.32.0"}},
            "status": DeploymentStatus(**status).to_wire(),
        }
    )
