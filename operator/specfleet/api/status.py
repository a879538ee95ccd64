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

    time: datetime = Field(description="When it was decided.")
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
    engine_version: str | None = Field(None, description="vLLM version that the pods report.")
    replicas: int = Field(0, description="Pods that the arm is to have.")
    ready_replicas: int = Field(0, description="Pods that are ready.")
    unverified: bool = Field(False, description="The proposer uses `extra`, which no rule has checked.")


class CellStatus(StatusModel):
    """One cell of the last benchmark."""

    tier: str = Field(description="Load tier of spec.benchmark.")
    slice: str = Field(description="Traffic slice of spec.benchmark.")
    verdict: Verdict
    gain_ratio: float | None = Field(None, description="Objective: plain / speculative - 1 for latencies.")
    lower: float | None = Field(None, description="Lower end of the gain's 95 % interval.")
    upper: float | None = Field(None, description="Upper end of the gain's 95 % interval.")
    acceptance_rate: float | None = Field(None, description="Accepted / drafted tokens (0..1).")
    accepted_length: float | None = Field(
        None, description="Tokens per engine step: 1 without speculation, at most k + 1."
    )
    reason: str | None = Field(None, description="CamelCase reason where the cell did not pass.")


class TrialStatus(StatusModel):
    """What became of one candidate of the present revision."""

    fingerprint: str = Field(description="Requested fingerprint of the candidate.")
    proposer: str = Field(description="Short form, for example eagle3 k=3.")
    verdict: Verdict
    reason: str = Field(description="CamelCase reason of the verdict.")
    gain_ratio: float | None = Field(None, description="Gain of the objective (0.2: 20 %).")
    lower: float | None = Field(None, description="Lower end of the gain's interval.")
    upper: float | None = Field(None, description="Upper end of the gain's interval.")
    confirmed: bool = Field(False, description="The verdict comes from a confirmatory run.")


class SearchCandidate(StatusModel):
    """One candidate of a search. Its pairs are kept from round to round under one benchmark id."""

    fingerprint: str = Field(description="Requested fingerprint.")
    proposer: str = Field(description="Short form, for example eagle3 k=3.")
    benchmark: str = Field(description="Id under which its pairs are recorded.")
    pairs: int = Field(0, description="Valid pairs so far.")
    gain_ratio: float | None = Field(None, description="Mean gain of the objective so far; it chooses, nothing more.")
    behind: bool = Field(False, description="Others gained more in a round: not measured further.")


class SearchStatus(StatusModel):
    """The search for the best of several candidates: successive halving under spec.benchmark.gpuHours."""

    started: datetime = Field(description="When the search began.")
    candidates: list[SearchCandidate] = Field(
        default_factory=list, max_length=64, description="Everything that is compared."
    )
    confirmation: str | None = Field(None, description="Benchmark id of the winner's confirmatory run.")
    gpu_hours: float = Field(0.0, description="Spent on this search so far.")


class ChangeStatus(StatusModel):
    """What the benchmark of a changed model or engine said: the new plain arm against the plain arm that serves."""

    stable: str = Field(description="Requested fingerprint of the plain arm that served.")
    baseline: str = Field(description="Requested fingerprint of the new plain arm.")
    verdict: Verdict
    reason: str = Field(description="CamelCase reason of the verdict.")
    message: str = Field("", max_length=2048, description="The verdict in words and numbers.")
    gain_ratio: float | None = Field(None, description="New over old, of the objective; below zero: slower.")
    lower: float | None = Field(None, description="Lower end of the interval of gainRatio.")
    upper: float | None = Field(None, description="Upper end of the interval of gainRatio.")
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
    moved: bool = Field(False, description="Production has left what the evidence speaks for.")
    message: str = Field("", max_length=1024, description="What moved, in numbers.")
    slices: list[TrafficSlice] = Field(
        default_factory=list,
        max_length=8,
        description="Slices like production that benchmarks measure instead of the declared ones since traffic moved.",
    )
    load_ratio: float = Field(
        1.0, description="Load of the heaviest tier over the declared one, since production's peak went beyond it."
    )
    peak_batch: float | None = Field(
        None,
        description="Requests in one engine at production's peak when the benchmark was aimed at it: only a higher "
        "peak has moved, also where no tier came up to this one.",
    )
    declared: str | None = Field(None, description="Hash of the declared tiers and slices that these replace.")


