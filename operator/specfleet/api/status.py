"""status of a SpeculativeDeployment: everything a fresh operator needs to go on, and what a person reads first."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from specfleet.api.base import StatusModel
from specfleet.api.benchmark import TrafficSlice
from specfleet.api.conditions import Condition
from specfleet.api.preflight import PreflightStatus


class Phase(StrEnum):
    """The life of a revision (docs/concepts.md)."""

    DEPLOYING = "Deploying"
    BASELINE = "Baseline"
    BENCHMARKING = "Benchmarking"
    CANARY = "Canary"
    SPECULATIVE = "Speculative"
    INVESTIGATING = "Investigating"
    ROLLING_BACK = "RollingBack"
    ROLLED_BACK = "RolledBack"
    EXHAUSTED = "Exhausted"
    HELD = "Held"


class ArmRole(StrEnum):
    """Which arm: plain decoding or a proposer."""

    BASELINE = "baseline"
    SPECULATIVE = "speculative"


class Verdict(StrEnum):
    """Only Pass promotes and only Fail rolls back; absence of data does neither."""

    PASS = "Pass"  # noqa: S105 - a verdict
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"
    ERROR = "Error"


class DecisionContext(StatusModel):
    """Where the deployment stood when a decision was taken: with evidence and metrics, enough to recompute it."""

    phase: Phase
    arm: str | None = Field(None, description="Requested fingerprint of the arm that was judged.")
    step: int | None = Field(None, description="Canary step (0-based).")
    since: datetime | None = Field(None, description="Start of the span that the watch's figures cover.")


class DecisionRecord(StatusModel):
    """One decision: what, why, on which evidence."""

    time: datetime
    action: str = Field(description="What was decided, for example Promote, RollBack, RestartProbe.")
    verdict: Verdict | None = None
    reason: str = Field(description="CamelCase reason, the same in the Event, the condition and the alert.")
    message: str = Field("", max_length=2048, description="The evidence in words and numbers.")
    evidence: list[str] = Field(default_factory=list, max_length=32, description="Names of SpeculativeBenchmarks.")
    context: DecisionContext | None = None


class ArmStatus(StatusModel):
    """One arm as last seen."""

    role: ArmRole
    fingerprint: str = Field(description="Requested fingerprint (from the spec).")
    observed_fingerprint: str | None = Field(None, description="Fingerprint with image digest and engine version.")
    proposer: str = Field("none", description="Short form, for example eagle3 k=3.")
    engine_version: str | None = None
    replicas: int = 0
    ready_replicas: int = 0
    unverified: bool = Field(False, description="The proposer uses `extra`, which no rule has checked.")


class CellStatus(StatusModel):
    """One cell of the last benchmark."""

    tier: str
    slice: str
    verdict: Verdict
    gain_ratio: float | None = Field(None, description="Objective: plain / speculative - 1 for latencies.")
    lower: float | None = None
    upper: float | None = None
    acceptance_rate: float | None = None
    accepted_length: float | None = None
    reason: str | None = None


class TrialStatus(StatusModel):
    """What became of one candidate of the present revision."""

    fingerprint: str
    proposer: str
    verdict: Verdict
    reason: str
    gain_ratio: float | None = None
    lower: float | None = Field(None, description="Lower end of the gain's interval.")
    upper: float | None = None
    confirmed: bool = False


class SearchCandidate(StatusModel):
    """One candidate of a search. Its pairs are kept from round to round under one benchmark id."""

    fingerprint: str
    proposer: str
    benchmark: str = Field(description="Id under which its pairs are recorded.")
    pairs: int = Field(0, description="Valid pairs so far.")
    gain_ratio: float | None = Field(None, description="Mean gain of the objective so far; it chooses, nothing more.")
    behind: bool = Field(False, description="Others gained more in a round: not measured further.")


class SearchStatus(StatusModel):
    """The search for the best of several candidates: successive halving under spec.benchmark.gpuHours."""

    started: datetime
    candidates: list[SearchCandidate] = Field(default_factory=list, max_length=64)
    confirmation: str | None = Field(None, description="Benchmark id of the winner's confirmatory run.")
    gpu_hours: float = Field(0.0, description="Spent on this search so far.")


class ChangeStatus(StatusModel):
    """What the benchmark of a changed model or engine said: the new plain arm against the plain arm that serves."""

    stable: str = Field(description="Requested fingerprint of the plain arm that served.")
    baseline: str = Field(description="Requested fingerprint of the new plain arm.")
    verdict: Verdict
    reason: str
    message: str = Field("", max_length=2048)
    gain_ratio: float | None = Field(None, description="New over old, of the objective; below zero: slower.")
    lower: float | None = None
    upper: float | None = None
    replaced_gain_ratio: float | None = Field(
        None, description="Gain of the proposer that was promoted on the old one."
    )
    serve: str | None = Field(
        None, description="What the three-way comparison says: OldStable, NewBaseline or NewSpeculative."
    )


class TrafficStatus(StatusModel):
    """The production traffic that the evidence speaks for, and whether production has moved away from it."""

    since: datetime = Field(description="End of the window that it was seen in.")
    requests: float = Field(description="Requests in that window.")
    prompt_tokens: dict[str, float] = Field(
        default_factory=dict, description="Share of requests per band of prompt length, by its upper edge in tokens."
    )
    output_tokens: dict[str, float] = Field(default_factory=dict, description="The same of output length.")
    looked: datetime = Field(description="Last look that changed something here.")
    over: int = Field(0, description="Looks in a row that saw other traffic.")
    moved: bool = False
    message: str = Field("", max_length=1024)
    slices: list[TrafficSlice] = Field(
        default_factory=list,
        max_length=8,
        description="Slices like production that benchmarks measure instead of the declared ones since traffic moved.",
    )
    declared: str | None = Field(None, description="Hash of the declared slices that they replace.")


class TierChoice(StatusModel):
    """What serves one load tier best."""

    tier: str
    proposer: str = Field(description="Short form of the proposer; none: plain decoding.")
    gain_ratio: float | None = Field(None, description="Worst gain over the tier's slices.")
    batch: float | None = Field(None, description="Requests that decode at once in the plain arm there.")


class ScheduleRule(StatusModel):
    """One entry of tokensPerBatchSize, as it can be written into the spec."""

    min_batch_size: int
    max_batch_size: int
    tokens: int


class Recommendation(StatusModel):
    """What the evidence advises where no single proposer wins in every load tier. Never carried out by itself."""

    time: datetime
    message: str = Field(max_length=2048)
    tiers: list[TierChoice] = Field(default_factory=list, max_length=6)
    tokens_per_batch_size: list[ScheduleRule] = Field(
        default_factory=list,
        max_length=16,
        description="A schedule to benchmark as a proposer of its own; empty where the engine or method has none.",
    )


class BenchmarkProgress(StatusModel):
    """The benchmark in flight. `id` is part of the names of its Jobs and evidence, so that nothing is run twice."""

    id: str
    purpose: str = Field(description="Qualify, Confirm, Suspicion or Change.")
    candidate: str = Field(description="Fingerprint of the arm under test.")
    baseline: str | None = Field(
        None, description="Fingerprint of the arm that it is measured against; absent: the plain arm of the spec."
    )
    started: datetime
    pairs_planned: int
    pairs_done: int = 0
    cells: list[str] = Field(default_factory=list, max_length=48, description="tier/slice; empty: all.")
    capacity_requests_per_second: float | None = Field(
        None, description="Measured capacity of the plain arm, per pod; the unit of capacityRatio tiers."
    )
    gpu_hours: float = 0.0
    retries: int = 0
    slices: list[TrafficSlice] = Field(
        default_factory=list, max_length=8, description="Measured instead of spec.benchmark.slices; empty: those."
    )
    round_pairs: int | None = Field(
        None, description="Valid pairs after which a search compares its candidates; absent: measured to a verdict."
    )
    capacity_from: str | None = Field(None, description="Benchmark id whose capacity run is used again.")


class Investigation(StatusModel):
    """A suspicion being followed up."""

    since: datetime
    signal: str = Field(description="What was found, for example AcceptanceDrift.")
    stage: str = Field(description="Attribute, RestartProbe, RestartRest or Rebenchmark.")
    message: str = Field("", max_length=2048)
    cells: list[str] = Field(default_factory=list, max_length=48)
    restarted_pod: str | None = None
    restarted_pod_uid: str | None = None
    restarted_at: datetime | None = None
    stage_since: datetime | None = None


class LoadPoint(StatusModel):
    """Latency of one arm at one load, as calibrated: what its own history says is normal there."""

    role: ArmRole
    tokens_per_second_per_pod: float = Field(description="Generated tokens per second and pod (geometric middle).")
    tpot_seconds: float | None = Field(None, description="Token-weighted decode time.")
    ttft_seconds: float | None = Field(None, description="Mean time to first token.")
    requests: int = Field(0, description="Requests behind the numbers.")


class Calibration(StatusModel):
    """What is normal for the arm: written once when it starts to serve, never moved by the watch itself."""

    fingerprint: str
    since: datetime
    acceptance_rate: float | None = Field(None, description="accepted / drafted tokens (0..1).")
    position_zero_rate: float | None = None
    accepted_length: float | None = None
    tpot_seconds: float | None = Field(None, description="Token-weighted decode time at the calibrated load.")
    dispersion: float | None = Field(None, description="Variance of a window's rate over the binomial variance.")
    drafted_tokens: int = 0
    load_points: list[LoadPoint] = Field(
        default_factory=list, max_length=28, description="Latency by load, per arm; octaves of tokens/s and pod."
    )
    source: str = Field("Canary", description="Benchmark, Canary or Watch.")


class AttemptStatus(StatusModel):
    """Promotions of one revision and when the next may start."""

    revision: str
    count: int = 0
    last_rollback: datetime | None = None
    next_attempt: datetime | None = None


class CommandAnswer(StatusModel):
    """The last command (annotation specfleet.dev/command) and what became of it."""

    nonce: str
    command: str
    accepted: bool
    message: str = ""
    time: datetime


class RevisionStatus(StatusModel):
    """A revision by its ControllerRevision, and the arm that serves it."""

    name: str = Field(description="ControllerRevision.")
    baseline: str = Field(description="Requested fingerprint of its plain arm.")
    speculative: str | None = Field(None, description="Requested fingerprint of its promoted proposer.")


class DeploymentStatus(StatusModel):
    """All of status."""

    observed_generation: int = 0
    conditions: list[Condition] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    phase: Phase = Phase.DEPLOYING
    phase_since: datetime | None = None
    phase_reason: str | None = None
    revision: str | None = Field(None, description="ControllerRevision of the spec that is being worked on.")
    revision_refused: str | None = Field(None, description="Revision whose plain arm failed; stable serves instead.")
    serving_arm: ArmRole | None = None
    weight_percent: int = Field(0, description="Traffic share of the speculative arm as routed.")
    step: int | None = Field(None, description="Canary step in flight (0-based).")
    step_since: datetime | None = None
    stable: RevisionStatus | None = None
    candidate: str | None = Field(None, description="Requested fingerprint of the proposer under trial.")
    trials: list[TrialStatus] = Field(default_factory=list, max_length=64, description="Candidates judged so far.")
    search: SearchStatus | None = None
    change: ChangeStatus | None = None
    traffic: TrafficStatus | None = None
    recommendation: Recommendation | None = None
    preflight: PreflightStatus | None = None
    arms: list[ArmStatus] = Field(default_factory=list, max_length=8)
    benchmark: BenchmarkProgress | None = None
    cells: list[CellStatus] = Field(default_factory=list, max_length=48)
    investigation: Investigation | None = None
    calibration: Calibration | None = None
    attempts: AttemptStatus | None = None
    rollback_counts: bool = Field(True, description="Whether the roll-back in flight uses up an attempt.")
    hold_until: datetime | None = Field(None, description="When a Held phase is looked at again.")
    holds: int = Field(0, description="Holds in a row without progress; each one lasts longer than the one before.")
    last_decision: DecisionRecord | None = None
    history: list[DecisionRecord] = Field(default_factory=list, max_length=20)
    last_change: datetime | None = Field(None, description="Start of the present cool-down.")
    actions: list[datetime] = Field(default_factory=list, max_length=20, description="Automatic actions, last 24 h.")
    command: CommandAnswer | None = None
    realised_gain_ratio: float | None = None
    gpu_hours_spent: float = 0.0
    warnings: list[str] = Field(default_factory=list, max_length=32, description="Engine rules that warn.")
    replicas: int = Field(0, description="Serving pods (scale subresource).")
    selector: str = Field("", description="Label selector of serving pods (scale subresource).")

    @property
    def needed_benchmarks(self) -> frozenset[str]:
        """Ids of benchmarks whose evidence decisions to come rest on: that in flight, and those of an open search."""
        promoted = self.stable is not None and self.stable.speculative is not None
        listed = [] if self.search is None or promoted else [one.benchmark for one in self.search.candidates]
        in_flight = [self.benchmark.id, self.benchmark.capacity_from] if self.benchmark is not None else []
        return frozenset(one for one in (*listed, *in_flight) if one is not None)
