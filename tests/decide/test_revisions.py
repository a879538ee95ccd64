"""What a revision is, and that a change of anything else is not one."""

from typing import Any

import pytest
from specfleet.api.status import Phase
from specfleet.decide.revisions import revision_name

from tests.decide.test_road import NEW_ENGINE, OTHER_PROPOSER, promoted
from tests.decide.world import World, spec_of


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 2},
        {"capacity": {"maxExtraReplicas": 3}},
        {"benchmark": {**spec_of()["benchmark"], "pairs": 5}},
        {"rollout": {"steps": [{"weightPercent": 50}]}},
        {"remedies": {"maxAttempts": 5}},
        {"paused": True},
        {"guardrails": {"maxTpotIncreaseRatio": 0.3}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_change_that_touches_no_engine_is_not_a_new_revision(change: dict[str, Any]) -> None:
    world = promoted()
    before = world.status.revision if world.status else None
    world.change(**change)
    world.run(60)
    assert world.status is not None
    assert world.status.revision == before
    assert world.phase is Phase.SPECULATIVE


@pytest.mark.parametrize(
    "change",
    [
        {"engine": NEW_ENGINE},
        {"model": {"name": "meta-llama/Llama-3.1-8B-Instruct", "revision": "ffffff0"}},
        {"speculation": OTHER_PROPOSER},
        {"speculation": None},
    ],
    ids=["engine", "model revision", "proposer", "no speculation"],
)
def test_a_change_that_can_change_speed_or_output_is_a_new_revision(change: dict[str, Any]) -> None:
    world = World()
    first = revision_name(world.observation())
    world.change(**change)
    assert revision_name(world.observation()) != first


def test_going_back_gives_the_name_of_the_revision_that_was_there_before() -> None:
    world = World()
    first = revision_name(world.observation())
    world.change(speculation=OTHER_PROPOSER)
    world.change(speculation=spec_of()["speculation"])
    assert revision_name(world.observation()) == first


def test_names_fit_a_kubernetes_name() -> None:
    world = World()
    world.name = "a" * 63
    assert len(revision_name(world.observation())) <= 63


def test_the_stable_revision_is_remembered_by_the_name_under_which_its_spec_is_kept() -> None:
    world = promoted()
    assert world.status is not None
    assert world.status.stable is not None
    assert world.status.stable.name == world.status.revision
    kept = world.status.stable.name
    world.change(engine=NEW_ENGINE)
    world.run(10)
    assert world.status.stable.name == kept, "until the new engine is adopted"
    assert world.status.revision != kept


def test_an_arm_of_an_earlier_spec_is_built_from_the_revision_that_it_belongs_to() -> None:
    world = promoted(replicas=2)
    assert world.status is not None
    assert world.status.stable is not None
    kept = world.status.stable.name
    world.change(engine=NEW_ENGINE)
    world.run_to(Phase.CANARY)
    plan = world.reconcile()
    old = [one for one in plan.arms if one.fingerprint == world.status.stable.baseline]
    assert old
    assert old[0].revision == kept


def test_adding_a_candidate_keeps_the_promoted_one_serving() -> None:
    world = promoted()
    drafted = world.drafted
    both = {"candidates": [spec_of()["speculation"], OTHER_PROPOSER]}
    world.change(speculation=both)
    world.run(600)
    assert world.phase is Phase.SPECULATIVE
    assert world.serving(drafted) == 3
