"""Of several operators, each one's absence is told: another that leads does not stand for it."""

import pytest
from specfleet.alerts.metrics import OperatorMetrics
from specfleet.controller.app import App
from specfleet.controller.settings import from_environment

from tests.chart.conftest import Object, Render, of_kind


@pytest.mark.parametrize(
    ("values", "lease"),
    [({}, "operators/specfleet"), ({"shard": "a"}, "operators/specfleet-a")],
    ids=["the only one", "one of several"],
)
def test_the_rule_asks_for_the_lease_of_its_own_release(render: Render, values: Object, lease: str) -> None:
    objects = render({"prometheusRule": {"enabled": True}, **values})
    rules = [one for group in of_kind(objects, "PrometheusRule")[0]["spec"]["groups"] for one in group["rules"]]
    (rule,) = [one for one in rules if one.get("alert") == "SpecfleetOperatorAbsent"]
    assert rule["expr"] == f'absent(specfleet_leader{{lease="{lease}"}} == 1)'
    told = of_kind(objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]["env"]
    env = {one["name"]: str(one.get("value", "")) for one in told} | {"POD_NAMESPACE": "operators"}
    metrics: OperatorMetrics = App(from_environment(env)).metrics
    metrics.follow(leader=lambda: True)
    assert metrics.registry.get_sample_value("specfleet_leader", {"lease": lease}) == 1
