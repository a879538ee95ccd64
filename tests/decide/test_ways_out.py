"""States that do not end by themselves: they end at once where they should, say so, and a changed spec leads out."""

from dataclasses import replace
from datetime import timedelta

import pytest
from specfleet.alerts.derive import NOTHING_SERVES, STALLED, alerts_for
from specfleet.api.conditions import ConditionStatus, ConditionType
from specfleet.api.status import Phase, Verdict
from specfleet.decide.stranded import stranded
from specfleet.engine.findings import Finding, Severity

from tests.decide.test_road import NEW_ENGINE, OTHER_PROPOSER, crash, promoted
from tests.decide.world import World, spec_of

GONE = Finding("ConfigMapMissing", Severity.REFUSE, "spec.template", "ConfigMapMissing", "cm is gone", "make it", "x")
RUNBOOKS = "https://docs.example.com/{alert}"


def fired(world: World) -> dict[str, str]:
    """Runbook and reason of what fires, by the alert's name."""
    return {one.name: f"{one.runbook_url} {one.labels['reason']}" for one in alerts_for(world.deployment(), RUNBOOKS)}


def bench_pods(world: World) -> int:
    return sum(arm.replicas for (_, bench), arm in world.arms.items() if bench)


# --- the cluster begins to refuse what is being measured --------------------------------------------------------------


def measuring() -> World:
    world = World()
    assert world.run(3600, until=lambda one: one.job is not None)
    return world


def measuring_a_change() -> World:
    world = promoted()
    world.change(engine=NEW_ENGINE)
    assert world.run(3600, until=lambda one: one.job is not None and one.job.purpose == "Change")
    return world


@pytest.mark.parametrize("make", [measuring, measuring_a_change], ids=["a proposer", "a changed engine"])
def test_a_refusal_in_the_middle_of_a_benchmark_ends_it_in_the_same_turn(make: object) -> None:
    world: World = make()  # type: ignore[operator]
    world.refusals = (GONE,)
    world.reconcile()
    assert bench_pods(world) == 0
    assert world.job is None
    before = len(world.decisions())
    world.run(3600)
    assert len(world.decisions()) == before, "nothing is begun that cannot be carried through"
    assert world.condition(ConditionType.STALLED).reason == "ConfigMapMissing"
    assert fired(world)[STALLED] == "https://docs.example.com/SpecfleetStalled ConfigMapMissing"
    assert world.serving_total() == 4
    world.refusals = ()
    assert world.run(7200, until=lambda one: one.phase is Phase.SPECULATIVE and not bench_pods(one)), world.story()
    assert not world.lost


# --- a roll-back that cannot end --------------------------------------------------------------------------------------


def blocked(**changes: object) -> World:
    """The promoted arm is slower than plain decoding, and plain pods crash at their start for ever."""
    world = promoted(**changes)
    world.broken_arms = frozenset({world.plain})
    world.comparison, world.comparison_ratio = Verdict.FAIL, (1.1, 1.3)
    world.run_to(Phase.ROLLING_BACK)
    world.comparison, world.comparison_ratio = Verdict.PASS, (0.5, 0.6)
    world.run(600)
    assert world.phase is Phase.ROLLING_BACK
    return world


ONE = {"replicas": 1, "capacity": {"maxExtraReplicas": 1}}


@pytest.mark.parametrize("changes", [{}, {"replicas": 2}, ONE], ids=["four pods", "two pods", "one pod"])
def test_a_roll_back_that_cannot_end_keeps_what_serves_and_wakes_somebody(changes: dict[str, object]) -> None:
    world = blocked(**changes)
    assert world.serving_total() > 0
    stalled = world.condition(ConditionType.STALLED)
    assert (stalled.status, stalled.reason) == (ConditionStatus.TRUE, "BothArmsFail")
    assert fired(world)[STALLED] == "https://docs.example.com/SpecfleetStalled BothArmsFail"
    world.run(2 * 3600)
    assert world.serving_total() > 0
    assert STALLED in fired(world)
    assert not world.lost


@pytest.mark.parametrize("changes", [{}, {"replicas": 2}, ONE], ids=["four pods", "two pods", "one pod"])
def test_a_corrected_engine_leads_out_of_a_roll_back_that_cannot_end(changes: dict[str, object]) -> None:
    world = blocked(**changes)
    world.change(engine=NEW_ENGINE)
    assert world.run(2 * 3600, until=lambda one: bool(one.decisions("AdoptRevision"))), world.story()
    assert world.run(3600, until=lambda one: one.serving_total() >= one.spec["replicas"]), world.story()
    assert world.condition(ConditionType.STALLED).status is ConditionStatus.FALSE
    assert not world.lost


def test_another_proposer_alone_does_not_mend_the_plain_arm_and_the_alert_goes_on() -> None:
    world = blocked()
    world.change(speculation=OTHER_PROPOSER)
    world.run(3600)
    assert world.phase is Phase.ROLLING_BACK
    assert world.serving_total() > 0
    assert STALLED in fired(world)
    world.heal()
    assert world.run(7200, until=lambda one: one.phase is Phase.SPECULATIVE), world.story()


