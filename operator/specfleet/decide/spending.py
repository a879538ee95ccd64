"""Whether a benchmark may still cost GPU hours: one budget for a search and the confirmation of its winner together."""

from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import BenchmarkProgress
from specfleet.decide.duration import pair_gpu_hours
from specfleet.decide.evidence_pairs import arrange
from specfleet.decide.gpu_budget import gpu_hour_budget
from specfleet.decide.trials import is_search
from specfleet.decide.turn import Turn
from specfleet.decide.units import of_benchmark, pairs_of

LARGEST_RESERVE_RATIO = 0.5
"""Of the budget: with less than half of it for choosing there would be no winner to confirm."""


def gpu_hours_used_up(turn: Turn, progress: BenchmarkProgress, side_by_side: bool) -> bool:
    """Whether no further pair fits what is left. The first pair is begun in any case: nobody knows its cost before.

    A pair that was begun (arms that take turns, a large matrix) is finished: half a pair proves nothing.
    """
    spent, limit = _spent(turn, progress), _limit(turn, progress, side_by_side)
    if spent > limit or _pair_begun(turn, progress):
        return spent > limit
    return spent > 0 and spent + (_mean_pair(_measured(turn, progress)) or 0.0) > limit


def _pair_begun(turn: Turn, progress: BenchmarkProgress) -> bool:
    own = of_benchmark((*turn.obs.evidence, *turn.record), progress)
    return arrange(pairs_of(own)).attempted > progress.pairs_done


def _spent(turn: Turn, progress: BenchmarkProgress) -> float:
    search = turn.status.search
    shared = search is not None and progress.purpose in ("Qualify", "Confirm")
    return search.gpu_hours if search is not None and shared else progress.gpu_hours


def _limit(turn: Turn, progress: BenchmarkProgress, side_by_side: bool) -> float:
    """What may be spent by the end of this benchmark; while a search chooses, less what the confirmation will cost."""
    budget = gpu_hour_budget(turn.spec)
    if progress.purpose != "Qualify" or not is_search(turn):
        return budget
    pair = _mean_pair(_measured(turn, progress)) or pair_gpu_hours(turn.spec, side_by_side)
    return budget - min(LARGEST_RESERVE_RATIO * budget, turn.spec.benchmark.pairs * pair)


def _measured(turn: Turn, progress: BenchmarkProgress) -> list[BenchmarkEvidenceSpec]:
    """Pairs of this benchmark; before its first one, those of the whole search."""
    everything = (*turn.obs.evidence, *turn.record)
    own = pairs_of(of_benchmark(everything, progress))
    search = turn.status.search
    if own or search is None or progress.purpose not in ("Qualify", "Confirm"):
        return own
    ids = {one.benchmark for one in search.candidates}
    return [one for one in everything if one.benchmark in ids and one.purpose == "Qualify"]


def _mean_pair(evidence: list[BenchmarkEvidenceSpec]) -> float | None:
    """Mean GPU hours of a pair; None before the first. Pairs of several candidates share their indices."""
    pairs = sum(
        arrange([one for one in evidence if one.benchmark == name]).attempted
        for name in {one.benchmark for one in evidence}
    )
    return sum(one.gpu_seconds for one in evidence) / 3600 / pairs if pairs else None
