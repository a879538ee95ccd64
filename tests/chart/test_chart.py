import json
import re
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import pytest
import yaml
from helm_python import Chart, HelmError
from specfleet.alerts.metrics import OperatorMetrics
from specfleet.api import crd
from specfleet.controller.settings import from_environment
from specfleet.decide.checkpoint_format import SHARDS

from tests.chart.conftest import CHART, Object, Render, of_kind

KUBERNETES = "1.36"
RUNBOOKS = CHART.parents[1] / "docs" / "runbooks"
VALUES = sorted((CHART / "ci").glob("*.yaml"))


@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.stem)
def test_the_chart_lints_strictly(path: Path) -> None:
    report = helm_python.lint(CHART, yaml.safe_load(path.read_text()), strict=True)
    worse_than_info = [one for one in report["messages"] if one["severity"] > 1]
    assert worse_than_info == []
    assert report["errors"] == []


@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.stem)
def test_every_rendered_object_fits_the_schemas_of_kubernetes(path: Path, render: Render) -> None:
    objects = render(yaml.safe_load(path.read_text()))
    assert objects
    for one in objects:
        if "coreos" not in one["apiVersion"] and one["kind"] != "CustomResourceDefinition":
            kubernetes_validate.validate(one, KUBERNETES, strict=True)


def test_without_an_image_the_install_is_refused_and_says_what_to_set() -> None:
    with Chart.load(CHART) as chart, pytest.raises(HelmError, match=r"image\.repository: set it to where you pushed"):
        chart.render(values={}, name="specfleet", namespace="operators")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"logLevel": "LOUD"}, "logLevel"),
        ({"prometheus": {"url": "prometheus:9090"}}, "url"),
        ({"promtheus": {"url": "http://prometheus:9090"}}, "promtheus"),
        ({"workers": 0}, "workers"),
        ({"runbooks": {"url": "https://docs.example.com/runbooks"}}, "runbooks"),
        ({"image": {"repository": "x", "digest": "latest"}}, "digest"),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(values: Object, named: str, render: Render) -> None:
    with pytest.raises(HelmError, match=named):
        render(values)


