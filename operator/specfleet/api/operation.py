"""spec.capacity, rollout, traffic, monitoring and remedies: how the deployment is run."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from specfleet.api.base import ApiModel, cel, validations
from specfleet.api.benchmark import Probability
from specfleet.api.model import Raw, RawList


class Control(StrEnum):
    """How plain decoding keeps being compared after promotion."""

    CONCURRENT = "Concurrent"
    PERIODIC = "Periodic"
    NONE = "None"


class CapacitySpec(ApiModel):
    """How many GPUs specfleet may use beyond `replicas`."""

    max_extra_replicas: int = Field(
        1, ge=0, le=64, description="Pods beyond spec.replicas, at any time, for everything specfleet does."
    )
    control: Control | None = Field(
        None,
        description="Concurrent: plain pods keep a share of traffic after promotion. Periodic: borrowed on suspicion. "
        "Default: Concurrent from 4 replicas, Periodic below.",
    )


class RolloutStep(ApiModel):
    """One canary step."""

    weight_percent: int = Field(
        ge=1, le=99, description="Share of traffic and of replicas of the speculative arm. Promotion follows the last."
    )
    min_duration_seconds: int = Field(600, ge=1, le=604800, description="Shortest stay on this step.")
    min_requests: int = Field(200, ge=1, description="Requests that each arm must finish on this step.")


class RolloutSpec(ApiModel):
    """Canary steps."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel(
                "!has(self.steps) || self.steps.map(s, s.weightPercent).isSorted()",
                "steps must not go down: order them by weightPercent",
                ".steps",
            )
        )
    )
    steps: list[RolloutStep] = Field(
        default_factory=lambda: [
            RolloutStep(weight_percent=25),
            RolloutStep(weight_percent=50),
            RolloutStep(weight_percent=75),
        ],
        min_length=1,
        max_length=10,
        description="Canary steps; weight and replicas move together so that both arms carry the same load per pod.",
    )
    max_unavailable: int = Field(
        1, ge=0, description="Pods below `replicas` that an exchange may take when there is no extra replica."
    )
    require_speculation: bool = Field(
        False, description="Report Ready=False and Stalled=True when speculation is refused or rolled back."
    )
    no_traffic_timeout_seconds: int = Field(
        86400, ge=60, description="How long a canary step waits for minRequests before the phase is Held."
    )

    def step_index(self, step: int | None) -> int:
        """Index of the step that status.step means. Edited by hand, or of a longer list, it is bounded."""
        return min(max(0, step or 0), len(self.steps) - 1)


class TrafficSpec(ApiModel):
    """How requests reach the arms. Without parentRefs: one Service, and the ratio of replicas is that of traffic."""

    parent_refs: RawList = Field(default_factory=list, description="Gateway API parentRefs of our own HTTPRoute.")
    hostnames: list[str] = Field(default_factory=list, max_length=16, description="Hostnames of our own HTTPRoute.")
    route_template: Raw = Field(
        default_factory=dict, description="matches, filters and timeouts of our own HTTPRoute rule."
    )
    plain_header: str = Field(
        "x-specfleet-plain",
        pattern="^[a-z0-9-]+$",
        description="Requests with this header (any value `true`) always go to the plain arm while it exists.",
    )


class PrometheusAuth(ApiModel):
    """Credentials of the Prometheus API, by Secret reference only (keys: token, username, password, tls.crt, ...)."""

    secret_name: str = Field(
        min_length=1,
        description="Secret in the operator's namespace. Its annotation specfleet.dev/prometheus-servers lists the "
        "addresses that it may be sent to; specfleet.dev/namespaces, where set, whose deployments may use it.",
    )
    type: str = Field(pattern="^(Bearer|Basic|MutualTLS)$", description="How the Secret is used.")


class PrometheusSpec(ApiModel):
    """Where the metrics are asked for."""

    url: str = Field(pattern="^https?://[^\\s]+$", max_length=1024, description="Base address of the API.")
    auth: PrometheusAuth | None = Field(None, description="Credentials.")
    tenant: str | None = Field(None, max_length=256, description="Value of X-Scope-OrgID (Mimir, Thanos).")