class TierChoice(StatusModel):
    """What serves one load tier best."""

    tier: str = Field(description="Load tier of spec.benchmark.")
    proposer: str = Field(description="Short form of the proposer; none: plain decoding.")
    gain_ratio: float | None = Field(None, description="Worst gain over the tier's slices.")
    batch: float | None = Field(None, description="Requests that decode at once in the plain arm there.")


class ScheduleRule(StatusModel):
    """One entry of tokensPerBatchSize, as it can be written into the spec."""

    min_batch_size: int = Field(description="Smallest batch of the range.")
    max_batch_size: int = Field(description="Largest batch of the range.")
    tokens: int = Field(description="Speculative tokens for such a batch; 0: no drafting.")


class Recommendation(StatusModel):
    """What the evidence advises where no single proposer wins in every load tier. Never carried out by itself."""

    time: datetime = Field(description="When it was given.")
    message: str = Field(max_length=2048, description="The advice in words.")
    tiers: list[TierChoice] = Field(default_factory=list, max_length=6, description="What serves each load tier best.")
    tokens_per_batch_size: list[ScheduleRule] = Field(
        default_factory=list,
        max_length=16,
        description="A schedule to benchmark as a proposer of its own; empty where the engine or method has none.",
    )


class BenchmarkProgress(StatusModel):
    """The benchmark in flight. `id` is part of the names of its Jobs and evidence, so that nothing is run twice."""

    id: str = Field(description="Part of the names of its Jobs and evidence, so that nothing is run twice.")
    purpose: str = Field(description="Qualify, Confirm, Suspicion or Change.")
    candidate: str = Field(description="Fingerprint of the arm under test.")
    baseline: str | None = Field(
        None, description="Fingerprint of the arm that it is measured against; absent: the plain arm of the spec."
    )
    started: datetime = Field(description="When the benchmark began.")
    pairs_planned: int = Field(description="Pairs of runs that are planned.")
    pairs_done: int = Field(0, description="Pairs of runs that are measured.")
    cells: list[str] = Field(default_factory=list, max_length=48, description="tier/slice; empty: all.")
    capacity_requests_per_second: float | None = Field(
        None, description="Measured capacity of the plain arm, per pod; the unit of capacityRatio tiers."
    )
    gpu_hours: float = Field(0.0, description="GPU hours spent on it so far.")
    retries: int = Field(0, description="Times that a unit was measured again because its Job gave no result.")
    slices: list[TrafficSlice] = Field(
        default_factory=list, max_length=8, description="Measured instead of spec.benchmark.slices; empty: those."
    )
    load_ratio: float = Field(
        1.0, description="Load of the heaviest tier over the declared one; above 1 since production's peak is higher."
    )
    round_pairs: int | None = Field(
        None, description="Valid pairs after which a search compares its candidates; absent: measured to a verdict."
    )
    capacity_from: str | None = Field(None, description="Benchmark id whose capacity run is used again.")
    turns_from_pair: int | None = Field(
        None, description="Pair from which the arms take turns, because the cluster had no room for both at once."
    )
    lost_gpu_hours: float = Field(0.0, description="Of gpuHours: spent on Jobs that gave no result.")


class Investigation(StatusModel):
    """A suspicion being followed up."""

    since: datetime = Field(description="When the suspicion was taken up.")
    signal: str = Field(description="What was found, for example AcceptanceDrift.")
    stage: str = Field(description="Attribute, RestartProbe, RestartRest or Rebenchmark.")
    message: str = Field("", max_length=2048, description="What was observed and what was expected.")
    cells: list[str] = Field(
        default_factory=list, max_length=48, description="Suspect cells (tier/slice) that are measured again."
    )
    restarted_pod: str | None = Field(None, description="Name of the pod that was restarted to see whether it heals.")
    restarted_pod_uid: str | None = Field(None, description="Its UID: its successor has another one.")
    restarted_at: datetime | None = Field(None, description="When it was restarted.")
    stage_since: datetime | None = Field(None, description="When the stage began.")


