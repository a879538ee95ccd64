"""What changed is told in words: in the decision (and so in its Event), in the condition, and in the alert about it."""

from typing import Any

import pytest
from specfleet.alerts.derive import alerts_for
from specfleet.alerts.events import build_event
from specfleet.api.conditions import ConditionType
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.status import DecisionRecord, Phase, Verdict
from specfleet.decide.difference import LONGEST, SAME_SPEC, engine_in_words

from tests.decide.test_road import NEW_ENGINE, crash, promoted
from tests.decide.world import World, spec_of

DRAFTED = {**spec_of()["speculation"], "draft": {"model": "org/draft", "revision": "a1b2c3d4" * 5}}
OTHER_DRAFT = {**DRAFTED, "draft": {"model": "org/draft", "revision": "c3d4e5f6" * 5}}
ENGINE = "engine 0.32.0 -> 0.33.0"


def kept(**changes: Any) -> World:
    """A promoted deployment whose present spec is kept as a revision."""
    world = promoted(**changes)
    assert world.status is not None
    assert world.status.stable is not None
    world.revisions[world.status.stable.name] = DeploymentSpec.model_validate(world.spec)
    return world


def last(world: World, action: str) -> DecisionRecord:
    return world.decisions(action)[-1]


def test_a_changed_engine_is_noticed_by_what_changed_in_it() -> None:
    world = kept()
    world.change(engine=NEW_ENGINE)
    world.run(10)
    said = last(world, "NewRevision")
    assert ENGINE in said.message
    assert "has to prove itself" in said.message
    assert ENGINE in build_event(world.deployment(), said)["message"]


def test_a_changed_engine_that_fails_its_canary_says_so_with_what_changed_in_condition_and_alert() -> None:
    world = kept()
    world.change(engine=NEW_ENGINE)
    world.run_to(Phase.CANARY)
    world.run(20)
    world.comparison = Verdict.FAIL
    world.run(1200)
    assert ENGINE in last(world, "RollBack").message
    told = [one.message for one in world.decisions("RollBack")]
    assert all(ENGINE in one for one in told)
    assert world.status is not None
    assert world.status.revision_refused is not None


def test_a_changed_engine_that_does_not_start_is_refused_with_what_changed() -> None:
    world = kept()
    world.change(engine=NEW_ENGINE)
    world.run(10)
    fingerprint = world.observation().baseline.fingerprint
    for _ in range(40):
        world.run(10)
        if (fingerprint, True) in world.arms:
            world.arms[fingerprint, False] = world.arms[fingerprint, True]
            crash(world, fingerprint)
            del world.arms[fingerprint, False]
        if world.decisions("RefuseRevision"):
            break
    assert ENGINE in last(world, "RefuseRevision").message
    stalled = world.condition(ConditionType.STALLED)
    assert ENGINE in stalled.message
    assert any(ENGINE in one.description for one in alerts_for(world.deployment()))


def test_a_promoted_proposer_that_gives_way_to_another_draft_says_which() -> None:
    world = kept(speculation=DRAFTED)
    world.change(speculation=OTHER_DRAFT)
    world.run(10)
    assert "draft revision a1b2c3d4 -> c3d4e5f6" in last(world, "RollBack").message


@pytest.mark.parametrize(
    "changes", [{"speculation": None}, {"speculation": {"method": "ngram", "numSpeculativeTokens": 3}}]
)
def test_a_proposer_without_a_successor_of_its_method_is_named_without_a_difference(changes: dict[str, Any]) -> None:
    world = kept(speculation=DRAFTED)
    world.change(**changes)
    world.run(10)
    assert "->" not in last(world, "RollBack").message


def test_where_the_earlier_spec_is_not_kept_nothing_is_made_up() -> None:
    world = promoted()
    world.change(engine=NEW_ENGINE)
    world.run(10)
    assert last(world, "NewRevision").message.startswith("model, engine or pods changed")


def test_an_engine_that_differs_in_a_config_map_alone_says_so_and_a_long_difference_is_cut() -> None:
    world = kept()
    assert world.status is not None
    assert engine_in_words(world.observation(), world.status) == SAME_SPEC
    volumes = [{"name": f"v{number}", "emptyDir": {}} for number in range(40)]
    world.change(template={"volumes": volumes})
    assert len(engine_in_words(world.observation(), world.status)) <= LONGEST + 4


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": {**NEW_ENGINE, "args": ["--hf-token", "hf_abcdefgh12"]}},
        {"engine": {**NEW_ENGINE, "args": ["--hf-token=key-abcdefgh12"]}},
        {"engine": {**NEW_ENGINE, "env": [{"name": "HF_ENDPOINT", "value": "https://me:abcdefgh12@hub.example.com"}]}},
        {
            "template": {
                "initContainers": [
                    {"name": "copy", "image": "aws", "env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "abcdefgh12"}]}
                ]
            }
        },
    ],
    ids=["a token", "a token joined", "an address with a password", "an init container"],
)
def test_what_may_be_a_credential_is_not_told(changes: dict[str, Any]) -> None:
    world = kept()
    world.change(**changes)
    world.run(10)
    said = last(world, "NewRevision")
    assert " -> " in said.message
    assert "abcdefgh12" not in build_event(world.deployment(), said)["message"]
