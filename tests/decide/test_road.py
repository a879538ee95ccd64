"""The life of a deployment in virtual time: what a user sees when everything, or one thing, goes right or wrong."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from specfleet.api.conditions import ConditionStatus, ConditionType
from specfleet.api.status import ArmRole, Phase, Verdict
from specfleet.decide.watch_report import Answer, Attribution, Severity, Signal, Stage, Suspicion

from tests.decide.world import START, Pod, World, spec_of

DRAFT = {"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "revision": "ada412b"}
TWO_CANDIDATES = {
    "candidates": [
        {"method": "eagle3", "draft": DRAFT, "numSpeculativeTokens": 3},
        {"method": "eagle3", "draft": DRAFT, "numSpeculativeTokens": 5},
    ]
}
OTHER_PROPOSER = {"method": "eagle3", "draft": DRAFT, "numSpeculativeTokens": 5}
NEW_ENGINE = {"image": "vllm/vllm-openai:v0.33.0", "startupTimeoutSeconds": 120}


def suspicion(signal: Signal = Signal.ACCEPTANCE_DRIFT, **changes: Any) -> Suspicion:
    """A confirmed economic finding about speculation, unless said otherwise."""
    fields: dict[str, Any] = {
        "severity": Severity.ECONOMIC,
        "stage": Stage.CONFIRMED,
        "attribution": Attribution.SPECULATION,
        "since": START,
        "message": f"{signal.value} was scripted",
        "statistic": 9.0,
        "threshold": 5.0,
    }
    return Suspicion(signal, **{**fields, **changes})


def promoted(**changes: Any) -> World:
    """A world whose proposer serves."""
    world = World(spec=spec_of(**changes))
    world.run_to(Phase.SPECULATIVE)
    world.run(120)
    assert not world.lost
    return world


def actions(world: World) -> list[str]:
    return [one.action for one in world.decisions()]


def crash(world: World, fingerprint: str, **fields: Any) -> None:
    """All pods of a serving arm stop answering and crash twice within a minute."""
    for pod in world.arms[(fingerprint, False)].pods:
        pod.ready_at, pod.restarts, pod.failure = None, 2, "CrashLoopBackOff"
        pod.last_run_started, pod.last_restart = world.now - timedelta(seconds=30), world.now
        for name, value in fields.items():
            setattr(pod, name, value)


# --- the road ---------------------------------------------------------------------------------------------------------


def test_a_good_proposer_is_benchmarked_then_canaried_then_promoted_with_a_control() -> None:
    world = promoted()
    assert actions(world) == ["ServeBaseline", "StartBenchmark", "Judge", "StartCanary", "NextStep", "Promote"]
    assert world.serving(world.plain) == 1, "one of four pods stays plain as the control"
    assert world.serving(world.drafted) == 3
    assert world.share(world.drafted) == 0.75
    assert world.condition(ConditionType.SPECULATION_ACTIVE).status is ConditionStatus.TRUE
    assert world.condition(ConditionType.READY).status is ConditionStatus.TRUE


def test_no_user_request_reaches_the_proposer_before_its_benchmark_passed() -> None:
    world = World()
    passed = world.run(3600, until=lambda one: bool(one.decisions("Judge")))
    assert passed
    assert world.share(world.drafted) == 0


def test_plain_pods_serve_all_traffic_with_no_speculation_asked_for() -> None:
    world = World(spec=spec_of(speculation=None))
    world.run_to(Phase.BASELINE)
    world.run(600)
    assert world.phase is Phase.BASELINE
    assert world.share(world.plain) == 1
    assert world.condition(ConditionType.BENCHMARK_PASSED).status is ConditionStatus.UNKNOWN


@pytest.mark.parametrize("replicas", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("extra", [1, 2])
def test_the_road_completes_at_every_size_and_stays_within_the_declared_room(replicas: int, extra: int) -> None:
    world = promoted(replicas=replicas, capacity={"maxExtraReplicas": extra})
    assert world.serving_total() == replicas
    assert world.serving(world.drafted) >= max(1, replicas - max(1, round(replicas / 8)))


def test_with_one_extra_replica_the_arms_take_turns_and_the_road_completes() -> None:
    world = World(spec=spec_of(replicas=1, capacity={"maxExtraReplicas": 1}))
    most = 0

    def watch(one: World) -> bool:
        nonlocal most
        most = max(most, sum(len(arm.pods) for (_, bench), arm in one.arms.items() if bench))
        return one.phase is Phase.SPECULATIVE

    assert world.run(3600, until=watch), world.story()
    assert most == 1, "never two benchmark pods at once"
    units = [one.unit for one in world.evidence]
    assert units == ["p0a", "p0b", "p1b", "p1a", "p2a", "p2b"], "AB BA AB, so that drift cancels"
    assert not world.lost


# --- candidates that do not win ---------------------------------------------------------------------------------------


def test_a_candidate_that_loses_leaves_the_plain_arm_serving_and_is_not_tried_again() -> None:
    world = World(gain=lambda tier, piece: 0.8)
    world.run(7200)
    assert world.phase is Phase.BASELINE
    assert actions(world) == ["ServeBaseline", "StartBenchmark", "Judge"]
    assert world.decisions("Judge")[0].verdict is Verdict.FAIL
    assert world.condition(ConditionType.READY).status is ConditionStatus.TRUE
    assert world.condition(ConditionType.SPECULATION_ACTIVE).status is ConditionStatus.FALSE
    assert not any(bench for _, bench in world.arms), "the benchmark pods are gone"


def test_a_candidate_that_gains_too_little_is_inconclusive_or_refused_and_never_promoted() -> None:
    world = World(gain=lambda tier, piece: 1.05)
    world.run(7200)
    assert world.phase is Phase.BASELINE
    assert not world.decisions("StartCanary")
    assert world.status is not None
    assert world.status.trials[0].verdict is not Verdict.PASS


def test_a_benchmark_whose_jobs_die_is_repeated_then_held_and_tried_again_later() -> None:
    world = World(job_fails=True)
    world.run_to(Phase.HELD)
    assert world.status is not None
    assert world.status.phase_reason == "BenchmarkError"
    assert len(world.decisions("RepeatUnit")) >= 3
    assert world.share(world.plain) == 1
    world.job_fails = False
    world.run_to(Phase.SPECULATIVE)


def test_a_harness_that_never_works_is_tried_once_a_day_in_the_end() -> None:
    world = World(job_fails=True)
    world.run(7 * 86400)
    before = len(world.decisions("StartBenchmark"))
    world.run(7 * 86400)
    assert 5 <= len(world.decisions("StartBenchmark")) - before <= 8
    assert world.phase is Phase.HELD


def test_extra_pods_taken_away_in_mid_benchmark_end_it_and_giving_them_back_starts_it_again() -> None:
    world = World()
    world.run_to(Phase.BENCHMARKING)
    world.run(20)
    world.change(capacity={"maxExtraReplicas": 0})
    world.run_to(Phase.HELD)
    world.run(60)
    assert world.status is not None
    assert world.status.phase_reason == "InsufficientCapacity"
    assert not [arm for (_, bench), arm in world.arms.items() if bench and arm.pods]
    world.change(capacity={"maxExtraReplicas": 2})
    world.run_to(Phase.SPECULATIVE)


def test_holds_for_the_same_reason_get_longer_and_never_flood_the_history() -> None:
    world = World(job_fails=True)
    world.run(86400)
    holds = world.decisions("Hold")
    gaps = [(b.time - a.time).total_seconds() for a, b in pairwise(holds)]
    assert len(holds) < 12
    assert all(b >= a for a, b in pairwise(gaps))


def test_a_candidate_whose_pods_crash_is_refused_without_any_user_traffic() -> None:
    world = World(broken_roles=frozenset({ArmRole.SPECULATIVE}))
    world.run(1200)
    assert world.phase is Phase.BASELINE
    assert world.decisions("RefuseCandidate")[0].reason == "CrashLoop"
    assert world.share(world.plain) == 1


def test_the_better_of_two_candidates_is_confirmed_and_promoted() -> None:
    world = World(spec=spec_of(speculation=TWO_CANDIDATES))
    world.run_to(Phase.SPECULATIVE)
    started = [one.reason for one in world.decisions("StartBenchmark")]
    assert started == ["Qualify", "Qualify", "Confirm"]
    assert world.status is not None
    assert len(world.status.trials) == 2
    assert any(one.confirmed for one in world.status.trials)


def test_with_two_losers_nothing_is_promoted() -> None:
    world = World(spec=spec_of(speculation=TWO_CANDIDATES), gain=lambda tier, piece: 0.7)
    world.run(7200)
    assert world.phase is Phase.BASELINE
    assert world.status is not None
    assert {one.verdict for one in world.status.trials} == {Verdict.FAIL}


# --- the canary -------------------------------------------------------------------------------------------------------


def in_canary(**changes: Any) -> World:
    world = World(spec=spec_of(**changes), comparison=Verdict.INCONCLUSIVE)
    world.run_to(Phase.CANARY)
    world.run(60)
    assert world.status is not None
    assert world.status.step_since is not None
    return world


def test_a_canary_step_moves_pods_and_weight_together() -> None:
    world = in_canary()
    assert world.serving(world.drafted) == 1
    assert world.share(world.drafted) == 0.25


def test_a_canary_whose_pods_crash_goes_back_and_counts_an_attempt() -> None:
    world = in_canary()
    crash(world, world.drafted)
    world.run_to(Phase.ROLLED_BACK)
    assert world.decisions("RollBack")[0].reason == "CrashLoop"
    assert world.status is not None
    assert world.status.attempts is not None
    assert world.status.attempts.count == 1
    assert world.share(world.plain) == 1
    assert not world.lost


def test_a_canary_that_runs_out_of_memory_once_goes_back() -> None:
    world = in_canary()
    crash(world, world.drafted, restarts=1, out_of_memory=True)
    world.run_to(Phase.ROLLED_BACK)
    assert world.decisions("RollBack")[0].reason == "OutOfMemory"


def test_a_hard_finding_of_the_watch_ends_a_canary() -> None:
    world = in_canary()
    world.suspicions = (suspicion(Signal.SERVER_ERRORS, severity=Severity.HARD),)
    world.run_to(Phase.ROLLED_BACK)
    assert world.decisions("RollBack")[0].reason == "ServerErrors"


def test_a_hard_finding_that_the_plain_arm_shares_does_not_end_a_canary() -> None:
    world = in_canary()
    world.suspicions = (suspicion(Signal.SERVER_ERRORS, severity=Severity.HARD, attribution=Attribution.SHARED),)
    world.run(600)
    assert world.phase is Phase.CANARY


def test_a_slower_canary_goes_back() -> None:
    world = in_canary()
    world.comparison = Verdict.FAIL
    world.run_to(Phase.ROLLED_BACK)
    assert world.share(world.plain) == 1


def test_a_canary_without_traffic_is_held_and_completes_when_traffic_comes_back() -> None:
    rollout = {**spec_of()["rollout"], "noTrafficTimeoutSeconds": 600}
    world = World(spec=spec_of(rollout=rollout), requests_per_second=0, answer=Answer.NO_TRAFFIC)
    world.run_to(Phase.HELD)
    assert world.status is not None
    assert world.status.phase_reason == "InsufficientTraffic"
    assert not world.decisions("Promote")
    world.run(60)
    assert world.share(world.plain) == 1
    world.requests_per_second, world.answer = 4.0, Answer.OK
    world.run_to(Phase.SPECULATIVE)
    assert len(world.decisions("StartBenchmark")) == 1, "the benchmark still holds"


def test_an_open_breaker_stops_a_canary_where_it_is_and_closing_it_lets_it_go_on() -> None:
    world = World()
    world.run_to(Phase.CANARY)
    world.breaker = True
    world.run(1200)
    assert world.phase is Phase.CANARY
    assert not world.decisions("NextStep")
    world.breaker = False
    world.run_to(Phase.SPECULATIVE)


def test_an_open_breaker_does_not_save_a_crashing_arm() -> None:
    world = promoted()
    world.breaker = True
    crash(world, world.drafted)
    world.run_to(Phase.ROLLED_BACK)


# --- no room ----------------------------------------------------------------------------------------------------------


def test_without_extra_replicas_it_serves_held_with_insufficient_capacity() -> None:
    world = World(spec=spec_of(replicas=1, capacity={"maxExtraReplicas": 0}))
    world.run_to(Phase.HELD)
    world.run(7200)
    assert world.phase is Phase.HELD
    assert world.status is not None
    assert world.status.phase_reason == "InsufficientCapacity"
    assert len(world.decisions("Hold")) == 1
    assert len(world.pods()) == 1
    assert world.condition(ConditionType.READY).status is ConditionStatus.TRUE


def test_a_full_cluster_leaves_nothing_pending_and_the_road_completes_when_room_comes() -> None:
    world = World(spec=spec_of(replicas=1, capacity={"maxExtraReplicas": 1}), capacity=1)
    world.run_to(Phase.HELD)
    world.run(60)
    assert world.status is not None
    assert world.status.phase_reason == "InsufficientCapacity"
    assert not [pod for pod in world.pods() if pod.unschedulable]
    assert world.share(world.plain) == 1
    world.capacity = 2
    world.run_to(Phase.SPECULATIVE, seconds=30000)


def test_raising_max_extra_replicas_ends_the_hold() -> None:
    world = World(spec=spec_of(capacity={"maxExtraReplicas": 0}))
    world.run_to(Phase.HELD)
    world.change(capacity={"maxExtraReplicas": 1})
    world.run_to(Phase.SPECULATIVE)


def test_a_full_cluster_does_not_block_a_roll_back() -> None:
    world = promoted(replicas=4, capacity={"maxExtraReplicas": 1})
    world.capacity = 4
    world.comparison, world.comparison_ratio = Verdict.FAIL, (1.1, 1.3)
    world.run_to(Phase.ROLLED_BACK, seconds=7200)
    assert world.serving(world.plain) == 4
    assert not world.lost


def test_with_one_replica_a_draining_benchmark_pod_never_costs_the_only_serving_one() -> None:
    world = promoted(replicas=1, capacity={"maxExtraReplicas": 1})
    world.gain = lambda tier, piece: 0.7
    world.suspicions = (suspicion(),)
    least = world.serving_total()

    def watch(one: World) -> bool:
        nonlocal least
        least = min(least, one.serving_total())
        return one.phase is Phase.ROLLED_BACK

    assert world.run(7200, until=watch), world.story()
    assert least == 1


def test_a_full_cluster_never_takes_the_last_pod_that_answers() -> None:
    world = promoted(replicas=1, capacity={"maxExtraReplicas": 1})
    world.capacity = 1
    world.comparison, world.comparison_ratio = Verdict.FAIL, (1.1, 1.3)
    world.run(3600)
    assert world.phase is Phase.ROLLING_BACK
    assert world.serving_total() == 1
    world.capacity = 2
    world.run_to(Phase.ROLLED_BACK)


# --- after promotion --------------------------------------------------------------------------------------------------


def test_a_promoted_arm_that_crashes_is_rolled_back_at_once_while_the_metrics_are_away() -> None:
    world = promoted()
    world.answer = Answer.UNAVAILABLE
    crash(world, world.drafted)
    world.run_to(Phase.ROLLED_BACK)
    assert world.serving(world.plain) == 4


def test_a_promoted_arm_that_nobody_can_reach_is_rolled_back_without_a_crash() -> None:
    world = promoted(replicas=2)
    for pod in world.arms[(world.drafted, False)].pods:
        pod.ready_at, pod.failure = None, "ImagePullBackOff"
    world.run_to(Phase.ROLLED_BACK)
    assert world.decisions("RollBack")[0].reason == "StartTimeout"


def test_two_crashes_in_a_month_are_not_a_crash_loop() -> None:
    world = promoted()
    pod = world.arms[(world.drafted, False)].pods[0]
    pod.restarts, pod.last_restart = 2, world.now
    pod.last_run_started = world.now - timedelta(days=20)
    world.run(300)
    assert world.phase is Phase.SPECULATIVE


def test_a_gain_below_zero_serves_plain_first() -> None:
    world = promoted()
    world.comparison, world.comparison_ratio = Verdict.FAIL, (1.05, 1.2)
    world.run_to(Phase.ROLLED_BACK)
    assert world.decisions("RollBack")[0].reason == "GainBelowZero"


def test_a_drift_that_a_restart_heals_restarts_every_pod_one_by_one_and_stays() -> None:
    world = promoted()
    decayed = {pod.uid for pod in world.arms[(world.drafted, False)].pods}
    world.pod_acceptance = lambda pod: 0.4 if pod.uid in decayed else 0.7
    world.suspicions = (suspicion(),)
    least = world.serving_total()

    def watch(one: World) -> bool:
        nonlocal least
        least = min(least, one.serving_total())
        if not any(pod.uid in decayed for pod in one.pods()):
            one.suspicions = ()
        return bool(one.decisions("CloseInvestigation"))

    assert world.run(7200, until=watch), world.story()
    assert world.decisions("CloseInvestigation")[0].reason == "RestartHealed"
    assert world.phase is Phase.SPECULATIVE
    assert least == 3, "one pod at a time"
    assert not world.decisions("RollBack")


def test_a_drift_that_a_restart_does_not_heal_is_measured_again_and_rolled_back() -> None:
    world = promoted()
    world.pod_acceptance = lambda pod: 0.4
    world.gain = lambda tier, piece: 0.8
    world.suspicions = (suspicion(),)
    world.run_to(Phase.ROLLED_BACK, seconds=7200)
    ladder = actions(world)[actions(world).index("Investigate") :]
    assert ladder == [
        "Investigate",
        "RestartProbe",
        "RestartProbeFailed",
        "StartBenchmark",
        "Judge",
        "RollBack",
        "RolledBack",
    ]
    assert world.serving(world.plain) == 4
    assert not world.lost


def test_the_measurement_after_a_suspicion_covers_only_the_suspect_cells() -> None:
    world = promoted()
    before = len(world.evidence)
    world.pod_acceptance = lambda pod: 0.4
    world.suspicions = (suspicion(),)
    assert world.run(7200, until=lambda one: len(one.decisions("Judge")) == 2), world.story()
    tiers = {run.tier for one in world.evidence[before:] for run in one.runs}
    assert tiers == {"low"}


def test_a_drift_that_still_gains_when_measured_again_stays_promoted() -> None:
    world = promoted()
    world.pod_acceptance = lambda pod: 0.5
    world.suspicions = (suspicion(),)
    assert world.run(7200, until=lambda one: bool(one.decisions("CloseInvestigation"))), world.story()
    assert world.decisions("CloseInvestigation")[0].reason == "StillFaster"
    assert world.phase is Phase.SPECULATIVE
    assert not world.decisions("RollBack")


def test_a_latency_regression_that_the_control_shares_is_held_and_told() -> None:
    world = promoted()
    slo = {"severity": Severity.SLO, "attribution": Attribution.PENDING}
    world.suspicions = (suspicion(Signal.TPOT_REGRESSION, **slo),)
    world.run_to(Phase.INVESTIGATING)
    world.run(60)
    assert world.share(world.plain) == 0.5, "the control is raised to tell whose fault it is"
    world.suspicions = (replace(world.suspicions[0], attribution=Attribution.SHARED),)
    world.run_to(Phase.SPECULATIVE)
    world.run(3600)
    assert world.phase is Phase.SPECULATIVE
    assert not world.decisions("RollBack")
    assert world.condition(ConditionType.DRIFT_DETECTED).reason == "SharedCause"


def test_a_latency_regression_of_speculation_alone_is_rolled_back_after_attribution() -> None:
    world = promoted()
    slo = {"severity": Severity.SLO, "attribution": Attribution.PENDING}
    world.suspicions = (suspicion(Signal.TPOT_REGRESSION, **slo),)
    world.run_to(Phase.INVESTIGATING)
    world.suspicions = (replace(world.suspicions[0], attribution=Attribution.SPECULATION),)
    world.run_to(Phase.ROLLED_BACK)


WINDOW_AT_NIGHT = {**spec_of()["remedies"], "maintenanceWindows": [{"start": "03:00", "durationSeconds": 3600}]}


@pytest.mark.parametrize("attribution", [Attribution.PENDING, Attribution.SPECULATION])
def test_an_slo_roll_back_does_not_wait_for_the_maintenance_window(attribution: Attribution) -> None:
    """Users are harmed now; a window is for what costs only money."""
    world = promoted()
    world.change(remedies=WINDOW_AT_NIGHT)
    missed = suspicion(Signal.TPOT_REGRESSION, severity=Severity.SLO, attribution=attribution)
    world.suspicions = (suspicion(), missed)
    assert world.run(600, until=lambda one: bool(one.decisions("Investigate"))), world.story()
    assert world.decisions("Investigate")[0].reason == Signal.TPOT_REGRESSION.value
    world.suspicions = (replace(missed, attribution=Attribution.SPECULATION),)
    assert world.run(600, until=lambda one: bool(one.decisions("RolledBack"))), world.story()


def slower_than_plain(world: World) -> None:
    world.comparison_ratio, world.comparison = (1.05, 1.3), Verdict.FAIL


def drifting(world: World) -> None:
    world.suspicions = (suspicion(),)


@pytest.mark.parametrize("happens", [drifting, slower_than_plain])
def test_what_costs_only_money_waits_for_the_maintenance_window(happens: Callable[[World], None]) -> None:
    world = promoted()
    world.change(remedies=WINDOW_AT_NIGHT)
    happens(world)
    assert not world.run(12 * 3600, until=lambda one: one.phase is not Phase.SPECULATIVE), world.story()
    assert world.run(7 * 3600, until=lambda one: one.phase is not Phase.SPECULATIVE)
    assert world.now.hour == 3


@pytest.mark.parametrize("signal", [Signal.CLIENT_ERRORS, Signal.STALLS, Signal.TPOT_REGRESSION])
def test_what_an_acceptance_cannot_tell_is_not_left_to_a_restart_probe(signal: Signal) -> None:
    world = promoted()
    world.suspicions = (suspicion(signal, severity=Severity.SLO),)
    world.run_to(Phase.ROLLED_BACK)
    assert not world.decisions("RestartProbe")


def test_a_latency_regression_that_goes_away_closes_the_case() -> None:
    world = promoted()
    slo = {"severity": Severity.SLO, "attribution": Attribution.PENDING}
    world.suspicions = (suspicion(Signal.TPOT_REGRESSION, **slo),)
    world.run_to(Phase.INVESTIGATING)
    world.suspicions = ()
    world.run_to(Phase.SPECULATIVE)
    assert world.decisions("CloseInvestigation")[0].reason == "Recovered"


def end_again_and_again(world: World, pod: Pod) -> None:
    pod.ready_at, pod.restarts, pod.failure = None, pod.restarts + 2, "uncorrectable ECC error encountered"
    pod.last_run_started, pod.last_restart = world.now - timedelta(seconds=30), world.now


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_findings_are_followed_up_in_a_day_than_the_spec_allows_whatever_a_trial_did(limit: int) -> None:
    world = promoted(remedies={**spec_of()["remedies"], "maxActionsPerDay": limit})
    promoted_at = world.now
    world.suspicions = (suspicion(),)
    world.run(20 * 3600)
    assert len(world.decisions("Investigate")) == limit, world.story()
    world.run(8 * 3600, until=lambda one: len(one.decisions("Investigate")) > limit)
    assert world.now - promoted_at > timedelta(hours=24), "the first one frees its place a day later"


def test_one_pod_of_a_larger_arm_that_ends_again_and_again_is_replaced_once_and_then_told() -> None:
    """One bad GPU of many: the others serve, and its pod may land on it again."""
    world = promoted(replicas=8)
    arm = world.arms[(world.drafted, False)]
    bad = arm.pods[1]
    end_again_and_again(world, bad)
    world.run(120)
    assert world.decisions("RestartPod")[0].reason == "CrashLoop"
    assert not world.decisions("Investigate"), "it takes no action of the day and starts no cool-down"
    assert bad.uid not in {pod.uid for pod in arm.pods}
    assert world.phase is Phase.SPECULATIVE
    assert world.condition(ConditionType.STALLED).status is ConditionStatus.FALSE
    for _ in range(3):
        end_again_and_again(world, arm.pods[-1])
        world.run(300)
    assert len(world.decisions("RestartPod")) == 1
    stalled = world.condition(ConditionType.STALLED)
    assert (stalled.status, stalled.reason) == (ConditionStatus.TRUE, "CrashLoop")
    assert "7 of 8 pods serve" in stalled.message
    assert "ECC" in stalled.message
    assert not world.decisions("RollBack")


def keep_one_bad(world: World, fingerprint: str, **fields: Any) -> None:
    """One pod of an arm does not come up, nor does its successor, for five minutes: it lands on one bad GPU."""
    bad: Pod | None = None
    for _ in range(30):
        arm = world.arms.get((fingerprint, False))
        alive = [one for one in arm.pods if one.deleting_until is None] if arm is not None else []
        if alive and bad not in alive:
            bad = max(alive, key=lambda one: (one.created, one.name))
        if bad in alive and bad is not None:
            end_again_and_again(world, bad)
            for name, value in fields.items():
                setattr(bad, name, value)
        world.run(10)


def large_canary() -> World:
    """The first step of 24 replicas: 6 pods of the candidate come up."""
    world = World(spec=spec_of(replicas=24, capacity={"maxExtraReplicas": 8}))
    world.run_to(Phase.CANARY)
    assert world.run(60, until=lambda one: one.serving(one.drafted) == 6 and one.status.step_since is None)
    return world


LATE = {"failure": "ContainerCreating", "restarts": 0, "last_restart": None, "last_run_started": None}


def test_one_bad_pod_of_a_large_candidate_is_replaced_and_its_canary_goes_on() -> None:
    world = large_canary()
    end_again_and_again(world, world.arms[(world.drafted, False)].pods[-1])
    world.run_to(Phase.SPECULATIVE)
    assert [one.reason for one in world.decisions("RestartPod")] == ["CrashLoop"]
    assert not world.decisions("Hold") + world.decisions("RollBack")
    assert world.status is not None
    assert not world.status.actions, "it is no action of the day"
    assert not world.lost


@pytest.mark.parametrize(
    ("fields", "replaced", "reason"), [({}, 1, "CrashLoop"), (LATE, 0, "StartTimeout")], ids=["loops", "waits"]
)
def test_a_canary_whose_step_is_never_reached_for_one_bad_pod_is_held_with_the_reason(
    fields: dict[str, Any], replaced: int, reason: str
) -> None:
    world = large_canary()
    keep_one_bad(world, world.drafted, **fields)
    assert len(world.decisions("RestartPod")) == replaced
    assert [one.reason for one in world.decisions("Hold")] == [reason]
    world.run(120)
    assert world.phase is Phase.HELD
    assert world.serving(world.plain) == 24, "a trial that was put off leaves the plain arm whole"
    world.run_to(Phase.SPECULATIVE)
    assert not world.decisions("RollBack")
    assert not world.lost


def test_a_step_that_waits_for_the_plain_arm_says_so_and_goes_on_when_that_is_whole() -> None:
    world = large_canary()
    assert world.run(60, until=lambda one: one.arms[one.plain, False].replicas == 18)
    assert world.status is not None
    assert world.status.step_since is None
    keep_one_bad(world, world.plain)
    assert world.phase is Phase.CANARY
    assert len(world.decisions("RestartPod")) == 1
    stalled = world.condition(ConditionType.STALLED)
    assert (stalled.status, stalled.reason) == (ConditionStatus.TRUE, "CrashLoop")
    assert "step 1 waits for" in stalled.message
    world.heal()
    world.run_to(Phase.SPECULATIVE)
    assert world.condition(ConditionType.STALLED).status is ConditionStatus.FALSE


def test_one_bad_pod_of_the_first_plain_arm_is_replaced_once_and_then_told() -> None:
    world = World(spec=spec_of(replicas=8, speculation=None))
    world.run(5)
    keep_one_bad(world, world.plain)
    assert world.phase is Phase.DEPLOYING
    assert len(world.decisions("RestartPod")) == 1
    assert world.condition(ConditionType.STALLED).reason == "CrashLoop"
    world.heal()
    world.run_to(Phase.BASELINE)


def test_a_roll_back_that_waits_for_one_bad_plain_pod_replaces_it_once_and_says_so() -> None:
    world = promoted(replicas=8)
    world.comparison, world.comparison_ratio = Verdict.FAIL, (1.1, 1.3)
    world.run_to(Phase.ROLLING_BACK)
    world.comparison, world.comparison_ratio = Verdict.PASS, (0.55, 0.65)
    world.run(30, until=lambda one: one.serving(one.plain) > 4)
    keep_one_bad(world, world.plain)
    assert world.phase is Phase.ROLLING_BACK
    assert len(world.decisions("RestartPod")) == 1
    stalled = world.condition(ConditionType.STALLED)
    assert (stalled.status, stalled.reason) == (ConditionStatus.TRUE, "RollBackBlocked")
    assert "alone ends again and again" in stalled.message
    world.heal()
    world.run_to(Phase.ROLLED_BACK)


def test_with_roll_backs_switched_off_an_arm_keeps_its_traffic_while_any_of_its_pods_answers_and_no_longer() -> None:
    world = promoted()
    world.change(remedies={**spec_of()["remedies"], "rollback": False})
    pods = world.arms[(world.drafted, False)].pods
    end_again_and_again(world, pods[0])
    end_again_and_again(world, pods[1])
    world.run(300)
    assert not world.decisions("RollBack")
    assert world.condition(ConditionType.STALLED).reason == "CrashLoop"
    crash(world, world.drafted)
    assert world.run(900, until=lambda one: bool(one.decisions("RolledBack"))), world.story()


def test_one_bad_pod_is_restarted_alone_and_nothing_else_happens() -> None:
    world = promoted()
    bad = world.arms[(world.drafted, False)].pods[1]
    world.suspicions = (suspicion(attribution=Attribution.POD, pod=bad.name),)

    def watch(one: World) -> bool:
        return bool(one.decisions("CloseInvestigation"))

    assert world.run(3600, until=watch), world.story()
    world.run(3600)
    assert world.phase is Phase.SPECULATIVE
    assert [one.action for one in world.decisions()][6:] == ["Investigate", "RestartPod", "CloseInvestigation"]
    assert bad.name not in {pod.name for pod in world.pods()}


def test_one_hung_pod_is_restarted_even_while_paused() -> None:
    world = promoted()
    bad = world.arms[(world.drafted, False)].pods[0]
    world.change(paused=True)
    world.suspicions = (
        suspicion(Signal.NO_PROGRESS, severity=Severity.HARD, attribution=Attribution.POD, pod=bad.name),
    )
    world.run(600)
    assert bad.name not in {pod.name for pod in world.pods()}
    assert world.phase is Phase.SPECULATIVE
    assert world.serving_total() == 4


def test_a_dead_plain_arm_keeps_the_speculative_one_serving() -> None:
    world = promoted()
    crash(world, world.plain)
    world.run(600)
    assert world.phase is Phase.SPECULATIVE
    assert world.share(world.drafted) == 1
    assert not world.lost


def test_with_both_arms_dead_nothing_is_decided_and_stalled_says_so() -> None:
    world = promoted()
    crash(world, world.plain)
    crash(world, world.drafted)
    world.run(60)
    assert world.phase is Phase.SPECULATIVE
    assert world.condition(ConditionType.STALLED).status is ConditionStatus.TRUE
    assert world.condition(ConditionType.STALLED).reason == "NothingServes"
    assert world.condition(ConditionType.READY).status is ConditionStatus.FALSE


def test_a_roll_back_into_a_plain_arm_that_crashes_keeps_what_serves_and_says_stalled() -> None:
    world = promoted(replicas=2)
    world.broken_roles = frozenset({ArmRole.BASELINE})
    world.comparison, world.comparison_ratio = Verdict.FAIL, (1.1, 1.3)
    world.run(1800)
    assert world.phase is Phase.ROLLING_BACK
    assert world.serving_total() == 2
    assert world.condition(ConditionType.STALLED).status is ConditionStatus.TRUE
    world.broken_roles = frozenset()
    world.heal()
    world.run_to(Phase.ROLLED_BACK)


# --- attempts and back-off --------------------------------------------------------------------------------------------


def test_each_roll_back_waits_longer_and_the_last_one_is_final_until_a_retry() -> None:
    remedies = {**spec_of()["remedies"], "maxAttempts": 2, "backoffSeconds": [600, 3600]}
    world = World(spec=spec_of(remedies=remedies), comparison=Verdict.FAIL)
    world.run_to(Phase.ROLLED_BACK)
    world.run(500)
    assert world.phase is Phase.ROLLED_BACK
    world.run_to(Phase.EXHAUSTED, seconds=7200)
    assert len(world.decisions("RollBack")) == 2
    world.run(86400)
    assert world.phase is Phase.EXHAUSTED


def test_a_week_of_health_forgives_earlier_roll_backs() -> None:
    remedies = {**spec_of()["remedies"], "backoffSeconds": [60]}
    world = World(spec=spec_of(remedies=remedies), comparison=Verdict.FAIL)
    world.run_to(Phase.ROLLED_BACK)
    world.comparison = Verdict.PASS
    world.run_to(Phase.SPECULATIVE)
    assert world.status is not None
    assert world.status.attempts is not None
    world.run(8 * 86400)
    assert world.status.attempts is None


# --- metrics away -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("away", [Answer.UNAVAILABLE, Answer.STALE, Answer.SCHEMA_MISSING, Answer.TARGET_DOWN])
@pytest.mark.parametrize(
    "phase", [Phase.DEPLOYING, Phase.BENCHMARKING, Phase.CANARY, Phase.SPECULATIVE, Phase.INVESTIGATING]
)
def test_with_the_metrics_away_nothing_is_promoted_or_rolled_back(phase: Phase, away: Answer) -> None:
    world = World(comparison=Verdict.INCONCLUSIVE if phase is Phase.CANARY else Verdict.PASS)
    if phase is Phase.INVESTIGATING:
        world.run_to(Phase.SPECULATIVE)
        world.run(60)
        slo = {"severity": Severity.SLO, "attribution": Attribution.PENDING}
        world.suspicions = (suspicion(Signal.TPOT_REGRESSION, **slo),)
    world.run_to(phase)
    world.comparison, world.suspicions = Verdict.PASS, ()
    before = len(world.plans)
    world.answer = away
    world.run(120)
    later = [one.action for plan in world.plans[before:] for one in plan.decisions]
    assert not {"Promote", "NextStep", "RollBack"} & set(later)
    if world.status is not None and world.status.stable is not None:
        assert world.condition(ConditionType.METRICS_AVAILABLE).status is ConditionStatus.FALSE
    world.answer = Answer.OK
    world.run_to(Phase.SPECULATIVE)
    assert world.condition(ConditionType.METRICS_AVAILABLE).status is ConditionStatus.TRUE
    assert not world.decisions("RollBack")


# --- changes of the spec ----------------------------------------------------------------------------------------------


def test_a_good_new_engine_is_proven_canaried_adopted_and_gets_its_own_proposer() -> None:
    world = promoted()
    old = {world.plain, world.drafted}
    world.change(engine=NEW_ENGINE)
    assert world.run(7200, until=lambda one: bool(one.decisions("AdoptRevision"))), world.story()
    world.run_to(Phase.SPECULATIVE)
    world.run(120)
    assert not old & {fingerprint for fingerprint, _ in world.arms}
    assert world.condition(ConditionType.READY).status is ConditionStatus.TRUE
    assert not world.lost


def test_while_a_new_engine_is_tried_old_plain_pods_serve_beside_it_for_a_fair_comparison() -> None:
    world = promoted(replicas=2)
    old_plain = world.plain
    world.comparison = Verdict.INCONCLUSIVE
    world.change(engine=NEW_ENGINE)
    world.run_to(Phase.CANARY)
    world.run(120)
    assert world.serving(old_plain) == 1
    assert world.serving(world.plain) == 1


def test_a_new_engine_that_cannot_start_is_refused_and_the_old_arm_keeps_serving() -> None:
    world = promoted()
    serving = world.drafted
    world.broken_roles = frozenset({ArmRole.BASELINE})
    keep = {pod.uid for pod in world.pods()}
    world.immune = keep
    world.change(engine=NEW_ENGINE)
    assert world.run(1200, until=lambda one: bool(one.decisions("RefuseRevision"))), world.story()
    world.run(600)
    assert world.serving(serving) == 3
    assert world.condition(ConditionType.STALLED).reason == "RevisionRolledBack"
    assert world.condition(ConditionType.READY).status is ConditionStatus.FALSE
    assert world.phase is Phase.SPECULATIVE, "what was promoted before is still watched"
    assert not world.lost


def test_a_new_engine_that_fails_its_canary_is_rolled_back_to_what_was_promoted() -> None:
    world = promoted()
    serving = world.drafted
    world.comparison = Verdict.FAIL
    world.comparison_ratio = (0.9, 1.3)
    world.change(engine=NEW_ENGINE)
    assert world.run(3600, until=lambda one: bool(one.decisions("RolledBack"))), world.story()
    world.comparison = Verdict.PASS
    world.run(600)
    assert world.serving(serving) == 3
    assert world.phase is Phase.SPECULATIVE
    assert world.condition(ConditionType.STALLED).reason == "RevisionRolledBack"


def test_a_promoted_arm_that_crashes_while_a_new_engine_is_tried_is_rolled_back() -> None:
    world = promoted()
    old_plain, old_drafted = world.plain, world.drafted
    world.comparison = Verdict.INCONCLUSIVE
    world.change(engine=NEW_ENGINE)
    world.run_to(Phase.CANARY)
    world.run(60)
    crash(world, old_drafted)
    assert world.run(1200, until=lambda one: bool(one.decisions("RolledBack"))), world.story()
    assert world.serving(old_plain) + world.serving(world.plain) == 4
    world.comparison = Verdict.PASS
    world.run_to(Phase.SPECULATIVE)


def test_changing_back_while_a_bad_engine_is_rolled_back_keeps_the_promoted_proposer() -> None:
    world = promoted()
    engine, drafted = world.spec["engine"], world.drafted
    world.comparison, world.comparison_ratio = Verdict.FAIL, (0.9, 1.3)
    world.change(engine=NEW_ENGINE)
    world.run_to(Phase.ROLLING_BACK)
    world.comparison, world.comparison_ratio = Verdict.PASS, (0.5, 0.6)
    world.change(engine=engine)
    world.run(600)
    assert world.phase is Phase.SPECULATIVE
    assert world.serving(drafted) == 3
    assert world.status is not None
    assert world.status.attempts is None


@pytest.mark.parametrize("moment", [Phase.DEPLOYING, Phase.CANARY])
def test_changing_the_engine_and_back_ends_where_it_was(moment: Phase) -> None:
    world = promoted()
    engine, drafted, benchmarks = world.spec["engine"], world.drafted, len(world.evidence)
    world.comparison = Verdict.INCONCLUSIVE
    world.change(engine=NEW_ENGINE)
    world.run_to(moment)
    world.run(40)
    world.comparison = Verdict.PASS
    world.change(engine=engine)
    world.run(600)
    assert world.phase is Phase.SPECULATIVE
    assert world.serving(drafted) == 3
    qualified = [one for one in world.evidence if one.candidate == drafted]
    assert len(qualified) == benchmarks, "the proposer did not have to be measured again"
    assert not world.lost


@pytest.mark.parametrize("moment", [Phase.DEPLOYING, Phase.BENCHMARKING, Phase.CANARY])
def test_a_proposer_replaced_at_any_moment_is_measured_and_promoted_from_the_start(moment: Phase) -> None:
    world = World(comparison=Verdict.INCONCLUSIVE)
    world.run_to(moment)
    world.run(30)
    world.comparison = Verdict.PASS
    world.change(speculation=OTHER_PROPOSER)
    world.run_to(Phase.SPECULATIVE)
    assert world.serving(world.drafted) >= 2
    assert world.status is not None
    assert world.status.attempts is None, "a change of mind is not a failed attempt"
    assert not world.lost


def test_a_to_b_to_c_in_mid_canary_ends_with_c() -> None:
    world = World(comparison=Verdict.INCONCLUSIVE)
    world.run_to(Phase.CANARY)
    world.run(40)
    world.change(speculation=OTHER_PROPOSER)
    world.run(10)
    world.comparison = Verdict.PASS
    world.change(engine=NEW_ENGINE, speculation={**OTHER_PROPOSER, "numSpeculativeTokens": 4})
    world.run_to(Phase.SPECULATIVE, seconds=7200)
    world.run(120)
    assert {fingerprint for fingerprint, _ in world.arms} == {world.plain, world.drafted}
    assert not world.lost


def test_removing_speculation_while_promoted_never_leaves_traffic_without_a_serving_arm() -> None:
    world = promoted()
    world.change(speculation=None)
    least = 4

    def watch(one: World) -> bool:
        nonlocal least
        least = min(least, one.serving_total())
        return one.phase is Phase.BASELINE

    assert world.run(1200, until=watch), world.story()
    assert least == 4
    assert world.share(world.plain) == 1
    assert not world.lost


def test_a_replaced_proposer_in_mid_roll_back_does_not_inherit_the_failure() -> None:
    world = promoted()
    crash(world, world.drafted)
    world.run_to(Phase.ROLLING_BACK)
    world.change(speculation=OTHER_PROPOSER)
    world.run_to(Phase.SPECULATIVE)
    assert world.status is not None
    assert world.status.attempts is None


@pytest.mark.parametrize("replicas", [2, 7])
@pytest.mark.parametrize(
    "phase", [Phase.DEPLOYING, Phase.BENCHMARKING, Phase.CANARY, Phase.SPECULATIVE, Phase.ROLLING_BACK]
)
def test_scaling_in_any_phase_reaches_the_new_size_and_goes_on(phase: Phase, replicas: int) -> None:
    remedies = {**spec_of()["remedies"], "backoffSeconds": [60]}
    world = World(spec=spec_of(remedies=remedies), comparison=Verdict.INCONCLUSIVE)
    if phase in (Phase.SPECULATIVE, Phase.ROLLING_BACK):
        world.comparison = Verdict.PASS
        world.run_to(Phase.SPECULATIVE)
    if phase is Phase.ROLLING_BACK:
        world.run(60)
        crash(world, world.drafted)
    world.run_to(phase)
    world.comparison = Verdict.PASS
    world.change(replicas=replicas)
    world.run_to(Phase.SPECULATIVE)
    world.run(300)
    assert world.serving_total() == replicas
    assert not world.lost


def test_an_engine_that_the_rules_refuse_is_told_and_the_serving_arm_stays() -> None:
    world = promoted()
    drafted = world.drafted
    world.change(template={"multiNode": {"size": 2}, "resources": {"limits": {"nvidia.com/gpu": "1"}}})
    world.run(600)
    assert world.serving(drafted) == 3
    stalled = world.condition(ConditionType.STALLED)
    assert stalled.status is ConditionStatus.TRUE
    assert "spec.template.multiNode" in stalled.message


# --- paused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [Phase.DEPLOYING, Phase.BENCHMARKING, Phase.CANARY, Phase.SPECULATIVE])
def test_paused_in_any_phase_takes_no_step_and_goes_on_afterwards(phase: Phase) -> None:
    world = World()
    world.run_to(phase)
    world.change(paused=True)
    world.run(60)
    before = len(world.decisions())
    world.run(1200)
    later = [one.action for one in world.decisions()[before:]]
    assert set(later) <= {"ServeBaseline"}
    assert not any(bench for _, bench in world.arms), "no GPU is spent on measuring"
    world.change(paused=False)
    world.run_to(Phase.SPECULATIVE)
    assert not world.lost


def test_paused_does_not_keep_a_crashing_arm() -> None:
    world = promoted()
    world.change(paused=True)
    crash(world, world.drafted)
    world.run_to(Phase.ROLLED_BACK)


# --- at rest ----------------------------------------------------------------------------------------------------------


def rest(world: World) -> World:
    """Let pods, routes and counters settle."""
    world.run(600)
    return world


@pytest.mark.parametrize(
    "make",
    [
        lambda: promoted(),
        lambda: promoted(replicas=1, capacity={"maxExtraReplicas": 1}),
        lambda: ended(World(gain=lambda tier, piece: 0.8), Phase.BASELINE),
        lambda: ended(World(comparison=Verdict.FAIL), Phase.ROLLED_BACK),
        lambda: ended(World(spec=spec_of(capacity={"maxExtraReplicas": 0})), Phase.HELD),
    ],
    ids=["promoted", "promoted alone", "refused", "rolled back", "held"],
)
def test_with_nothing_changing_status_stops_changing_and_nothing_new_is_decided(make: Callable[[], World]) -> None:
    world = rest(make())
    assert world.status is not None
    before, decisions = world.status.to_wire(), len(world.decisions())
    world.run(1200)
    assert world.status.to_wire() == before
    assert len(world.decisions()) == decisions


def ended(world: World, phase: Phase) -> World:
    world.run(600)
    world.run_to(phase)
    return world


def test_deciding_twice_on_the_same_observation_gives_the_same_plan() -> None:
    from specfleet.decide.decide import decide

    world = World()

    def same(one: World) -> bool:
        observed = one.observation()
        assert decide(observed) == decide(observed)
        return one.phase is Phase.SPECULATIVE

    assert world.run(3600, until=same)


def test_pods_that_die_are_replaced_and_traffic_follows() -> None:
    world = promoted()
    victim: Pod = world.arms[(world.drafted, False)].pods[0]
    world.arms[(world.drafted, False)].pods.remove(victim)
    world.run(300)
    assert world.serving_total() == 4
    assert world.phase is Phase.SPECULATIVE
    assert not world.lost


# --- the promoted arm while a changed revision waits ------------------------------------------------------------------


def waiting_for_a_new_engine() -> World:
    """Promoted, and the changed engine's first pod does not come up for an hour."""
    world = promoted()
    world.change(engine={**NEW_ENGINE, "startupTimeoutSeconds": 3600})
    world.startup_seconds = 3000.0
    world.run(30)
    assert world.phase is Phase.DEPLOYING
    return world


