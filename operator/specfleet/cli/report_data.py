"""What a report says, as plain data: recomputed from the stored evidence, never copied from what was said before."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from specfleet.api.benchmark import TrafficSlice
from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.api.evidence import RunSummary
from specfleet.api.status import ArmRole, DecisionRecord
from specfleet.cli.report_cells import Surroundings, cells_json, surroundings
from specfleet.cli.stored import StoredBenchmark
from specfleet.cli.verify import Recomputed, recompute
from specfleet.decide.evidence import BenchmarkVerdict
from specfleet.decide.evidence_guards import greedy_agreement, tpot
from specfleet.predict.acceptance import conditional_rates
from specfleet.predict.from_evidence import TierPrediction, tier_predictions


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """Mean latency of one arm in one cell over all valid runs."""

    arm: ArmRole
    tier: str
    slice: str
    requests_per_second: float
    tpot_seconds: float
    ttft_seconds: float | None


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """One benchmark."""

    benchmark: str
    purpose: str
    proposer: str
    engine_version: str | None
    baseline: str
    candidate: str
    verdict: BenchmarkVerdict
    recomputed: Recomputed
    points: tuple[LoadPoint, ...]
    acceptance: dict[str, list[float]]
    """Conditional acceptance rate per position, by tier/slice."""
    predictions: tuple[TierPrediction, ...]
    invalid: tuple[str, ...]
    gpu_hours: float
    agreement: tuple[int, int, int] | None
    difference: str
    """What distinguishes the two arms' fingerprints, in words."""
    started: datetime
    finished: datetime
    surroundings: Surroundings


@dataclass(frozen=True, slots=True)
class Report:
    """One deployment."""

    deployment: SpeculativeDeployment
    benchmarks: tuple[BenchmarkReport, ...]

    @property
    def decisions(self) -> tuple[DecisionRecord, ...]:
        """Recorded decisions, oldest first."""
        status = self.deployment.status
        return tuple(sorted(status.history, key=lambda one: one.time)) if status else ()


def build_report(deployment: SpeculativeDeployment, stored: Sequence[StoredBenchmark]) -> Report:
    """The report of one deployment over its benchmarks (oldest first)."""
    return Report(deployment, tuple(_benchmark(one) for one in stored if one.measured))


def _benchmark(stored: StoredBenchmark) -> BenchmarkReport:
    runs = [run for one in stored.measured for run in one.runs]
    last = stored.measured[-1]
    result = recompute(stored)
    return BenchmarkReport(
        benchmark=stored.benchmark,
        purpose=stored.purpose,
        proposer=last.proposer,
        engine_version=last.engine_version,
        baseline=last.baseline,
        candidate=last.candidate,
        verdict=result.verdict,
        recomputed=result,
        points=tuple(_points(runs)),
        acceptance=_acceptance(runs),
        predictions=tuple(tier_predictions(stored.measured)),
        invalid=tuple(
            f"pair {one.pair} {run.tier}/{run.slice} {run.arm.value}: {run.invalid_reason}"
            for one in stored.measured
            for run in one.runs
            if not run.valid
        )
        + tuple(f"pair {one.pair}: {one.error}" for one in stored.measured if one.error),
        gpu_hours=sum(one.gpu_seconds for one in stored.evidence) / 3600,
        agreement=greedy_agreement(stored.measured),
        difference=_difference(stored.deployment.spec, last.candidate),
        started=min(one.started for one in stored.evidence),
        finished=max(one.finished for one in stored.evidence),
        surroundings=surroundings(stored.measured, _slices(stored.deployment)),
    )


def _slices(deployment: SpeculativeDeployment) -> list[TrafficSlice]:
    """Declared slices, and those like production that took their place."""
    traffic = deployment.status.traffic if deployment.status is not None else None
    return [*deployment.spec.benchmark.slices, *(traffic.slices if traffic is not None else ())]


def _points(runs: Sequence[RunSummary]) -> list[LoadPoint]:
    cells: dict[tuple[ArmRole, str, str], list[RunSummary]] = {}
    for run in runs:
        if run.valid and tpot(run) is not None:
            cells.setdefault((run.arm, run.tier, run.slice), []).append(run)
    found = []
    for (arm, tier, piece), own in cells.items():
        waits = [run.ttft_mean_seconds for run in own if run.ttft_mean_seconds is not None]
        found.append(
            LoadPoint(
                arm,
                tier,
                piece,
                sum(run.completed_requests_per_second for run in own) / len(own),
                sum(tpot(run) or 0.0 for run in own) / len(own),
                sum(waits) / len(waits) if waits else None,
            )
        )
    return found


