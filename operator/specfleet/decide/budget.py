"""How often and when automatic actions may happen: attempts, back-off, actions per day, maintenance windows."""

from datetime import datetime, timedelta

from specfleet.api.operation import MaintenanceWindow, RemediesSpec
from specfleet.api.status import AttemptStatus

HEALTHY_SECONDS_THAT_FORGIVE = 7 * 86400.0
DAY = timedelta(days=1)
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def after_rollback(
    attempts: AttemptStatus | None, revision: str, remedies: RemediesSpec, now: datetime
) -> AttemptStatus:
    """Count one more failed attempt of a revision and set when the next may start (1 h, 4 h, 24 h, 7 d by default)."""
    count = 1 + (attempts.count if attempts is not None and attempts.revision == revision else 0)
    wait = remedies.backoff_seconds[min(count, len(remedies.backoff_seconds)) - 1]
    return AttemptStatus(revision=revision, count=count, last_rollback=now, next_attempt=now + timedelta(seconds=wait))


def exhausted(attempts: AttemptStatus | None, revision: str, remedies: RemediesSpec) -> bool:
    """Whether a revision has used all its attempts."""
    return attempts is not None and attempts.revision == revision and attempts.count >= remedies.max_attempts


def seconds_until_attempt(attempts: AttemptStatus | None, revision: str, now: datetime) -> float:
    """Seconds that a revision still has to wait; 0 when it may start."""
    if attempts is None or attempts.revision != revision or attempts.next_attempt is None:
        return 0.0
    return max(0.0, (attempts.next_attempt - now).total_seconds())


def recent_actions(actions: list[datetime], now: datetime) -> list[datetime]:
    """Automatic actions of the last 24 hours."""
    return [moment for moment in actions if now - moment < DAY]


def seconds_until_fewer(recent: list[datetime], limit: int, now: datetime) -> float | None:
    """Seconds until fewer than `limit` actions lie within 24 hours; None when that is so already."""
    if len(recent) < limit:
        return None
    return (sorted(recent)[len(recent) - limit] + DAY - now).total_seconds()


def in_maintenance_window(windows: list[MaintenanceWindow], now: datetime) -> bool:
    """Whether economic actions may run now (UTC). Without windows: always."""
    return not windows or any(_inside(window, now) for window in windows)


def seconds_until_window(windows: list[MaintenanceWindow], now: datetime) -> float | None:
    """Seconds until the next window opens; None without windows."""
    starts = [
        start
        for window in windows
        for days_ahead in range(8)
        if (start := _start(window, now + timedelta(days=days_ahead))) > now and _named(window, start)
    ]
    return (min(starts) - now).total_seconds() if starts else None


def _start(window: MaintenanceWindow, day: datetime) -> datetime:
    hours, minutes = (int(part) for part in window.start.split(":"))
    return day.replace(hour=hours, minute=minutes, second=0, microsecond=0)


def _named(window: MaintenanceWindow, start: datetime) -> bool:
    return not window.days or WEEKDAYS[start.weekday()] in window.days


def _inside(window: MaintenanceWindow, now: datetime) -> bool:
    for days_back in (0, 1):
        start = _start(window, now - timedelta(days=days_back))
        if _named(window, start) and start <= now < start + timedelta(seconds=window.duration_seconds):
            return True
    return False
