"""The step model in virtual time: no server, no clock."""

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm_sim.acceptance import HEALTHY, RequestAcceptance
from vllm_sim.kv_cache import KvCache
from vllm_sim.profile import LinearCost, OutputLength, Profile, ProposerProfile, parse_profile
from vllm_sim.scheduler import Scheduler, SchedulerLimits
from vllm_sim.sequence import Sequence
from vllm_sim.step_time import StepTimer
from vllm_sim.tokens import TextStream, block_hashes, count_tokens, natural_length, pieces

pytestmark = pytest.mark.usefixtures("simulated_only")

QUIET = Profile(time_scale=1.0, step_noise_sd=0.0)
EAGLE = Profile().proposers["eagle3"]


class Sink:
    def tokens(self, count: int, finish_reason: str | None) -> bool:
        return False


def _sequence(number: int, prompt: int, output: int, proposer: ProposerProfile | None, width: int = 3) -> Sequence:
    acceptance = RequestAcceptance(proposer, number, width, 0.0) if proposer else None
    hashes = block_hashes([f"{number}/{place}" for place in range(prompt)], 16)
    return Sequence(str(number), prompt, hashes, output, None, 0.0, Sink(), acceptance)


def _run(scheduler: Scheduler, timer: StepTimer) -> tuple[float, list[Sequence]]:
    """Everything to the end; total time and the finished requests."""
    now, finished = 0.0, []
    while True:
        batch = scheduler.next_batch(now)
        if batch is None:
            return now, finished
        assert batch.tokens <= scheduler.limits.max_num_batched_tokens
        assert len(scheduler.running) <= scheduler.limits.max_num_seqs
        assert 0 <= scheduler.cache.used_blocks <= scheduler.cache.total_blocks
        now += timer.seconds(batch.tokens, batch.kv_tokens, batch.k, 1.0)
        for output in scheduler.finish_batch(batch, now, HEALTHY):
            output.sequence.last_token = now
            if output.finish_reason is not None:
                finished.append(output.sequence)


def _tpot(batch: int, proposer: ProposerProfile | None, profile: Profile = QUIET, k: int = 3) -> float:
    """Mean milliseconds per token of `batch` equal requests."""
    limits = SchedulerLimits(512, 65_536, 4096, k if proposer else 0)
    scheduler = Scheduler(limits, KvCache(100_000, 16, True))
    for number in range(batch):
        scheduler.add(_sequence(number, 64, 400, proposer, k))
    _, finished = _run(scheduler, StepTimer(profile, proposer))
    return 1000 * statistics.fmean((s.last_token - (s.first_token or 0)) / (s.emitted - 1) for s in finished)


@pytest.mark.parametrize("batch", [1, 16, 64])
def test_tokens_take_the_time_of_the_published_fit(batch: int) -> None:
    kv = batch * (64 + 200)
    expected = 5.886 + 1.207 + 0.02101 * batch + 3.93e-5 * kv
    assert _tpot(batch, None) == pytest.approx(expected, rel=0.01)


def test_speculation_wins_at_low_load_by_what_theory_says() -> None:
    length = 1 + 0.673 + 0.673 * 0.653 + 0.673 * 0.653 * 0.640
    expected = length * (7.093 + 0.021) / (7.093 + 0.084 + 2.136)
    gain = _tpot(8, None) / _tpot(8, EAGLE)
    assert gain == pytest.approx(expected, rel=0.12)


def test_a_bad_draft_wins_alone_and_loses_under_load() -> None:
    draft = ProposerProfile(acceptance=(0.5, 0.4, 0.3), draft_milliseconds=LinearCost(0.0, 0.004, 0.0, 0.5))
    alone = _tpot(1, None) / _tpot(1, draft)
    loaded = _tpot(300, None) / _tpot(300, draft)
    assert alone > 1.1
    assert loaded < 0.95


def test_a_dynamic_schedule_turns_drafts_off_at_large_batches() -> None:
    limits = SchedulerLimits(512, 65_536, 4096, 3, schedule=((1, 4, 3), (5, 8, 1), (9, 512, 0)))
    assert [limits.k_for(size) for size in (1, 4, 5, 8, 9, 600)] == [3, 3, 1, 1, 0, 0]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(1, 60)), min_size=1, max_size=25),
    st.integers(25, 120),
    st.integers(1, 12),
    st.integers(16, 512),
    st.booleans(),
)
def test_every_request_gets_its_tokens_and_every_block_comes_back(
    requests: list[tuple[int, int]], blocks: int, seats: int, budget: int, speculation: bool
) -> None:
    proposer = EAGLE if speculation else None
    cache = KvCache(blocks, 16, True)
    scheduler = Scheduler(SchedulerLimits(seats, budget, 4096, 3 if speculation else 0), cache)
    for number, (prompt, output) in enumerate(requests):
        scheduler.add(_sequence(number, prompt, output, proposer))
    _, finished = _run(scheduler, StepTimer(QUIET, proposer))
    assert sorted(int(s.request_id) for s in finished) == list(range(len(requests)))
    assert all(s.emitted == s.max_tokens for s in finished)
    assert cache.used_blocks == 0


