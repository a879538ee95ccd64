"""spec.benchmark: the load matrix, the protocol and its budget."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from specfleet.api.base import ApiModel, cel, validations

CellPart = Annotated[str, Field(pattern="^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=32)]
Probability = Annotated[float, Field(ge=0, le=1)]
DEFAULT_TIERS = ("low", "mid", "peak")
DEFAULT_PAIRS = 6
"""As many as the default matrix has time for in the default budget (decide/duration.py)."""


class ObjectiveMetric(StrEnum):
    """The one metric that must get better."""

    TPOT = "TimePerOutputToken"
    OUTPUT_THROUGHPUT = "OutputTokensPerSecond"
    E2E = "EndToEndLatency"


class LoadTier(ApiModel):
    """One load level. Open loop (a rate) measures latency, closed loop (a concurrency) measures capacity."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel(
                "[has(self.capacityRatio), has(self.requestsPerSecond), has(self.concurrency)]"
                ".filter(x, x).size() == 1",
                "set exactly one of capacityRatio, requestsPerSecond and concurrency",
            )
        )
    )
    name: CellPart = Field(description="Name of the tier, for example low, mid, peak.")
    capacity_ratio: float | None = Field(
        None, gt=0, le=1, description="Open loop at this share of the baseline's measured capacity."
    )
    requests_per_second: float | None = Field(None, gt=0, description="Open loop at this Poisson rate, per pod.")
    concurrency: int | None = Field(None, ge=1, le=4096, description="Closed loop with this many requests in flight.")

    @property
    def closed_loop(self) -> bool:
        """Whether the tier measures capacity (closed loop) rather than latency (open loop)."""
        return self.concurrency is not None


class TrafficSlice(ApiModel):
    """One kind of request."""

    name: CellPart = Field(description="Name of the slice, for example chat, summarise.")
    prompt_tokens: int = Field(256, ge=1, description="Prompt length in tokens (mean).")
    output_tokens: int = Field(128, ge=2, description="Output length in tokens (mean).")
    temperature: float = Field(0.0, ge=0, le=2, description="Sampling temperature. Acceptance depends on it.")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus sampling.")
    label: str | None = Field(None, max_length=64, description="Language or task, for the report.")
    weight: float = Field(1.0, gt=0, description="Share of this slice in production traffic (relative).")


