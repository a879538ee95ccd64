"""Non-inferiority guards of the benchmark: what must not get worse, judged per tier on pooled slices."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specfleet.api.benchmark import GuardrailsSpec
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec, RunSummary
from specfleet.api.status import ArmRole, Verdict
from specfleet.decide.evidence_pairs import POD_RESTARTED, Cell, PairedRun, Pairs, Quantity
from specfleet.decide.statistics import Estimate, pooled_estimate, share_difference, wilson

TTFT_FLOOR_SECONDS = 0.02
"""An increase of the TTFT by less than this is not noticed, whatever its ratio to a short TTFT: a request that comes
in waits for the step in flight, which drafting makes a little longer."""
PRESSURE_KV_RATIO = 0.5
"""Below half of the cache its use is no pressure, whatever its ratio to the plain arm's."""
PREEMPTION_FLOOR = 0.01
"""Pre-emptions per request that nobody notices."""
OVERDISPERSION = 3.0
"""Pre-emptions come in bursts: their variance is about three times Poisson's."""


@dataclass(frozen=True, slots=True)
class GuardResult:
    """One guard in one tier (`tier` None: over the whole matrix)."""

    name: str
    """Also the reason when it decides, for example ThroughputLoss."""
    tier: str | None
    verdict: Verdict
    message: str
    observed: float | None = None
    lower: float | None = None
    upper: float | None = None
    margin: float | None = None


@dataclass(frozen=True, slots=True)
class GuardInput:
    """What every guard looks at."""

    spec: DeploymentSpec
    pairs: Pairs
    evidence: Sequence[BenchmarkEvidenceSpec]
    alpha: float

    @property
    def guardrails(self) -> GuardrailsSpec:
        """spec.guardrails."""
        return self.spec.guardrails

    def closed_loop(self, tier: str) -> bool:
        """Whether the tier measures capacity."""
        return any(one.name == tier and one.closed_loop for one in self.spec.benchmark.tiers)

    def weights(self, tier: str) -> list[float]:
        """Weight per usable cell: the tier's slices by their share of production traffic, the others zero."""
        return cell_weights(self.spec, self.pairs.cells, [cell for cell in self.pairs.cells if cell[0] == tier])


def cell_weights(spec: DeploymentSpec, cells: Sequence[Cell], members: Sequence[Cell]) -> list[float]:
    """Weights over `cells` that sum to one: members by slice weight within a tier, every tier the same."""
    slices = {piece.name: piece.weight for piece in spec.benchmark.slices}
    tiers = {tier: sum(slices.get(s, 1.0) for t, s in members if t == tier) for tier, _ in members}
    return [slices.get(cell[1], 1.0) / tiers[cell[0]] / len(tiers) if cell in members else 0.0 for cell in cells]


def tpot(run: RunSummary) -> float | None:
    """Time per output token in seconds: the engine's exact token-weighted one, else the client's."""
    return run.engine_tpot_seconds if run.engine_tpot_seconds is not None else run.tpot_mean_seconds


def all_guards(given: GuardInput) -> tuple[GuardResult, ...]:
    """Every guard that the spec and the evidence allow to be judged."""
    results: list[GuardResult] = [*_share_guards(given), *_restarts(given), *_agreement(given)]
    for tier in sorted({cell[0] for cell in given.pairs.overloaded}):
        text = f"{tier}: the speculative arm could not carry a rate that the plain arm carried"
        results.append(GuardResult("ThroughputLoss", tier, Verdict.FAIL, text))
    if given.pairs.count < 2:
        return tuple(results)
    for tier in given.pairs.tiers():
        results.extend(_ratio_guards(given, tier))
        results.extend(_slo_guards(given, tier))
        results.extend(one for one in (_preemptions(given, tier), _kv_cache(given, tier)) if one is not None)
        results.extend(_acceptance(given, tier))
    return tuple(results)