def test_a_promoted_arm_that_fails_users_while_a_new_engine_comes_up_is_rolled_back() -> None:
    world = waiting_for_a_new_engine()
    serving = next(one for one in world.arms if world.arms[one].role is ArmRole.SPECULATIVE)[0]
    world.startup_seconds = 20.0
    world.suspicions = (suspicion(Signal.SERVER_ERRORS, severity=Severity.HARD),)
    assert world.run(1200, until=lambda one: bool(one.decisions("RolledBack"))), world.story()
    assert world.serving(serving) == 0
    assert not world.lost


def test_a_gain_below_zero_while_a_new_engine_comes_up_serves_plain_first() -> None:
    world = waiting_for_a_new_engine()
    world.startup_seconds = 20.0
    world.comparison, world.comparison_ratio = Verdict.FAIL, (1.1, 1.3)
    world.run(60)
    assert [one.reason for one in world.decisions("RollBack")] == ["GainBelowZero"]


def test_a_hung_pod_while_a_new_engine_comes_up_is_restarted_and_the_trial_goes_on() -> None:
    world = waiting_for_a_new_engine()
    arm = next(one for one in world.arms.values() if one.role is ArmRole.SPECULATIVE)
    hung = arm.pods[0].name
    world.startup_seconds = 20.0
    world.suspicions = (suspicion(Signal.NO_PROGRESS, severity=Severity.HARD, attribution=Attribution.POD, pod=hung),)
    world.run(300, until=lambda one: bool(one.decisions("CloseInvestigation")))
    assert hung not in {pod.name for pod in world.pods()}
    world.suspicions = ()
    world.run_to(Phase.CANARY)


