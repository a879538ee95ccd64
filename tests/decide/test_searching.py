"""Several candidates in the life of a deployment: rounds, one winner, its confirmation, or a recommendation."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from specfleet.api import names
from specfleet.api.status import Phase, Verdict

from tests.decide.world import World, spec_of

DRAFT = {"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "revision": "ada412b"}
Gain = Callable[[str, str], float]


def ranged(largest: int) -> dict[str, Any]:
    return {
        "candidates": [{"method": "eagle3", "draft": DRAFT, "numSpeculativeTokensRange": {"min": 1, "max": largest}}]
    }


def always(gain: float) -> Gain:
    return lambda tier, piece: gain


def searching(gains: dict[int, Gain], **benchmark: Any) -> World:
    spec = spec_of(speculation=ranged(max(gains)), benchmark={**spec_of()["benchmark"], "pairs": 8, **benchmark})
    return World(spec=spec, gains={f"eagle3 k={k}": gain for k, gain in gains.items()})


def pairs_per_proposer(world: World, purpose: str = "Qualify") -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in world.evidence:
        if one.purpose == purpose:
            counts[one.proposer] = counts.get(one.proposer, 0) + 1
    return counts


def actions(world: World) -> list[str]:
    return [one.action for one in world.decisions()]


GAINS = st.sampled_from([0.7, 1.0, 1.3, 1.6])
FOUR = {1: always(1.2), 2: always(1.4), 3: always(1.6), 4: always(1.5)}


def test_four_candidates_are_halved_and_only_the_winner_is_measured_to_the_end_and_confirmed() -> None:
    world = searching(FOUR)
    world.run_to(Phase.SPECULATIVE, 7200)
    assert pairs_per_proposer(world) == {"eagle3 k=1": 3, "eagle3 k=2": 3, "eagle3 k=3": 8, "eagle3 k=4": 5}
    assert pairs_per_proposer(world, "Confirm") == {"eagle3 k=3": 8}
    assert world.status is not None
    assert [(one.proposer, one.confirmed) for one in world.status.trials] == [("eagle3 k=3", True)]
    assert actions(world)[:4] == ["ServeBaseline", "StartSearch", "NarrowSearch", "NarrowSearch"]
    assert not world.lost


def test_no_user_request_reaches_a_candidate_that_only_leads_a_round() -> None:
    world = searching(FOUR)
    confirmed = world.run(7200, until=lambda one: bool(one.status and any(t.confirmed for t in one.status.trials)))
    assert confirmed
    assert not any(plan.weights.get(arm.fingerprint) for plan in world.plans for arm in world.observation().proposers)


def test_the_status_shows_who_is_ahead_while_the_search_runs() -> None:
    world = searching(FOUR)
    reached = world.run(7200, until=lambda one: bool(one.decisions("NarrowSearch")))
    assert reached
    assert world.status is not None
    assert world.status.search is not None
    shown = {one.proposer: (one.pairs, one.behind) for one in world.status.search.candidates}
    assert shown["eagle3 k=1"] == (3, True)
    assert shown["eagle3 k=3"] == (3, False)
    assert world.status.search.gpu_hours == pytest.approx(12 * 30 / 3600, abs=1e-3)
    assert "eagle3 k=1 (+20" in world.decisions("NarrowSearch")[0].message


def test_where_the_best_at_low_load_loses_at_the_peak_the_next_one_is_taken() -> None:
    gains = {
        1: always(1.3),
        2: lambda tier, piece: 1.8 if tier == "low" else 0.8,
        3: lambda tier, piece: 2.0 if tier == "low" else 0.6,
    }
    world = searching(gains)
    world.run_to(Phase.SPECULATIVE, 7200)
    assert world.status is not None
    verdicts = {one.proposer: one.verdict for one in world.status.trials}
    assert verdicts == {"eagle3 k=3": Verdict.FAIL, "eagle3 k=2": Verdict.FAIL, "eagle3 k=1": Verdict.PASS}
    assert world.status.stable is not None
    assert world.observation().wanted(world.status.stable.speculative).label == "eagle3 k=1"  # type: ignore[union-attr]


def test_different_winners_per_tier_become_a_schedule_in_the_status_and_no_compromise() -> None:
    gains = {
        1: lambda tier, piece: 1.3,
        2: lambda tier, piece: 1.9 if tier == "low" else 0.8,
    }
    world = searching(gains)
    world.run_to(Phase.SPECULATIVE, 7200)
    assert world.status is not None
    advice = world.status.recommendation
    assert advice is not None
    assert {one.tier: one.proposer for one in advice.tiers} == {"low": "eagle3 k=2", "peak": "eagle3 k=1"}
    assert (advice.tokens_per_batch_size[0].min_batch_size, advice.tokens_per_batch_size[0].tokens) == (1, 2)
    assert advice.tokens_per_batch_size[-1].tokens == 1
    assert len(world.decisions("Recommend")) == 1


def test_a_lone_proposer_that_wins_at_low_load_only_is_not_promoted_and_the_status_names_the_tiers() -> None:
    world = World(gain=lambda tier, piece: 1.8 if tier == "low" else 0.8)
    world.run(7200)
    assert world.phase is Phase.BASELINE
    assert not world.decisions("StartCanary")
    assert world.status is not None
    advice = world.status.recommendation
    assert advice is not None
    assert {one.tier: one.proposer for one in advice.tiers} == {"low": "eagle3 k=3", "peak": "none"}
    assert [one.tokens for one in advice.tokens_per_batch_size] == [3, 0]


def test_two_methods_for_two_tiers_are_two_pools() -> None:
    both = {
        "candidates": [
            {"method": "eagle3", "draft": DRAFT, "numSpeculativeTokens": 3},
            {"method": "ngram", "numSpeculativeTokens": 2},
        ]
    }
    world = World(
        spec=spec_of(speculation=both),
        gains={
            "eagle3 k=3": lambda tier, piece: 1.9 if tier == "low" else 0.8,
            "ngram k=2": lambda tier, piece: 1.3,
        },
    )
    world.run_to(Phase.SPECULATIVE, 7200)
    assert world.status is not None
    assert world.status.recommendation is not None
    assert "two pools" in world.status.recommendation.message
    assert not world.status.recommendation.tokens_per_batch_size


def test_a_search_whose_budget_ends_still_gives_every_candidate_a_verdict_and_promotes_nothing_unproven() -> None:
    world = searching(FOUR, gpuHours=0.05)
    world.run(7200)
    assert world.phase in (Phase.BASELINE, Phase.SPECULATIVE)
    assert world.status is not None
    assert sum(pairs_per_proposer(world).values()) < 12
    spent = sum(one.gpu_seconds for one in world.evidence if one.purpose == "Qualify") / 3600
    assert spent <= 0.05, "no pair is begun that does not fit"


@pytest.mark.parametrize("gpu_hours", [0.10, 0.15, 0.20, 0.25, 0.30])
def test_choosing_and_confirming_cost_no_more_together_than_the_one_budget_of_the_user(gpu_hours: float) -> None:
    world = searching(FOUR, gpuHours=gpu_hours)
    world.run(14400, until=lambda one: one.phase is Phase.SPECULATIVE)
    assert sum(one.gpu_seconds for one in world.evidence) / 3600 <= gpu_hours
    assert not world.lost


def test_the_budget_keeps_enough_for_a_whole_confirmation_of_the_winner() -> None:
    """19 pairs to choose and 8 to confirm, at 30 GPU seconds each, are 0.225 hours."""
    world = searching(FOUR, gpuHours=0.23)
    world.run_to(Phase.SPECULATIVE, 14400)
    assert pairs_per_proposer(world, "Confirm") == {"eagle3 k=3": 8}
    tight = searching(FOUR, gpuHours=0.18)
    tight.run(14400)
    assert sum(pairs_per_proposer(tight, "Confirm").values()) in (0, 8), "never half a confirmation"


def test_capacity_is_measured_once_for_all_candidates() -> None:
    tiers = [{"name": "low", "capacityRatio": 0.3}, {"name": "peak", "concurrency": 16}]
    world = searching(FOUR, tiers=tiers)
    world.run_to(Phase.SPECULATIVE, 7200)
    assert pairs_per_proposer(world, "Capacity") == {"eagle3 k=1": 1}
    stored = {names.unit(world.name, one.benchmark, one.unit) for one in world.evidence}
    assert all(set(one.evidence) <= stored for one in world.decisions("Judge")), "each name in a decision exists"


def test_a_candidate_whose_pods_crash_leaves_the_search_and_the_others_go_on() -> None:
    world = searching(FOUR)
    third = world.observation().proposers[2].fingerprint
    world.run(7200, until=lambda one: bool(one.arms.get((third, True)) and one.arms[(third, True)].pods))
    for pod in world.arms[(third, True)].pods:
        pod.ready_at, pod.restarts, pod.failure = None, 2, "CrashLoopBackOff"
        pod.last_run_started, pod.last_restart = world.now, world.now
    world.run_to(Phase.SPECULATIVE, 7200)
    assert world.decisions("RefuseCandidate")[0].reason == "CrashLoop"
    assert world.status is not None
    assert {one.proposer: one.verdict for one in world.status.trials} == {
        "eagle3 k=3": Verdict.FAIL,
        "eagle3 k=4": Verdict.PASS,
    }


def test_a_hold_in_mid_search_keeps_the_pairs_that_were_measured() -> None:
    world = searching(FOUR)
    world.run(7200, until=lambda one: len(one.evidence) == 5)
    world.capacity = 0
    for slot in [slot for slot in world.arms if slot[1]]:
        for pod in world.arms[slot].pods:
            pod.ready_at, pod.unschedulable, pod.created = None, True, world.now
    world.run_to(Phase.HELD)
    world.capacity = 100
    world.run_to(Phase.SPECULATIVE, 14400)
    assert pairs_per_proposer(world)["eagle3 k=3"] == 8
    assert sum(pairs_per_proposer(world).values()) == 19


def test_a_changed_list_of_candidates_is_searched_from_the_start() -> None:
    world = searching(FOUR)
    world.run(7200, until=lambda one: len(one.evidence) == 7)
    world.change(speculation=ranged(2))
    world.run_to(Phase.SPECULATIVE, 7200)
    assert world.status is not None
    assert world.status.search is not None
    assert [one.proposer for one in world.status.search.candidates] == ["eagle3 k=1", "eagle3 k=2"]


def test_with_one_spare_gpu_the_search_takes_turns_and_ends_the_same() -> None:
    world = searching(FOUR)
    world.change(replicas=1, capacity={"maxExtraReplicas": 1})
    world.run_to(Phase.SPECULATIVE, 14400)
    assert pairs_per_proposer(world) == {"eagle3 k=1": 6, "eagle3 k=2": 6, "eagle3 k=3": 16, "eagle3 k=4": 10}
    assert not world.lost


def test_a_search_in_a_cluster_with_room_for_one_measures_no_pair_twice() -> None:
    world = searching(FOUR)
    world.capacity = 5
    world.run_to(Phase.SPECULATIVE, 20000)
    assert pairs_per_proposer(world) == {"eagle3 k=1": 6, "eagle3 k=2": 6, "eagle3 k=3": 16, "eagle3 k=4": 10}
    assert not world.decisions("Hold")
    assert not world.lost


def test_the_history_is_not_flooded_by_the_rounds_of_eight_candidates() -> None:
    world = searching({k: always(1 + 0.1 * k) for k in range(1, 9)})
    world.run_to(Phase.SPECULATIVE, 14400)
    assert len(world.decisions()) < 15


@pytest.mark.parametrize("after", range(1, 14, 3))
def test_a_crash_between_any_two_writes_loses_no_pair_and_ends_the_same(after: int) -> None:
    world = searching({1: always(1.2), 2: always(1.5)}, pairs=4)
    world.run(7200, until=lambda one: len(one.evidence) == after % 7 + 1)
    for cut in (1, 2, 3):
        world.reconcile(writes=cut)
        world.tick(5)
    world.run_to(Phase.SPECULATIVE, 7200)
    names = [(one.benchmark, one.unit) for one in world.evidence]
    assert len(names) == len(set(names))
    assert pairs_per_proposer(world) == {"eagle3 k=1": 3, "eagle3 k=2": 4}


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(GAINS, GAINS), min_size=2, max_size=5), st.sampled_from([3, 5]))
def test_whatever_candidates_are_worth_the_best_that_harms_nothing_is_promoted_or_none(
    worth: list[tuple[float, float]], pairs: int
) -> None:
    made: dict[int, Gain] = {
        k: (lambda tier, piece, own=own: own[0] if tier == "low" else own[1])  # type: ignore[misc]
        for k, own in enumerate(worth, 1)
    }
    world = searching(made, pairs=pairs)
    world.run(14400, until=lambda one: one.phase is Phase.SPECULATIVE)
    good = [low for low, peak in worth if low > 1.2 and peak >= 1.0]
    assert (world.phase is Phase.SPECULATIVE) is bool(good), world.story()
    if good:
        assert world.status is not None
        assert world.status.stable is not None
        winner = world.observation().wanted(world.status.stable.speculative)
        assert winner is not None
        assert worth[int(winner.label[-1]) - 1][0] == max(good)
        assert worth[int(winner.label[-1]) - 1][1] >= 1.0
    assert not world.lost


def test_candidates_that_change_depth_and_batching_at_once_are_told() -> None:
    rule = [
        {"minBatchSize": 1, "maxBatchSize": 64, "tokens": 5},
        {"minBatchSize": 65, "maxBatchSize": 256, "tokens": 1},
    ]
    listed = [
        {"method": "eagle3", "draft": DRAFT, "numSpeculativeTokens": 3},
        {"method": "eagle3", "draft": DRAFT, "numSpeculativeTokens": 5, "tokensPerBatchSize": rule},
    ]
    world = World(spec=spec_of(speculation={"candidates": listed}))
    world.run(60)
    assert world.status is not None
    assert any("in depth and in batching at once" in one for one in world.status.warnings)
    listed.insert(1, {"method": "eagle3", "draft": DRAFT, "numSpeculativeTokens": 5})
    world.change(speculation={"candidates": listed})
    world.run(60)
    assert not any("at once" in one for one in world.status.warnings)
