"""`make bench-evidence`: how often the benchmark is wrong, and how often it finds what is there, at known truth.

    python -m benchmarks.evidence [--trials N] [--only verdicts|searches|noise] [--measured FILE...] [--json FILE]

Every trial draws the run summaries of a whole benchmark and lets the operator's own code judge them, look by look, as
the controller does. Seeds start at SEED, which no test and no tuning run uses. A bar is compared with the bound of the
95 % interval of the measured share (Wilson), not with the share.
"""

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import TrialStatus, Verdict
from specfleet.decide.duration import pairs_in_time
from specfleet.decide.evidence import BenchmarkVerdict, judge
from specfleet.decide.search import SearchDone, error_shares, next_step
from specfleet.decide.statistics import wilson

from benchmarks.evidence.noise import measured, noise_table
from benchmarks.evidence.truth import Effect, Noise, Truth, draw_pairs

SEED = 770_000_000
TRIALS_PER_SEARCH = 20
"""A search costs a hundred times what one verdict does; so many trials still put the bound on one side of every bar."""


@dataclass(frozen=True)
class Point:
    """One row of the table."""

    name: str
    truth: Truth
    bar: str
    """Which bar holds: `promotions <= x` or `promotions >= x`."""
    limit: float
    looks: tuple[int, ...] = ()
    noise: Noise = field(default_factory=Noise)
    coverage: bool = False


HERE = Path(__file__).parent
RECORDED = [
    HERE.parents[1] / "tests" / "cli" / "recorded" / "quickstart.json",
    *sorted((HERE / "measured").glob("*.json")),
]
"""Evidence of the test cluster (simulated engine) and of the real engine on the CPU."""
ASSUMED = (
    math.hypot(Noise().pair, Noise().run),
    Noise().ttft_factor * math.hypot(Noise().pair, Noise().run),
    math.hypot(Noise().pair, Noise().run),
)
UNEQUAL = Noise(pair=0.015, run=0.03)
GOOD = Effect(tpot=1 / 1.15)

POINTS = (
    Point("A/A: no difference at all", Truth(), "<=", 0.01),
    Point("A/A, looks at 4 and 6", Truth(), "<=", 0.01, (4, 6)),
    Point("true gain +3 %, bar 5 %", Truth(Effect(tpot=1 / 1.03)), "<=", 0.05, coverage=True),
    Point("true gain +5 % exactly (worst case), bar 5 %", Truth(Effect(tpot=1 / 1.05)), "<=", 0.05, coverage=True),
    Point("true gain +5 % exactly, looks at 4 and 6", Truth(Effect(tpot=1 / 1.05)), "<=", 0.05, (4, 6), coverage=True),
    Point("+15 %, every guard truly at 0", Truth(GOOD), ">=", 0.90, coverage=True),
    Point("+15 %, every guard at 0, looks at 4 and 6", Truth(GOOD), ">=", 0.90, (4, 6), coverage=True),
    Point("+15 %, noise one third larger (sd 3.4 %)", Truth(GOOD), ">=", 0.0, noise=UNEQUAL, coverage=True),
    Point(
        "+15 %, requests/s at the peak -6 % (2x margin)", Truth(GOOD, {"peak": Effect(1 / 1.15, 1, 0.94)}), "<=", 0.01
    ),
    Point("+15 %, TTFT +20 % in one tier (2x margin)", Truth(GOOD, {"mid": Effect(1 / 1.15, 1.2)}), "<=", 0.01),
    Point("+15 %, TPOT +30 % at the peak (2x margin)", Truth(GOOD, {"peak": Effect(1.3)}), "<=", 0.01),
    Point("+15 %, 0.2 % server errors (2x margin)", Truth(Effect(1 / 1.15, error_share=0.002)), "<=", 0.01),
)


DEFAULTS = {
    "model": {"name": "m"},
    "engine": {"image": "vllm:0.32.0"},
    "speculation": {"method": "ngram", "numSpeculativeTokens": 3},
}


def default_spec(looks: Sequence[int] = ()) -> DeploymentSpec:
    """The defaults of the API; rates are given so that no capacity run is needed here."""
    tiers = [
        {"name": "low", "requestsPerSecond": 2},
        {"name": "mid", "requestsPerSecond": 4},
        {"name": "peak", "concurrency": 64},
    ]
    return DeploymentSpec.model_validate({**DEFAULTS, "benchmark": {"tiers": tiers, "looks": list(looks)}})