# --- a canary that gets no verdict ------------------------------------------------------------------------------------


def test_an_outage_of_the_metrics_does_not_use_up_a_canarys_patience() -> None:
    world = World(spec=spec_of(rollout={**spec_of()["rollout"], "noTrafficTimeoutSeconds": 600}))
    world.run_to(Phase.CANARY)
    world.run(20)
    world.answer = Answer.UNAVAILABLE
    world.run(7200)
    assert world.phase is Phase.CANARY
    world.answer, world.comparison = Answer.OK, Verdict.INCONCLUSIVE
    world.run(500)
    assert world.phase is Phase.CANARY
    world.comparison = Verdict.PASS
    world.run_to(Phase.SPECULATIVE)


def test_a_canary_with_traffic_and_no_verdict_says_inconclusive_and_why() -> None:
    world = World(spec=spec_of(rollout={**spec_of()["rollout"], "noTrafficTimeoutSeconds": 600}))
    world.comparison = Verdict.INCONCLUSIVE
    world.run_to(Phase.HELD)
    assert world.status is not None
    assert world.status.phase_reason == "CanaryInconclusive"
    assert "scripted" in world.decisions("Hold")[-1].message


def test_a_canary_whose_arm_is_never_scraped_is_held_and_says_what_is_missing() -> None:
    world = World(spec=spec_of(rollout={**spec_of()["rollout"], "noTrafficTimeoutSeconds": 600}))
    world.run_to(Phase.CANARY)
    world.answer = Answer.TARGET_DOWN
    world.run_to(Phase.HELD)
    assert world.status is not None
    assert world.status.phase_reason == "MetricsMissing"
    assert "TargetDown" in world.decisions("Hold")[-1].message