class MetricLabels(ApiModel):
    """Names of the labels by which a series is joined to a pod."""

    namespace: str = Field("namespace", pattern="^[a-zA-Z_][a-zA-Z0-9_]*$", description="Label with the namespace.")
    pod: str = Field("pod", pattern="^[a-zA-Z_][a-zA-Z0-9_]*$", description="Label with the pod's name.")


class FalseAlarmBudget(ApiModel):
    """How often the watch may be wrong on a healthy deployment. The thresholds follow from it."""

    rebenchmarks_per_month: float = Field(1.0, gt=0, le=100, description="False re-benchmarks per 30 days.")


class MonitoringSpec(ApiModel):
    """How the arms are watched."""

    prometheus: PrometheusSpec | None = Field(None, description="Default: the operator's own setting.")
    labels: MetricLabels = Field(default_factory=MetricLabels, description="Label names of scraped series.")
    pod_monitor: bool = Field(True, description="Create a PodMonitor where the cluster has that kind.")
    pod_monitor_labels: dict[str, str] = Field(
        default_factory=dict, description="Labels that your Prometheus selects PodMonitors by."
    )
    scrape_interval_seconds: int = Field(15, ge=1, le=60, description="Scrape interval of the PodMonitor.")
    window_seconds: int | None = Field(
        None, ge=4, le=3600, description="Window of the detectors. Default: max(60, 4 x scrape interval)."
    )
    traffic_window_seconds: int = Field(
        86400,
        ge=60,
        le=604800,
        description="Window over which the lengths of production requests are compared with those that were measured.",
    )
    interesting_drop_ratio: float = Field(
        0.15, ge=0.05, le=0.9, description="Relative fall of the acceptance rate that is worth finding."
    )
    false_alarms: FalseAlarmBudget = Field(default_factory=FalseAlarmBudget, description="False-alarm budget.")


class MaintenanceWindow(ApiModel):
    """When automatic economic actions may run. Hard faults and SLO roll-backs are never held back."""

    days: list[Annotated[str, Field(pattern="^(Mon|Tue|Wed|Thu|Fri|Sat|Sun)$")]] = Field(
        default_factory=list, max_length=7, description="Days (UTC). Empty: every day."
    )
    start: str = Field(pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$", description="Start, HH:MM in UTC.")
    duration_seconds: int = Field(ge=300, le=86400, description="Length.")


class RemediesSpec(ApiModel):
    """What may be done on evidence, and how often."""

    restart_probe: bool = Field(True, description="On drift, restart one speculative pod first (needs 2 ready ones).")
    rebenchmark: bool = Field(True, description="On drift that a restart does not heal, measure the suspect cells.")
    rollback: bool = Field(
        True,
        description="Serve the plain arm when the evidence says so. False: alert only, unless no pod of the promoted "
        "arm answers any more: then the route must lead to somebody.",
    )
    max_attempts: int = Field(3, ge=1, le=10, description="Promotions of one revision before Exhausted.")
    backoff_seconds: list[Annotated[int, Field(ge=1)]] = Field(
        default_factory=lambda: [3600, 14400, 86400, 604800],
        min_length=1,
        max_length=8,
        description="Wait after the n-th roll-back before the next attempt.",
    )
    cooldown_seconds: int = Field(900, ge=0, description="No new finding counts this long after any change.")
    warmup_seconds: int = Field(900, ge=0, description="Windows of a pod younger than this are dropped.")
    confirm_seconds: int = Field(600, ge=1, description="Length of the confirmation after a suspicion.")
    on_change: str = Field(
        "Rebenchmark",
        pattern="^(Rebenchmark|Canary|Hold)$",
        description="What a change of model or engine does: Rebenchmark measures the new plain arm against the one "
        "that serves and then canaries it, Canary goes to the canary at once, Hold waits for a person.",
    )
    rollback_error_share_ratio: Probability = Field(
        0.01, description="Hard fault: error share above the plain arm's by this much (lower bound)."
    )
    max_actions_per_day: int = Field(
        2,
        ge=1,
        le=100,
        description="Automatic actions per deployment and day: findings that are followed up, and roll-backs. A "
        "trial's own canary and promotion do not count, and a hard fault waits for no budget.",
    )
    maintenance_windows: list[MaintenanceWindow] = Field(
        default_factory=list, max_length=14, description="Empty: any time."
    )
