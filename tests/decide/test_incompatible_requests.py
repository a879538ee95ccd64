"""Requests that only speculation refuses: promotion is held and users keep the plain arm."""

from dataclasses import replace

from specfleet.api.status import Phase, Verdict
from specfleet.decide.decide import decide
from specfleet.decide.watch_report import Comparison
from specfleet.decide.watch_scope import watch_target

from tests.decide.world import World, spec_of


def in_canary(spec: dict[str, object] | None = None) -> World:
    world = World(spec=spec or spec_of())
    world.run_to(Phase.CANARY)
    assert world.run(300, until=lambda one: one.status is not None and one.status.step_since is not None)
    return world


def test_a_canary_whose_requests_are_refused_is_held_and_not_counted_as_an_attempt() -> None:
    world = in_canary()
    obs = world.observation()
    refused = Comparison(Verdict.FAIL, "IncompatibleRequests", "4xx share 9 of 100 against 0 of 100", obs.now)
    plan = decide(replace(obs, watch=replace(obs.watch, comparison=refused)))
    assert plan.status.phase is Phase.HELD
    assert plan.status.phase_reason == "IncompatibleRequests"
    assert plan.status.attempts is None
    assert plan.status.hold_until is not None
    assert (plan.status.hold_until - obs.now).total_seconds() > 3600


def test_accepting_incompatible_requests_takes_the_4xx_share_off_the_guards() -> None:
    spec = spec_of()
    spec["speculation"] = {**spec["speculation"], "incompatibleRequests": "Accept"}
    for accepted, limit in ((spec, 1.0), (spec_of(), 0.001)):
        world = in_canary(accepted)
        obs = world.observation()
        assert world.status is not None
        assert watch_target(obs, world.status, obs.now).guardrails.max_client_error_share_increase_ratio == limit
