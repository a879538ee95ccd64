"""What a benchmark may cost: as many pairs for a large model as for a small one."""

from typing import Any

import pytest
from specfleet.api.deployment import DeploymentSpec
from specfleet.decide.gpu_budget import gpu_hour_budget

from tests.decide.world import spec_of


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
