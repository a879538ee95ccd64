"""The PromQL of the watch: one selector for the whole fleet on a server, split only by the number of series."""

import re
from collections.abc import Iterable, Mapping, Sequence

from specfleet.decide.counters import Counter, Gauge
from specfleet.decide.watch_target import Target
from specfleet.engine.metrics import DEFAULT_TOKEN_EDGES_SECONDS

SERIES_PER_QUERY = 20_000
SERIES_PER_POD = 22

START_TIME = "process_start_time_seconds"
COUNTER_METRICS: Mapping[str, Counter] = {
    "vllm:spec_decode_num_drafts_total": Counter.DRAFTS,
    "vllm:spec_decode_num_draft_tokens_total": Counter.DRAFT_TOKENS,
    "vllm:spec_decode_num_accepted_tokens_total": Counter.ACCEPTED_TOKENS,
    "vllm:spec_decode_num_accepted_tokens_per_pos_total": Counter.ACCEPTED_FIRST,
    "vllm:generation_tokens_total": Counter.GENERATED_TOKENS,
    "vllm:inter_token_latency_seconds_sum": Counter.STEP_SECONDS,
    "vllm:inter_token_latency_seconds_count": Counter.STEPS,
    "vllm:time_to_first_token_seconds_sum": Counter.TTFT_SECONDS,
    "vllm:time_to_first_token_seconds_count": Counter.FIRST_TOKENS,
    "vllm:num_preemptions_total": Counter.PREEMPTIONS,
}
"""vLLM 0.11 to 0.33 (names did not change in between)."""
GAUGE_METRICS: Mapping[str, Gauge] = {
    "vllm:num_requests_running": Gauge.RUNNING,
    "vllm:num_requests_waiting": Gauge.WAITING,
    "vllm:kv_cache_usage_perc": Gauge.KV_CACHE,
}
FINISHED = "vllm:request_success_total"
"""Despite its name it counts every end of a request, by `finished_reason`."""
FINISH_REASONS: Mapping[str, Counter] = {"abort": Counter.ABORTED, "error": Counter.FAILED}
"""Other reasons (stop, length, repetition) are Counter.FINISHED."""
HTTP = "http_requests_total"
HTTP_CLASSES: Mapping[str, Counter] = {
    "2": Counter.HTTP_OK,
    "4": Counter.HTTP_CLIENT_ERROR,
    "5": Counter.HTTP_SERVER_ERROR,
}
GAP_BUCKETS = "vllm:inter_token_latency_seconds_bucket"
METRICS = (*COUNTER_METRICS, *GAUGE_METRICS, FINISHED, HTTP, START_TIME)
OWN_LABELS = frozenset(
    {"__name__", "engine", "model_name", "position", "finished_reason", "status", "handler", "method", "le"}
)
"""Labels that tell the series of one scrape apart; all others name the scraped target."""

REQUIRED = (
    Counter.GENERATED_TOKENS,
    Counter.STEP_SECONDS,
    Counter.FIRST_TOKENS,
    Counter.TTFT_SECONDS,
    Counter.FINISHED,
)
"""Counters without which nothing can be judged. The spec_decode ones exist only where speculation is on."""

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def stall_edges(limits: Iterable[float]) -> frozenset[float]:
    """Bucket edges (seconds) that tell how many gaps were longer than a limit: the limit itself, which the operator
    makes an edge from vLLM 0.32, and the first built-in edge above it."""
    wanted = frozenset(limits)
    above = (next((edge for edge in DEFAULT_TOKEN_EDGES_SECONDS if edge >= limit), limit) for limit in wanted)
    return wanted | frozenset(above)


def pods_per_namespace(targets: Iterable[Target]) -> dict[str, int]:
    """How many pods of the targets each namespace has."""
    pods: dict[str, int] = {}
    for target in targets:
        pods[target.key[0]] = pods.get(target.key[0], 0) + sum(len(members) for members in target.arms.values())
    return pods


def fleet_queries(
    pods_per_namespace: Mapping[str, int],
    namespace_label: str,
    seconds: float,
    metrics: Sequence[str] = METRICS,
    series_per_pod: int = SERIES_PER_POD,
    edges: frozenset[float] = frozenset(),
) -> list[str]:
    """Range selectors that together cover all watched pods over the last `seconds`.

    The number of queries follows from the number of series (at most `SERIES_PER_QUERY` expected per query), not from
    the number of deployments: namespaces share a query until it is full; only a namespace that is too large by itself
    is split, by metric. `edges`: the buckets of the gaps between outputs that are asked for besides.
    """
    metrics = (*metrics, GAP_BUCKETS) if edges else metrics
    queries = []
    batch: list[str] = []
    expected = 0
    for namespace, pods in sorted(pods_per_namespace.items()):
        size = pods * series_per_pod
        if size > SERIES_PER_QUERY:
            queries += _split_by_metric(metrics, namespace, size, namespace_label, seconds, edges)
            continue
        if batch and expected + size > SERIES_PER_QUERY:
            queries.append(_selector(metrics, batch, namespace_label, seconds, edges))
            batch, expected = [], 0
        batch.append(namespace)
        expected += size
    if batch:
        queries.append(_selector(metrics, batch, namespace_label, seconds, edges))
    return queries


def _split_by_metric(
    metrics: Sequence[str], namespace: str, size: int, label: str, seconds: float, edges: frozenset[float]
) -> list[str]:
    parts = min(len(metrics), -(-size // SERIES_PER_QUERY))
    return [_selector(metrics[part::parts], [namespace], label, seconds, edges) for part in range(parts)]


def _selector(
    metrics: Iterable[str], namespaces: list[str], label: str, seconds: float, edges: frozenset[float]
) -> str:
    for namespace in namespaces:
        if not _NAMESPACE.fullmatch(namespace):
            raise ValueError(f"{namespace!r} is not a namespace name")
    # Prometheus 2 keeps `1` as an engine may write it, Prometheus 3 writes `1.0`.
    spelt = sorted({text for edge in edges for text in (f"{edge:g}", repr(float(edge)))})
    buckets = f'le=~"{"|".join(["", *(text.replace(".", "[.]") for text in spelt)])}",' if edges else ""
    return (
        f'{{__name__=~"{"|".join(metrics)}",{label}=~"{"|".join(namespaces)}",'
        # An alternative that matches the empty string lets series without that label through.
        f'{buckets}position=~"|0",handler=~"|/v1/(chat/)?completions"}}'
        f"[{max(1, round(seconds * 1000))}ms]"
    )