def _ratio_guards(given: GuardInput, tier: str) -> list[GuardResult]:
    limits = given.guardrails
    results = [_ratio(given, tier, "TimePerOutputToken", "TPOT", tpot, math.log1p(limits.max_tpot_increase_ratio))]
    if given.closed_loop(tier):
        loss = math.log1p(-min(limits.max_throughput_loss_ratio, 0.999))
        slowness: Quantity = lambda run: _inverse(run.completed_requests_per_second)  # noqa: E731
        results.append(_ratio(given, tier, "ThroughputLoss", "completed requests/s", slowness, -loss, inverse=True))
    elif any(run.client_lag_p99_seconds is None for pair in given.pairs.complete for run in _of_tier(pair, tier)):
        text = f"{tier}: the client's send lag is unknown, so its latencies cannot pass"
        results.append(GuardResult("ClientLagUnknown", tier, Verdict.INCONCLUSIVE, text))
    else:
        increase = math.log1p(max(limits.max_ttft_increase_ratio, TTFT_FLOOR_SECONDS / _plain_ttft(given, tier)))
        results.append(_ratio(given, tier, "TimeToFirstToken", "TTFT", lambda run: run.ttft_mean_seconds, increase))
    if limits.stall_slo_seconds is not None:
        results.append(_stalls(given, tier, limits.stall_slo_seconds))
    return results


def _plain_ttft(given: GuardInput, tier: str) -> float:
    known = [
        one.baseline.ttft_mean_seconds
        for pair in given.pairs.complete
        for one in pair
        if one.baseline.tier == tier and one.baseline.ttft_mean_seconds
    ]
    return sum(known) / len(known) if known else 1.0


def _of_tier(pair: Sequence[PairedRun], tier: str) -> list[RunSummary]:
    return [run for one in pair for run in (one.baseline, one.speculative) if run.tier == tier]


def _inverse(value: float) -> float | None:
    return 1 / value if value > 0 else None


def _ratio(
    given: GuardInput, tier: str, name: str, what: str, quantity: Quantity, margin: float, inverse: bool = False
) -> GuardResult:
    """A ratio that may grow by `margin` (log scale). `inverse`: said to the user as a quantity that may fall."""
    cells = given.pairs.cells
    rows = given.pairs.log_ratios(quantity, cells)
    members = [cell for cell in cells if cell[0] == tier]
    weights = given.weights(tier)
    if rows is None:
        rows = given.pairs.log_ratios(quantity, members)
        weights = cell_weights(given.spec, members, members)
    if rows is None:
        text = f"{tier}: {what} was not measured in every run"
        return GuardResult(name, tier, Verdict.INCONCLUSIVE, text)
    estimate = pooled_estimate(rows, weights)
    return _against(name, tier, what, estimate, margin, given.alpha, inverse)


def _against(
    name: str, tier: str, what: str, estimate: Estimate, margin: float, alpha: float, inverse: bool
) -> GuardResult:
    low, high = estimate.lower(alpha), estimate.upper(alpha)
    verdict = Verdict.PASS if high <= margin else Verdict.FAIL if low > margin else Verdict.INCONCLUSIVE
    sign = -1.0 if inverse else 1.0
    shown = sorted(math.expm1(sign * bound) for bound in (low, high))
    observed, limit = math.expm1(sign * estimate.mean), math.expm1(sign * margin)
    text = f"{tier}: {what} {observed:+.1%} [{shown[0]:+.1%}, {shown[1]:+.1%}], limit {limit:+.1%}"
    return GuardResult(name, tier, verdict, text, observed, shown[0], shown[1], limit)


def _stalls(given: GuardInput, tier: str, limit: float) -> GuardResult:
    """p95 pause between chunks against the declared limit; a tier whose plain arm is over it too is not held back."""
    rows: list[list[float]] = []
    plain_over = 0
    for pair in given.pairs.complete:
        row = []
        for one in (item for item in pair if item.baseline.tier == tier):
            pause, plain = one.speculative.stall_p95_seconds, one.baseline.stall_p95_seconds
            if not pause or not plain:
                return GuardResult("InterTokenStalls", tier, Verdict.INCONCLUSIVE, f"{tier}: pauses were not measured")
            row.append(math.log(pause / limit))
            plain_over += plain > limit
        rows.append(row)
    if plain_over * 2 > sum(len(row) for row in rows):
        return GuardResult("InterTokenStalls", tier, Verdict.PASS, f"{tier}: the plain arm stalls beyond the limit too")
    estimate = pooled_estimate(rows, [1 / len(rows[0])] * len(rows[0]))
    return _against("InterTokenStalls", tier, "p95 pause against the limit", estimate, 0.0, given.alpha, False)


