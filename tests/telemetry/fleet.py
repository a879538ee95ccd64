"""Pods whose vLLM counters grow as told, scraped into an in-memory store: input of the telemetry tests."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

Labels = tuple[tuple[str, str], ...]


@dataclass
class EngineModel:
    """One engine: per second of traffic, what its counters do. Change the fields to inject a fault."""

    requests_per_second: float = 2.0
    tokens_per_request: float = 100.0
    step_seconds: float = 0.02
    acceptance: tuple[float, ...] | None = (0.7, 0.5, 0.35)
    """Share of drafts accepted up to each position; None: plain decoding."""
    server_error_share: float = 0.0
    client_error_share: float = 0.0
    stuck: bool = False
    start_time: float = 0.0
    counters: dict[str, float] = field(default_factory=dict)

    def restart(self, at: float) -> None:
        self.counters = {}
        self.start_time = at

    def run(self, seconds: float, noise: Callable[[float], float]) -> None:
        requests = 0.0 if self.stuck else noise(self.requests_per_second * seconds)
        tokens = requests * self.tokens_per_request
        decoded = tokens - requests
        per_step = 1.0 + (sum(self.acceptance) if self.acceptance else 0.0)
        steps = decoded / per_step
        bad, refused = requests * self.server_error_share, requests * self.client_error_share
        grown = {
            "vllm:generation_tokens_total": tokens,
            "vllm:inter_token_latency_seconds_sum": steps * self.step_seconds,
            "vllm:inter_token_latency_seconds_count": steps,
            "vllm:time_to_first_token_seconds_sum": requests * 0.1,
            "vllm:time_to_first_token_seconds_count": requests,
            "vllm:num_preemptions_total": 0.0,
            'vllm:request_success_total{finished_reason="stop"}': requests - bad,
            'vllm:request_success_total{finished_reason="error"}': bad,
            'http_requests_total{handler="/v1/completions",status="2xx"}': requests - bad,
        }
        if bad:
            grown['http_requests_total{handler="/v1/completions",status="5xx"}'] = bad
        if refused:
            grown['http_requests_total{handler="/v1/completions",status="4xx"}'] = refused
        if self.acceptance:
            drafts = steps
            grown["vllm:spec_decode_num_drafts_total"] = drafts
            grown["vllm:spec_decode_num_draft_tokens_total"] = drafts * len(self.acceptance)
            grown["vllm:spec_decode_num_accepted_tokens_total"] = drafts * sum(self.acceptance)
            for position, share in enumerate(self.acceptance):
                name = f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{position}"}}'
                grown[name] = drafts * share
        for name, value in grown.items():
            self.counters[name] = self.counters.get(name, 0.0) + value

    def exposition(self) -> dict[str, float]:
        running = 4.0 if self.stuck else self.requests_per_second
        return {
            **self.counters,
            "vllm:num_requests_running": running,
            "vllm:num_requests_waiting": 0.0,
            "vllm:kv_cache_usage_perc": 0.2,
            "process_start_time_seconds": self.start_time,
        }


class Store:
    """Series as Prometheus would have them."""

    def __init__(self) -> None:
        self.series: dict[Labels, list[tuple[float, float]]] = {}

    def scrape(self, at: float, namespace: str, pod: str, engine: EngineModel, **more: str) -> None:
        for name, value in engine.exposition().items():
            self.add(at, value, name, namespace=namespace, pod=pod, **more)

    def add(self, at: float, value: float, name: str, **labels: str) -> None:
        bare, _, rest = name.partition("{")
        own = dict(part.split("=") for part in rest.rstrip("}").split(",") if part)
        full = {"__name__": bare, "model_name": "m", "engine": "0", "job": "vllm", **labels}
        full |= {key: text.strip('"') for key, text in own.items()}
        if bare in ("http_requests_total", "process_start_time_seconds"):
            full.pop("model_name"), full.pop("engine")
        self.series.setdefault(tuple(sorted(full.items())), []).append((at, value))


def play(
    store: Store,
    pods: dict[tuple[str, str], EngineModel],
    start: float,
    seconds: float,
    interval: float,
    jitter: float = 0.0,
    seed: int = 1,
    skip: Callable[[float], bool] = lambda _: False,
) -> float:
    """Let the pods run and scrape each with its own phase and jitter. Returns the end."""
    rng = np.random.default_rng(seed)
    for index, ((namespace, pod), engine) in enumerate(sorted(pods.items())):
        phase = (index * 0.37) % 1 * interval
        at = start + phase
        before = start
        while at < start + seconds:
            engine.run(at - before, lambda mean: float(rng.poisson(mean)))
            if not skip(at):
                store.scrape(round(at, 3), namespace, pod, engine)
            before = at
            at = max(before + 0.1, at + interval * (1 + jitter * rng.uniform(-1, 1)))
        engine.run(start + seconds - before, lambda mean: float(rng.poisson(mean)))
    return start + seconds
