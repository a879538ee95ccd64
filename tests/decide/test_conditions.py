"""Conditions as kstatus, Argo CD and Flux read them: a trial never blocks a sync wave, a refused change does."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from specfleet.api.conditions import ConditionStatus, ConditionType, find_condition
from specfleet.api.status import ArmRole, Phase, Verdict
from specfleet.decide.decide import decide
from specfleet.decide.watch_report import UNKNOWN_REPORT, Answer, Attribution
from specfleet.telemetry.windows import PodState, arm_answer

from tests.decide.test_road import NEW_ENGINE, ended, in_canary, promoted, suspicion
from tests.decide.world import Pod, World, spec_of

TRUE, FALSE = ConditionStatus.TRUE, ConditionStatus.FALSE
READY, STALLED, RECONCILING = ConditionType.READY, ConditionType.STALLED, ConditionType.RECONCILING


def kstatus(world: World) -> str:
    """What kstatus computes: Current, InProgress or Failed (kpt condition convention)."""
    assert world.status is not None
    if world.status.observed_generation != world.generation:
        return "InProgress"
    if world.condition(STALLED).status is TRUE:
        return "Failed"
    if world.condition(RECONCILING).status is TRUE or world.condition(READY).status is FALSE:
        return "InProgress"
    return "Current"


def deploying() -> World:
    world = World()
    world.reconcile()
    return world


def bad_engine() -> World:
    world = promoted()
    world.immune = {pod.uid for pod in world.pods()}
    world.broken_roles = frozenset({ArmRole.BASELINE})
    world.change(engine=NEW_ENGINE)
    assert world.run(1200, until=lambda one: bool(one.decisions("RefuseRevision")))
    world.run(30)
    return world


def benchmarking() -> World:
    world = World()
    world.run_to(Phase.BENCHMARKING)
    world.run(20)
    return world


def first_pods_unplaceable() -> World:
    world = World(capacity=0)
    world.run(300)
    return world


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (deploying, "InProgress"),
        (benchmarking, "Current"),
        (in_canary, "Current"),
        (promoted, "Current"),
        (lambda: ended(World(gain=lambda tier, piece: 0.8), Phase.BASELINE), "Current"),
        (lambda: ended(World(comparison=Verdict.FAIL), Phase.ROLLED_BACK), "Current"),
        (lambda: ended(World(spec=spec_of(capacity={"maxExtraReplicas": 0})), Phase.HELD), "Current"),
        (bad_engine, "Failed"),
        (first_pods_unplaceable, "Failed"),
    ],
    ids=[
        "first start",
        "benchmark",
        "canary",
        "promoted",
        "proposer refused",
        "proposer rolled back",
        "held",
        "engine refused",
        "no room for the first pod",
    ],
)
def test_what_kstatus_makes_of_each_state(make: Callable[[], World], expected: str) -> None:
    assert kstatus(make()) == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda: ended(World(spec=required(), gain=lambda tier, piece: 0.8), Phase.BASELINE),
        lambda: ended(World(spec=required(), comparison=Verdict.FAIL), Phase.ROLLED_BACK),
        lambda: ended(World(spec=required(capacity={"maxExtraReplicas": 0})), Phase.HELD),
    ],
    ids=["refused", "rolled back", "held"],
)
def test_required_speculation_that_does_not_serve_is_a_failure(make: Callable[[], World]) -> None:
    assert kstatus(make()) == "Failed"


def required(**changes: object) -> dict[str, object]:
    return spec_of(rollout={**spec_of()["rollout"], "requireSpeculation": True}, **changes)


def test_required_speculation_in_its_first_trial_is_not_a_failure() -> None:
    world = World(spec=required())
    world.run_to(Phase.CANARY)
    assert kstatus(world) == "Current"


def test_a_change_is_in_progress_until_the_operator_has_seen_it() -> None:
    world = promoted()
    world.change(replicas=5)
    assert kstatus(world) == "InProgress"
    world.run(120)
    assert kstatus(world) == "Current"


def test_ready_counts_serving_pods_against_the_asked_ones() -> None:
    world = promoted()
    world.change(replicas=6)
    world.reconcile()
    assert world.condition(READY).reason == "TooFewPods"
    assert world.condition(READY).message == "4 of 6 pods serve"


def test_one_pod_serves_and_several_pods_serve() -> None:
    for replicas, words in ((1, "1 pod serves"), (2, "2 pods serve")):
        world = World(spec=spec_of(replicas=replicas, speculation=None))
        world.run_to(Phase.BASELINE)
        assert world.condition(READY).message == words


def test_every_condition_carries_the_generation_that_it_is_about() -> None:
    world = promoted()
    world.change(paused=True)
    world.reconcile()
    assert world.status is not None
    assert {one.observed_generation for one in world.status.conditions} == {2}


def test_a_transition_is_stamped_only_when_the_status_of_a_condition_changes() -> None:
    world = promoted()
    before = world.condition(ConditionType.METRICS_AVAILABLE).last_transition_time
    world.run(300)
    assert world.condition(ConditionType.METRICS_AVAILABLE).last_transition_time == before
    world.answer = Answer.UNAVAILABLE
    world.run(10)
    assert world.condition(ConditionType.METRICS_AVAILABLE).last_transition_time > before


def test_a_shared_cause_is_told_without_writing_status_for_every_new_number() -> None:
    world = promoted()
    world.suspicions = (suspicion(attribution=Attribution.SHARED, message="statistic 9.1"),)
    world.run(30)
    assert world.condition(ConditionType.DRIFT_DETECTED).reason == "SharedCause"
    before = world.writes
    for number in range(20):
        world.suspicions = (suspicion(attribution=Attribution.SHARED, message=f"statistic 9.{number}"),)
        world.run(15)
    assert world.writes == before


def test_metrics_that_stay_away_are_told_without_writing_status_for_every_second() -> None:
    world = promoted()
    world.answer, world.message = Answer.STALE, "the last sample is 60 s old"
    world.run(30)
    before = world.writes
    for seconds in range(20):
        world.message = f"the last sample is {seconds} s old"
        world.run(15)
    assert world.writes == before


def test_metrics_that_were_never_read_are_unknown_and_each_cause_of_their_absence_is_told() -> None:
    world = promoted()
    world.answer, world.message = Answer.UNAVAILABLE, UNKNOWN_REPORT.message
    world.run(30)
    assert (metrics := world.condition(ConditionType.METRICS_AVAILABLE)).status is ConditionStatus.UNKNOWN
    assert metrics.reason == "NotRead"
    for words in ("no connection after 3 s", "HTTP 401 (check url and auth)", "HTTP 403 (check url and auth)"):
        world.message = words
        world.run(30)
        said = world.condition(ConditionType.METRICS_AVAILABLE)
        assert (said.status, said.reason, said.message) == (ConditionStatus.FALSE, "Unavailable", words)


def test_without_metrics_nobody_knows_whether_there_is_a_drift() -> None:
    world = promoted()
    world.run(30)
    assert world.condition(ConditionType.DRIFT_DETECTED).reason == "WithinCalibration"
    world.answer, world.message = Answer.UNAVAILABLE, "connection refused"
    world.run(30)
    said = world.condition(ConditionType.DRIFT_DETECTED)
    assert (said.status, said.reason) == (ConditionStatus.UNKNOWN, "NoMetrics")


@pytest.mark.parametrize("answer", [Answer.NO_TRAFFIC, Answer.NOT_SPECULATING, Answer.INSUFFICIENT])
def test_a_quiet_deployment_has_its_metrics(answer: Answer) -> None:
    world = promoted()
    world.answer = answer
    world.run(30)
    assert world.condition(ConditionType.METRICS_AVAILABLE).status is TRUE


def test_a_changed_toleration_on_a_full_cluster_does_not_leave_a_pod_pending_in_silence() -> None:
    """All pods that the spec asks for serve, and the one that should take over from them waits for a node."""
    world = promoted()
    extra = Pod("surge", world.now, None, unschedulable=True)
    obs = world.observation()
    arms = tuple(
        replace(one, pods=(*one.pods, world._pod(extra))) if one.fingerprint == world.drafted else one
        for one in obs.arms
    )
    said = {late: decide(replace(obs, arms=arms, now=obs.now + timedelta(seconds=late))).status for late in (60, 200)}
    early, stuck = (find_condition(one.conditions, STALLED) for one in said.values())
    assert early is not None
    assert early.status is FALSE
    assert stuck is not None
    assert (stuck.status, stuck.reason) == (TRUE, "RolloutStuck")
    assert "pod surge cannot be scheduled" in stuck.message


def test_the_message_of_a_refusal_names_the_field_and_the_remedy() -> None:
    world = World(spec=spec_of(template={"multiNode": {"size": 2}}))
    world.run(30)
    stalled = world.condition(STALLED)
    assert stalled.status is TRUE
    assert stalled.message.startswith("spec.template.multiNode.size: ")
    assert kstatus(world) == "Failed"


def test_held_changes_say_which_field_lets_them_go() -> None:
    remedies = {**spec_of()["remedies"], "onChange": "Hold"}
    world = promoted(remedies=remedies)
    world.change(engine=NEW_ENGINE)
    world.run(60)
    assert "onChange" in world.condition(STALLED).message
    assert world.serving(world.status.stable.speculative if world.status and world.status.stable else "") == 3


PROBLEM = "Deployment llama-x: in its pods kubectl-patch set nodeSelector"


def test_a_foreign_field_hides_neither_that_nothing_serves_nor_a_blocked_roll_back() -> None:
    world = promoted()
    said = find_condition(decide(replace(world.observation(), problems=(PROBLEM,))).status.conditions, STALLED)
    assert said is not None
    assert (said.reason, said.message) == ("Refused", PROBLEM)
    for arm in world.arms.values():
        for pod in arm.pods:
            pod.ready_at = None
    plan = decide(replace(world.observation(), problems=(PROBLEM,)))
    said = find_condition(plan.status.conditions, STALLED)
    assert said is not None
    assert said.reason == "NothingServes"
    assert PROBLEM in plan.status.warnings


def test_pods_that_are_scraped_twice_are_told_in_the_warnings_although_the_metrics_answer() -> None:
    plain = PodState(None, last_sample=0.0, duplicate=True)
    answer, message = arm_answer({"p1": plain, "p2": replace(plain, duplicate=False)}, now=1.0, window_seconds=60.0)
    world = promoted()
    watch = replace(world.observation().watch, answer=answer, message=f"baseline: {message}")
    status = decide(replace(world.observation(), watch=watch)).status
    assert set(status.warnings) - set(decide(world.observation()).status.warnings) == {
        "metrics: baseline: scraped more than once: p1 (two jobs, or replicas without deduplication)"
    }