def _acceptance(runs: Sequence[RunSummary]) -> dict[str, list[float]]:
    cells: dict[str, list[RunSummary]] = {}
    for run in runs:
        if run.valid and run.drafts and run.accepted_per_position:
            cells.setdefault(f"{run.tier}/{run.slice}", []).append(run)
    return {
        cell: conditional_rates(
            [sum(column) for column in zip(*(run.accepted_per_position for run in own), strict=False)],
            sum(run.drafts for run in own),
        )
        for cell, own in cells.items()
    }


def _difference(spec: DeploymentSpec, candidate: str) -> str:
    from specfleet.engine.arguments import build_arm
    from specfleet.engine.fingerprint import describe_difference

    plain = build_arm(spec, None)
    if candidate == plain.fingerprint:
        return "both arms are plain: the one that served and that of the changed model or engine"
    for proposer in spec.speculation.proposers() if spec.speculation else ():
        arm = build_arm(spec, proposer)
        if arm.fingerprint == candidate:
            return describe_difference(plain.fingerprint_inputs, arm.fingerprint_inputs)
    return "the candidate is not in the present spec (it has changed since, or its pods read a ConfigMap)"


def to_json(report: Report) -> dict[str, Any]:
    """Everything as JSON values, for programs."""
    return {
        "deployment": report.deployment.name,
        "namespace": report.deployment.metadata.get("namespace"),
        "phase": report.deployment.status.phase.value if report.deployment.status else None,
        "recommendation": _recommendation(report),
        "decisions": [one.to_wire() for one in report.decisions],
        "benchmarks": [_benchmark_json(one) for one in report.benchmarks],
    }


def _recommendation(report: Report) -> dict[str, Any] | None:
    status = report.deployment.status
    return status.recommendation.to_wire() if status is not None and status.recommendation is not None else None


def _benchmark_json(one: BenchmarkReport) -> dict[str, Any]:
    verdict = one.verdict
    return {
        "benchmark": one.benchmark,
        "purpose": one.purpose,
        "proposer": one.proposer,
        "engineVersion": one.engine_version,
        "baseline": one.baseline,
        "candidate": one.candidate,
        "difference": one.difference,
        "started": one.started.isoformat(),
        "finished": one.finished.isoformat(),
        "verdict": verdict.verdict.value,
        "reason": verdict.reason,
        "message": verdict.message,
        "agreesWithRecord": one.recomputed.agrees,
        "gainRatio": verdict.gain_ratio,
        "lower": verdict.lower,
        "upper": verdict.upper,
        "pairs": verdict.pairs,
        "recommendation": verdict.recommendation,
        "cells": [cell.to_wire() for cell in verdict.cells],
        "guards": [
            {
                "name": guard.name,
                "tier": guard.tier,
                "verdict": guard.verdict.value,
                "observed": guard.observed,
                "lower": guard.lower,
                "upper": guard.upper,
                "margin": guard.margin,
                "message": guard.message,
            }
            for guard in verdict.guards
        ],
        "latency": [
            {
                "arm": point.arm.value,
                "tier": point.tier,
                "slice": point.slice,
                "requestsPerSecond": point.requests_per_second,
                "tpotSeconds": point.tpot_seconds,
                "ttftSeconds": point.ttft_seconds,
            }
            for point in one.points
        ],
        "acceptancePerPosition": one.acceptance,
        "predictions": [
            {
                "tier": guess.tier,
                "batch": guess.batch,
                "acceptedLength": guess.accepted_length,
                "stepTimeRatio": guess.step_time_ratio,
                "gainRatio": guess.gain_ratio,
            }
            for guess in one.predictions
        ],
        "incompatibleRequests": list(verdict.incompatible_requests),
        "greedyAgreement": list(one.agreement) if one.agreement else None,
        "invalid": list(one.invalid),
        "gpuHours": one.gpu_hours,
        **cells_json(one.surroundings),
    }