def _slo_guards(given: GuardInput, tier: str) -> list[GuardResult]:
    results = []
    shares: tuple[tuple[str, str, Quantity], ...] = (
        ("TimeToFirstTokenSLO", "TTFT over its SLO", lambda run: run.ttft_over_slo_share),
        ("TimePerOutputTokenSLO", "TPOT over its SLO", lambda run: run.tpot_over_slo_share),
    )
    for name, what, quantity in shares:
        if any(quantity(run) is None for pair in given.pairs.complete for run in _of_tier(pair, tier)):
            continue
        results.append(_share_of_requests(given, tier, name, what, quantity))
    return results


def _share_of_requests(given: GuardInput, tier: str, name: str, what: str, quantity: Quantity) -> GuardResult:
    margin = given.guardrails.max_slo_violation_increase_ratio
    plain, drafted, plain_all, drafted_all = 0.0, 0.0, 0.0, 0.0
    for pair in given.pairs.complete:
        for one in (item for item in pair if item.baseline.tier == tier):
            plain += (quantity(one.baseline) or 0.0) * one.baseline.completed_requests
            drafted += (quantity(one.speculative) or 0.0) * one.speculative.completed_requests
            plain_all += one.baseline.completed_requests
            drafted_all += one.speculative.completed_requests
    return _share(name, tier, what, (drafted, drafted_all), (plain, plain_all), margin, given.alpha)


def _share(
    name: str,
    tier: str | None,
    what: str,
    drafted: tuple[float, float],
    plain: tuple[float, float],
    margin: float,
    alpha: float,
) -> GuardResult:
    """An increase of a share of requests. Proof is asked for where the sample could give it (no event in either arm
    would prove it); a smaller sample passes when it shows no excess, and the canary goes on counting."""
    low, high = share_difference(drafted, plain, alpha)
    observed = drafted[0] / max(drafted[1], 1) - plain[0] / max(plain[1], 1)
    provable = share_difference((0.0, drafted[1]), (0.0, plain[1]), alpha)[1] <= margin
    if low > margin:
        verdict = Verdict.FAIL
    elif high <= margin or (not provable and observed <= margin):
        verdict = Verdict.PASS
    else:
        verdict = Verdict.INCONCLUSIVE
    where = f"{tier}: " if tier else ""
    text = f"{where}{what} {drafted[0]:.0f}/{drafted[1]:.0f} against {plain[0]:.0f}/{plain[1]:.0f}, limit +{margin:.2%}"
    return GuardResult(name, tier, verdict, text, observed, low, high, margin)


def _share_guards(given: GuardInput) -> list[GuardResult]:
    """Errors over every run, invalid ones included: a run that failed because the engine answered 5xx is evidence."""
    limits = given.guardrails
    kinds: tuple[tuple[str, str, Callable[[RunSummary], int], float], ...] = (
        ("ServerErrors", "5xx and aborts", lambda run: run.server_errors, limits.max_error_share_increase_ratio),
        (
            "IncompatibleRequests",
            "4xx",
            lambda run: run.client_errors,
            limits.max_client_error_share_increase_ratio,
        ),
    )
    results = []
    plain_runs, drafted_runs = given.pairs.of(ArmRole.BASELINE), given.pairs.of(ArmRole.SPECULATIVE)
    for name, what, count, margin in kinds:
        drafted = (float(sum(map(count, drafted_runs))), float(sum(run.planned_requests for run in drafted_runs)))
        plain = (float(sum(map(count, plain_runs))), float(sum(run.planned_requests for run in plain_runs)))
        if drafted[1] > 0 and plain[1] > 0:
            results.append(_share(name, None, what, drafted, plain, margin, given.alpha))
    return results


def _restarts(given: GuardInput) -> list[GuardResult]:
    """An engine that dies under load: once is repeated, twice with a healthy plain arm is a finding."""
    counts = {
        role: sum((run.invalid_reason or "").startswith(POD_RESTARTED) for run in given.pairs.of(role))
        for role in ArmRole
    }
    if counts[ArmRole.SPECULATIVE] < 2 or counts[ArmRole.BASELINE] > 0:
        return []
    text = f"the speculative engine restarted in {counts[ArmRole.SPECULATIVE]} runs, the plain one in none"
    return [GuardResult("EngineRestarts", None, Verdict.FAIL, text, float(counts[ArmRole.SPECULATIVE]))]


