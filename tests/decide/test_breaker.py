"""The fleet's breaker, by what a status says."""

from datetime import timedelta

import pytest
from specfleet.api.status import DecisionRecord, DeploymentStatus, Phase, Verdict
from specfleet.decide.breaker import fleet_view

from tests.decide.world import START, World, spec_of


def rolled(
    minutes: float, phase: Phase = Phase.ROLLED_BACK, reason: str = "AcceptanceDrift", action: str = "RollBack"
) -> DeploymentStatus:
    """Something was decided so many minutes ago, and the phase has been what it is since then."""
    moment = START - timedelta(minutes=minutes)
    earlier = DecisionRecord(time=moment, action="Investigate", reason=reason)
    decided = DecisionRecord(time=moment, action=action, reason=reason)
    return DeploymentStatus(phase=phase, phase_since=moment, phase_reason=reason, history=[earlier, decided])


@pytest.mark.parametrize(
    ("statuses", "total", "is_open"),
    [
        ([rolled(5)] * 3, 10, True),
        ([rolled(5), rolled(30, Phase.ROLLING_BACK), rolled(59, Phase.EXHAUSTED)], 14, True),
        ([rolled(5)] * 3, 15, False),
        ([rolled(5)] * 2, 2, False),
        ([rolled(5), rolled(5), rolled(60)], 3, False),
        ([rolled(5, Phase.HELD, action="Hold")] * 9, 9, False),
        ([rolled(5, action="RefuseRevision")] * 9, 9, False),
        ([rolled(5, Phase.DEPLOYING)] * 3, 10, True),
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


def test_a_changed_engine_that_loses_on_the_bench_everywhere_stops_nothing_elsewhere() -> None:
    world = World(spec=spec_of(speculation=None), change_gain=lambda tier, piece: 0.7)
    world.run_to(Phase.BASELINE)
    world.change(engine={"image": "vllm/vllm-openai:v0.33.0", "startupTimeoutSeconds": 120})
    world.run_to(Phase.ROLLED_BACK)
    assert not fleet_view([world.status] * 3, 10, world.now).breaker_open, "no user has met it"


def test_arms_that_are_rolled_back_everywhere_open_it() -> None:
    world = World()
    world.run_to(Phase.CANARY)
    world.comparison = Verdict.FAIL
    world.run_to(Phase.ROLLED_BACK)
    assert fleet_view([world.status] * 3, 10, world.now).breaker_open
