"""Attempts, back-off, actions per day and maintenance windows."""

from datetime import UTC, datetime, timedelta

import pytest
from specfleet.api.operation import MaintenanceWindow, RemediesSpec
from specfleet.decide import budget

NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)  # a Monday
REMEDIES = RemediesSpec(max_attempts=3, backoff_seconds=[60, 600])


def test_each_roll_back_of_a_revision_waits_longer_and_the_last_wait_stays() -> None:
    attempts, waits = None, []
    for _ in range(3):
        attempts = budget.after_rollback(attempts, "r1", REMEDIES, NOW)
        waits.append(budget.seconds_until_attempt(attempts, "r1", NOW))
    assert waits == [60, 600, 600]
    assert budget.exhausted(attempts, "r1", REMEDIES)


def test_another_revision_starts_with_a_clean_slate() -> None:
    attempts = budget.after_rollback(None, "r1", REMEDIES, NOW)
    assert budget.seconds_until_attempt(attempts, "r2", NOW) == 0
    assert not budget.exhausted(attempts, "r2", REMEDIES)
    assert budget.after_rollback(attempts, "r2", REMEDIES, NOW).count == 1


def test_only_the_last_day_counts_for_the_daily_budget() -> None:
    moments = [NOW - timedelta(hours=25), NOW - timedelta(hours=23), NOW]
    assert budget.recent_actions(moments, NOW) == moments[1:]


@pytest.mark.parametrize(
    ("window", "moment", "inside"),
    [
        ({"start": "08:00", "duration_seconds": 7200}, NOW, True),
        ({"start": "09:00", "duration_seconds": 300}, NOW, True),
        ({"start": "07:00", "duration_seconds": 7200}, NOW, False),
        ({"start": "23:00", "duration_seconds": 7200}, NOW.replace(hour=0, minute=30), True),
        ({"days": ["Sun"], "start": "23:00", "duration_seconds": 7200}, NOW.replace(hour=0, minute=30), True),
        ({"days": ["Mon"], "start": "23:00", "duration_seconds": 7200}, NOW.replace(hour=0, minute=30), False),
        ({"days": ["Sat", "Sun"], "start": "08:00", "duration_seconds": 7200}, NOW, False),
        ({"start": "09:30", "duration_seconds": 86400}, NOW, True),
    ],
    ids=[
        "inside",
        "first second",
        "at the end it is over",
        "over midnight",
        "over midnight from a named day",
        "over midnight from another day",
        "another day",
        "a whole day from yesterday",
    ],
)
def test_a_maintenance_window_is_open_from_its_start_for_its_length(
    window: dict[str, object], moment: datetime, inside: bool
) -> None:
    assert budget.in_maintenance_window([MaintenanceWindow.model_validate(window)], moment) is inside


def test_without_windows_it_is_always_time() -> None:
    assert budget.in_maintenance_window([], NOW)
