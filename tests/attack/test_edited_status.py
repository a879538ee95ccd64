"""A status edited by hand to nonsense stops nobody."""

from specfleet.api.status import Phase
from specfleet.decide.decide import MOST_PAIRS

from tests.decide.world import World


def test_a_billion_planned_pairs_do_not_stop_the_operator() -> None:
    world = World()
    world.run_to(Phase.BENCHMARKING)
    assert world.status is not None
    assert world.status.benchmark is not None
    edited = world.status.benchmark.model_copy(update={"pairs_planned": 10**9})
    world.status = world.status.model_copy(update={"benchmark": edited})
    world.reconcile()
    assert world.status.benchmark is not None
    assert world.status.benchmark.pairs_planned == MOST_PAIRS
