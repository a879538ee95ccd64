"""A template that is applied again as it stands in the cluster holds what we applied, and nothing of others."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specfleet.api.base import FIELD_MANAGER, RawObject
from specfleet.resources import workloads
from specfleet.resources.as_applied import as_applied
from specfleet.resources.identity import BUILDER

from tests.controller.objects import deployment, wanted
from tests.resources.test_groups import group_set, spanning
from tests.resources.test_manifests import arm

KEYS = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath", "ports": "containerPort"}


def fields(value: Any, name: str = "") -> RawObject:
    """FieldsV1 of an applied value: lists that have merge keys by item, all other lists and empty maps as a whole."""
    if isinstance(value, dict) and name != "nodeSelector":
        return {f"f:{key}": fields(inner, key) for key, inner in value.items()}
    if isinstance(value, list) and name in KEYS:
        own = {_named(KEYS[name], item): fields(item) for item in value}
        return {key: {".": {}, **tree} for key, tree in own.items()}
    return {}


def _named(key: str, item: RawObject) -> str:
    return "k:" + json.dumps({key: item[key]}, separators=(",", ":"))


def entry(manager: str, spec: RawObject) -> RawObject:
    return {"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": spec}}


def stored(manifest: RawObject) -> RawObject:
    """As the API server keeps what we have applied, with defaults that belong to nobody."""
    live = deepcopy(manifest)
    live["metadata"]["managedFields"] = [entry(FIELD_MANAGER, fields(manifest["spec"]))]
    for pod in pods(live):
        pod["dnsPolicy"] = "ClusterFirst"
        pod["containers"][0]["terminationMessagePath"] = "/dev/termination-log"
    return live


def pods(workload: RawObject) -> list[RawObject]:
    spec = workload["spec"]
    if "template" in spec:
        return [spec["template"]["spec"]]
    return [spec["leaderWorkerTemplate"][name]["spec"] for name in ("leaderTemplate", "workerTemplate")]


def tampered(manifest: RawObject) -> RawObject:
    """With a node selector, a variable, a side container and a size of an empty volume by somebody else."""
    live = stored(manifest)
    for pod in pods(live):
        pod["nodeSelector"] = {"disk": "ssd"}
        pod["containers"][0]["env"].append({"name": "FOO", "value": "1"})
        pod["containers"].insert(0, {"name": "side", "image": "busybox"})
        pod["volumes"][0]["emptyDir"]["medium"] = "Memory"
    variable = {'k:{"name":"FOO"}': {".": {}, "f:name": {}, "f:value": {}}}
    theirs = {
        "f:nodeSelector": {},
        "f:containers": {
            'k:{"name":"engine"}': {"f:env": variable},
            'k:{"name":"side"}': {".": {}, "f:name": {}, "f:image": {}},
        },
        "f:volumes": {'k:{"name":"scratch"}': {"f:emptyDir": {"f:medium": {}}}},
    }
    pod_tree = {"f:spec": theirs}
    trees = (
        {"f:template": pod_tree}
        if "template" in live["spec"]
        else {"f:leaderWorkerTemplate": {"f:leaderTemplate": pod_tree, "f:workerTemplate": pod_tree}}
    )
    live["metadata"]["managedFields"].append(entry("kubectl-patch", trees))
    return live


VOLUMES = {"volumes": [{"name": "scratch", "emptyDir": {}}], "volumeMounts": [{"name": "scratch", "mountPath": "/s"}]}


@pytest.mark.parametrize("benchmark", [False, True])
@pytest.mark.parametrize("builder", [None, "0"])
def test_what_others_add_is_not_applied_with_the_template_that_an_arm_keeps(
    benchmark: bool, builder: str | None
) -> None:
    owner = deployment(template=VOLUMES)
    made = arm(owner, benchmark=benchmark)
    if builder is not None:
        made["metadata"]["annotations"][BUILDER] = builder
    live = tampered(made)
    engine, role = wanted(owner).engines[wanted(owner).baseline.fingerprint], wanted(owner).baseline.role
    kept = workloads.arm_workload(owner, owner.spec, engine, role, 2, benchmark, live)
    assert kept == made
    assert workloads.rescaled(owner, live, 2) == made
    moved = workloads.rescaled(owner, workloads.moved(live, owner.spec, None), 2)
    assert moved == made


def test_what_others_add_to_a_set_of_pods_is_not_applied_with_the_templates_that_it_keeps() -> None:
    owner = spanning(**VOLUMES)
    made = group_set(owner)
    made["metadata"]["annotations"][BUILDER] = "0"
    live = tampered(made)
    assert group_set(owner, live=live) == made
    assert workloads.rescaled(owner, live, 2) == made


def test_a_placement_that_somebody_adds_to_a_benchmark_arm_is_not_taken_for_its_own() -> None:
    owner = deployment()
    live = stored(arm(owner, benchmark=True))
    pods(live)[0]["affinity"] = {"podAffinity": {}}
    engine, role = wanted(owner).engines[wanted(owner).baseline.fingerprint], wanted(owner).baseline.role
    assert "affinity" not in pods(workloads.arm_workload(owner, owner.spec, engine, role, 2, True, live))[0]


def test_a_workload_that_names_nothing_of_ours_keeps_its_template() -> None:
    owner = deployment()
    live = stored(arm(owner))
    live["metadata"]["managedFields"][0]["manager"] = "velero"
    kept = workloads.rescaled(owner, live, 2)
    assert kept is not None
    assert kept["spec"]["template"] == live["spec"]["template"]


def test_asked_twice_it_answers_the_same_and_the_live_one_is_left_as_it_is() -> None:
    live = tampered(arm(deployment(template=VOLUMES)))
    before = deepcopy(live)
    once = as_applied(live)
    assert as_applied(once) == once
    assert live == before


names = st.sampled_from(["a", "b", "c"])
values = st.recursive(
    st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=3),
    lambda inner: (
        st.dictionaries(names, inner, max_size=3)
        | st.dictionaries(names, inner, max_size=3).map(
            lambda found: {"containers": [{"name": name, "x": one} for name, one in found.items()]}
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(names, values, min_size=1), st.dictionaries(st.sampled_from(["d", "e"]), values))
def test_whatever_is_applied_comes_back_without_what_nobody_of_us_applied(own: RawObject, more: RawObject) -> None:
    live = {
        "metadata": {"name": "x", "managedFields": [entry(FIELD_MANAGER, fields({"template": own}))]},
        "spec": {"template": {**own, **more}, "replicas": 1},
    }
    assert as_applied(live)["spec"] == {"template": own, "replicas": 1}