# --- nobody makes or routes to the pods -------------------------------------------------------------------------------


def test_a_roll_back_that_has_no_room_keeps_what_serves_is_told_and_ends_when_room_comes() -> None:
    world = promoted(replicas=1, capacity={"maxExtraReplicas": 1})
    world.capacity = 1
    world.comparison, world.comparison_ratio = Verdict.FAIL, (1.1, 1.3)
    world.run(300)
    assert world.phase is Phase.ROLLING_BACK
    assert world.serving(world.drafted) == 1
    assert world.condition(ConditionType.STALLED).reason == "RollBackBlocked"
    world.capacity = 2
    world.run_to(Phase.ROLLED_BACK)
    assert not world.lost


def test_pods_that_a_quota_refuses_hold_a_canary_and_say_so() -> None:
    world = World()
    world.run_to(Phase.CANARY)
    world.arms[(world.drafted, False)].pods.clear()
    world.quota = 3
    world.run_to(Phase.HELD)
    assert world.status is not None
    assert world.status.phase_reason == "InsufficientCapacity"
    assert "exceeded quota" in world.decisions("Hold")[-1].message
    world.quota = None
    world.run_to(Phase.SPECULATIVE)


def test_a_route_that_no_gateway_takes_is_told_and_the_canary_goes_on_once_it_is_taken() -> None:
    world = World()
    world.run_to(Phase.CANARY)
    world.route_message = "Accepted=False: no listener allows this namespace"
    world.run(600)
    assert world.condition(ConditionType.STALLED).reason == "RouteNotAccepted"
    assert "no listener allows" in world.condition(ConditionType.STALLED).message
    assert not world.decisions("NextStep")
    world.route_message = ""
    world.run_to(Phase.SPECULATIVE)
