"""The kind SpeculativeBenchmark: immutable evidence, one object per pair of runs."""

from datetime import datetime
from typing import Annotated

from pydantic import ConfigDict, Field

from specfleet.api.base import API_VERSION, ApiModel, cel, validations
from specfleet.api.model import Raw
from specfleet.api.status import ArmRole

KIND = "SpeculativeBenchmark"
PLURAL = "speculativebenchmarks"
SHORT = "sb"


class RunSummary(ApiModel):
    """One measured run of one arm in one cell, as the driver wrote it (at most about 1 KiB).

    Times in seconds, shares in 0..1, lengths in tokens. Latencies are client-side, from the intended send time.
    """

    model_config = ConfigDict(extra="ignore")

    arm: ArmRole
    tier: str = Field(description="Load tier.")
    slice: str = Field(description="Traffic slice.")
    order: int = Field(description="Position inside the pair: ABBA is 0 (A), 1 (B), 2 (B), 3 (A).")
    valid: bool = Field(description="Whether the run may be compared.")
    invalid_reason: str | None = Field(None, max_length=256, description="Why not; docs/evidence.md lists the reasons.")
    started: float = Field(description="Unix time of the first intended request.")
    duration_seconds: float = Field(description="First intended request to last answer.")
    planned_requests: int = Field(description="Requests that were to be sent.")
    completed_requests: int = Field(description="Requests that were answered whole.")
    failed_requests: int = Field(description="Planned requests that were not.")
    requests_per_second: float | None = Field(None, description="Planned rate; None for closed loop.")
    concurrency: int | None = Field(None, description="Requests in flight in closed loop; None in open loop.")
    completed_requests_per_second: float = Field(description="Completed requests over the duration.")
    prompt_tokens: int = Field(description="Prompt tokens of all requests.")
    output_tokens: int = Field(description="Generated tokens of all requests.")
    output_tokens_per_second: float = Field(description="Generated tokens over the duration.")
    tpot_mean_seconds: float | None = Field(None, description="Mean time per output token as the client saw it.")
    tpot_p95_seconds: float | None = Field(None, description="p95 of it over requests.")
    ttft_mean_seconds: float | None = Field(None, description="Mean time to first token.")
    ttft_p95_seconds: float | None = Field(None, description="p95 of it.")
    e2e_mean_seconds: float | None = Field(None, description="Mean time from intended send to last token.")
    stall_p95_seconds: float | None = Field(None, description="p95 pause between streamed chunks.")
    ttft_over_slo_share: float | None = Field(None, description="Share of requests over the declared TTFT objective.")
    tpot_over_slo_share: float | None = Field(None, description="Share of requests over the declared TPOT objective.")
    client_lag_p99_seconds: float | None = Field(None, description="None: unknown, so no open-loop latency Pass.")
    drafts: int = Field(0, description="Drafts that the engine checked.")
    draft_tokens: int = Field(0, description="Tokens that were drafted.")
    accepted_tokens: int = Field(0, description="Drafted tokens that were accepted.")
    accepted_per_position: list[int] = Field(
        default_factory=list, max_length=128, description="Accepted tokens by position of the draft, first one first."
    )
    engine_tpot_seconds: float | None = Field(None, description="From the pods' own counters, token-weighted.")
    preemptions: int = Field(0, description="Requests that the engine put back.")
    kv_cache_peak_ratio: float | None = Field(None, description="Highest use of the KV cache that was seen (0..1).")
    queue_time_mean_seconds: float | None = Field(None, description="Mean wait in the engine's queue.")
    client_errors: int = Field(0, description="HTTP 4xx.")
    server_errors: int = Field(0, description="HTTP 5xx and aborted streams.")
    pod: str | None = Field(None, description="Engine pod that was measured.")
    agreement_ratio: float | None = Field(None, description="Greedy texts equal to the plain arm's (quality probes).")


class RequestProbe(ApiModel):
    """HTTP status of one kind of request that speculation is known to break (min_p, logit_bias, ...), per arm."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(description="Kind of request, for example min_p.")
    baseline_status: int | None = Field(None, description="None: not asked, or no answer.")
    speculative_status: int | None = Field(None, description="The same of the speculative arm.")

    @property
    def broken(self) -> bool:
        """Whether the plain arm takes the request and the speculative one refuses it."""
        plain, drafted = self.baseline_status, self.speculative_status
        return plain is not None and drafted is not None and plain < 400 <= drafted


class BenchmarkEvidenceSpec(ApiModel):
    """What was measured. Written once; the API server refuses any change."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra=validations(
            cel("self == oldSelf", "evidence is immutable: a new benchmark writes new objects")
        ),
    )

    deployment: str = Field(description="Name of the SpeculativeDeployment.")
    benchmark: str = Field(description="status.benchmark.id it belongs to.")
    purpose: str = Field(description="Qualify, Confirm, Suspicion, Change or Capacity.")
    unit: str = Field(description="What one Job measured: a pair (p0), or one arm's half of it (p0a, p0b).")
    pair: int = Field(ge=0, description="Index of the pair.")
    baseline: str = Field(description="Requested fingerprint of the plain arm; in a Change, of the one that served.")
    candidate: str = Field(
        description="Requested fingerprint of the speculative arm; in a Change, of the new plain one."
    )
    proposer: str = Field(description="Short form of the proposer.")
    candidates: int = Field(
        1, ge=1, le=64, description="Candidates among which the error is shared (Holm); 1: a question of its own."
    )
    criteria: str | None = Field(
        None, description="Hash of what it is judged by (matrix, pairs, looks, objective, guardrails) when measured."
    )
    engine_version: str | None = Field(None, description="vLLM version that the pods reported.")
    started: datetime = Field(description="When the Job started.")
    finished: datetime = Field(description="When the Job ended.")
    gpu_seconds: float = Field(ge=0, description="GPU time that the unit cost, both arms.")
    capacity_requests_per_second: float | None = Field(
        None, description="Capacity of the plain arm per pod (purpose Capacity)."
    )
    nodes: dict[ArmRole, Annotated[str, Field(description="Name of the node.")]] = Field(
        default_factory=dict, description="Node of each arm's pod, where it was known."
    )
    runs: list[RunSummary] = Field(max_length=256, description="The runs of the pair, one per arm and cell.")
    request_probes: list[RequestProbe] = Field(
        default_factory=list,
        max_length=32,
        description="Requests that speculation is known to break, asked once per benchmark.",
    )
    greedy_texts: dict[str, str] = Field(
        default_factory=dict,
        description="Hashes (4 hex digits per prompt) of greedy completions: baseline, baseline-again, speculative.",
    )
    error: str | None = Field(
        None, max_length=2048, description="Why the pair has no result, for example the Job died."
    )


class SpeculativeBenchmark(ApiModel):
    """Evidence of one pair of runs (plain, speculative) over the load matrix."""

    model_config = ConfigDict(extra="ignore")

    api_version: str = API_VERSION
    kind: str = KIND
    metadata: Raw
    spec: BenchmarkEvidenceSpec
