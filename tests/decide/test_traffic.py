"""Production that moves away from what was measured: measured again, once, within the budgets."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from specfleet.api.status import Phase, Verdict
from specfleet.decide.traffic_profile import TrafficLook, TrafficProfile, exceeded_batch, mean_batch

from tests.decide.world import START, World, spec_of

WINDOW = 3600
EDGES = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, float("inf")]


def profile(edge: float, requests: float = 6000.0) -> TrafficProfile:
    """All prompts in one band, all answers in another."""
    return TrafficProfile(
        {one: requests if one == edge else 0.0 for one in EDGES}, {100.0: 0.0, 200.0: requests}, requests
    )


def production(at: Callable[[float], TrafficProfile]) -> Callable[[datetime], TrafficLook]:
    """A look every quarter of a window; `at` gives the profile by seconds since the start."""

    def look(now: datetime) -> TrafficLook:
        step = WINDOW / 4
        seconds = int((now - START).total_seconds() // step) * step
        return TrafficLook(START + timedelta(seconds=seconds), at(seconds))

    return look


def world(at: Callable[[float], TrafficProfile], **changes: Any) -> World:
    monitoring = {"trafficWindowSeconds": WINDOW}
    return World(spec=spec_of(monitoring=monitoring, **changes), traffic=production(at))


def moves(seconds: float, edge: float = 5000.0) -> Callable[[float], TrafficProfile]:
    return lambda now: profile(200.0 if now < seconds else edge)


def measured_slices(one: World, purpose: str) -> set[str]:
    return {run.slice for item in one.evidence if item.purpose == purpose for run in item.runs}


def test_traffic_that_stays_is_noted_once_and_nothing_is_written_or_measured_again() -> None:
    one = world(moves(1e9))
    one.run_to(Phase.SPECULATIVE)
    one.run(WINDOW)
    assert one.status is not None
    assert one.status.traffic is not None
    assert one.status.traffic.prompt_tokens == {"200": 1.0}
    writes = one.writes
    one.run(20 * WINDOW)
    assert one.writes == writes
    assert not one.decisions("TrafficMoved")


def test_traffic_that_moves_for_good_is_measured_again_with_slices_like_production_and_stays_promoted() -> None:
    one = world(moves(3 * WINDOW))
    one.run_to(Phase.SPECULATIVE)
    assert one.run(6 * WINDOW, until=lambda w: bool(w.decisions("CloseInvestigation"))), one.story()
    assert "prompt length moved by 4.00 bands" in one.decisions("TrafficMoved")[0].message
    assert measured_slices(one, "Suspicion") == {"production"}
    assert one.phase is Phase.SPECULATIVE
    assert one.status is not None
    assert one.status.traffic is not None
    assert one.status.traffic.prompt_tokens == {"5000": 1.0}
    one.run(20 * WINDOW)
    assert len(one.decisions("TrafficMoved")) == 1, "the new traffic is what was measured now"
    assert not one.lost


def test_a_proposer_that_loses_on_the_new_traffic_is_rolled_back() -> None:
    one = world(moves(3 * WINDOW))
    one.run_to(Phase.SPECULATIVE)
    one.gain = lambda tier, piece: 0.8 if piece.startswith("production") else 1.6
    assert one.run(8 * WINDOW, until=lambda w: bool(w.decisions("RolledBack"))), one.story()
    assert one.decisions("RollBack")[0].reason == "TrafficMoved"
    assert one.share(one.plain) == 1


def test_a_proposer_that_lost_on_the_old_traffic_gets_another_chance_on_the_new_one() -> None:
    one = world(moves(3 * WINDOW))
    one.gain = lambda tier, piece: 1.6 if piece.startswith("production") else 0.8
    one.run(2 * WINDOW)
    assert one.phase is Phase.BASELINE
    assert one.status is not None
    assert one.status.trials[0].verdict is Verdict.FAIL
    one.run_to(Phase.SPECULATIVE, 6 * WINDOW)
    assert len(one.decisions("MeasureAgain")) == 1
    assert measured_slices(one, "Qualify") == {"chat", "code", "production"}


def peaks(batch: Callable[[float], float]) -> Callable[[float], TrafficProfile]:
    return lambda now: replace(profile(200.0), peak_batch=batch(now))


def concurrencies(one: World, purpose: str) -> set[int]:
    runs = (run for item in one.evidence if item.purpose == purpose for run in item.runs)
    return {run.concurrency for run in runs if run.concurrency is not None}


def jobs_at(one: World) -> list[float]:
    """Load of the heaviest tier over the declared one, job by job."""
    found = (plan.status.benchmark for plan in one.plans)
    return [progress.load_ratio for progress in found if progress is not None]


def test_a_peak_beyond_the_measured_matrix_is_measured_again_at_that_load() -> None:
    one = world(peaks(lambda now: 12.0 if now < 3 * WINDOW else 40.0))
    one.run_to(Phase.SPECULATIVE)
    assert concurrencies(one, "Qualify") == {16}
    assert one.run(6 * WINDOW, until=lambda w: bool(w.decisions("CloseInvestigation"))), one.story()
    said = one.decisions("TrafficMoved")[0].message
    assert "peak load of 40 requests per engine is 1.32 doublings beyond the largest measured batch of 16" in said
    assert concurrencies(one, "Suspicion") == {40}
    assert one.phase is Phase.SPECULATIVE
    one.run(20 * WINDOW)
    assert len(one.decisions("TrafficMoved")) == 1, "40 is inside what is measured now"
    assert not one.lost


def test_a_proposer_that_loses_at_the_new_peak_is_rolled_back() -> None:
    one = world(peaks(lambda now: 12.0 if now < 3 * WINDOW else 40.0))
    one.run_to(Phase.SPECULATIVE)
    one.gain = lambda tier, piece: 0.7 if tier == "peak" else 1.6
    assert one.run(8 * WINDOW, until=lambda w: bool(w.decisions("RolledBack"))), one.story()
    assert one.decisions("RollBack")[0].reason == "TrafficMoved"


def test_a_peak_that_no_tier_comes_up_to_is_measured_towards_once_and_not_day_after_day() -> None:
    small = {
        **spec_of()["benchmark"],
        "tiers": [{"name": "low", "requestsPerSecond": 2}, {"name": "peak", "concurrency": 2}],
    }
    batch = {3: 2.0, 15: 400.0, 24: 390.0, 60: 600.0}
    one = world(peaks(lambda now: next(value for end, value in batch.items() if now < end * WINDOW)), benchmark=small)
    one.run_to(Phase.SPECULATIVE)
    one.run(24 * WINDOW)
    assert len(one.decisions("TrafficMoved")) == 1
    assert concurrencies(one, "Suspicion") == {32}, "sixteen times the declared tier at most"
    one.run(24 * WINDOW)
    assert len(one.decisions("TrafficMoved")) == 2, "a still higher peak is news"
    assert len(one.decisions("Investigate")) == 2
    assert not one.lost


def test_a_peak_whose_benchmark_came_to_nothing_is_aimed_at_again_and_not_higher() -> None:
    one = world(peaks(lambda now: 12.0 if now < 3 * WINDOW else 40.0))
    one.run_to(Phase.SPECULATIVE)
    one.job_fails = True
    assert one.run(12 * WINDOW, until=lambda w: len(w.decisions("CloseInvestigation")) == 2), one.story()
    one.job_fails = False
    assert one.run(30 * WINDOW, until=lambda w: len(w.decisions("CloseInvestigation")) == 3), one.story()
    assert concurrencies(one, "Suspicion") == {40}
    assert jobs_at(one)[-1] == 2.5


def test_the_load_that_was_measured_in_open_loop_is_not_taken_for_a_higher_peak() -> None:
    """16 requests in flight on average are more than 25 for one percent of the time."""
    rate = 16.0 / 2.1
    tiers = [{"name": "low", "requestsPerSecond": 1}, {"name": "busy", "requestsPerSecond": rate}]
    one = world(peaks(lambda now: 25.0), benchmark={**spec_of()["benchmark"], "tiers": tiers})
    one.run_to(Phase.SPECULATIVE)
    measured_at(one, "busy", rate)
    one.run(10 * WINDOW)
    assert not one.decisions("TrafficMoved")


def measured_at(one: World, tier: str, rate: float) -> None:
    """Evidence in which that tier ran at so many requests per second, 2.1 seconds each."""
    run = {"requests_per_second": rate, "completed_requests_per_second": rate, "e2e_mean_seconds": 2.1}
    for index, item in enumerate(one.evidence):
        runs = [piece.model_copy(update=run) if piece.tier == tier else piece for piece in item.runs]
        one.evidence[index] = item.model_copy(update={"runs": runs})


def test_an_open_loop_tier_is_raised_from_its_declared_rate_to_where_the_peak_is_exceeded_as_in_production() -> None:
    rate = 16.0 / 2.1
    tiers = [{"name": "low", "requestsPerSecond": 1}, {"name": "busy", "requestsPerSecond": rate}]
    one = world(
        peaks(lambda now: 12.0 if now < 3 * WINDOW else exceeded_batch(40.0)),
        benchmark={**spec_of()["benchmark"], "tiers": tiers},
    )
    one.run_to(Phase.SPECULATIVE)
    measured_at(one, "busy", rate)
    assert one.run(6 * WINDOW, until=lambda w: bool(w.decisions("Investigate"))), one.story()
    assert jobs_at(one)[-1] == pytest.approx(2.5, abs=1e-3)


@pytest.mark.parametrize("mean", [0.5, 16.0, 400.0])
def test_the_mean_of_a_batch_and_what_is_exceeded_for_one_percent_of_the_time_belong_together(mean: float) -> None:
    assert exceeded_batch(mean) > mean
    assert mean_batch(exceeded_batch(mean)) == pytest.approx(mean)


@pytest.mark.parametrize(
    "batch",
    [
        lambda now: 12.0 if now < 3 * WINDOW else 18.0,
        lambda now: 40.0 if 3 * WINDOW <= now < 3.5 * WINDOW else 12.0,
        lambda now: 12.0 if now < 3 * WINDOW else 1.0,
    ],
    ids=["a little beyond the matrix", "one odd hour", "far below the matrix"],
)
def test_a_peak_within_the_limit_one_that_passes_and_less_load_start_nothing(batch: Callable[[float], float]) -> None:
    one = world(peaks(batch))
    one.run_to(Phase.SPECULATIVE)
    one.run(10 * WINDOW)
    assert not one.decisions("TrafficMoved")


def test_a_person_who_declares_other_tiers_is_right_again_about_the_load() -> None:
    one = world(peaks(lambda now: 12.0 if now < 3 * WINDOW else 40.0))
    one.run_to(Phase.SPECULATIVE)
    one.run(6 * WINDOW, until=lambda w: bool(w.decisions("CloseInvestigation")))
    assert jobs_at(one)[-1] == 2.5
    benchmark = {**spec_of()["benchmark"], "tiers": [{"name": "peak", "concurrency": 48}]}
    one.change(benchmark=benchmark, engine={**spec_of()["engine"], "image": "vllm/vllm-openai:v0.33.0"})
    one.run(2 * WINDOW)
    assert jobs_at(one)[-1] == 1.0


def test_a_single_odd_hour_is_not_followed() -> None:
    one = world(lambda now: profile(5000.0 if 3 * WINDOW <= now < 3.5 * WINDOW else 200.0))
    one.run_to(Phase.SPECULATIVE)
    one.run(8 * WINDOW)
    assert not one.decisions("TrafficMoved")
    assert one.status is not None
    assert one.status.traffic is not None
    assert one.status.traffic.over == 0


def test_traffic_that_swings_all_the_time_starts_few_benchmarks() -> None:
    one = world(
        lambda now: profile(200.0 if int(now // (2 * WINDOW)) % 2 else 5000.0),
        remedies={**spec_of()["remedies"], "maxActionsPerDay": 2},
    )
    one.run_to(Phase.SPECULATIVE)
    one.run(24 * WINDOW)
    assert len(one.decisions("Investigate")) <= 4, one.story()


def test_few_requests_are_no_profile() -> None:
    one = world(lambda now: profile(200.0, requests=100))
    one.run(3 * WINDOW)
    assert one.status is not None
    assert one.status.traffic is None


def test_moved_traffic_waits_for_the_maintenance_window_and_is_only_told_without_remedies() -> None:
    closed = {**spec_of()["remedies"], "maintenanceWindows": [{"start": "03:00", "durationSeconds": 3600}]}
    one = world(moves(3 * WINDOW))
    one.run_to(Phase.SPECULATIVE)
    one.change(remedies=closed)
    one.run(6 * WINDOW)
    assert one.decisions("TrafficMoved")
    assert not one.decisions("Investigate")
    one.change(remedies={**spec_of()["remedies"], "rebenchmark": False})
    one.run(6 * WINDOW)
    assert not one.decisions("Investigate")
    one.change(remedies=spec_of()["remedies"])
    assert one.run(3600, until=lambda w: bool(w.decisions("Investigate")))


def test_a_person_who_declares_other_slices_is_right_again() -> None:
    one = world(moves(3 * WINDOW))
    one.run_to(Phase.SPECULATIVE)
    assert one.run(6 * WINDOW, until=lambda w: bool(w.decisions("CloseInvestigation"))), one.story()
    one.change(benchmark={**spec_of()["benchmark"], "slices": [{"name": "agent", "promptTokens": 6000}]})
    one.change(speculation={**spec_of()["speculation"], "numSpeculativeTokens": 5})
    begun = len(one.evidence)
    one.run_to(Phase.CANARY, 2 * WINDOW)
    assert {run.slice for item in one.evidence[begun:] for run in item.runs} == {"agent"}


def test_a_benchmark_that_cannot_run_is_not_tried_again_until_the_traffic_is_seen_to_have_moved_again() -> None:
    one = world(moves(3 * WINDOW))
    one.run_to(Phase.SPECULATIVE)
    one.run(3 * WINDOW, until=lambda w: w.now >= START + timedelta(seconds=3 * WINDOW - 60))
    one.capacity = len(one.pods())
    assert one.run(6 * WINDOW, until=lambda w: bool(w.decisions("CloseInvestigation"))), one.story()
    assert one.decisions("CloseInvestigation")[0].reason == "NotMeasured"
    assert one.status is not None
    assert one.status.traffic is not None
    assert one.status.traffic.prompt_tokens == {"200": 1.0}
    opened = len(one.decisions("Investigate"))
    one.run(WINDOW / 4)
    assert len(one.decisions("Investigate")) == opened
    one.capacity = 100
    assert one.run(
        6 * WINDOW, until=lambda w: bool(w.status and w.status.traffic and "5000" in w.status.traffic.prompt_tokens)
    )


def test_a_harness_that_fails_has_not_measured_the_new_traffic() -> None:
    one = world(moves(3 * WINDOW))
    one.run_to(Phase.SPECULATIVE)
    one.job_fails = True
    assert one.run(6 * WINDOW, until=lambda w: bool(w.decisions("CloseInvestigation"))), one.story()
    assert one.decisions("Judge")[-1].verdict is Verdict.ERROR
    assert one.status is not None
    assert one.status.traffic is not None
    assert one.status.traffic.prompt_tokens == {"200": 1.0}, "what was measured stays the reference"
    one.job_fails = False
    assert one.run(
        6 * WINDOW, until=lambda w: bool(w.status and w.status.traffic and "5000" in w.status.traffic.prompt_tokens)
    ), "and it is tried again"
