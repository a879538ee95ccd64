"""Run summaries with a known truth: what the driver would have written, had it measured arms that differ by just so."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec, RunSummary
from specfleet.api.status import ArmRole

START = datetime(2026, 1, 1, tzinfo=UTC)
TPOT_SECONDS, TTFT_SECONDS, REQUESTS_PER_SECOND = 0.02, 0.5, 5.0
_PLAIN: dict[str, list[RunSummary]] = {}


@dataclass(frozen=True)
class Effect:
    """True effect of speculation on a tier, each as speculative / plain."""

    tpot: float = 1.0
    ttft: float = 1.0
    throughput: float = 1.0
    error_share: float = 0.0
    """Share of the speculative arm's requests that end with 5xx."""
    acceptance: float = 0.6


@dataclass(frozen=True)
class Noise:
    """Standard deviations of log-ratios."""

    pair: float = 0.01
    """Shared by all cells of a pair and metric."""
    run: float = 0.0225
    """Own to a cell; with `pair` the between-pair sd is 0.025, the figure of the design."""
    ttft_factor: float = 1.5


@dataclass(frozen=True)
class Truth:
    """Effects by tier; `default` for the others."""

    default: Effect = Effect()
    tiers: Mapping[str, Effect] = field(default_factory=dict)

    def of(self, tier: str) -> Effect:
        """Effect in a tier."""
        return self.tiers.get(tier, self.default)


def draw_pairs(
    spec: DeploymentSpec, truth: Truth, noise: Noise, pairs: int, random: np.random.Generator
) -> list[BenchmarkEvidenceSpec]:
    """Evidence of `pairs` pairs over the whole matrix."""
    return [draw_pair(spec, truth, noise, pair, random) for pair in range(pairs)]


def draw_pair(
    spec: DeploymentSpec, truth: Truth, noise: Noise, pair: int, random: np.random.Generator
) -> BenchmarkEvidenceSpec:
    """Evidence of one pair."""
    shared = random.normal(0.0, noise.pair, 3)
    plain_runs = _plain_runs(spec)
    runs: list[RunSummary] = []
    for index, (tier, piece) in enumerate((t, s) for t in spec.benchmark.tiers for s in spec.benchmark.slices):
        own = random.normal(0.0, noise.run, 3)
        effect = truth.of(tier.name)
        logs = [math.log(effect.tpot), math.log(effect.ttft), math.log(effect.throughput)]
        factors = (noise.ttft_factor if place == 1 else 1.0 for place in range(3))
        ratios = [math.exp(x + f * (shared[i] + own[i])) for i, (x, f) in enumerate(zip(logs, factors, strict=True))]
        requests = spec.benchmark.minimum_requests
        drafted = run_summary(
            ArmRole.SPECULATIVE,
            tier.name,
            piece.name,
            2 * index + 1,
            tpot=TPOT_SECONDS * ratios[0],
            ttft=TTFT_SECONDS * ratios[1],
            throughput=REQUESTS_PER_SECOND * ratios[2],
            requests=requests,
            closed_loop=tier.closed_loop,
            acceptance=effect.acceptance,
            errors=int(random.binomial(requests, effect.error_share)),
            output_tokens=piece.output_tokens,
        )
        runs += [plain_runs[index], drafted]
    return evidence(runs, pair)


def _plain_runs(spec: DeploymentSpec) -> list[RunSummary]:
    """The plain arm of every cell. All noise is put into the other arm: only ratios are ever used."""
    key = spec.model_dump_json(include={"benchmark"})
    if key not in _PLAIN:
        _PLAIN[key] = [
            run_summary(
                ArmRole.BASELINE,
                tier.name,
                piece.name,
                2 * index,
                tpot=TPOT_SECONDS,
                ttft=TTFT_SECONDS,
                throughput=REQUESTS_PER_SECOND,
                requests=spec.benchmark.minimum_requests,
                closed_loop=tier.closed_loop,
                acceptance=None,
                output_tokens=piece.output_tokens,
            )
            for index, (tier, piece) in enumerate((t, s) for t in spec.benchmark.tiers for s in spec.benchmark.slices)
        ]
    return _PLAIN[key]


def run_summary(
    arm: ArmRole,
    tier: str,
    piece: str,
    order: int,
    *,
    tpot: float,
    ttft: float,
    throughput: float,
    requests: int,
    closed_loop: bool,
    acceptance: float | None,
    errors: int = 0,
    output_tokens: int = 128,
) -> RunSummary:
    """One run. TPOT and TTFT in seconds, throughput in requests/s."""
    drafts = 0 if acceptance is None else requests * output_tokens // 3
    return RunSummary.model_construct(
        arm=arm,
        tier=tier,
        slice=piece,
        order=order,
        valid=errors == 0,
        invalid_reason=None if errors == 0 else f"FailedRequests: {errors} of {requests} failed",
        started=0.0,
        duration_seconds=requests / throughput,
        planned_requests=requests,
        completed_requests=requests - errors,
        failed_requests=errors,
        requests_per_second=None if closed_loop else throughput,
        concurrency=16 if closed_loop else None,
        completed_requests_per_second=throughput,
        prompt_tokens=requests * 256,
        output_tokens=requests * output_tokens,
        output_tokens_per_second=throughput * output_tokens,
        tpot_mean_seconds=tpot,
        tpot_p95_seconds=1.5 * tpot,
        ttft_mean_seconds=ttft,
        ttft_p95_seconds=2 * ttft,
        e2e_mean_seconds=ttft + tpot * (output_tokens - 1),
        stall_p95_seconds=2 * tpot,
        client_lag_p99_seconds=None if closed_loop else 0.002,
        drafts=drafts,
        draft_tokens=3 * drafts,
        accepted_tokens=round(3 * drafts * (acceptance or 0.0)),
        engine_tpot_seconds=tpot,
        kv_cache_peak_ratio=0.3,
        queue_time_mean_seconds=0.0,
        server_errors=errors,
    )


def evidence(runs: Sequence[RunSummary], pair: int, purpose: str = "Qualify") -> BenchmarkEvidenceSpec:
    """One evidence object around the runs."""
    begun = START + timedelta(hours=pair)
    return BenchmarkEvidenceSpec.model_construct(
        deployment="d",
        benchmark="b",
        purpose=purpose,
        unit=f"p{pair}",
        pair=pair,
        baseline="plain",
        candidate="drafted",
        proposer="eagle3 k=3",
        started=begun,
        finished=begun + timedelta(minutes=50),
        gpu_seconds=2 * sum(run.duration_seconds for run in runs) / 2,
        runs=list(runs),
        error=None,
    )
