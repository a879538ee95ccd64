"""Pure parts of the demo: order of decisions, weights, plots, the example and its overlay."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specfleet.api.benchmark import GuardrailsSpec
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.operation import FalseAlarmBudget

from e2e.road.example import Place, load_quickstart, merge, overlaid
from e2e.road.plot import Line, Mark, Plot, nice_top
from e2e.road.recorder import Sample, parse_weights, switches
from e2e.road.verify import PROMOTION, ROLLBACK, first_missing


def sample(time: float, weights: dict[str, int]) -> Sample:
    return Sample(time, "Canary", weights, {}, {}, {"plain": "baseline", "drafted": "speculative"})


def test_the_road_may_have_other_decisions_in_between_but_must_keep_its_order() -> None:
    road = ["ServeBaseline", "RepeatUnit", *PROMOTION[1:], *ROLLBACK]
    assert first_missing(road, (*PROMOTION, *ROLLBACK)) is None
    assert first_missing([*PROMOTION], (*PROMOTION, *ROLLBACK)) == "Investigate"
    assert first_missing([*reversed(PROMOTION)], PROMOTION) is not None


def test_a_switch_is_a_change_of_shares_not_of_numbers() -> None:
    seen = [
        sample(1, {}),
        sample(2, {"plain": 4}),
        sample(3, {"plain": 4, "drafted": 0}),
        sample(4, {"plain": 3, "drafted": 1}),
        sample(5, {"plain": 6, "drafted": 2}),
        sample(6, {"plain": 2, "drafted": 2}),
    ]
    assert switches(seen) == [4, 6]
    assert sample(1, {"plain": 3, "drafted": 1}).speculative_share == 0.25
    assert sample(1, {}).speculative_share is None


def test_weights_are_read_from_the_routes_annotation() -> None:
    assert parse_weights("a1=3,b2=1") == {"a1": 3, "b2": 1}
    assert parse_weights("") == {}
    assert parse_weights("a1=x") == {}


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_an_axis_ends_at_a_round_number_not_far_above_the_data(value: float) -> None:
    top = nice_top(value)
    assert value * 0.998 <= top <= value * 2.51


def test_a_plot_breaks_its_line_at_gaps_and_escapes_what_it_is_told() -> None:
    line = Line("a<b", [(0, 1.0), (1, 2.0), (2, None), (3, 1.0)])
    svg = Plot("t", "", [line], 60, [Mark(30, 1, text="<script>")]).svg()
    assert svg.count("M6") + svg.count("M1") == 2
    assert "<script>" not in svg
    assert "a&lt;b" in svg


@pytest.mark.parametrize(
    ("base", "changes", "merged"),
    [
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
    ],
)
def test_changes_are_merged_as_a_json_merge_patch(
    base: dict[str, Any], changes: dict[str, Any], merged: dict[str, Any]
) -> None:
    merge(base, changes)
    assert base == merged


def test_the_quickstart_fits_the_api_and_keeps_the_margins_of_production() -> None:
    body = load_quickstart()
    body["metadata"]["namespace"] = "demo"
    spec = SpeculativeDeployment.model_validate(body).spec
    assert spec.guardrails == GuardrailsSpec()
    assert spec.monitoring.false_alarms == FalseAlarmBudget()
    assert spec.benchmark.objective.minimum_gain_ratio == 0.05
    assert (spec.replicas, len(spec.benchmark.tiers), len(spec.benchmark.slices), spec.benchmark.pairs) == (4, 2, 2, 3)


def test_the_demo_lays_only_the_faults_over_the_example() -> None:
    plain = load_quickstart()["spec"]
    made = overlaid(load_quickstart(), Place("demo", "quickstart"))["spec"]
    changed = {key for key in made if made[key] != plain.get(key)}
    assert changed == {"engine", "template"}
    assert made["engine"]["image"] == plain["engine"]["image"]
    assert made["template"]["volumes"] == [{"name": "faults", "secret": {"secretName": "simulated-faults"}}]
