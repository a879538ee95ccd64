"""An operator that is replaced goes on from its checkpoints: every story goes as if it had not been."""

from pathlib import Path

import pytest
from specfleet.simulate.run import Simulation, simulate
from specfleet.simulate.scenario import FaultKind, Scenario, load

SUITE = Path(__file__).parents[2] / "benchmarks" / "decisions" / "scenarios"
REPLACED = [one for one in load(SUITE / "drift.yaml") if "operator is replaced" in one.name]


def happenings(scenario: Scenario) -> list[str]:
    return [str(one) for one in simulate(scenario).happenings]


def undisturbed(scenario: Scenario) -> Scenario:
    rest = [one for one in scenario.timeline if one.kind is not FaultKind.OPERATOR_RESTART]
    return scenario.model_copy(update={"timeline": rest})


@pytest.mark.parametrize("scenario", REPLACED[:1], ids=lambda one: one.name)
def test_a_decay_over_half_a_day_is_found_as_if_the_operator_had_never_been_replaced(scenario: Scenario) -> None:
    assert sum(one.kind is FaultKind.OPERATOR_RESTART for one in scenario.timeline) == 4
    assert happenings(scenario) == happenings(undisturbed(scenario))


@pytest.mark.parametrize(
    "fault",
    [
        {"at": "20m", "kind": "acceptance", "factor": 0.4, "arm": "speculative"},
        {"at": "20m", "kind": "stepTime", "factor": 1.3, "arm": "speculative"},
    ],
    ids=["acceptance", "step time"],
)
def test_nor_does_a_replacement_every_ten_minutes_change_what_is_done_about_a_fault(fault: dict[str, object]) -> None:
    restarts = [{"at": f"{minutes}m", "kind": "operatorRestart"} for minutes in range(5, 180, 10)]
    body = {"name": "replaced", "seed": 5, "duration": "3h", "timeline": [fault, *restarts]}
    scenario = Scenario.model_validate(body)
    told = happenings(scenario)
    assert any("RestartProbe" in line or "Investigate" in line or "RaiseControl" in line for line in told), told
    assert told == happenings(undisturbed(scenario))


def test_of_many_alike_each_goes_on_with_its_own() -> None:
    body = {
        "name": "copies",
        "duration": "2h",
        "timeline": [
            {"at": "20m", "kind": "acceptance", "factor": 0.4, "arm": "speculative"},
            {"at": "25m", "kind": "operatorRestart"},
        ],
    }
    scenario = Scenario.model_validate(body)
    found, steady = Simulation(scenario, copies=3).run(), Simulation(undisturbed(scenario), copies=3).run()
    assert [[str(h) for h in one.happenings] for one in found] == [[str(h) for h in one.happenings] for one in steady]
