"""The kind SpeculativeDeployment."""

from pydantic import ConfigDict, Field

from specfleet.api.base import API_VERSION, ApiModel, RawObject, StatusModel, cel, validations
from specfleet.api.benchmark import BenchmarkSpec, GuardrailsSpec
from specfleet.api.model import EngineSpec, ModelSpec, Raw, TemplateSpec
from specfleet.api.operation import (
    CapacitySpec,
    Control,
    MonitoringSpec,
    RemediesSpec,
    RolloutSpec,
    TrafficSpec,
)
from specfleet.api.speculation import SpeculationSpec
from specfleet.api.status import DeploymentStatus

KIND = "SpeculativeDeployment"
PLURAL = "speculativedeployments"
SHORT = "sd"
CONTROL_FROM_REPLICAS = 4


class DeploymentSpec(ApiModel):
    """What the user wants to serve. The operator never writes it."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel(
                "!has(self.speculation) || (has(self.guardrails) && has(self.guardrails.minAgreementRatio)) || !("
                "(has(self.speculation.method) && self.speculation.method == 'medusa') || "
                "(has(self.speculation.candidates) && "
                "self.speculation.candidates.exists(c, c.method == 'medusa')))",
                "medusa can change the output: set guardrails.minAgreementRatio (for example 0.99)",
                ".guardrails",
            ),
            cel(
                "!has(self.capacity) || !has(self.capacity.maxExtraReplicas) || self.capacity.maxExtraReplicas > 0 || "
                "!has(self.rollout) || !has(self.rollout.maxUnavailable) || self.rollout.maxUnavailable > 0",
                "with capacity.maxExtraReplicas 0 and rollout.maxUnavailable 0 no pod can make room for another: "
                "allow one of them",
                ".rollout.maxUnavailable",
            ),
            cel(
                "!has(self.template) || !has(self.template.multiNode) || "
                "(has(self.engine.tensorParallelSize) ? self.engine.tensorParallelSize : 1) * "
                "(has(self.engine.pipelineParallelSize) ? self.engine.pipelineParallelSize : 1) * "
                "(has(self.engine.dataParallelSize) ? self.engine.dataParallelSize : 1) % "
                "self.template.multiNode.size == 0",
                "every pod of an engine holds the same number of ranks: choose tensor, pipeline and data parallel "
                "sizes whose product is a multiple of template.multiNode.size",
                ".template.multiNode.size",
            ),
        )
    )

    model: ModelSpec = Field(description="The target model.")
    engine: EngineSpec = Field(description="The vLLM engine.")
    replicas: int = Field(
        1,
        ge=1,
        le=1000,
        description="Pods that serve, control included (groups of pods with `template.multiNode`).",
        json_schema_extra={"x-specfleet-keep-default": True},
    )
    capacity: CapacitySpec = Field(default_factory=CapacitySpec, description="GPUs beyond replicas.")
    template: TemplateSpec = Field(default_factory=TemplateSpec, description="Pod settings, the same in both arms.")
    speculation: SpeculationSpec | None = Field(
        None, description="The proposer or candidates. Absent: plain decoding only."
    )
    benchmark: BenchmarkSpec = Field(default_factory=BenchmarkSpec, description="How the arms are compared.")
    guardrails: GuardrailsSpec = Field(default_factory=GuardrailsSpec, description="What must not get worse.")
    rollout: RolloutSpec = Field(default_factory=RolloutSpec, description="Canary steps.")
    traffic: TrafficSpec = Field(default_factory=TrafficSpec, description="How requests reach the arms.")
    monitoring: MonitoringSpec = Field(default_factory=MonitoringSpec, description="How the arms are watched.")
    remedies: RemediesSpec = Field(default_factory=RemediesSpec, description="What may be done on evidence.")
    paused: bool = Field(False, description="Keep serving as now; no trial, no step, no remedy except for dead pods.")

    @property
    def control(self) -> Control:
        """The control in force: the declared one, else Concurrent from 4 replicas and Periodic below."""
        if self.capacity.control is not None:
            return self.capacity.control
        return Control.CONCURRENT if self.replicas >= CONTROL_FROM_REPLICAS else Control.PERIODIC

    @property
    def window_seconds(self) -> int:
        """Window of the detectors in seconds: declared, else max(60, 4 scrapes) (docs/architecture.md, telemetry)."""
        declared = self.monitoring.window_seconds
        return declared if declared is not None else max(60, 4 * self.monitoring.scrape_interval_seconds)


class SpeculativeDeployment(ApiModel):
    """A model served with the decoding that evidence favours: speculative or plain."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra=validations(
            cel(
                "!has(self.metadata) || !has(self.metadata.name) || self.metadata.name.size() <= 63",
                "metadata.name must have at most 63 characters: it is the value of a label on every child",
            )
        ),
    )

    api_version: str = API_VERSION
    kind: str = KIND
    metadata: Raw
    spec: DeploymentSpec
    status: DeploymentStatus | None = None

    @property
    def name(self) -> str:
        """metadata.name."""
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        """metadata.namespace."""
        return str(self.metadata["namespace"])

    @property
    def uid(self) -> str:
        """metadata.uid: identity checks use it, never the name (an object may be deleted and made again)."""
        return str(self.metadata["uid"])

    def owner_reference(self) -> RawObject:
        """The ownerReference by which the garbage collector removes children (no finalizer is used)."""
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


__all__ = ["KIND", "PLURAL", "SHORT", "DeploymentSpec", "SpeculativeDeployment", "StatusModel"]
