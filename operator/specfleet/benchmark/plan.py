"""What one benchmark Job measures, in which order, with which prompts and arrival times. Pure and deterministic."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from specfleet.api.benchmark import BenchmarkSpec, LoadTier, TrafficSlice
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.status import ArmRole
from specfleet.benchmark.driver.harness import PLAN_VERSION, VllmBenchServe
from specfleet.benchmark.driver.limits import time_limit_seconds

MAX_RUNS_PER_JOB = 32
"""More would not fit in a termination message of 4096 bytes."""
CAPACITY_TIER = "capacity"
CAPACITY_CONCURRENCY = 64
AGREEMENT_PROMPTS = 16
AGREEMENT_TOKENS = 32
RUN_REPEATS = 2
"""How often the driver repeats a run that something outside the engines spoilt, before the pair is lost."""
CLIENT_LAG_LIMIT_SECONDS = 0.025
CLIENT_LAG_RATIO = 0.1
"""p99 of the send lag: at most CLIENT_LAG_LIMIT_SECONDS, or this share of a mean request where that is longer."""
CLIENT_LAG_MEAN_LIMIT_SECONDS = 0.01
"""Half of the TTFT difference that counts (decide.evidence_guards.TTFT_FLOOR_SECONDS)."""
LITTLE_LAW_TOLERANCE_RATIO = 0.05
MOUNT = "/specfleet"
DRIVER = "driver"
"""Name of the driver's package below MOUNT."""
HARNESS = VllmBenchServe.name
"""The load generator of every plan; driver/harness.py has the port for others."""
PLAN_FILE = "plan.json"
PROMPTS_FILE = "prompts.jsonl"

Cell = tuple[str, str]


class Purpose(StrEnum):
    """Why a Job measures (`purpose` of the evidence)."""

    QUALIFY = "Qualify"
    CONFIRM = "Confirm"
    SUSPICION = "Suspicion"
    CHANGE = "Change"
    CAPACITY = "Capacity"


class PlanError(ValueError):
    """The plan cannot be built; the text says what to change."""


@dataclass(frozen=True, slots=True)
class ArmTarget:
    """One pod under test."""

    base_url: str
    """http://POD-IP:PORT, never a Service: counters and requests must meet the same pod."""
    pod: str
    fingerprint: str
    model: str | None = None
    """Name by which it is asked; None: the spec's (a changed model has another one than the arm that serves)."""


