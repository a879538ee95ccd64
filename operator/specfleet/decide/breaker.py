"""The fleet's breaker: many roll-backs at once have a shared cause, which no single deployment can see."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from specfleet.api.reasons import ABORTED
from specfleet.api.status import DeploymentStatus
from specfleet.decide.observation import FleetView

ROLL_BACK = "RollBack"
"""Action of the decision that takes traffic off an arm (rollback.start_rollback)."""
BREAKER_COUNT = 3
BREAKER_SHARE = 0.2
BREAKER_WINDOW = timedelta(hours=1)
BY_PERSON = (ABORTED, "SpecChanged")
"""Reasons of roll-backs that a person asked for: they say nothing about the fleet."""


def fleet_view(statuses: Iterable[DeploymentStatus | None], total: int, now: datetime) -> FleetView:
    """Open when >= 3 deployments and > 20 % of all `total` rolled back within an hour."""
    rolled = sum(_rolled_back(status, now) for status in statuses if status is not None)
    if rolled < BREAKER_COUNT or rolled <= BREAKER_SHARE * total:
        return FleetView()
    said = f"{rolled} of {total} deployments rolled back within an hour: promotions and economic actions stop"
    return FleetView(breaker_open=True, message=said)


def _rolled_back(status: DeploymentStatus, now: datetime) -> bool:
    """By what was decided, not by the phase: a change that lost on a bench, or attempts that are used up, rest in the
    same phases and took nothing from any user."""
    return any(
        one.action == ROLL_BACK and one.reason not in BY_PERSON and now - one.time < BREAKER_WINDOW
        for one in status.history
    )