class ReplacedPod(StatusModel):
    """A pod that alone ended again and again and was deleted for a successor."""

    arm: str = Field(description="Requested fingerprint of its arm.")
    pod: str = Field(description="Its name.")
    uid: str = Field(description="Its UID: its successor has another one.")
    time: datetime = Field(description="When that was decided; an arm has one such pod a day.")


class SharedCause(StatusModel):
    """A finding about the promoted arm that the plain arm was seen to share."""

    signal: str = Field(description="What was found, for example TimePerOutputTokenRegression.")
    unclear_since: datetime | None = Field(
        None, description="Since when no plain pod can tell any more; absent: it is seen to be shared now."
    )


class LoadPoint(StatusModel):
    """Latency of one arm at one load, as calibrated: what its own history says is normal there."""

    role: ArmRole
    tokens_per_second_per_pod: float = Field(description="Generated tokens per second and pod (geometric middle).")
    tpot_seconds: float | None = Field(None, description="Token-weighted decode time.")
    ttft_seconds: float | None = Field(None, description="Mean time to first token.")
    accepted_length: float | None = Field(None, description="Tokens per drafting step, at this load.")
    requests: int = Field(0, description="Requests behind the numbers.")


class Calibration(StatusModel):
    """What is normal for the arm: written once when it starts to serve, never moved by the watch itself."""

    fingerprint: str = Field(description="Requested fingerprint of the arm that it speaks of.")
    since: datetime = Field(description="Start of the span that it was taken from.")
    acceptance_rate: float | None = Field(None, description="accepted / drafted tokens (0..1).")
    position_zero_rate: float | None = Field(None, description="Acceptance rate of the first drafted token (0..1).")
    accepted_length: float | None = Field(None, description="Tokens per engine step.")
    tpot_seconds: float | None = Field(None, description="Token-weighted decode time at the calibrated load.")
    dispersion: float | None = Field(None, description="Variance of a window's rate over the binomial variance.")
    drafted_tokens: int = Field(0, description="Drafted tokens behind the rates.")
    load_points: list[LoadPoint] = Field(
        default_factory=list, max_length=28, description="Latency by load, per arm; octaves of tokens/s and pod."
    )
    source: str = Field("Canary", description="Benchmark, Canary or Watch.")


class AttemptStatus(StatusModel):
    """Promotions of one revision and when the next may start."""

    revision: str = Field(description="ControllerRevision that the attempts belong to.")
    count: int = Field(0, description="Promotions of that revision so far.")
    last_rollback: datetime | None = Field(None, description="When the last one was rolled back.")
    next_attempt: datetime | None = Field(None, description="Not before this time is the next one made.")


class CommandAnswer(StatusModel):
    """The last command (annotation specfleet.dev/command) and what became of it."""

    nonce: str = Field(description="Second word of the annotation; the same one is answered once.")
    command: str = Field(description="First word: retry, promote, abort or rebenchmark.")
    accepted: bool = Field(description="Whether it is carried out.")
    message: str = Field("", description="Why not, or what follows.")
    time: datetime = Field(description="When it was answered.")


class RevisionStatus(StatusModel):
    """A revision by its ControllerRevision, and the arm that serves it."""

    name: str = Field(description="ControllerRevision.")
    baseline: str = Field(description="Requested fingerprint of its plain arm.")
    speculative: str | None = Field(None, description="Requested fingerprint of its promoted proposer.")