_PROMPT = "The sea is"
_TOOL = {
    "type": "function",
    "function": {
        "name": "report_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
REQUEST_PROBES: tuple[dict[str, Any], ...] = (
    {"name": "min_p", "path": "/v1/completions", "body": {"prompt": _PROMPT, "min_p": 0.05, "temperature": 1}},
    {"name": "logit_bias", "path": "/v1/completions", "body": {"prompt": _PROMPT, "logit_bias": {"5": 1}}},
    {"name": "logprobs", "path": "/v1/completions", "body": {"prompt": _PROMPT, "logprobs": 1}, "expect": "logprobs"},
    {
        "name": "structured_output",
        "path": "/v1/completions",
        "body": {"prompt": _PROMPT, "structured_outputs": {"choice": ["blue", "green"]}},
        "expect": ["blue", "green"],
    },
    {
        "name": "tool_call",
        "path": "/v1/chat/completions",
        "body": {
            "messages": [{"role": "user", "content": "What is the weather in Oslo?"}],
            "tools": [_TOOL],
            "tool_choice": {"type": "function", "function": {"name": "report_weather"}},
            "max_tokens": 64,
        },
        "expect": "tool_call",
    },
)
"""Requests known to break, or to have broken, under speculation (docs/evidence.md)."""


def build_plan(
    spec: DeploymentSpec,
    pair: int,
    arms: Mapping[ArmRole, ArmTarget],
    cells: Sequence[Cell] | None,
    capacity: float | Mapping[str, float] | None,
    purpose: str,
    benchmark: str = "",
    repeat: int = 0,
) -> dict[str, Any]:
    """The driver's plan for one pair (or one arm's half of it, when `arms` has one arm).

    `cells` None: all of the spec. `capacity`: measured requests/s of the plain arm per pod, one number or one per
    slice; the unit of capacityRatio tiers. `benchmark`: status.benchmark.id; it is part of every seed, so that two
    benchmarks never share prompts. `repeat`: how many Jobs have tried this unit before; their prompts are in the prefix
    caches of pods that are still there. Raises PlanError.
    """
    chosen = Purpose(purpose)
    wanted = _cells(spec.benchmark, cells)
    if chosen is Purpose.CAPACITY:
        runs = _capacity_runs(spec.benchmark, arms, benchmark)
    else:
        runs = _paired_runs(spec.benchmark, arms, wanted, capacity, pair, benchmark)
    if len(runs) > MAX_RUNS_PER_JOB:
        raise PlanError(
            f"{len(wanted)} cells make {len(runs)} runs per pair, one Job reports at most {MAX_RUNS_PER_JOB}: "
            "measure them in several Jobs (decide.units cuts them)"
        )
    speculates = chosen not in (Purpose.CAPACITY, Purpose.CHANGE)
    seconds = math.ceil(sum(_planned_seconds(run) + 3 * run["warmup_seconds"] for run in runs))
    return {
        "version": PLAN_VERSION,
        "benchmark": benchmark,
        "purpose": chosen.value,
        "pair": pair,
        "tokenizer": spec.model.tokenizer or spec.model.name,
        "endpoint": "/v1/completions",
        "harness": HARNESS,
        "bench_command": ["vllm", "bench", "serve"],
        "prompts_file": spec.benchmark.prompts.volume or f"{MOUNT}/{PROMPTS_FILE}",
        "work_dir": "/tmp/specfleet",  # noqa: S108
        "termination_path": "/dev/termination-log",
        "deadline_seconds": min(spec.benchmark.time_budget_seconds, 3 * seconds + 600),
        "return_seconds": spec.engine.startup_timeout_seconds,
        "run_repeats": RUN_REPEATS,
        # A run has attempts 0 to RUN_REPEATS, and one more with a client of its own.
        "first_attempt": repeat * (RUN_REPEATS + 2),
        "minimum_requests": spec.benchmark.minimum_requests,
        "client_lag_limit_seconds": CLIENT_LAG_LIMIT_SECONDS,
        "client_lag_ratio": CLIENT_LAG_RATIO,
        "client_lag_mean_limit_seconds": CLIENT_LAG_MEAN_LIMIT_SECONDS,
        "little_law_tolerance_ratio": LITTLE_LAW_TOLERANCE_RATIO,
        "slo": {
            "tpot_slo_seconds": spec.guardrails.tpot_slo_seconds,
            "ttft_slo_seconds": spec.guardrails.ttft_slo_seconds,
        },
        "arms": {
            role.value: {
                "url": arm.base_url.rstrip("/"),
                "pod": arm.pod,
                "fingerprint": arm.fingerprint,
                "model": arm.model or spec.model.served_name or spec.model.name,
            }
            for role, arm in sorted(arms.items())
        },
        "agreement": _agreement(benchmark, pair) if speculates else None,
        "request_probes": list(REQUEST_PROBES) if speculates and pair == 0 else [],
        "runs": runs,
    }


def latest_end_seconds(plan: Mapping[str, Any]) -> int:
    """How long the driver of a plan may take for its runs: one begins as long as deadline_seconds have not passed, and
    its engine may end in it and come back."""
    longest = max((time_limit_seconds(run, None) for run in plan["runs"]), default=0.0)
    return int(plan["deadline_seconds"] + plan["return_seconds"]) + math.ceil(longest)


def built_in_prompts() -> str:
    """The built-in prompts.jsonl: prose, code and questions, not random tokens."""
    return (files("specfleet.benchmark") / "prompts" / "built_in.jsonl").read_text(encoding="utf-8")


@cache
def driver_sources() -> Mapping[str, str]:
    """Text of the modules that the Job's pod runs, by file name, for its ConfigMap."""
    folder = files("specfleet.benchmark.driver")
    modules = sorted((one for one in folder.iterdir() if one.name.endswith(".py")), key=lambda one: one.name)
    return MappingProxyType({one.name: one.read_text(encoding="utf-8") for one in modules})


def _cells(benchmark: BenchmarkSpec, cells: Sequence[Cell] | None) -> tuple[Cell, ...]:
    known = benchmark.cells
    if cells is None:
        return known
    unknown = [cell for cell in cells if cell not in known]
    if unknown:
        raise PlanError(f"{unknown[0][0]}/{unknown[0][1]} is not a cell of spec.benchmark (tiers x slices)")
    return tuple(cell for cell in known if cell in set(cells))


def _paired_runs(
    benchmark: BenchmarkSpec,
    arms: Mapping[ArmRole, ArmTarget],
    cells: Sequence[Cell],
    capacity: float | Mapping[str, float] | None,
    pair: int,
    name: str,
) -> list[dict[str, Any]]:
    tiers = {tier.name: tier for tier in benchmark.tiers}
    slices = {piece.name: piece for piece in benchmark.slices}
    runs: list[dict[str, Any]] = []
    for index, (tier_name, slice_name) in enumerate(cells):
        tier, piece = tiers[tier_name], slices[slice_name]
        # ABBA over the cells, and turned round in the next pair: a drift of the node cancels to first order.
        first_plain = (index + pair) % 2 == 0
        order = (ArmRole.BASELINE, ArmRole.SPECULATIVE) if first_plain else (ArmRole.SPECULATIVE, ArmRole.BASELINE)
        load = _load(benchmark, tier, piece, capacity)
        shared = _run(benchmark, tier_name, piece, load, f"{name}/{pair}/{tier_name}/{slice_name}")
        for place, role in enumerate(order):
            if role in arms:
                runs.append({**shared, "arm": role.value, "order": 2 * index + place})
    return runs


def _capacity_runs(benchmark: BenchmarkSpec, arms: Mapping[ArmRole, ArmTarget], name: str) -> list[dict[str, Any]]:
    if ArmRole.BASELINE not in arms:
        raise PlanError("capacity is measured on the plain arm, which is not among the arms")
    concurrency = max((tier.concurrency or 0 for tier in benchmark.tiers), default=0) or CAPACITY_CONCURRENCY
    runs = []
    for index, piece in enumerate(benchmark.slices):
        load: dict[str, Any] = {"concurrency": concurrency, "requests_per_second": None, "requests": None}
        run = _run(benchmark, CAPACITY_TIER, piece, load, f"{name}/capacity/{piece.name}")
        # Its warm-up also estimates how many requests make one run, so there is always one.
        run["warmup_seconds"] = max(benchmark.warmup_seconds, min(10, benchmark.run_seconds), 2)
        runs.append({**run, "arm": ArmRole.BASELINE.value, "order": index})
    return runs


def _run(
    benchmark: BenchmarkSpec, tier: str, piece: TrafficSlice, load: Mapping[str, Any], seed: str
) -> dict[str, Any]:
    return {
        "tier": tier,
        "slice": piece.name,
        "prompt_tokens": piece.prompt_tokens,
        "output_tokens": piece.output_tokens,
        "temperature": piece.temperature,
        "top_p": piece.top_p,
        "run_seconds": benchmark.run_seconds,
        "warmup_seconds": benchmark.warmup_seconds,
        "seed": int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") % 2**31,
        "prompt_seed": hashlib.sha256(seed.encode()).hexdigest()[:16],
        **load,
    }


def _planned_seconds(run: Mapping[str, Any]) -> float:
    """How long an open loop lasts is known: minimumRequests at a low rate take longer than runSeconds."""
    rate = run["requests_per_second"]
    return max(float(run["run_seconds"]), run["requests"] / rate if rate else 0.0)


def _load(
    benchmark: BenchmarkSpec, tier: LoadTier, piece: TrafficSlice, capacity: float | Mapping[str, float] | None
) -> dict[str, Any]:
    unit = capacity.get(piece.name) if isinstance(capacity, Mapping) else capacity
    if tier.concurrency is not None:
        count = max(benchmark.minimum_requests, 2 * tier.concurrency)
        if unit is not None and unit > 0:
            count = max(count, math.ceil(unit * benchmark.run_seconds))
        return {"concurrency": tier.concurrency, "requests_per_second": None, "requests": count}
    if tier.requests_per_second is not None:
        rate = tier.requests_per_second
    elif unit is not None and unit > 0 and tier.capacity_ratio is not None:
        rate = float(f"{unit * tier.capacity_ratio:.4g}")
    else:
        raise PlanError(f"tier {tier.name} is a share of the plain arm's capacity, which has not been measured yet")
    count = max(benchmark.minimum_requests, math.ceil(rate * benchmark.run_seconds))
    return {"concurrency": None, "requests_per_second": rate, "requests": count}


def _agreement(name: str, pair: int) -> dict[str, Any]:
    return {"prompts": AGREEMENT_PROMPTS, "max_tokens": AGREEMENT_TOKENS, "seed": f"{name}/{pair}/agreement"}
