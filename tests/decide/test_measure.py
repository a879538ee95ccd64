"""Carrying a benchmark through: which Job runs when, what is recorded, and when a verdict may be taken."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.status import ArmRole, BenchmarkProgress, Phase, Verdict
from specfleet.decide.units import CELLS_PER_UNIT, complete_pairs, next_unit, units

from tests.decide.world import START, World, spec_of

PLAIN, DRAFTED = ArmRole.BASELINE, ArmRole.SPECULATIVE


def progress(**fields: Any) -> BenchmarkProgress:
    given = {"id": "b1", "purpose": "Qualify", "candidate": "f2", "started": START, "pairs_planned": 3, **fields}
    return BenchmarkProgress.model_validate(given)


def spec(**benchmark: Any) -> DeploymentSpec:
    return DeploymentSpec.model_validate(spec_of(benchmark={**spec_of()["benchmark"], **benchmark}))


def test_side_by_side_every_unit_is_a_whole_pair() -> None:
    assert [(one.name, one.roles) for one in units(spec(), progress(), True)] == [
        ("p0", (PLAIN, DRAFTED)),
        ("p1", (PLAIN, DRAFTED)),
        ("p2", (PLAIN, DRAFTED)),
    ]


def test_taking_turns_the_order_is_ab_ba_ab_so_that_each_arm_is_swapped_as_rarely_as_possible() -> None:
    listed = units(spec(), progress(), False)
    assert [one.roles for one in listed] == [(PLAIN,), (DRAFTED,), (DRAFTED,), (PLAIN,), (PLAIN,), (DRAFTED,)]
    swaps = sum(a.roles != b.roles for a, b in pairwise(listed))
    assert swaps == 3


def test_capacity_is_measured_first_where_a_tier_is_a_share_of_it() -> None:
    tiers = [{"name": "low", "capacityRatio": 0.3}, {"name": "peak", "concurrency": 16}]
    listed = units(spec(tiers=tiers), progress(), True)
    assert listed[0].name == "capacity"
    assert listed[0].roles == (PLAIN,)


def test_a_large_matrix_is_cut_so_that_a_result_fits_a_termination_message() -> None:
    slices = [{"name": f"s{index}"} for index in range(8)]
    tiers = [{"name": f"t{index}", "requestsPerSecond": index + 1} for index in range(6)]
    large = spec(slices=slices, tiers=tiers)
    listed = [one for one in units(large, progress(), True) if one.pair == 0]
    assert all(len(one.cells) <= CELLS_PER_UNIT for one in listed)
    assert tuple(cell for one in listed for cell in one.cells) == large.benchmark.cells


def test_only_the_named_cells_are_measured() -> None:
    assert units(spec(), progress(cells=["low/code"]), True)[0].cells == (("low", "code"),)


def test_the_next_unit_follows_from_the_evidence_alone() -> None:
    world = World()
    world.run(3600, until=lambda one: len(one.evidence) == 2)
    assert world.status is not None
    mine = world.status.benchmark
    assert mine is not None
    following = next_unit(world.observation().spec, mine, True, tuple(world.evidence))
    assert following is not None
    assert following.name == "p2"
    assert complete_pairs(world.observation().spec, mine, True, tuple(world.evidence)) == 2
    other = mine.model_copy(update={"id": "another"})
    first = next_unit(world.observation().spec, other, True, tuple(world.evidence))
    assert first is not None
    assert first.name == "p0", "evidence of another benchmark does not count"


def test_every_unit_is_recorded_once_with_its_cost() -> None:
    world = World()
    world.run_to(Phase.CANARY)
    assert [one.unit for one in world.evidence] == ["p0", "p1", "p2"]
    assert all(one.gpu_seconds == 30 for one in world.evidence), "two pods for 15 s"
    assert world.status is not None
    assert world.status.gpu_hours_spent == pytest.approx(90 / 3600, abs=1e-3)


def test_a_declared_early_look_ends_the_benchmark_when_the_gain_is_clear() -> None:
    benchmark = {**spec_of()["benchmark"], "pairs": 6, "looks": [3]}
    world = World(spec=spec_of(benchmark=benchmark))
    world.run_to(Phase.CANARY)
    assert len(world.evidence) == 3


def test_without_a_declared_look_nothing_is_judged_before_the_last_pair() -> None:
    benchmark = {**spec_of()["benchmark"], "pairs": 5}
    world = World(spec=spec_of(benchmark=benchmark))
    world.run_to(Phase.CANARY)
    assert len(world.evidence) == 5


def test_a_used_up_time_budget_ends_the_benchmark_without_a_promotion() -> None:
    benchmark = {**spec_of()["benchmark"], "pairs": 32, "timeBudgetSeconds": 60}
    world = World(spec=spec_of(benchmark=benchmark))
    world.run(600, until=lambda one: bool(one.decisions("Judge")))
    judged = world.decisions("Judge")[0]
    assert judged.verdict is not Verdict.PASS
    assert len(world.evidence) < 32


def test_a_job_that_dies_is_repeated_under_another_name_and_its_first_result_is_never_mistaken() -> None:
    world = World(job_fails=True)
    world.run(600, until=lambda one: bool(one.decisions("RepeatUnit")))
    world.job_fails = False
    world.run_to(Phase.CANARY)
    names = {plan.job.unit for plan in world.plans if plan.job}
    assert {"p0", "p0-r1"} <= names
    assert [one.unit for one in world.evidence] == ["p0", "p1", "p2"]


def test_a_job_is_started_only_on_pods_that_serve_and_only_one_at_a_time() -> None:
    world = World()
    world.run_to(Phase.CANARY)
    for plan in world.plans:
        if plan.job is not None:
            assert set(plan.job.pods) == set(plan.job.arms)
    order = [plan.job.unit for plan in world.plans if plan.job]
    assert list(dict.fromkeys(order)) == sorted(set(order))


def test_a_benchmark_ends_in_a_hold_when_the_plain_benchmark_pod_crashes() -> None:
    world = World()
    world.run_to(Phase.BENCHMARKING)
    world.immune = {pod.uid for (_, bench), arm in world.arms.items() if not bench for pod in arm.pods}
    world.broken_roles = frozenset({ArmRole.BASELINE})
    world.run_to(Phase.HELD)
    assert world.status is not None
    assert world.status.phase_reason == "BaselineUnstable"
    assert not [trial for trial in world.status.trials if trial.verdict is Verdict.FAIL]


def test_a_driver_that_finds_no_node_gives_the_gpus_back_and_says_why() -> None:
    world = World(driver_waits_for="0/5 nodes are available: 5 Insufficient cpu.")
    world.run(3600, until=lambda one: one.job is not None)
    begun = world.now
    world.run_to(Phase.HELD)
    assert world.now - begun < timedelta(seconds=150)
    held = world.decisions("Hold")[-1]
    assert held.reason == "BenchmarkPodPending"
    assert "5 Insufficient cpu" in held.message
    world.run(60)
    assert not [pod for (_, bench), arm in world.arms.items() if bench for pod in arm.pods], "they hold no GPU"
    world.driver_waits_for = ""
    world.run_to(Phase.SPECULATIVE)


def test_benchmark_pods_wait_while_serving_pods_need_the_spare_room() -> None:
    world = World(spec=spec_of(replicas=2, capacity={"maxExtraReplicas": 1}))
    world.run_to(Phase.BENCHMARKING)
    world.change(replicas=3)
    world.run(20)
    assert len(world.pods()) <= 4
    world.run_to(Phase.SPECULATIVE)
    assert not world.lost


def test_a_benchmark_takes_the_time_that_its_pods_and_runs_take_and_no_more() -> None:
    world = World()
    world.run_to(Phase.BENCHMARKING)
    begun = world.now
    world.run_to(Phase.CANARY)
    assert world.now - begun < timedelta(seconds=120)


def pods_by_pair(world: World) -> dict[int, set[str]]:
    return {one.pair: {run.pod for run in one.runs if run.pod} for one in world.evidence}


def test_half_way_both_arms_get_fresh_pods_so_that_no_process_or_node_counts_for_all_pairs() -> None:
    world = World(spec=spec_of(benchmark={**spec_of()["benchmark"], "pairs": 6}))
    world.run_to(Phase.CANARY)
    used = pods_by_pair(world)
    assert used[0] == used[1] == used[2]
    assert used[3] == used[4] == used[5]
    assert not used[0] & used[3]
    assert all(len(pods) == 2 for pods in used.values())
    assert not world.lost


def nodes(world: World) -> list[tuple[str, str]]:
    return [(one.nodes["baseline"], one.nodes["speculative"]) for one in world.evidence if len(one.nodes) == 2]


def test_half_way_the_arms_change_nodes_so_that_the_better_node_helps_both_alike() -> None:
    spec = spec_of(benchmark={**spec_of()["benchmark"], "pairs": 6})
    world = World(spec=spec, bench_nodes=("node-a", "node-b"))
    world.run_to(Phase.CANARY)
    assert nodes(world) == [("node-a", "node-b")] * 3 + [("node-b", "node-a")] * 3
    assert "between these nodes" not in world.decisions("Judge")[0].message


def test_a_taken_node_keeps_no_benchmark_waiting_and_the_verdict_says_that_the_nodes_differ() -> None:
    spec = spec_of(benchmark={**spec_of()["benchmark"], "pairs": 4})
    world = World(spec=spec, bench_nodes=("node-a", "node-b"))
    world.run(3600, until=lambda one: len(one.evidence) == 2)
    world.bench_nodes = ("node-c", "node-d")
    world.run_to(Phase.CANARY)
    assert nodes(world) == [("node-a", "node-b")] * 2 + [("node-c", "node-d")] * 2
    said = world.decisions("Judge")[0].message
    assert "plain arm was on node-a, node-c and the speculative one on node-b, node-d" in said


def test_arms_that_take_turns_are_measured_on_one_node() -> None:
    spec = spec_of(replicas=2, capacity={"maxExtraReplicas": 1})
    world = World(spec=spec, bench_nodes=("node-a", "node-b"))
    world.run(3600, until=lambda one: len(one.evidence) == 1)
    world.bench_nodes = ("node-b", "node-a")
    world.run_to(Phase.CANARY)
    assert {node for one in world.evidence for node in one.nodes.values()} == {"node-a"}


def test_room_for_only_one_of_two_arms_makes_them_take_turns_instead_of_waiting() -> None:
    world = World(capacity=5)
    world.run_to(Phase.CANARY, 7200)
    assert [one.reason for one in world.decisions("TakeTurns")] == ["InsufficientCapacity"]
    assert "take turns from pair 0 on" in world.decisions("TakeTurns")[0].message
    assert not world.decisions("Hold")
    assert [one.unit for one in world.evidence] == ["p0a", "p0b", "p1b", "p1a", "p2a", "p2b"]
    assert not world.lost


def test_room_that_shrinks_in_the_middle_keeps_the_pairs_that_are_measured() -> None:
    world = World(spec=spec_of(benchmark={**spec_of()["benchmark"], "pairs": 4}))
    world.run(3600, until=lambda one: len(one.evidence) == 2)
    world.capacity = 5
    world.run_to(Phase.CANARY, 7200)
    assert [one.unit for one in world.evidence] == ["p0", "p1", "p2a", "p2b", "p3b", "p3a"]
    assert world.decisions("Judge")[0].verdict is Verdict.PASS
    assert not world.lost


def test_pairs_that_were_measured_in_one_way_are_not_measured_again_in_the_other() -> None:
    asked, mine = spec(), progress(pairs_planned=4)
    together = units(asked, mine, False, {"p0", "p1"})
    assert [one.name for one in together] == ["p0", "p1", "p2a", "p2b", "p3b", "p3a"]
    turns = units(asked, mine, True, {"p0a", "p0b", "p1b"})
    assert [one.name for one in turns] == ["p0a", "p0b", "p1b", "p1a", "p2", "p3"]


def test_without_room_for_even_one_pod_the_benchmark_is_held() -> None:
    world = World(capacity=4)
    world.run_to(Phase.HELD)
    assert world.status is not None
    assert world.status.phase_reason == "InsufficientCapacity"
    assert not world.decisions("TakeTurns")


@pytest.mark.parametrize("cut", range(1, 7))
def test_a_crash_between_any_two_writes_of_the_change_to_turns_loses_no_pair(cut: int) -> None:
    world = World(capacity=5)
    world.run(3600, until=lambda one: bool(one.decisions("TakeTurns")))
    for _ in range(3):
        world.reconcile(writes=cut)
        world.tick(1)
    world.run_to(Phase.CANARY, 7200)
    assert [one.unit for one in world.evidence] == ["p0a", "p0b", "p1b", "p1a", "p2a", "p2b"]
    assert not world.lost


def test_gpu_hours_of_a_job_that_died_are_part_of_the_budget() -> None:
    world = World(job_fails=True)
    world.run(600, until=lambda one: bool(one.decisions("RepeatUnit")))
    world.job_fails = False
    world.run_to(Phase.CANARY)
    assert world.status is not None
    died = len(world.decisions("RepeatUnit"))
    assert world.status.gpu_hours_spent == pytest.approx((3 + died) * 30 / 3600, abs=1e-3)


def test_a_benchmark_waits_for_its_place_among_those_of_others_and_says_so_once() -> None:
    world = World(benchmarks_at_once=2, others_measuring=2)
    assert not world.run(3600, until=lambda one: one.phase is Phase.BENCHMARKING)
    assert world.phase is Phase.BASELINE
    assert world.status is not None
    assert world.status.phase_reason == "BenchmarkQueued"
    assert [one.action for one in world.decisions()][-1:] == ["QueueBenchmark"]
    assert len(world.decisions("QueueBenchmark")) == 1
    assert not [one for one in world.arms if one[1]], "no pod is held while it waits"
    world.others_measuring = 1
    world.run_to(Phase.SPECULATIVE)
    assert not world.lost


def test_what_is_measured_already_and_what_passed_do_not_queue() -> None:
    world = World(benchmarks_at_once=1)
    world.run_to(Phase.BENCHMARKING)
    world.others_measuring = 5
    world.run_to(Phase.SPECULATIVE)
    assert not world.decisions("QueueBenchmark")


def test_a_crash_after_the_swap_was_decided_does_not_measure_the_second_half_on_old_pods() -> None:
    world = World(spec=spec_of(benchmark={**spec_of()["benchmark"], "pairs": 4}))
    world.run(3600, until=lambda one: len(one.evidence) == 2)
    for cut in range(1, 6):
        world.reconcile(writes=cut)
        world.tick(1)
    world.run_to(Phase.CANARY)
    used = pods_by_pair(world)
    assert not (used[0] | used[1]) & (used[2] | used[3])


def test_fresh_pods_half_way_wait_in_a_full_cluster_for_the_worn_ones_to_go() -> None:
    """Exactly the declared pods fit: worn pods that take long to stop must not start the benchmark all over again."""
    engine = {**spec_of()["engine"], "startupTimeoutSeconds": 600}
    spec = spec_of(benchmark={**spec_of()["benchmark"], "pairs": 6}, engine=engine)
    world = World(spec=spec, capacity=6, drain_seconds=200)
    world.run_to(Phase.CANARY, 7200)
    assert len(world.decisions("StartBenchmark")) == 1
    assert not world.decisions("Hold")
    assert not world.lost


@pytest.mark.parametrize(
    ("template", "engine", "gpus"),
    [
        ({"resources": {"limits": {"nvidia.com/gpu": "8"}}}, {"tensorParallelSize": 8}, 8),
        ({"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "four"}]}, {"tensorParallelSize": 4}, 4),
        ({"resources": {"limits": {"cpu": "4"}}}, {}, 1),
    ],
    ids=["eight devices", "claims that hide the number", "no accelerator"],
)
def test_gpu_hours_count_every_device_of_a_pod(template: dict[str, Any], engine: dict[str, Any], gpus: int) -> None:
    world = World(spec=spec_of(template=template, engine={**spec_of()["engine"], **engine}))
    world.run_to(Phase.CANARY)
    assert {one.gpu_seconds for one in world.evidence} == {30.0 * gpus}, "two pods for 15 s"
    assert world.status is not None
    assert world.status.gpu_hours_spent == pytest.approx(3 * 30.0 * gpus / 3600, abs=0.001)