def _preemptions(given: GuardInput, tier: str) -> GuardResult | None:
    plain, drafted, requests = 0, 0, 0
    for pair in given.pairs.complete:
        for one in (item for item in pair if item.baseline.tier == tier):
            plain += one.baseline.preemptions
            drafted += one.speculative.preemptions
            requests += one.speculative.completed_requests
    excess = (drafted - plain) / max(requests, 1)
    margin = math.log1p(given.guardrails.max_preemption_increase_ratio)
    ratio = math.log((drafted + 0.5) / (plain + 0.5))
    error = math.sqrt(OVERDISPERSION * (1 / (drafted + 0.5) + 1 / (plain + 0.5)))
    estimate = Estimate(ratio, error, 1000)
    if excess <= PREEMPTION_FLOOR:
        verdict = Verdict.PASS
    elif estimate.lower(given.alpha) > margin:
        verdict = Verdict.FAIL
    else:
        verdict = Verdict.PASS if estimate.upper(given.alpha) <= margin else Verdict.INCONCLUSIVE
    text = f"{tier}: {drafted} pre-emptions against {plain} in {requests} requests"
    return GuardResult("Preemptions", tier, verdict, text, excess) if drafted or plain else None


def _kv_cache(given: GuardInput, tier: str) -> GuardResult | None:
    peaks = [
        one.speculative.kv_cache_peak_ratio
        for pair in given.pairs.complete
        for one in pair
        if one.baseline.tier == tier
    ]
    known = [peak for peak in peaks if peak is not None]
    if not known or max(known) < PRESSURE_KV_RATIO:
        return None
    margin = math.log1p(given.guardrails.max_kv_cache_increase_ratio)
    return _ratio(given, tier, "KVCachePressure", "peak KV-cache use", lambda run: run.kv_cache_peak_ratio, margin)


def _acceptance(given: GuardInput, tier: str) -> list[GuardResult]:
    floor = given.guardrails.min_acceptance_rate
    if floor is None:
        return []
    rows: list[list[float]] = []
    for pair in given.pairs.complete:
        runs = [one.speculative for one in pair if one.speculative.tier == tier and one.speculative.draft_tokens > 0]
        if runs:
            rows.append([sum(run.accepted_tokens for run in runs) / sum(run.draft_tokens for run in runs)])
    if len(rows) < 2:
        return [GuardResult("AcceptanceFloor", tier, Verdict.INCONCLUSIVE, f"{tier}: nothing was drafted")]
    estimate = pooled_estimate(rows, [1.0])
    low, high = estimate.lower(given.alpha), estimate.upper(given.alpha)
    verdict = Verdict.PASS if low >= floor else Verdict.FAIL if high < floor else Verdict.INCONCLUSIVE
    text = f"{tier}: acceptance rate {estimate.mean:.3f} [{low:.3f}, {high:.3f}], floor {floor:.3f}"
    return [GuardResult("AcceptanceFloor", tier, verdict, text, estimate.mean, low, high, floor)]


def greedy_agreement(evidence: Sequence[BenchmarkEvidenceSpec]) -> tuple[int, int, int] | None:
    """(prompts on which the arms agree, on which the plain arm agrees with itself, prompts); None: not probed.

    Halves of one pair are joined by its index: the prompts of a pair are the same in both.
    """
    texts: dict[int, dict[str, str]] = {}
    for one in evidence:
        texts.setdefault(one.pair, {}).update(one.greedy_texts)
    between = within = prompts = 0
    for found in texts.values():
        joined = [found.get(name, "") for name in ("baseline", "baseline-again", "speculative")]
        for start in range(0, min(map(len, joined)), 4):
            plain, again, drafted = (text[start : start + 4] for text in joined)
            if "----" in (plain, again, drafted):
                continue
            prompts += 1
            between += plain == drafted
            within += plain == again
    return (between, within, prompts) if prompts else None


def _agreement(given: GuardInput) -> list[GuardResult]:
    floor = given.guardrails.min_agreement_ratio
    if floor is None:
        return []
    found = greedy_agreement(given.evidence)
    if found is None or found[1] == 0:
        text = "greedy agreement was not measured, or the plain arm never agrees with itself"
        return [GuardResult("Agreement", None, Verdict.INCONCLUSIVE, text)]
    between, within, prompts = found
    bar = floor * within / prompts
    high = wilson(between, prompts, given.alpha)[1]
    verdict = Verdict.FAIL if high < bar else Verdict.PASS if between / prompts >= bar else Verdict.INCONCLUSIVE
    text = f"greedy texts equal on {between} of {prompts} prompts (plain arm with itself: {within}), floor {floor:.3f}"
    return [GuardResult("Agreement", None, verdict, text, between / within, None, high, floor)]