class DeploymentStatus(StatusModel):
    """All of status."""

    observed_generation: int = Field(0, description="metadata.generation of the spec that this status speaks of.")
    conditions: list[Condition] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        description="Ready, Reconciling, Stalled (kstatus) and what leads to them; docs/concepts.md explains each.",
    )
    phase: Phase = Phase.DEPLOYING
    phase_since: datetime | None = Field(None, description="When the phase began.")
    phase_reason: str | None = Field(None, description="Why the phase is what it is, in one CamelCase word.")
    revision: str | None = Field(None, description="ControllerRevision of the spec that is being worked on.")
    revision_refused: str | None = Field(None, description="Revision whose plain arm failed; stable serves instead.")
    serving_arm: ArmRole | None = None
    weight_percent: int = Field(0, description="Traffic share of the speculative arm as routed.")
    step: int | None = Field(None, description="Canary step in flight (0-based).")
    step_since: datetime | None = Field(None, description="When the canary step began; windows before it do not count.")
    stable: RevisionStatus | None = None
    candidate: str | None = Field(None, description="Requested fingerprint of the proposer under trial.")
    trials: list[TrialStatus] = Field(default_factory=list, max_length=64, description="Candidates judged so far.")
    search: SearchStatus | None = None
    change: ChangeStatus | None = None
    traffic: TrafficStatus | None = None
    recommendation: Recommendation | None = None
    preflight: PreflightStatus | None = None
    arms: list[ArmStatus] = Field(default_factory=list, max_length=8, description="Arms that have pods, as last seen.")
    benchmark: BenchmarkProgress | None = None
    cells: list[CellStatus] = Field(
        default_factory=list, max_length=48, description="Result of the last benchmark, cell by cell."
    )
    investigation: Investigation | None = None
    shared_causes: list[SharedCause] = Field(
        default_factory=list,
        max_length=16,
        description="Findings that the plain arm shares, remembered for as long as its pods take to come back.",
    )
    followed_up: list[str] = Field(
        default_factory=list,
        max_length=16,
        description="Findings about the promoted arm that ended a trial of the present revision; each does so once.",
    )
    replaced_pods: list[ReplacedPod] = Field(
        default_factory=list,
        max_length=8,
        description="Pods that alone ended again and again and were replaced in the last day; each arm has one.",
    )
    calibration: Calibration | None = None
    attempts: AttemptStatus | None = None
    rollback_counts: bool = Field(True, description="Whether the roll-back in flight uses up an attempt.")
    hold_until: datetime | None = Field(None, description="When a Held phase is looked at again.")
    holds: int = Field(0, description="Holds in a row without progress; each one lasts longer than the one before.")
    last_decision: DecisionRecord | None = None
    history: list[DecisionRecord] = Field(
        default_factory=list, max_length=20, description="The last decisions, oldest first."
    )
    last_change: datetime | None = Field(None, description="Start of the present cool-down.")
    actions: list[datetime] = Field(default_factory=list, max_length=20, description="Automatic actions, last 24 h.")
    command: CommandAnswer | None = None
    realised_gain_ratio: float | None = Field(
        None,
        description="Gain that the promoted proposer was promoted with (0.2: 20 %); absent while none is promoted.",
    )
    gpu_hours_spent: float = Field(0.0, description="GPU hours of all benchmarks of this deployment.")
    warnings: list[str] = Field(default_factory=list, max_length=32, description="Engine rules that warn.")
    replicas: int = Field(0, description="Serving pods (scale subresource).")
    selector: str = Field("", description="Label selector of serving pods (scale subresource).")

    @property
    def needed_benchmarks(self) -> frozenset[str]:
        """Ids of benchmarks whose evidence decisions rest on: that in flight, those of an open search, and the
        confirmation of what serves."""
        searched = self.search.candidates if self.search is not None else []
        promoted = self.stable.speculative if self.stable is not None else None
        over = promoted in {one.fingerprint for one in searched}
        listed = [] if over else [one.benchmark for one in searched]
        in_flight = [self.benchmark.id, self.benchmark.capacity_from] if self.benchmark is not None else []
        confirmed = [self.search.confirmation] if self.search is not None else []
        return frozenset(one for one in (*listed, *in_flight, *confirmed) if one is not None)