def test_too_little_memory_preempts_and_still_finishes() -> None:
    scheduler = Scheduler(SchedulerLimits(8, 8192, 4096), KvCache(40, 16, False))
    for number in range(8):
        scheduler.add(_sequence(number, 60, 200, None))
    _, finished = _run(scheduler, StepTimer(QUIET, None))
    assert len(finished) == 8
    assert sum(s.preemptions for s in finished) > 0


def test_a_long_prompt_is_computed_in_chunks_beside_decodes() -> None:
    scheduler = Scheduler(SchedulerLimits(8, 128, 8192), KvCache(10_000, 16, True))
    scheduler.add(_sequence(0, 1000, 2, None))
    sizes = []
    while (batch := scheduler.next_batch(0.0)) is not None:
        sizes.append(batch.tokens)
        scheduler.finish_batch(batch, 0.0, HEALTHY)
    assert sizes == [128] * 7 + [104, 1]


def test_a_prompt_seen_before_is_found_again_and_eagle_gives_up_one_block() -> None:
    for drops, expected in ((False, 96), (True, 80)):
        scheduler = Scheduler(SchedulerLimits(8, 8192, 4096, drop_last_cached_block=drops), KvCache(1000, 16, True))
        for _ in range(2):
            scheduler.add(_sequence(7, 100, 2, None))
            _, finished = _run(scheduler, StepTimer(QUIET, None))
        assert finished[0].cached_tokens == expected


def test_a_cached_prompt_that_needs_one_token_is_counted_as_a_refused_draft() -> None:
    scheduler = Scheduler(SchedulerLimits(8, 8192, 4096, 3), KvCache(1000, 16, True))
    drafts = []
    for _ in range(2):
        scheduler.add(_sequence(7, 129, 1, EAGLE))
        batch = scheduler.next_batch(0.0)
        assert batch is not None
        drafts += [(output.drafted, output.accepted) for output in scheduler.finish_batch(batch, 1.0, HEALTHY)]
    assert drafts == [(0, 0), (3, 0)]


def test_drafts_longer_than_the_draft_model_are_zeros_for_the_whole_batch() -> None:
    scheduler = Scheduler(SchedulerLimits(8, 8192, 4096, 3, draft_max_model_len=128), KvCache(1000, 16, True))
    scheduler.add(_sequence(1, 200, 20, ProposerProfile(acceptance=(1.0,))))
    scheduler.add(_sequence(2, 10, 20, ProposerProfile(acceptance=(1.0,))))
    accepted = drafted = 0
    while (batch := scheduler.next_batch(0.0)) is not None:
        for output in scheduler.finish_batch(batch, 0.0, HEALTHY):
            accepted += output.accepted
            drafted += output.drafted
    assert drafted > 0
    assert accepted == 0


def test_acceptance_has_the_given_rates_and_differs_between_requests_more_than_by_chance() -> None:
    shares = []
    for number in range(300):
        request = RequestAcceptance(EAGLE, number, 3, 0.0)
        shares.append(statistics.fmean(request.accepted(3, HEALTHY) for _ in range(200)) / 3)
    mean = (0.673 + 0.673 * 0.653 + 0.673 * 0.653 * 0.640) / 3
    assert statistics.fmean(shares) == pytest.approx(mean, rel=0.05)
    # Within one request alone, 200 drafts would give a standard deviation of about 0.028.
    assert 0.06 < statistics.stdev(shares) < 0.16


def test_a_temperature_costs_acceptance() -> None:
    def rate(temperature: float) -> float:
        requests = [RequestAcceptance(EAGLE, number, 3, temperature) for number in range(200)]
        return statistics.fmean(request.accepted(3, HEALTHY) for request in requests for _ in range(50))

    assert rate(1.0) < 0.95 * rate(0.0)


@given(st.integers(0, 2**63), st.integers(1, 200))
def test_generated_text_splits_into_the_tokens_it_was_made_of(seed: int, count: int) -> None:
    words = TextStream(seed).take(count, ends=False)
    assert pieces("".join(words)) == words
    assert count_tokens("".join(words)) == count


def test_texts_come_out_the_same_in_pieces_of_any_size() -> None:
    whole = TextStream(5).take(20, False)
    stream = TextStream(5)
    assert stream.take(1, False) + stream.take(7, False) + stream.take(12, False) == whole


def test_answers_end_by_themselves_around_the_median() -> None:
    lengths = [natural_length(seed, OutputLength().median_tokens, 0.7) for seed in range(2000)]
    assert statistics.median(lengths) == pytest.approx(512, rel=0.1)


def test_a_profile_sets_single_coefficients_and_keeps_the_rest() -> None:
    profile = parse_profile(
        {
            "time_scale": 2,
            "step_milliseconds": {"constant": 10},
            "proposers": {"eagle3": {"acceptance": [0.9]}},
            "drafts": {"bad/*": {"acceptance": [0.1], "draft_milliseconds": 3}},
        }
    )
    assert profile.step_milliseconds == LinearCost(10.0, 0.02101, 3.93e-5)
    assert profile.proposer("eagle3", "good/draft").acceptance == (0.9,)
    assert profile.proposer("eagle3", "good/draft").draft_milliseconds == EAGLE.draft_milliseconds
    assert profile.proposer("eagle3", "bad/draft").acceptance == (0.1,)
    assert profile.proposer("eagle3", "bad/draft").draft_milliseconds == LinearCost(3.0)
    assert profile.proposer("ngram", None) == Profile().proposers["ngram"]
