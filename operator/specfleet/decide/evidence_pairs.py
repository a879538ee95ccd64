"""From stored evidence to paired log-ratios: which pairs count, which cells, and why the others do not."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from specfleet.api.evidence import BenchmarkEvidenceSpec, RequestProbe, RunSummary
from specfleet.api.status import ArmRole

Cell = tuple[str, str]
Quantity = Callable[[RunSummary], float | None]
OVERSATURATED = "Oversaturated"
POD_RESTARTED = "PodRestarted"
FAILED_REQUESTS = "FailedRequests"


@dataclass(frozen=True, slots=True)
class PairedRun:
    """One cell of one pair: the plain run and the speculative one, adjacent in time."""

    baseline: RunSummary
    speculative: RunSummary

    @property
    def valid(self) -> bool:
        """Whether both may be compared."""
        return self.baseline.valid and self.speculative.valid


@dataclass(frozen=True, slots=True)
class Pairs:
    """All runs of one benchmark, arranged.

    cells: usable ones in the order they were measured. complete: per complete pair, one PairedRun per usable cell.
    """

    cells: tuple[Cell, ...]
    complete: tuple[tuple[PairedRun, ...], ...]
    attempted: int
    """Pairs of which something was recorded."""
    comparable: int
    """Cells, over all pairs, of which both runs may be compared."""
    runs: tuple[RunSummary, ...]
    saturated: frozenset[Cell] = frozenset()
    """Cells left out because the plain arm itself could not carry the rate."""
    overloaded: frozenset[Cell] = frozenset()
    """Cells that only the speculative arm could not carry."""
    problems: Counter[str] = field(default_factory=Counter)
    """Why runs or pairs are missing, by reason."""

    @property
    def count(self) -> int:
        """Complete pairs."""
        return len(self.complete)

    def tiers(self) -> tuple[str, ...]:
        """Tiers of the usable cells, in order."""
        return tuple(dict.fromkeys(tier for tier, _ in self.cells))

    def log_ratios(self, quantity: Quantity, cells: Sequence[Cell]) -> list[list[float]] | None:
        """log(speculative / plain) per complete pair and cell; None if a value is missing, zero or not finite."""
        places = [self.cells.index(cell) for cell in cells]
        rows: list[list[float]] = []
        for pair in self.complete:
            row: list[float] = []
            for place in places:
                plain, drafted = quantity(pair[place].baseline), quantity(pair[place].speculative)
                if plain is None or drafted is None or not (plain > 0 and drafted > 0):
                    return None
                ratio = math.log(drafted / plain)
                if not math.isfinite(ratio):
                    return None
                row.append(ratio)
            rows.append(row)
        return rows

    def of(self, role: ArmRole, tier: str | None = None) -> list[RunSummary]:
        """Every run of an arm, invalid ones included."""
        return [run for run in self.runs if run.arm is role and (tier is None or run.tier == tier)]


def arrange(evidence: Iterable[BenchmarkEvidenceSpec]) -> Pairs:
    """Pairs from evidence objects; the halves of a pair whose arms took turns are joined by their pair index."""
    table: dict[int, dict[Cell, dict[ArmRole, RunSummary]]] = {}
    problems: Counter[str] = Counter()
    runs: list[RunSummary] = []
    cells: dict[Cell, None] = {}
    attempted: set[int] = set()
    for one in sorted(evidence, key=lambda item: (item.pair, item.started, item.unit)):
        attempted.add(one.pair)
        if one.error is not None:
            problems[one.error] += 1
        for run in one.runs:
            cell = (run.tier, run.slice)
            cells.setdefault(cell)
            runs.append(run)
            if not run.valid:
                problems[run.invalid_reason or "Invalid"] += 1
            known = table.setdefault(one.pair, {}).setdefault(cell, {})
            if run.arm not in known or run.valid:
                known[run.arm] = run
    saturated = _mostly(runs, ArmRole.BASELINE, cells)
    overloaded = _mostly(runs, ArmRole.SPECULATIVE, cells) - saturated
    usable = tuple(cell for cell in cells if cell not in saturated and cell not in overloaded)
    complete = []
    comparable = 0
    for pair in sorted(table):
        row = [_paired(table[pair].get(cell, {})) for cell in usable]
        whole = [one for one in row if one is not None and one.valid]
        comparable += len(whole)
        if usable and len(whole) == len(usable):
            complete.append(tuple(whole))
    return Pairs(usable, tuple(complete), len(attempted), comparable, tuple(runs), saturated, overloaded, problems)


def request_probes(evidence: Iterable[BenchmarkEvidenceSpec]) -> tuple[RequestProbe, ...]:
    """Probes by name with both arms' answers; where arms took turns each half knows only its own."""
    found: dict[tuple[str, int, str], RequestProbe] = {}
    for one in evidence:
        for probe in one.request_probes:
            slot = (one.benchmark, one.pair, probe.name)
            known = found.get(slot, probe)
            plain, drafted = probe.baseline_status, probe.speculative_status
            found[slot] = RequestProbe(
                name=probe.name,
                baseline_status=known.baseline_status if plain is None else plain,
                speculative_status=known.speculative_status if drafted is None else drafted,
            )
    return tuple(found.values())


def _paired(arms: dict[ArmRole, RunSummary]) -> PairedRun | None:
    plain, drafted = arms.get(ArmRole.BASELINE), arms.get(ArmRole.SPECULATIVE)
    return PairedRun(plain, drafted) if plain is not None and drafted is not None else None


def _mostly(runs: Sequence[RunSummary], role: ArmRole, cells: Iterable[Cell]) -> frozenset[Cell]:
    """Cells in which more than half of the arm's runs, and at least two, were oversaturated."""
    found = set()
    for cell in cells:
        mine = [run for run in runs if run.arm is role and (run.tier, run.slice) == cell]
        hit = sum((run.invalid_reason or "").startswith(OVERSATURATED) for run in mine)
        if hit >= 2 and hit > len(mine) / 2:
            found.add(cell)
    return frozenset(found)