def pairs_in_budget() -> int:
    """Pairs of the default benchmark that its default budget has time for, by what the operator plans: in the slower
    way, taking turns on one spare GPU, with warm-up, the capacity run and the starts of the pods."""
    return pairs_in_time(DeploymentSpec.model_validate(DEFAULTS), side_by_side=False)


def one_benchmark(spec: DeploymentSpec, point: Point, pairs: int, seed: int) -> BenchmarkVerdict:
    """Draw a benchmark and judge it as the controller does: at each declared look, then when the budget ends."""
    evidence = draw_pairs(spec, point.truth, point.noise, pairs, np.random.default_rng(seed))
    for look in sorted(look for look in spec.benchmark.looks if look < pairs):
        verdict = judge(spec, evidence[:look])
        if not verdict.need_more:
            return verdict
    return judge(spec, evidence, budget_spent=True)


def measure(point: Point, trials: int, first_seed: int) -> dict[str, Any]:
    """All trials of one point."""
    spec = default_spec(point.looks)
    pairs = pairs_in_budget()
    truth = float(
        np.mean([1 / point.truth.of(tier.name).tpot for tier in spec.benchmark.tiers if not tier.closed_loop])
    )
    promoted, covered, used = 0, 0, 0
    reasons: Counter[str] = Counter()
    for trial in range(trials):
        verdict = one_benchmark(spec, point, pairs, first_seed + trial)
        promoted += verdict.verdict is Verdict.PASS
        reasons[f"{verdict.verdict.value}/{verdict.reason}"] += 1
        used += verdict.pairs
        if verdict.lower is not None and verdict.upper is not None:
            covered += verdict.lower <= truth - 1 <= verdict.upper
    low, high = wilson(promoted, trials, 0.025)
    holds = low >= point.limit if point.bar == ">=" else high <= point.limit
    cover = wilson(covered, trials, 0.025)
    covers = not point.coverage or (cover[0] >= 0.93 and cover[1] <= 0.97)
    return {
        "point": point.name,
        "promotions": promoted / trials,
        "interval": [low, high],
        "bar": f"{point.bar} {point.limit:.0%}",
        "holds": bool(holds),
        "coverage": covered / trials if point.coverage else None,
        "covers": covers,
        "pairs": used / trials,
        "reasons": dict(reasons.most_common(4)),
        "noise_sd": round(float(np.hypot(point.noise.pair, point.noise.run)), 4),
    }


@dataclass(frozen=True)
class SearchPoint:
    """One row of the table of searches: what each of several candidates truly is."""

    name: str
    gains: tuple[float, ...]
    bar: str
    limit: float
    wrong: bool
    """Count promotions of a candidate whose true gain is not above the bar; else of the best one or its equals."""


SEARCHES = (
    SearchPoint("8 candidates, all A/A", (0.0,) * 8, "<=", 0.01, wrong=True),
    SearchPoint("8 candidates, all exactly at the bar of 5 % (worst case)", (0.05,) * 8, "<=", 0.05, wrong=True),
    SearchPoint("7 at +5 %, one at +15 %: a wrong one promoted", (0.05,) * 7 + (0.15,), "<=", 0.05, wrong=True),
    SearchPoint("7 at +5 %, one at +15 %: that one promoted", (0.05,) * 7 + (0.15,), ">=", 0.80, wrong=False),
)


def one_search(spec: DeploymentSpec, gains: Sequence[float], seed: int) -> int | None:
    """A whole search as the controller carries it out, without a budget; the place of the promoted candidate."""
    random = np.random.default_rng(seed)
    pairs = spec.benchmark.pairs
    names = [str(place) for place in range(len(gains))]
    truths = {name: Truth(Effect(tpot=1 / (1 + gain))) for name, gain in zip(names, gains, strict=True)}
    drawn = {name: draw_pairs(spec, truths[name], Noise(), pairs, random) for name in names}
    measured: dict[str, list[BenchmarkEvidenceSpec]] = {name: [] for name in names}
    trials: dict[str, TrialStatus] = {}
    while True:
        order = [name for name in names if name not in trials or trials[name].verdict is Verdict.PASS]
        step = next_step(spec, order, measured, passed={name for name in order if name in trials})
        if isinstance(step, SearchDone):
            best = max(step.finalists, key=lambda name: trials[name].gain_ratio or 0.0, default=None)
            if best is None:
                return None
            fresh = judge(spec, draw_pairs(spec, truths[best], Noise(), pairs, random), budget_spent=True)
            if fresh.verdict is Verdict.PASS:
                return int(best)
            trials[best] = trials[best].model_copy(update={"verdict": fresh.verdict})
            continue
        name = step.candidate
        share = error_shares(spec, len(names), [one for other, one in trials.items() if other != name])
        measured[name] = [one.model_copy(update={"candidates": share}) for one in drawn[name][: step.pairs]]
        verdict = judge(spec, measured[name], budget_spent=True)
        if step.pairs >= pairs or verdict.verdict is Verdict.FAIL:
            trials[name] = TrialStatus(
                fingerprint=name,
                proposer=name,
                verdict=verdict.verdict,
                reason=verdict.reason,
                gain_ratio=verdict.gain_ratio,
                lower=verdict.lower,
            )