def test_the_crds_are_those_of_the_models_and_are_kept_on_uninstall(render: Render) -> None:
    rendered = {one["metadata"]["name"]: one for one in of_kind(render(), "CustomResourceDefinition")}
    wanted = {one["metadata"]["name"]: one for one in crd.crds().values()}
    assert set(rendered) == set(wanted)
    for name, one in rendered.items():
        assert one["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert one["spec"] == wanted[name]["spec"]
    assert crd.differences(CHART / "files" / "crds") == []


def test_crds_can_be_left_to_somebody_else(render: Render) -> None:
    assert of_kind(render({"crds": {"enabled": False}}), "CustomResourceDefinition") == []


def test_the_operator_understands_the_environment_that_the_chart_sets(render: Render) -> None:
    values = yaml.safe_load((CHART / "ci" / "everything.yaml").read_text())
    container = _container(render(values))
    plain = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    settings = from_environment({**plain, "POD_NAMESPACE": "operators", "POD_NAME": "specfleet-0"})
    assert settings.namespaces == ("team-a", "team-b")
    assert settings.lease_name == "specfleet-east"
    assert settings.prometheus_url == values["prometheus"]["url"]
    assert settings.alertmanager_url == values["alertmanager"]["url"]
    assert settings.webhook_url == values["webhook"]["url"]
    assert (settings.probe_port, settings.metrics_port) == tuple(one["containerPort"] for one in container["ports"])


def test_the_pod_fits_the_restricted_pod_security_standard(render: Render) -> None:
    pod = of_kind(render(), "Deployment")[0]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    own = _container(render())["securityContext"]
    assert own == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert not any("hostPath" in volume for volume in pod["volumes"])


def test_two_operators_never_run_side_by_side_on_purpose(render: Render) -> None:
    spec = of_kind(render(), "Deployment")[0]["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}


def test_no_rule_is_wider_than_it_must_be(render: Render) -> None:
    for values in ({}, {"namespaces": ["team-a"]}, {"prometheus": {"authSecrets": ["prometheus-token"]}}):
        for role in (*of_kind(render(values), "ClusterRole"), *of_kind(render(values), "Role")):
            for rule in role["rules"]:
                words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
                assert "*" not in words
                assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(words)
                if "secrets" in rule["resources"]:
                    assert rule["resourceNames"] == ["prometheus-token"]
                    assert rule["verbs"] == ["get"]
                    assert role["kind"] == "Role"
                assert not (
                    "speculativedeployments" in rule["resources"] and {"update", "patch"} & set(rule["verbs"])
                ) or (role["metadata"]["name"].endswith("-edit")), (
                    "the spec is the user's: the operator never writes it"
                )


@pytest.mark.parametrize(("values", "prefix"), [({}, "specfleet"), ({"shard": "team"}, "specfleet-team")])
def test_its_checkpoints_have_their_names_and_its_own_namespace_alone(
    render: Render, values: dict[str, object], prefix: str
) -> None:
    (own,) = (role for role in of_kind(render(values), "Role") if role["metadata"]["name"].endswith("-own"))
    (rule,) = (rule for rule in own["rules"] if rule["resources"] == ["configmaps"])
    assert own["metadata"]["namespace"] == "operators"
    assert rule["resourceNames"] == [f"{prefix}-watch-{shard}" for shard in range(SHARDS)]
    assert sorted(rule["verbs"]) == ["create", "delete", "get", "patch"]


def test_with_namespaces_there_is_no_cluster_wide_right_of_the_operator(render: Render) -> None:
    objects = render({"namespaces": ["team-a", "team-b"]})
    assert of_kind(objects, "ClusterRoleBinding") == []
    bound = {one["metadata"]["namespace"] for one in of_kind(objects, "RoleBinding")}
    assert bound == {"team-a", "team-b", "operators"}


def test_the_dashboard_asks_only_for_series_that_exist(render: Render) -> None:
    config = of_kind(render({"dashboard": {"enabled": True}}), "ConfigMap")[0]
    board = json.loads(config["data"]["specfleet.json"])
    asked = {name for target in _targets(board) for name in _series(target)}
    assert asked
    assert asked <= _offered(), asked - _offered()


def test_the_alert_rules_ask_only_for_series_that_exist(render: Render) -> None:
    rule = of_kind(render({"prometheusRule": {"enabled": True, "recordingRules": False}}), "PrometheusRule")[0]
    expressions = [one["expr"] for group in rule["spec"]["groups"] for one in group["rules"]]
    asked = {name for expression in expressions for name in _series(expression)}
    assert len(expressions) >= 8
    assert asked <= _offered(), asked - _offered()


def test_every_alert_names_its_runbook_where_runbooks_are_published(render: Render) -> None:
    rules = {"prometheusRule": {"enabled": True, "recordingRules": False}}
    url = "https://docs.example.com/runbooks/{alert}.md"
    for values, wanted in ((rules, None), ({**rules, "runbooks": {"url": url}}, url)):
        objects = render(values)
        alerts = [one for group in of_kind(objects, "PrometheusRule")[0]["spec"]["groups"] for one in group["rules"]]
        for one in alerts:
            link = one["annotations"].get("runbook_url")
            assert link == (wanted and wanted.replace("{alert}", one["alert"]))
            assert (RUNBOOKS / f"{one['alert']}.md").exists()
        told = {one["name"]: one.get("value") for one in _container(objects)["env"]}
        assert from_environment(told).runbooks_url == wanted


def test_recording_rules_can_be_left_out(render: Render) -> None:
    with_rules = of_kind(render({"prometheusRule": {"enabled": True}}), "PrometheusRule")[0]
    names = [group["name"] for group in with_rules["spec"]["groups"]]
    assert names == ["specfleet.deployments", "specfleet.operator", "specfleet.engines"]


def _container(objects: list[Object]) -> Object:
    found: Object = of_kind(objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]
    return found


def _targets(board: Any) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def _series(expression: str) -> set[str]:
    return set(re.findall(r"\b(specfleet_\w+)", expression))


def _offered() -> set[str]:
    offered: set[str] = set()
    for family in OperatorMetrics().registry.collect():
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        offered |= {family.name + suffix for suffix in suffixes}
    return offered


@pytest.mark.parametrize(("monitor", "warned"), [({}, True), ({"podMonitor": {"enabled": True}}, False)])
def test_the_notes_warn_where_the_rules_would_see_nothing(monitor: Object, warned: bool) -> None:
    values = {"image": {"repository": "registry.example.com/specfleet"}, "prometheusRule": {"enabled": True}, **monitor}
    with Chart.load(CHART) as chart:
        notes = chart.render(values=values, name="specfleet", namespace="operators")["specfleet/templates/NOTES.txt"]
    assert "kubectl rollout status deploy/specfleet -n operators" in notes
    assert ("SpecfleetOperatorAbsent fires for ever" in notes) is warned
