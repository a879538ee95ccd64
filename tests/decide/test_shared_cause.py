"""A cause that plain pods were seen to share stays shared while they are away, for a bounded time."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specfleet.api.conditions import ConditionType
from specfleet.api.status import Phase
from specfleet.decide.shared_cause import patience
from specfleet.decide.watch_report import Answer, Attribution, Severity, Signal, Suspicion

from tests.decide.test_road import crash, promoted, suspicion
from tests.decide.world import World

SLOW = suspicion(Signal.TPOT_REGRESSION, severity=Severity.SLO, attribution=Attribution.SHARED)
HUNG = suspicion(Signal.NO_PROGRESS, severity=Severity.HARD, attribution=Attribution.SHARED)
UNCLEAR = [Attribution.HISTORICAL, Attribution.PENDING]


def shared(finding: Suspicion = SLOW) -> World:
    """Plain pods are slow too, and that is known."""
    world = promoted()
    world.suspicions = (finding,)
    world.run(120)
    assert world.phase is Phase.SPECULATIVE
    return world


def becomes(world: World, attribution: Attribution) -> None:
    world.suspicions = tuple(replace(one, attribution=attribution) for one in world.suspicions)


@pytest.mark.parametrize("attribution", UNCLEAR)
@pytest.mark.parametrize("finding", [SLOW, HUNG], ids=["slow", "hung"])
def test_nothing_is_done_and_the_same_is_told_while_the_only_plain_pod_is_away(
    finding: Suspicion, attribution: Attribution
) -> None:
    world = shared(finding)
    before = len(world.decisions())
    becomes(world, attribution)
    world.run(patience(world.observation().spec, finding.severity) - 10)
    assert len(world.decisions()) == before
    assert world.condition(ConditionType.DRIFT_DETECTED).reason == "SharedCause"
    becomes(world, Attribution.SHARED)
    world.run(3600)
    assert len(world.decisions()) == before


@pytest.mark.parametrize(("finding", "action"), [(SLOW, "Investigate"), (HUNG, "RollBack")], ids=["slow", "hung"])
def test_it_is_followed_up_once_the_plain_pod_has_stayed_away_for_too_long(finding: Suspicion, action: str) -> None:
    world = shared(finding)
    becomes(world, Attribution.HISTORICAL)
    waited = patience(world.observation().spec, finding.severity)
    assert world.run(waited + 60, until=lambda one: bool(one.decisions(action))), world.story()


def test_a_plain_pod_that_came_back_healthy_accuses_at_once() -> None:
    world = shared(HUNG)
    becomes(world, Attribution.HISTORICAL)
    world.run(30)
    becomes(world, Attribution.SPECULATION)
    assert world.run(10, until=lambda one: bool(one.decisions("RollBack")))


def test_a_finding_that_was_never_shared_is_followed_up_at_once() -> None:
    world = shared()
    other = suspicion(Signal.TTFT_REGRESSION, severity=Severity.SLO, attribution=Attribution.HISTORICAL)
    world.suspicions = (*world.suspicions, other)
    assert world.run(60, until=lambda one: bool(one.decisions("Investigate")))
    assert world.decisions("Investigate")[0].reason == other.signal.value


def test_a_hang_after_the_shared_one_was_over_does_not_wait_for_plain_pods() -> None:
    world = shared(HUNG)
    world.suspicions = ()
    world.run(70)
    world.suspicions = (replace(HUNG, attribution=Attribution.HISTORICAL),)
    assert world.run(10, until=lambda one: bool(one.decisions("RollBack"))), world.story()


@pytest.mark.parametrize("gone", ["no metrics", "no token yet"])
def test_a_shared_hang_is_not_over_because_nobody_can_see_it_for_a_while(gone: str) -> None:
    world = shared(HUNG)
    world.suspicions = ()
    world.answer = Answer.UNAVAILABLE if gone == "no metrics" else Answer.OK
    world.requests_per_second = 0.0
    world.run(120)
    world.answer = Answer.OK
    world.suspicions = (replace(HUNG, attribution=Attribution.HISTORICAL),)
    world.run(120)
    assert not world.decisions("RollBack")


@pytest.mark.parametrize("happens", ["it crashes", "it runs out of memory", "its requests fail"])
def test_another_hard_fault_never_waits_for_a_cause_that_was_shared(happens: str) -> None:
    world = shared(HUNG)
    becomes(world, Attribution.HISTORICAL)
    world.run(30)
    assert not world.decisions("RollBack")
    if happens == "its requests fail":
        failing = suspicion(Signal.SERVER_ERRORS, severity=Severity.HARD, attribution=Attribution.HISTORICAL)
        world.suspicions = (*world.suspicions, failing)
    else:
        crash(world, world.drafted, out_of_memory=happens == "it runs out of memory")
    assert world.run(10, until=lambda one: bool(one.decisions("RollBack"))), world.story()


def test_it_survives_a_restart_of_the_operator_and_writes_nothing_while_nothing_changes() -> None:
    """Status alone carries it: each turn of these tests begins from status."""
    world = shared()
    becomes(world, Attribution.HISTORICAL)
    world.run(10)
    written = world.status
    world.run(30)
    assert world.status == written
    assert written is not None
    assert [one.signal for one in written.shared_causes] == [SLOW.signal.value]


def test_it_is_forgotten_with_the_arm() -> None:
    world = shared()
    world.change(speculation=None)
    world.run(300)
    assert world.status is not None
    assert world.status.shared_causes == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([*Attribution, None]), min_size=1, max_size=8), st.sampled_from([SLOW, HUNG]))
def test_whatever_follows_what_is_remembered_ends(course: list[Attribution | None], finding: Suspicion) -> None:
    world = shared(finding)
    for attribution in course:
        found = replace(finding, attribution=attribution, pod="gone") if attribution is not None else None
        world.suspicions = (found,) if found is not None else ()
        world.run(40)
        assert world.serving_total() > 0
    world.suspicions = ()
    world.run(patience(world.observation().spec, finding.severity) + 700)
    assert world.status is not None
    assert world.status.shared_causes == []
    assert not world.lost
