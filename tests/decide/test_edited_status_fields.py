"""A status that somebody edited by hand to nonsense never stops the reconcile."""

from dataclasses import replace

import pytest
from specfleet.api.status import Phase
from specfleet.decide.decide import decide

from tests.decide.world import World


@pytest.mark.parametrize("step", [-5, 99])
def test_a_step_that_does_not_exist_is_taken_for_the_nearest_one(step: int) -> None:
    world = World()
    world.run_to(Phase.CANARY)
    assert world.status is not None
    world.status = world.status.model_copy(update={"step": step})
    assert decide(world.observation()).status.conditions


@pytest.mark.parametrize("reason", ["", "not camel case!", "9lives", "ünïcode"])
def test_a_reason_that_the_api_would_refuse_is_made_one_that_it_takes(reason: str) -> None:
    world = World()
    world.run_to(Phase.BENCHMARKING)
    obs = world.observation()
    assert obs.deployment.status is not None
    status = obs.deployment.status.model_copy(update={"phase_reason": reason})
    edited = obs.deployment.model_copy(update={"status": status})
    plan = decide(replace(obs, deployment=edited))
    assert all(one.reason.isidentifier() for one in plan.status.conditions)
