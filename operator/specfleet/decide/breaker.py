"""The fleet's breaker: many roll-backs at once have a shared cause, which no single deployment can see."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from specfleet.api.status import DeploymentStatus, Phase
from specfleet.decide.observation import FleetView

ROLLED = (Phase.ROLLING_BACK, Phase.ROLLED_BACK, Phase.EXHAUSTED)
BREAKER_COUNT = 3
BREAKER_SHARE = 0.2
BREAKER_WINDOW = timedelta(hours=1)
BY_PERSON = ("CommandAbort", "SpecChanged")
"""Reasons of roll-backs that a person asked for: they say nothing about the fleet."""


def fleet_view(statuses: Iterable[DeploymentStatus | None], total: int, now: datetime) -> FleetView:
    """Open when >= 3 deployments and > 20 % of all `total` rolled back within an hour."""
    rolled = sum(
        status.phase in ROLLED
        and status.phase_reason not in BY_PERSON
        and status.phase_since is not None
        and now - status.phase_since < BREAKER_WINDOW
        for status in statuses
        if status is not None
    )
    if rolled < BREAKER_COUNT or rolled <= BREAKER_SHARE * total:
        return FleetView()
    said = f"{rolled} of {total} deployments rolled back within an hour: promotions and economic actions stop"
    return FleetView(breaker_open=True, message=said)
