"""Has the traffic moved away from what was measured?"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specfleet.api.benchmark import LoadTier, TrafficSlice
from specfleet.decide.traffic_profile import (
    CONSECUTIVE,
    ProfileState,
    TrafficProfile,
    compare,
    distance,
    doublings_beyond,
    from_cumulative,
    loaded_tiers,
    production_slices,
)

EDGES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
bands = st.dictionaries(st.sampled_from(EDGES), st.floats(1, 1e6), min_size=1)


def shifted(by: int, requests: float = 6000) -> TrafficProfile:
    lengths = {EDGES[i + by]: requests / 3 for i in (3, 4, 5)}
    return TrafficProfile(lengths, {EDGES[3]: requests}, requests)


@settings(deadline=None)
@given(bands, bands, bands)
def test_the_distance_is_a_metric(a: dict[float, float], b: dict[float, float], c: dict[float, float]) -> None:
    assert distance(a, a) == pytest.approx(0, abs=1e-9)
    one, two, three = distance(a, b), distance(b, c), distance(a, c)
    assert one is not None
    assert two is not None
    assert three is not None
    assert one == pytest.approx(distance(b, a))
    full = dict.fromkeys(EDGES, 1e-09)
    between = [distance({**full, **x}, {**full, **y}) or 0.0 for x, y in ((a, b), (b, c), (a, c))]
    assert between[2] <= between[0] + between[1] + 1e-6


@pytest.mark.parametrize("bands_moved", [0, 1, 2, 3])
def test_a_shift_by_n_bands_is_n(bands_moved: int) -> None:
    assert distance(shifted(0).prompt_tokens | dict.fromkeys(EDGES[6:9], 0.0), shifted(bands_moved).prompt_tokens) == (
        pytest.approx(bands_moved)
    )


def test_nothing_is_not_a_profile() -> None:
    assert distance({}, {1.0: 5.0}) is None
    answer = compare(shifted(0), TrafficProfile({}, {}, 0), ProfileState(over=2))
    assert (answer.known, answer.state) == (False, ProfileState(over=2))


@pytest.mark.parametrize(
    ("measured", "now", "doublings"),
    [(64, 128, 1.0), (64, 64, 0.0), (64, 3, 0.0), (64, 0, 0.0), (None, 128, None), (64, None, None)],
)
def test_a_peak_counts_only_as_far_as_it_is_beyond_what_was_measured(
    measured: float | None, now: float | None, doublings: float | None
) -> None:
    assert doublings_beyond(measured, now) == doublings


def test_a_peak_on_the_edge_does_not_start_a_benchmark_every_day() -> None:
    before = replace(shifted(0), peak_batch=64.0)
    state = ProfileState()
    for batch in (80.0, 80.0, 80.0, 70.0, 66.0):
        state = compare(before, replace(shifted(0), peak_batch=batch), state).state
        assert state.moved is (state.over >= CONSECUTIVE)
    assert state.moved, "66 is not back inside the matrix"
    assert not compare(before, replace(shifted(0), peak_batch=64.0), state).state.moved


@pytest.mark.parametrize(
    ("tiers", "ratio", "raised"),
    [
        ([{"capacityRatio": 0.6}, {"concurrency": 64}], 2.0, {"concurrency": 128}),
        ([{"concurrency": 8}, {"concurrency": 3000}], 4.0, {"concurrency": 4096}),
        ([{"requestsPerSecond": 2}, {"requestsPerSecond": 4}], 1.5, {"requestsPerSecond": 6}),
        ([{"capacityRatio": 0.3}, {"capacityRatio": 0.8}], 2.0, {"capacityRatio": 1.0}),
        ([{"capacityRatio": 0.3}, {"concurrency": 64}], 1.0, {"concurrency": 64}),
    ],
)
def test_only_the_heaviest_tier_is_raised(
    tiers: list[dict[str, float]], ratio: float, raised: dict[str, float]
) -> None:
    given = [LoadTier.model_validate({"name": f"t{place}", **one}) for place, one in enumerate(tiers)]
    after = loaded_tiers(given, ratio)
    assert after[0] == given[0]
    assert after[1] == LoadTier.model_validate({"name": "t1", **raised})


def test_few_requests_say_nothing() -> None:
    assert not compare(shifted(0), shifted(3, requests=100), ProfileState()).known


def test_traffic_has_moved_only_after_several_looks_and_comes_back_below_the_lower_limit() -> None:
    state = ProfileState()
    for look in range(CONSECUTIVE):
        assert not state.moved
        state = compare(shifted(0), shifted(2), state).state
        assert state.moved is (look == CONSECUTIVE - 1)
    between = TrafficProfile({EDGES[3]: 1400, EDGES[4]: 2000, EDGES[5]: 2000, EDGES[6]: 600}, {EDGES[3]: 6000}, 6000)
    near = compare(
        shifted(0),
        TrafficProfile({EDGES[3]: 800, EDGES[4]: 2000, EDGES[5]: 2000, EDGES[6]: 1200}, {EDGES[3]: 6000}, 6000),
        state,
    )
    assert near.state.moved
    assert compare(shifted(0), between, state).state == ProfileState(0, False)


def test_a_single_odd_look_does_not_count() -> None:
    state = compare(shifted(0), shifted(3), ProfileState(over=1)).state
    assert state.over == 2
    assert compare(shifted(0), shifted(0), state).state == ProfileState()


def test_slices_like_production_are_the_shorter_and_the_longer_half_of_the_prompts() -> None:
    two = TrafficProfile({200.0: 0.0, 500.0: 900.0, 2000.0: 0.0, 5000.0: 900.0}, {100.0: 0.0, 200.0: 1800.0}, 1800)
    like = [TrafficSlice(name="chat", temperature=0.7), TrafficSlice(name="rare", weight=0.1)]
    short, long = production_slices(two, like)
    assert (short.name, short.prompt_tokens, short.output_tokens, short.temperature) == (
        "production-short",
        316,
        141,
        0.7,
    )
    assert (long.name, long.prompt_tokens, long.weight) == ("production-long", 3162, 1.0)


def test_production_of_one_length_is_one_slice() -> None:
    same = TrafficProfile({100.0: 0.0, 200.0: 900.0}, {10.0: 0.0, 20.0: 900.0}, 900)
    assert [one.name for one in production_slices(same, [TrafficSlice(name="chat")])] == ["production"]


def test_prompts_beyond_the_last_edge_are_not_made_longer_than_the_engine_takes() -> None:
    """An engine of 8192 tokens draws its edges up to 5000: what is longer lies in the open band."""
    outputs = {200.0: 0.0, 500.0: 900.0}
    long = TrafficProfile({2000.0: 0.0, 5000.0: 0.0, float("inf"): 900.0}, outputs, 900)
    like = [TrafficSlice(name="chat")]
    assert [one.prompt_tokens for one in production_slices(long, like)] == [5000]
    (fitted,) = production_slices(long, like, longest=5120)
    assert fitted.prompt_tokens + fitted.output_tokens <= 5120
    only = TrafficProfile({float("inf"): 900.0}, {float("inf"): 900.0}, 900)
    assert [one.prompt_tokens for one in production_slices(only, like)] == [1]


@settings(deadline=None)
@given(bands, bands)
def test_slices_of_any_traffic_can_be_measured(prompts: dict[float, float], outputs: dict[float, float]) -> None:
    made = production_slices(TrafficProfile(prompts, outputs, 1), [TrafficSlice(name="chat")])
    assert len({one.name for one in made}) == len(made)
    assert [TrafficSlice.model_validate(one.model_dump()) for one in made] == list(made)
    assert [one.prompt_tokens for one in made] == sorted(one.prompt_tokens for one in made)


def test_a_cumulative_histogram_becomes_bands_and_a_falling_one_is_refused() -> None:
    assert from_cumulative({10.0: 5, 1.0: 2, float("inf"): 6}) == {1.0: 2, 10.0: 3, float("inf"): 1}
    with pytest.raises(ValueError, match="not a cumulative"):
        from_cumulative({1.0: 5, 2.0: 3})
