"""The fleet's breaker, by what a status says."""

from datetime import timedelta

import pytest
from specfleet.api.status import DeploymentStatus, Phase
from specfleet.decide.breaker import fleet_view

from tests.decide.world import START


def rolled(minutes: float, phase: Phase = Phase.ROLLED_BACK, reason: str = "AcceptanceDrift") -> DeploymentStatus:
    return DeploymentStatus(phase=phase, phase_since=START - timedelta(minutes=minutes), phase_reason=reason)


@pytest.mark.parametrize(
    ("statuses", "total", "is_open"),
    [
        ([rolled(5)] * 3, 10, True),
        ([rolled(5), rolled(30, Phase.ROLLING_BACK), rolled(59, Phase.EXHAUSTED)], 14, True),
        ([rolled(5)] * 3, 15, False),
        ([rolled(5)] * 2, 2, False),
        ([rolled(5), rolled(5), rolled(60)], 3, False),
        ([rolled(5, Phase.HELD)] * 9, 9, False),
        ([rolled(5, Phase.EXHAUSTED, "CommandAbort")] * 9, 9, False),
        ([rolled(5, Phase.ROLLING_BACK, "SpecChanged")] * 9, 9, False),
        ([None, DeploymentStatus(phase=Phase.ROLLED_BACK)], 2, False),
    ],
)
def test_three_and_more_than_a_fifth_within_an_hour_open_it(
    statuses: list[DeploymentStatus | None], total: int, is_open: bool
) -> None:
    view = fleet_view(statuses, total, START)
    assert view.breaker_open is is_open
    assert (f"of {total} deployments" in view.message) is is_open
