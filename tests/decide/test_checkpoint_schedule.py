"""When a shard is written: soon after a suspicion, within an hour of a half of a threshold, else every six hours."""

import pytest
from specfleet.decide.bank import Stage
from specfleet.decide.checkpoint_format import SHARDS, shard_of
from specfleet.decide.checkpoint_schedule import (
    CALM_SECONDS,
    FIRST_RETRY_SECONDS,
    LAST_RETRY_SECONDS,
    LEAST_SECONDS,
    PERIOD_SECONDS,
    Schedule,
)
from specfleet.decide.watch_target import Key

KEY: Key = ("ml", "llama", "u")
SHARD = shard_of(KEY)
HIGH = {(KEY, 0, int(Stage.QUIET))}
SUSPECT = {(KEY, 0, int(Stage.SUSPECT))}
CONFIRMED = {(KEY, 0, int(Stage.CONFIRMED))}
NONE: set[tuple[Key, int, int]] = set()


def written_all(now: float = 0.0) -> Schedule:
    schedule = Schedule(now)
    for shard in range(SHARDS):
        schedule.written(shard, now)
    return schedule


@pytest.mark.parametrize(
    ("looks", "now", "due"),
    [
        ([NONE], PERIOD_SECONDS - 1, []),
        ([NONE], PERIOD_SECONDS, list(range(SHARDS))),
        ([HIGH], CALM_SECONDS - 1, []),
        ([HIGH], CALM_SECONDS, [SHARD]),
        ([HIGH, NONE], CALM_SECONDS, [SHARD]),
        ([HIGH, SUSPECT], LEAST_SECONDS - 1, []),
        ([HIGH, SUSPECT], LEAST_SECONDS, [SHARD]),
    ],
    ids=[
        "a steady state writes nothing",
        "after six hours all are written",
        "not again within the hour",
        "one that rose is written",
        "also when it has fallen since",
        "not again within minutes",
        "a suspicion does not wait for the hour",
    ],
)
def test_what_is_due(looks: list[set[tuple[Key, int]]], now: float, due: list[int]) -> None:
    schedule = written_all()
    for elevated in looks:
        schedule.look(elevated)
    assert schedule.due(now) == due


def test_what_stays_high_is_not_written_again_until_something_else_rises() -> None:
    schedule = written_all()
    schedule.look(HIGH)
    schedule.written(SHARD, CALM_SECONDS)
    schedule.look(HIGH)
    assert schedule.due(3 * CALM_SECONDS) == []
    schedule.look({*HIGH, (KEY, 1, int(Stage.QUIET))})
    assert schedule.due(3 * CALM_SECONDS) == [SHARD]


def test_a_suspicion_is_written_again_when_it_is_confirmed() -> None:
    schedule = written_all()
    schedule.look(SUSPECT)
    schedule.written(SHARD, LEAST_SECONDS)
    schedule.look(SUSPECT)
    assert schedule.due(3 * LEAST_SECONDS) == []
    schedule.look(CONFIRMED)
    assert schedule.due(3 * LEAST_SECONDS) == [SHARD]


def test_statistics_that_hover_about_their_half_do_not_write_more_than_once_an_hour() -> None:
    schedule, writes, day = written_all(), 0, 24 * 3600
    for now in range(0, day, 60):
        schedule.look(HIGH if now % 600 < 300 else NONE)
        for shard in schedule.due(now):
            schedule.written(shard, now)
            writes += shard == SHARD
    assert writes <= day / CALM_SECONDS


def test_one_that_rose_goes_before_those_whose_time_has_come() -> None:
    schedule = written_all()
    schedule.look(HIGH)
    assert schedule.due(PERIOD_SECONDS)[0] == SHARD


def test_a_fresh_process_writes_at_once_what_rises_and_the_rest_one_after_the_other() -> None:
    schedule = Schedule(1000.0)
    first = next(key for number in range(1000) if shard_of(key := ("ml", f"llama-{number}", "u")) == 0)
    schedule.look({*HIGH, (first, 0, int(Stage.QUIET))})
    assert set(schedule.due(1000.0)) == {0, SHARD}
    for shard in (0, SHARD):
        schedule.written(shard, 1000.0)
    counts = [len(schedule.due(1000.0 + PERIOD_SECONDS * part)) for part in (0.0, 0.25, 0.5, 0.75, 0.999)]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert abs(counts[2] - SHARDS / 2) <= 1


def test_a_write_that_fails_is_tried_again_later_and_later() -> None:
    schedule = written_all()
    schedule.look(HIGH)
    now, waits = CALM_SECONDS, []
    for _ in range(9):
        assert schedule.due(now) == [SHARD]
        waits.append(schedule.failed(SHARD, now))
        assert schedule.due(now + waits[-1] - 1) == []
        now += waits[-1]
    assert waits[0] == FIRST_RETRY_SECONDS
    assert waits == sorted(waits)
    assert waits[-1] == LAST_RETRY_SECONDS
    schedule.written(SHARD, now)
    assert schedule.failed(SHARD, now + CALM_SECONDS) == FIRST_RETRY_SECONDS
