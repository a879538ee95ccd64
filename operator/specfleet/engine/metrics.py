"""Names of vLLM's metrics per engine version (facts compared across the wheels 0.8.5 to 0.33.0).

Names are those of the series: counters with `_total`, histograms without `_bucket`, `_sum` and `_count`.
"""

from dataclasses import dataclass
from enum import StrEnum

from specfleet.engine.versions import EngineVersion


class Kind(StrEnum):
    """Prometheus metric types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Quantity(StrEnum):
    """What is measured, independent of the name that a version gives it."""

    DRAFTS = "drafts"
    DRAFT_TOKENS = "draft tokens"
    ACCEPTED_TOKENS = "accepted tokens"
    ACCEPTED_PER_POSITION = "accepted tokens per position"
    TIME_TO_FIRST_TOKEN = "time to first token"  # noqa: S105
    STEP_TIME = "time between engine outputs (one step, whatever number of tokens)"
    REQUEST_TPOT = "time per output token of finished requests"
    END_TO_END = "end-to-end latency"
    QUEUE_TIME = "queue time"
    PREFILL_TIME = "prefill time"
    DECODE_TIME = "decode time"
    PROMPT_LENGTH = "prompt tokens of finished requests"
    GENERATION_LENGTH = "generated tokens of finished requests"
    PROMPT_TOKENS = "prompt tokens"
    GENERATED_TOKENS = "generated tokens"
    FINISHED_REQUESTS = "finished requests by reason"
    PREEMPTIONS = "pre-emptions"
    ADMISSION_REJECTIONS = "requests rejected before they were queued"
    RUNNING = "running requests"
    WAITING = "waiting requests"
    WAITING_BY_REASON = "waiting requests by reason"
    KV_CACHE_USE = "share of the KV cache in use"
    PREFIX_CACHE_QUERIES = "prefix cache queries"
    PREFIX_CACHE_HITS = "prefix cache hits"


@dataclass(frozen=True, slots=True)
class MetricName:
    """One name of one quantity, and the releases (inclusive) that expose it by default."""

    quantity: Quantity
    name: str
    kind: Kind
    since: str | None = None
    last: str | None = None
    only_with_speculation: bool = False


def _always(quantity: Quantity, name: str, kind: Kind) -> MetricName:
    return MetricName(quantity, name, kind)


def _drafting(quantity: Quantity, name: str) -> MetricName:
    return MetricName(quantity, name, Kind.COUNTER, only_with_speculation=True)


METRICS = (
    _drafting(Quantity.DRAFTS, "vllm:spec_decode_num_drafts_total"),
    _drafting(Quantity.DRAFT_TOKENS, "vllm:spec_decode_num_draft_tokens_total"),
    _drafting(Quantity.ACCEPTED_TOKENS, "vllm:spec_decode_num_accepted_tokens_total"),
    _drafting(Quantity.ACCEPTED_PER_POSITION, "vllm:spec_decode_num_accepted_tokens_per_pos_total"),
    _always(Quantity.TIME_TO_FIRST_TOKEN, "vllm:time_to_first_token_seconds", Kind.HISTOGRAM),
    MetricName(Quantity.STEP_TIME, "vllm:inter_token_latency_seconds", Kind.HISTOGRAM, since="0.10.2"),
    MetricName(Quantity.STEP_TIME, "vllm:time_per_output_token_seconds", Kind.HISTOGRAM, last="0.11"),
    MetricName(Quantity.REQUEST_TPOT, "vllm:request_time_per_output_token_seconds", Kind.HISTOGRAM, since="0.11"),
    _always(Quantity.END_TO_END, "vllm:e2e_request_latency_seconds", Kind.HISTOGRAM),
    _always(Quantity.QUEUE_TIME, "vllm:request_queue_time_seconds", Kind.HISTOGRAM),
    _always(Quantity.PREFILL_TIME, "vllm:request_prefill_time_seconds", Kind.HISTOGRAM),
    _always(Quantity.DECODE_TIME, "vllm:request_decode_time_seconds", Kind.HISTOGRAM),
    _always(Quantity.PROMPT_LENGTH, "vllm:request_prompt_tokens", Kind.HISTOGRAM),
    _always(Quantity.GENERATION_LENGTH, "vllm:request_generation_tokens", Kind.HISTOGRAM),
    _always(Quantity.PROMPT_TOKENS, "vllm:prompt_tokens_total", Kind.COUNTER),
    _always(Quantity.GENERATED_TOKENS, "vllm:generation_tokens_total", Kind.COUNTER),
    _always(Quantity.FINISHED_REQUESTS, "vllm:request_success_total", Kind.COUNTER),
    _always(Quantity.PREEMPTIONS, "vllm:num_preemptions_total", Kind.COUNTER),
    MetricName(Quantity.ADMISSION_REJECTIONS, "vllm:admission_rejections_total", Kind.COUNTER, since="0.32"),
    _always(Quantity.RUNNING, "vllm:num_requests_running", Kind.GAUGE),
    _always(Quantity.WAITING, "vllm:num_requests_waiting", Kind.GAUGE),
    MetricName(Quantity.WAITING_BY_REASON, "vllm:num_requests_waiting_by_reason", Kind.GAUGE, since="0.20"),
    MetricName(Quantity.KV_CACHE_USE, "vllm:kv_cache_usage_perc", Kind.GAUGE, since="0.9.2"),
    MetricName(Quantity.KV_CACHE_USE, "vllm:gpu_cache_usage_perc", Kind.GAUGE, last="0.10"),
    MetricName(Quantity.PREFIX_CACHE_QUERIES, "vllm:prefix_cache_queries_total", Kind.COUNTER, since="0.9.2"),
    MetricName(Quantity.PREFIX_CACHE_QUERIES, "vllm:gpu_prefix_cache_queries_total", Kind.COUNTER, last="0.10"),
    MetricName(Quantity.PREFIX_CACHE_HITS, "vllm:prefix_cache_hits_total", Kind.COUNTER, since="0.9.2"),
    MetricName(Quantity.PREFIX_CACHE_HITS, "vllm:gpu_prefix_cache_hits_total", Kind.COUNTER, last="0.10"),
)
"""In order of preference: where two names exist at once, the first listed is the newer one."""

DEFAULT_TOKEN_EDGES_SECONDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
"""Built-in bucket edges of inter-token latency and per-request TPOT, the same from 0.8.5 to 0.33."""
DEFAULT_FIRST_TOKEN_EDGES_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
"""Built-in bucket edges of time to first token."""


def metric_name(quantity: Quantity, version: EngineVersion) -> str | None:
    """The name under which this version exposes the quantity, None where it does not."""
    return next((one.name for one in METRICS if one.quantity is quantity and version.has(one.since, one.last)), None)


def metric_names(version: EngineVersion) -> dict[Quantity, str]:
    """All quantities that this version exposes."""
    named = {quantity: metric_name(quantity, version) for quantity in Quantity}
    return {quantity: name for quantity, name in named.items() if name is not None}