def measure_search(point: SearchPoint, trials: int, first_seed: int) -> dict[str, Any]:
    """All trials of one search."""
    spec = default_spec()
    spec = spec.model_copy(update={"benchmark": spec.benchmark.model_copy(update={"pairs": pairs_in_budget()})})
    best, counted = max(point.gains), 0
    for trial in range(trials):
        found = one_search(spec, point.gains, first_seed + trial)
        if found is not None:
            good = point.gains[found] == best and best > spec.benchmark.objective.minimum_gain_ratio
            counted += good is not point.wrong
    low, high = wilson(counted, trials, 0.025)
    return {
        "point": point.name,
        "promotions": counted / trials,
        "interval": [low, high],
        "bar": f"{point.bar} {point.limit:.0%}",
        "holds": bool(low >= point.limit if point.bar == ">=" else high <= point.limit),
        "trials": trials,
    }


def search_table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown."""
    lines = ["| search | share [95 % interval] | bar | holds | trials |", "|---|---|---|---|---|"]
    for row in rows:
        low, high = row["interval"]
        lines.append(
            f"| {row['point']} | {row['promotions']:.2%} [{low:.2%}, {high:.2%}] | {row['bar']} | "
            f"{'yes' if row['holds'] else 'NO'} | {row['trials']} |"
        )
    return "\n".join(lines)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| truth | promoted [95 % interval] | bar | holds | coverage of the 95 % interval at the stop | pairs used |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = row["interval"]
        coverage = (
            f"{row['coverage']:.1%}{'' if row['covers'] else ' (not 93 to 97 %)'}"
            if row["coverage"] is not None
            else ""
        )
        lines.append(
            f"| {row['point']} | {row['promotions']:.2%} [{low:.2%}, {high:.2%}] | {row['bar']} | "
            f"{'yes' if row['holds'] else 'NO'} | {coverage} | {row['pairs']:.1f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 only if every bar holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000, help="trials per point (default 10000)")
    parser.add_argument("--only", choices=("verdicts", "searches", "noise"), help="one of the tables")
    parser.add_argument(
        "--measured", type=Path, nargs="+", default=RECORDED, help="stored evidence whose noise is held beside"
    )
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args(arguments)
    spec = default_spec()
    print(
        f"{options.trials} trials per point; {pairs_in_budget()} pairs fit the default budget of "
        f"{spec.benchmark.time_budget_seconds / 3600:g} h; between-pair sd assumed 2.5 % (TTFT 3.7 %)\n",
        flush=True,
    )
    rows = []
    for number, point in enumerate(POINTS if options.only in (None, "verdicts") else ()):
        begun = time.monotonic()
        rows.append(measure(point, options.trials, SEED + number * 1_000_000))
        print(f"{point.name}: {time.monotonic() - begun:.0f} s, {rows[-1]['reasons']}", file=sys.stderr, flush=True)
    if rows:
        print(table(rows), flush=True)
    searches = []
    for number, search in enumerate(SEARCHES if options.only in (None, "searches") else (), len(POINTS)):
        begun = time.monotonic()
        searches.append(measure_search(search, options.trials // TRIALS_PER_SEARCH, SEED + number * 1_000_000))
        print(f"{search.name}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    if searches:
        print("\n" + search_table(searches))
    if options.only in (None, "noise"):
        found = [one for path in options.measured for one in measured(path)]
        print("\n" + noise_table(found, ASSUMED))
    if options.json:
        told = {"trials": options.trials, "rows": rows, "searches": searches}
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    return 0 if all(row["holds"] and row.get("covers", True) for row in (*rows, *searches)) else 1


if __name__ == "__main__":
    sys.exit(main())