class PromptSource(ApiModel):
    """Where prompts come from. Default: the built-in set (English prose and code, not random tokens)."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel(
                "[has(self.configMap), has(self.volume)].filter(x, x).size() <= 1",
                "set at most one of configMap and volume",
            )
        )
    )
    config_map: str | None = Field(
        None, description='ConfigMap with the key prompts.jsonl (one {"prompt": ..., "slice": ...} per line).'
    )
    volume: str | None = Field(
        None, description="Absolute path of a prompts.jsonl on one of template.volumes (mounted as in the engine)."
    )


class Objective(ApiModel):
    """What speculation has to improve, and by how much, to be promoted."""

    metric: ObjectiveMetric = Field(ObjectiveMetric.TPOT, description="The metric.")
    minimum_gain_ratio: float = Field(
        0.05, ge=0, le=10, description="Promote only if the lower 95 % bound of the gain is above this."
    )
    tier: CellPart | None = Field(None, description="Tier that has to gain. Default: every open-loop tier pooled.")


class BenchmarkSpec(ApiModel):
    """How the two arms are compared before any user request reaches the speculative one."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel(
                "!has(self.tiers) || self.tiers.all(t, self.tiers.filter(u, u.name == t.name).size() == 1)",
                "tiers must have different names",
                ".tiers",
            ),
            cel(
                "!has(self.slices) || self.slices.all(s, self.slices.filter(u, u.name == s.name).size() == 1)",
                "slices must have different names",
                ".slices",
            ),
            cel(
                "!has(self.objective) || !has(self.objective.tier) || (has(self.tiers) ? "
                "self.tiers.exists(t, t.name == self.objective.tier) : "
                f"self.objective.tier in {list(DEFAULT_TIERS)})",
                "objective.tier must be the name of one of the tiers",
                ".objective",
            ),
            cel(
                "!has(self.looks) || self.looks.all(n, n >= 3 && "
                f"n <= (has(self.pairs) ? self.pairs : {DEFAULT_PAIRS}))",
                f"each look must be between 3 and pairs ({DEFAULT_PAIRS} unless set)",
                ".looks",
            ),
        )
    )

    tiers: list[LoadTier] = Field(
        default_factory=lambda: [
            LoadTier(name="low", capacity_ratio=0.3),
            LoadTier(name="mid", capacity_ratio=0.6),
            LoadTier(name="peak", concurrency=64),
        ],
        min_length=1,
        max_length=6,
        description="Load tiers.",
    )
    slices: list[TrafficSlice] = Field(
        default_factory=lambda: [
            TrafficSlice(name="chat", prompt_tokens=256, output_tokens=256),
            TrafficSlice(name="long-prompt", prompt_tokens=2048, output_tokens=128),
        ],
        min_length=1,
        max_length=8,
        description="Traffic slices.",
    )
    prompts: PromptSource = Field(default_factory=PromptSource, description="Where prompts come from.")
    pairs: int = Field(DEFAULT_PAIRS, ge=3, le=32, description="Paired runs per cell (plain, speculative) at most.")
    looks: list[int] = Field(
        default_factory=list,
        max_length=3,
        description="After how many pairs a verdict may be taken (group-sequential bounds). Empty: only after all.",
    )
    run_seconds: int = Field(300, ge=2, le=7200, description="Length of one measured run.")
    warmup_seconds: int = Field(30, ge=0, le=3600, description="Load before the measured part of a run.")
    minimum_requests: int = Field(300, ge=5, description="A run with fewer completed requests is invalid.")
    time_budget_seconds: int = Field(
        28800,
        ge=60,
        description="Wall-clock budget of one benchmark (8 h), its warm-up and the starts of its pods included; in a "
        "search, of one stretch of measuring, and of the winner's confirmation.",
    )
    gpu_hours: float | None = Field(
        None,
        gt=0,
        description="GPU hours that one benchmark may cost, or a whole search over candidates with the winner's "
        "confirmation, every GPU of a pod counted. Absent: 64 for each GPU of a pod.",
    )
    objective: Objective = Field(default_factory=Objective, description="The one metric to improve.")
    evidence_kept: int = Field(64, ge=8, le=1000, description="SpeculativeBenchmark objects kept per deployment.")

    @property
    def cells(self) -> tuple[tuple[str, str], ...]:
        """The load matrix: every (tier, slice), tiers outermost, in spec order."""
        return tuple((tier.name, piece.name) for tier in self.tiers for piece in self.slices)

    @property
    def needs_capacity(self) -> bool:
        """Whether a tier is a share of the plain arm's capacity, which then has to be measured first."""
        return any(tier.capacity_ratio is not None for tier in self.tiers)


class GuardrailsSpec(ApiModel):
    """What must not get worse. Used as non-inferiority margins in the benchmark and as limits of the watch."""

    max_tpot_increase_ratio: float = Field(
        0.15, gt=0, le=10, description="Per-token decode time against the plain arm at matched load."
    )
    max_ttft_increase_ratio: float = Field(0.10, gt=0, le=10, description="Time to first token, same comparison.")
    tpot_slo_seconds: float | None = Field(None, gt=0, description="Per-token SLO; its share of violations is guarded.")
    ttft_slo_seconds: float | None = Field(None, gt=0, description="TTFT SLO; its share of violations is guarded.")
    stall_slo_seconds: float | None = Field(
        None, gt=0, description="Longest pause between streamed chunks that users accept (inter-token stall)."
    )
    max_slo_violation_increase_ratio: Probability = Field(
        0.01, description="Increase of the share of requests over a declared SLO (0.01 = one percentage point)."
    )
    max_throughput_loss_ratio: Probability = Field(0.03, description="Loss of completed requests/s at the peak.")
    max_error_share_increase_ratio: Probability = Field(0.001, description="Increase of the share of 5xx and aborts.")
    max_client_error_share_increase_ratio: Probability = Field(
        0.001, description="Increase of the 4xx share: requests that only speculation refuses (min_p, logit_bias)."
    )
    max_preemption_increase_ratio: float = Field(0.10, ge=0, description="Pre-emptions per request.")
    max_kv_cache_increase_ratio: float = Field(0.10, ge=0, description="Peak KV-cache use.")
    min_acceptance_rate: Probability | None = Field(None, description="Floor of the acceptance rate (0..1).")
    min_agreement_ratio: Probability | None = Field(
        None,
        description="Floor of greedy agreement with the plain arm, relative to the plain arm's agreement with itself. "
        "Required for medusa.",
    )
