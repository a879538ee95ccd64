"""What a benchmark may cost: as many pairs for a large model as for a small one."""

from typing import Any

import pytest
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.status import Phase
from specfleet.decide.gpu_budget import gpu_hour_budget

from tests.decide.world import World, spec_of


@pytest.mark.parametrize(
    ("gpus", "nodes", "asked", "hours"),
    [("1", 1, None, 64.0), ("8", 1, None, 512.0), ("8", 2, None, 1024.0), ("8", 2, 40.0, 40.0)],
    ids=["one GPU", "eight GPUs", "two nodes of eight GPUs", "a limit of the user counts every GPU"],
)
def test_the_default_grows_with_the_engine_and_a_limit_of_the_user_holds(
    gpus: str, nodes: int, asked: float | None, hours: float
) -> None:
    template: dict[str, Any] = {"resources": {"limits": {"nvidia.com/gpu": gpus}}}
    if nodes > 1:
        template["multiNode"] = {"size": nodes}
    fields: dict[str, Any] = {**spec_of()["benchmark"], **({"gpuHours": asked} if asked else {})}
    spec = DeploymentSpec.model_validate(spec_of(template=template, benchmark=fields))
    assert gpu_hour_budget(spec) == hours


@pytest.mark.parametrize("pairs_paid", [3.0, 3.2, 3.9])
def test_a_pair_that_was_begun_within_the_budget_is_finished_also_where_the_arms_take_turns(pairs_paid: float) -> None:
    def measured(**limit: float) -> World:
        benchmark = {**spec_of()["benchmark"], "pairs": 6, **limit}
        world = World(spec=spec_of(replicas=2, capacity={"maxExtraReplicas": 1}, benchmark=benchmark))
        assert world.run(7200, until=lambda one: bool(one.decisions("Judge")))
        return world

    free = measured()
    assert free.status is not None
    pair = sum(one.gpu_seconds for one in free.evidence) / 3600 / 6
    limited = measured(gpuHours=pairs_paid * pair + 1e-4)
    assert [one.unit for one in limited.evidence] == ["p0a", "p0b", "p1b", "p1a", "p2a", "p2b"]
    assert limited.phase is not Phase.BENCHMARKING
