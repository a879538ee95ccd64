"""What others add to one arm's pods is told; what the API server, webhooks and rollout restarts do is not."""

from copy import deepcopy
from typing import Any

import pytest
from specfleet.api.base import RawObject
from specfleet.controller.foreign import foreign_fields
from specfleet.controller.observe import Surroundings, observe
from specfleet.decide.observation import FleetView
from specfleet.kube import kinds

from tests.controller.objects import KEY, NOW, wanted
from tests.controller.test_changes import Proven, child_of, edited, settled

ENGINE = 'k:{"name":"engine"}'
OWN = {
    "f:containers": {ENGINE: {".": {}, "f:name": {}, "f:image": {}, "f:env": {'k:{"name":"HOME"}': {"f:value": {}}}}}
}


def fields(pods: RawObject, **spec: Any) -> RawObject:
    return {"f:spec": {"f:template": {"f:spec": pods}, **spec}}


def arm(*others: tuple[str, RawObject]) -> RawObject:
    own = {"manager": "specfleet", "operation": "Apply", "fieldsV1": fields(OWN)}
    listed = [{"manager": who, "operation": "Update", "fieldsV1": tree} for who, tree in others]
    return {"kind": "Deployment", "metadata": {"name": "llama-f1", "managedFields": [own, *listed]}}


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ({"f:nodeSelector": {"f:disk": {}}}, "nodeSelector.disk"),
        ({"f:nodeSelector": {".": {}, "f:disk": {}}}, "nodeSelector.disk"),
        (
            {"f:containers": {ENGINE: {"f:env": {'k:{"name":"FOO"}': {".": {}, "f:name": {}, "f:value": {}}}}}},
            "containers[engine].env[FOO]",
        ),
        ({"f:tolerations": {}}, "tolerations"),
    ],
    ids=["a node selector", "one with its map", "a variable", "a list that is one value"],
)
def test_what_somebody_adds_to_one_arm_is_named_with_who_did_it(pods: RawObject, said: str) -> None:
    told = foreign_fields(arm(("kubectl-patch", fields(pods))))
    assert told is not None
    assert f"kubectl-patch set {said}:" in told
    assert "llama-f1" in told


@pytest.mark.parametrize(
    "other",
    [
        ("kubectl-edit", fields(OWN)),
        ("kubectl-rollout", {"f:spec": {"f:template": {"f:metadata": {"f:annotations": {"f:restartedAt": {}}}}}}),
        ("kube-controller-manager", {"f:metadata": {"f:annotations": {"f:revision": {}}}, "f:status": {}}),
        ("kubectl-scale", {"f:spec": {"f:replicas": {}}}),
        ("velero", fields({**OWN, "f:dnsPolicy": {}}, **{"f:selector": {}})),
    ],
    ids=["the same as ours", "a rollout restart", "the controller of Deployments", "a scale", "a restored backup"],
)
def test_what_changes_nothing_in_the_pods_is_no_difference(other: tuple[str, RawObject]) -> None:
    assert foreign_fields(arm(other)) is None
    assert foreign_fields(arm()) is None


def test_a_patched_arm_is_a_problem_that_the_status_tells() -> None:
    owner, cache = settled()
    live = deepcopy(child_of(cache, kinds.DEPLOYMENT))
    patched = {"manager": "kubectl-patch", "operation": "Update", "fieldsV1": fields({"f:nodeSelector": {"f:a": {}}})}
    around = Surroundings(Proven(), reports={}, gateway_api=True, fleet=FleetView())  # type: ignore[arg-type]
    assert observe(cache, KEY, owner, wanted(owner), around, NOW).problems == ()
    edited(cache, kinds.DEPLOYMENT, lambda body: body["metadata"]["managedFields"].append(patched))
    (told,) = observe(cache, KEY, owner, wanted(owner), around, NOW).problems
    assert live["metadata"]["name"] in told
    edited(cache, kinds.DEPLOYMENT, lambda body: body["spec"].update(replicas=0))
    assert observe(cache, KEY, owner, wanted(owner), around, NOW).problems == (), "an empty arm serves nobody"
