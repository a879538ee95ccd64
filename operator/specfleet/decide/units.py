"""What a benchmark consists of: units, one Job each, in the order in which they must run."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import ArmRole, BenchmarkProgress
from specfleet.decide.traffic_profile import loaded_tiers

CAPACITY_UNIT = "capacity"
CELLS_PER_UNIT = 16
"""Two runs per cell must fit the 4 KiB of a termination message (Kubernetes limit; benchmark/plan.py)."""

SIDE_BY_SIDE_EXTRA = 2
"""Both arms up at once need two extra pods; with one they take turns."""

Cell = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Unit:
    """One Job: a pair over some cells, or one arm's half of it where the arms take turns on one spare GPU."""

    name: str
    pair: int
    roles: tuple[ArmRole, ...]
    cells: tuple[Cell, ...]


def measured_spec(spec: DeploymentSpec, progress: BenchmarkProgress) -> DeploymentSpec:
    """The spec with what this benchmark measures: since traffic moved, slices and the heaviest load like production."""
    if not progress.slices and progress.load_ratio <= 1:
        return spec
    benchmark = spec.benchmark
    slices, tiers = list(progress.slices) or benchmark.slices, loaded_tiers(benchmark.tiers, progress.load_ratio)
    return spec.model_copy(update={"benchmark": benchmark.model_copy(update={"slices": slices, "tiers": tiers})})


def planned_cells(spec: DeploymentSpec, progress: BenchmarkProgress) -> tuple[Cell, ...]:
    """Cells of this benchmark: all, or only the suspect ones."""
    chosen = {tuple(cell.split("/", 1)) for cell in progress.cells}
    return tuple(cell for cell in measured_spec(spec, progress).benchmark.cells if not chosen or cell in chosen)


def together(progress: BenchmarkProgress, side_by_side: bool, pair: int) -> bool:
    """Whether both arms are up during a pair: declared, and the cluster has had room for both so far."""
    return side_by_side and (progress.turns_from_pair is None or pair < progress.turns_from_pair)


def units(
    spec: DeploymentSpec, progress: BenchmarkProgress, side_by_side: bool, done: Collection[str] = ()
) -> tuple[Unit, ...]:
    """All units of a benchmark. Taking turns, the order is AB BA AB, so that drift of the machine cancels.

    `done`: names of units that are measured. A pair that was measured in one way stays as it is, whatever there is room
    for now.
    """
    listed: list[Unit] = []
    cells = planned_cells(spec, progress)
    if spec.benchmark.needs_capacity:
        listed.append(Unit(CAPACITY_UNIT, 0, (ArmRole.BASELINE,), cells[:1]))
    for pair in range(progress.pairs_planned):
        whole, halves = _of_pair(pair, cells, True), _of_pair(pair, cells, False)
        both = together(progress, side_by_side, pair)
        if all(unit.name in done for unit in whole):
            both = True
        elif any(unit.name in done for unit in halves):
            both = False
        listed += whole if both else halves
    return tuple(listed)


def _of_pair(pair: int, cells: tuple[Cell, ...], both: bool) -> list[Unit]:
    plain, speculative = ArmRole.BASELINE, ArmRole.SPECULATIVE
    chunks = [cells[start : start + CELLS_PER_UNIT] for start in range(0, len(cells), CELLS_PER_UNIT)]
    listed: list[Unit] = []
    for roles in [(plain, speculative)] if both else _turns(pair):
        half = "" if both else ("a" if roles == (plain,) else "b")
        for index, chunk in enumerate(chunks):
            part = f"c{index}" if len(chunks) > 1 else ""
            listed.append(Unit(f"p{pair}{half}{part}", pair, roles, chunk))
    return listed


def is_half(evidence: BenchmarkEvidenceSpec) -> bool:
    """Whether it was measured while the arms took turns: one arm's half of a pair."""
    return evidence.unit.removeprefix(f"p{evidence.pair}")[:1] in ("a", "b")


def _turns(pair: int) -> list[tuple[ArmRole, ...]]:
    order: list[tuple[ArmRole, ...]] = [(ArmRole.BASELINE,), (ArmRole.SPECULATIVE,)]
    return order if pair % 2 == 0 else order[::-1]


def of_benchmark(
    evidence: tuple[BenchmarkEvidenceSpec, ...], progress: BenchmarkProgress
) -> list[BenchmarkEvidenceSpec]:
    """Evidence of this benchmark, in the order of the pairs, and the capacity run that it takes over from another."""
    mine = [
        one
        for one in evidence
        if one.benchmark == progress.id or (one.purpose == "Capacity" and one.benchmark == progress.capacity_from)
    ]
    return sorted(mine, key=lambda one: (one.pair, one.unit))


def pairs_of(evidence: Iterable[BenchmarkEvidenceSpec]) -> list[BenchmarkEvidenceSpec]:
    """Evidence of pairs: without the runs that only measured a capacity."""
    return [one for one in evidence if one.purpose != "Capacity"]


def next_unit(
    spec: DeploymentSpec, progress: BenchmarkProgress, side_by_side: bool, evidence: tuple[BenchmarkEvidenceSpec, ...]
) -> Unit | None:
    """The first unit without evidence, or None when all are measured."""
    done = {one.unit for one in of_benchmark(evidence, progress)}
    return next((unit for unit in units(spec, progress, side_by_side, done) if unit.name not in done), None)


def complete_pairs(
    spec: DeploymentSpec, progress: BenchmarkProgress, side_by_side: bool, evidence: tuple[BenchmarkEvidenceSpec, ...]
) -> int:
    """Pairs of which every unit is measured."""
    done = {one.unit for one in of_benchmark(evidence, progress)}
    open_pairs = {
        unit.pair
        for unit in units(spec, progress, side_by_side, done)
        if unit.name not in done and unit.name != CAPACITY_UNIT
    }
    return sum(1 for pair in range(progress.pairs_planned) if pair not in open_pairs)
