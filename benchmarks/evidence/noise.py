"""Between-pair noise of evidence that was measured, to hold against what the simulation assumes.

    python -m benchmarks.evidence --measured FILE...     files as `kubectl get sd,sb -o json` prints them

The noise of a pair is the spread of log(speculative / plain) between pairs of one cell: what both arms of a pair share
is not in it.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specfleet.api.evidence import BenchmarkEvidenceSpec, RunSummary
from specfleet.decide.evidence_guards import tpot
from specfleet.decide.evidence_pairs import Pairs, arrange

Quantity = Callable[[RunSummary], float | None]


@dataclass(frozen=True)
class Spread:
    """Pooled standard deviation of log-ratios over cells; `pairs` per cell."""

    sd: float
    pairs: int
    cells: int


@dataclass(frozen=True)
class Measured:
    """Noise of one benchmark."""

    name: str
    tpot: Spread | None
    ttft: Spread | None
    throughput: Spread | None
    """Completed requests/s in closed loop."""


def measured(path: Path) -> list[Measured]:
    """Every benchmark of a file with pairs to compare, by its id."""
    items = json.loads(path.read_text(encoding="utf-8"))["items"]
    found: dict[str, list[BenchmarkEvidenceSpec]] = {}
    for item in items:
        if item["kind"] == "SpeculativeBenchmark" and item["spec"]["purpose"] != "Capacity":
            one = BenchmarkEvidenceSpec.model_validate(item["spec"])
            found.setdefault(f"{one.proposer} ({one.benchmark})", []).append(one)
    return [noise_of(f"{path.stem}, {name}", evidence) for name, evidence in found.items()]


def noise_of(name: str, evidence: Sequence[BenchmarkEvidenceSpec]) -> Measured:
    """Noise of one benchmark's complete pairs."""
    pairs = arrange(evidence)
    closed = {(run.tier, run.slice) for run in pairs.runs if run.concurrency is not None}
    opened = {cell for cell in pairs.cells if cell not in closed}
    return Measured(
        name,
        _spread(pairs, set(pairs.cells), tpot),
        _spread(pairs, opened, lambda run: run.ttft_mean_seconds),
        _spread(pairs, closed & set(pairs.cells), lambda run: run.completed_requests_per_second or None),
    )


def _spread(pairs: Pairs, cells: set[tuple[str, str]], quantity: Quantity) -> Spread | None:
    """Every cell's own mean is taken out: cells gain by different amounts. None with fewer than two pairs."""
    rows = pairs.log_ratios(quantity, sorted(cells)) if cells else None
    if rows is None or len(rows) < 2:
        return None
    squares = 0.0
    for column in zip(*rows, strict=True):
        mean = sum(column) / len(column)
        squares += sum((value - mean) ** 2 for value in column)
    return Spread(math.sqrt(squares / (len(cells) * (len(rows) - 1))), len(rows), len(cells))


def noise_table(found: Sequence[Measured], assumed: tuple[float, float, float]) -> str:
    """Markdown; `assumed` in the order of the columns."""
    head = [
        "| where | pairs x cells | TPOT | TTFT, open loop | completed requests/s, closed loop |",
        "|---|---|---|---|---|",
    ]
    lines = [*head, f"| assumed | | {assumed[0]:.1%} | {assumed[1]:.1%} | {assumed[2]:.1%} |"]
    for one in found:
        spreads = [one.tpot, one.ttft, one.throughput]
        size = next((f"{spread.pairs} x {spread.cells}" for spread in spreads if spread is not None), "too few")
        words = ["" if spread is None else f"{spread.sd:.1%}" for spread in spreads]
        lines.append(f"| {one.name} | {size} | {' | '.join(words)} |")
    return "\n".join(lines)