@pytest.mark.parametrize("changes", [{}, ONE], ids=["four pods", "one pod"])
def test_a_corrected_engine_takes_over_where_no_pod_of_the_old_one_answers(changes: dict[str, object]) -> None:
    """There is nothing to compare it with, and waiting for a comparison would leave the users without any answer."""
    world = promoted(**changes)
    old = {one for one, _ in world.arms}
    world.broken_arms = frozenset({*old, world.plain})
    crash(world, world.drafted)
    world.run(900)
    assert world.serving_total() == 0
    assert NOTHING_SERVES in fired(world)
    world.change(engine=NEW_ENGINE)
    assert world.run(3600, until=lambda one: bool(one.decisions("AdoptRevision"))), world.story()
    assert world.run(600, until=lambda one: one.serving_total() >= one.spec["replicas"]), world.story()
    assert NOTHING_SERVES not in fired(world)


def tried_beside_one_pod() -> World:
    """One plain pod serves, and a changed engine is tried beside it without a verdict."""
    patient = {"startupTimeoutSeconds": 1800}
    world = World(spec=spec_of(**ONE, speculation=None, engine=spec_of()["engine"] | patient))
    world.comparison = Verdict.INCONCLUSIVE
    world.run_to(Phase.BASELINE)
    world.change(engine=NEW_ENGINE | patient)
    assert world.run(7200, until=lambda one: one.status is not None and one.status.step_since is not None)
    assert world.serving_total() == 2
    return world


def test_one_restart_of_the_only_stable_pod_does_not_let_a_changed_engine_in_unproven() -> None:
    """It comes back by itself; until then the trial's own pod answers as before."""
    world = tried_beside_one_pod()
    stable = world.observation().status.stable
    assert stable is not None
    serving = stable.baseline
    crash(world, serving, restarts=1, out_of_memory=True)
    world.reconcile()
    assert world.phase is Phase.CANARY
    assert not world.decisions("AdoptRevision")
    crash(world, serving, out_of_memory=True)
    world.reconcile()
    assert world.decisions("AdoptRevision"), "a pod that dies again and again does not come back"


@pytest.mark.parametrize(
    ("restarts", "run_hours", "out_of_memory", "over"),
    [
        (2, 0.5, True, True),
        (2, 5.0, True, True),
        (1, 0.5, True, False),
        (2, 24.0, True, False),
        (2, 0.5, False, False),
    ],
    ids=["every half hour", "every five hours", "once", "twice, a day apart", "long runs that ended otherwise"],
)
@pytest.mark.parametrize("minutes_ago", [0, 15], ids=["now", "still loading"])
def test_a_stable_pod_that_keeps_running_out_of_memory_is_lost_however_long_it_runs_in_between(
    restarts: int, run_hours: float, out_of_memory: bool, over: bool, minutes_ago: float
) -> None:
    """Memory that fills slowly fills again: users are without an answer for the length of a start, again and again."""
    world = tried_beside_one_pod()
    serving = world.observation().status.stable
    assert serving is not None
    ended = world.now - timedelta(minutes=minutes_ago)
    fields = {"unready_at": ended, "last_restart": ended, "last_run_started": ended - timedelta(hours=run_hours)}
    crash(world, serving.baseline, restarts=restarts, out_of_memory=out_of_memory, **fields)
    world.reconcile()
    assert bool(world.decisions("AdoptRevision")) is over


def test_a_changed_engine_that_ran_out_of_memory_itself_does_not_take_over_from_one_that_does_so_slowly() -> None:
    world = tried_beside_one_pod()
    stable = world.observation().status.stable
    assert stable is not None
    for pod in world.arms[(world.plain, False)].pods:
        pod.restarts, pod.last_restart, pod.out_of_memory = 1, world.now - timedelta(seconds=60), True
    began = world.now - timedelta(hours=2)
    crash(world, stable.baseline, unready_at=world.now, last_run_started=began, out_of_memory=True)
    world.reconcile()
    assert not world.decisions("AdoptRevision")


@pytest.mark.parametrize(("seconds", "lost"), [(300, False), (700, True)], ids=["a node is on its way", "none comes"])
def test_stable_pods_that_wait_for_a_node_are_lost_only_after_as_long_as_a_start_may_take(
    seconds: float, lost: bool
) -> None:
    world = World(spec=spec_of(**ONE, speculation=None, engine={**NEW_ENGINE, "startupTimeoutSeconds": 600}))
    world.run_to(Phase.BASELINE)
    world.change(engine=spec_of()["engine"] | {"startupTimeoutSeconds": 600})
    obs = world.observation()
    assert stranded(obs, obs.status) is None
    (arm,) = obs.arms
    since = obs.now - timedelta(seconds=seconds)
    waiting = [replace(one, ready_since=None, unschedulable_since=since, created=since) for one in arm.pods]
    obs = replace(obs, arms=(replace(arm, pods=tuple(waiting)),))
    assert (stranded(obs, obs.status) is not None) is lost
