"""The vllm:* families of vLLM 0.32: names, help texts, labels, buckets and order."""

from collections.abc import Callable, Mapping, Sequence

from vllm_sim.exposition import Counter, Distribution, Family, Gauge, Histogram, Value, label_text

ITL_BUCKETS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1),
    *(2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
)
REQUEST_BUCKETS = (
    *(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60),
    *(120, 240, 480, 960, 1920, 7680),
)
ITERATION_BUCKETS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")
COUNT_BUCKETS = (1, 2, 3, 4, 5, 10, 20)


def length_buckets(max_model_len: int) -> list[float]:
    """1, 2, 5, 10, ... up to the context length."""
    found: list[float] = []
    power = 1
    while True:
        for digit in (1, 2, 5):
            edge = digit * power
            if edge > max_model_len:
                return found
            found.append(edge)
        power *= 10


class EngineMetrics:
    """Every series of one engine. Attributes are the series that the engine writes."""

    def __init__(
        self,
        model_name: str,
        max_model_len: int,
        speculative_tokens: int,
        cache_config: Mapping[str, str],
        custom_buckets: Mapping[str, Sequence[float]],
    ) -> None:
        self._who = ("0", model_name)
        self.families: list[Family] = []
        self._gauges: dict[str, Gauge] = {}
        if speculative_tokens:
            self._speculative(speculative_tokens)
        self._load()
        self._caches()
        self._prompt_sources()
        self._results(model_name)
        self._lengths(length_buckets(max_model_len))
        self._latencies(custom_buckets)
        self.families.append(CacheConfigInfo(cache_config))

    def _counter(self, name: str, help_text: str) -> Value:
        family = Counter(f"vllm:{name}", help_text, ("engine", "model_name"))
        self.families.append(family)
        return family.of(*self._who)

    def _labelled(self, name: str, help_text: str, label: str, values: Sequence[str]) -> dict[str, Value]:
        family = Counter(f"vllm:{name}", help_text, ("engine", "model_name", label))
        self.families.append(family)
        return {value: family.of(*self._who, value) for value in values}

    def _histogram(self, name: str, help_text: str, edges: Sequence[float]) -> Distribution:
        family = Histogram(f"vllm:{name}", help_text, edges, ("engine", "model_name"))
        self.families.append(family)
        return family.of(*self._who)

    def _gauge(self, name: str, help_text: str) -> None:
        family = Gauge(f"vllm:{name}", help_text, ("engine", "model_name"))
        self._gauges[name] = family
        self.families.append(family)

    def _speculative(self, tokens: int) -> None:
        self.drafts = self._counter("spec_decode_num_drafts", "Number of spec decoding drafts.")
        self.draft_tokens = self._counter("spec_decode_num_draft_tokens", "Number of draft tokens.")
        self.accepted_tokens = self._counter("spec_decode_num_accepted_tokens", "Number of accepted tokens.")
        positions = [str(place) for place in range(tokens)]
        series = self._labelled(
            "spec_decode_num_accepted_tokens_per_pos", "Accepted tokens per draft position.", "position", positions
        )
        self.accepted_per_position = [series[position] for position in positions]

    def _load(self) -> None:
        flops = "(for Model Flops Utilization calculations)."
        self._counter("estimated_flops_per_gpu", f"Estimated number of floating point operations per GPU {flops}")
        self._counter("estimated_read_bytes_per_gpu", f"Estimated number of bytes read from memory per GPU {flops}")
        self._counter("estimated_write_bytes_per_gpu", f"Estimated number of bytes written to memory per GPU {flops}")
        self._gauge("num_requests_running", "Number of requests in model execution batches.")
        self._gauge("num_requests_waiting", "Number of requests waiting to be processed.")
        self._waiting_by_reason = Gauge(
            "vllm:num_requests_waiting_by_reason",
            "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; "
            "'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). "
            "Sum of all reasons equals vllm:num_requests_waiting.",
            ("engine", "model_name", "reason"),
        )
        sleep = Gauge(
            "vllm:engine_sleep_state",
            "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
            "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
            ("engine", "model_name", "sleep_state"),
        )
        for state, value in (("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)):
            sleep.read(lambda value=value: value, *self._who, state)  # type: ignore[misc]
        self.families += [self._waiting_by_reason, sleep]
        self._gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")

    def _caches(self) -> None:
        tokens = "in terms of number of {} tokens."
        external = "External prefix cache {} from KV connector cross-instance cache sharing, " + tokens
        self.prefix_queries = self._counter("prefix_cache_queries", "Prefix cache queries, " + tokens.format("queried"))
        self.prefix_hits = self._counter("prefix_cache_hits", "Prefix cache hits, " + tokens.format("cached"))
        self._counter("external_prefix_cache_queries", external.format("queries", "queried"))
        self._counter("external_prefix_cache_hits", external.format("hits", "cached"))
        self._counter("mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items.")
        self._counter("mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.")
        self.preemptions = self._counter("num_preemptions", "Cumulative number of preemption from the engine.")
        self.prompt_tokens = self._counter("prompt_tokens", "Number of prefill tokens processed.")

    def _prompt_sources(self) -> None:
        sources = self._labelled(
            "prompt_tokens_by_source",
            "Number of prompt tokens by source.",
            "source",
            ("local_compute", "local_cache_hit", "external_kv_transfer"),
        )
        self.prompt_computed, self.prompt_cache_hits = sources["local_compute"], sources["local_cache_hit"]
        self.prompt_cached = self._counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).")
        tiers = self._labelled(
            "prompt_tokens_cached_by_source",
            "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to "
            "DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; "
            "sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
            "source",
            ("device", "host", "p2p", "disk", "external_unspecified"),
        )
        self.prompt_cached_device = tiers["device"]
        self.generation_tokens = self._counter("generation_tokens", "Number of generation tokens processed.")

    def _results(self, model_name: str) -> None:
        self.finished = self._labelled(
            "request_success", "Count of successfully processed requests.", "finished_reason", FINISH_REASONS
        )
        rejections = Counter(
            "vllm:admission_rejections",
            "Number of admission attempts rejected by a queue limit, by reason.",
            ("model_name", "reason"),
        )
        for reason in ("max_num_queued_reqs", "max_num_queued_tokens"):
            rejections.of(model_name, reason)
        self.families.append(rejections)

    def _lengths(self, edges: Sequence[float]) -> None:
        self.request_prompt = self._histogram("request_prompt_tokens", "Number of prefill tokens processed.", edges)
        self.request_generation = self._histogram(
            "request_generation_tokens", "Number of generation tokens processed.", edges
        )
        self.iteration_tokens = self._histogram(
            "iteration_tokens_total", "Histogram of number of tokens per engine_step.", ITERATION_BUCKETS
        )
        self.max_generation = self._histogram(
            "request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.", edges
        )
        self.params_n = self._histogram("request_params_n", "Histogram of the n request parameter.", (1, 2, 5, 10, 20))
        self.params_max_tokens = self._histogram(
            "request_params_max_tokens", "Histogram of the max_tokens request parameter.", edges
        )
        self._length_edges = edges

    def _latencies(self, custom: Mapping[str, Sequence[float]]) -> None:
        itl = custom.get("inter_token_latency", ITL_BUCKETS)
        request = custom.get("request_latency", REQUEST_BUCKETS)
        self.ttft = self._histogram(
            "time_to_first_token_seconds",
            "Histogram of time to first token in seconds.",
            custom.get("time_to_first_token", TTFT_BUCKETS),
        )
        self.itl = self._histogram("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", itl)
        self.tpot = self._histogram(
            "request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.", itl
        )
        self.e2e = self._histogram(
            "e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", request
        )
        phase = "Histogram of time spent in {} phase for request."
        self.queue_time = self._histogram("request_queue_time_seconds", phase.format("WAITING"), request)
        self.inference_time = self._histogram("request_inference_time_seconds", phase.format("RUNNING"), request)
        self.prefill_time = self._histogram("request_prefill_time_seconds", phase.format("PREFILL"), request)
        self.decode_time = self._histogram("request_decode_time_seconds", phase.format("DECODE"), request)
        self.request_preemptions = self._histogram(
            "request_num_preemptions", "Histogram of the number of times a request was preempted.", COUNT_BUCKETS
        )
        self.prefill_computed = self._histogram(
            "request_prefill_kv_computed_tokens",
            "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
            self._length_edges,
        )

    def watch_load(
        self, running: Callable[[], float], waiting: Callable[[], float], kv_usage: Callable[[], float]
    ) -> None:
        """Connect the gauges to the scheduler."""
        self._gauges["num_requests_running"].read(running, *self._who)
        self._gauges["num_requests_waiting"].read(waiting, *self._who)
        self._gauges["kv_cache_usage_perc"].read(kv_usage, *self._who)
        self._waiting_by_reason.read(waiting, *self._who, "capacity")
        self._waiting_by_reason.read(lambda: 0.0, *self._who, "deferred")

    def count_draft(self, drafted: int, accepted: int) -> None:
        """One request's draft in one step."""
        self.drafts.value += 1
        self.draft_tokens.value += drafted
        self.accepted_tokens.value += accepted
        for place in range(accepted):
            self.accepted_per_position[place].value += 1


class CacheConfigInfo:
    """vllm:cache_config_info: the cache configuration as labels (label `engine`, no model_name)."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._lines = [
            "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig",
            "# TYPE vllm:cache_config_info gauge",
            f"vllm:cache_config_info{{{label_text(tuple(config), tuple(config.values()))}}} 1.0",
        ]

    def render(self, lines: list[str]) -> None:
        """Append the family's lines."""
        lines += self._lines
