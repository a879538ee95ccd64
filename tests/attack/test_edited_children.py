"""Children edited by hand, and objects of others with a copy of our labels: observed without an error, never ours."""

import asyncio
from typing import Any

import pytest
from specfleet.api import labels
from specfleet.api.status import ArmRole
from specfleet.controller.fleet import Fleet
from specfleet.controller.observe import observe
from specfleet.controller.probe import Prober
from specfleet.decide.decide import decide
from specfleet.decide.observation import Observation
from specfleet.decide.revisions import revision_name
from specfleet.resources import route, workloads

from tests.controller.objects import KEY, NOW, as_stored, cache_of, deployment, pod, wanted

Body = dict[str, Any]

OWNER = deployment()
PLAIN = wanted(OWNER).baseline.fingerprint


def arm() -> Body:
    engine = wanted(OWNER).engines[PLAIN]
    return as_stored(workloads.arm_workload(OWNER, OWNER.spec, engine, ArmRole.BASELINE, 4), "d-1")


def routed(**annotations: str) -> Body:
    body = as_stored(route.http_route(OWNER, {PLAIN: 100}, None, None, NOW), "r-1")
    body["metadata"]["annotations"] |= annotations
    return body


def seen(*bodies: Body) -> Observation:
    async def look() -> Observation:
        fleet = Fleet(Prober(lambda _: None, lambda: NOW))
        fleet.cache = cache_of(OWNER, *bodies)
        owner = fleet.deployment(KEY)
        found = observe(fleet.cache, KEY, owner, fleet.wanted(KEY, owner), fleet.surroundings(KEY), NOW)
        await fleet.prober.close()
        return found

    found = asyncio.run(look())
    decide(found)
    return found


@pytest.mark.parametrize("label", [labels.FINGERPRINT, labels.ARM, labels.ROLE])
@pytest.mark.parametrize("value", [None, "nonsense"])
def test_an_arm_is_known_whatever_its_labels_were_edited_to(label: str, value: str | None) -> None:
    body = arm()
    body["metadata"]["labels"].pop(label)
    if value is not None:
        body["metadata"]["labels"][label] = value
    found = seen(body)
    assert [(one.role, one.fingerprint) for one in found.arms] == [(ArmRole.BASELINE, PLAIN)]
    assert found.bench == ()


def test_a_deployment_of_others_with_our_label_is_no_arm() -> None:
    body = arm()
    body["metadata"] |= {"name": "users-own", "uid": "x", "labels": {labels.DEPLOYMENT: "llama"}, "ownerReferences": []}
    assert seen(body).arms == ()


def test_a_namesakes_deployment_is_no_arm() -> None:
    body = arm()
    body["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert seen(body).arms == ()


@pytest.mark.parametrize("since", ["garbage", "2026-11-02T09:00:00", ""])
def test_a_garbled_time_on_the_route_counts_from_now_and_is_written_anew(since: str) -> None:
    body = routed(**{route.WEIGHTS_SINCE: since})
    found = seen(arm(), body).route
    assert found is not None
    assert found.since == NOW
    again = route.http_route(OWNER, {PLAIN: 100}, None, body, NOW)
    assert again["metadata"]["annotations"][route.WEIGHTS_SINCE] == NOW.isoformat()


def test_garbled_weights_on_the_route_are_no_weights() -> None:
    found = seen(arm(), routed(**{route.FINGERPRINTS: "a=²,b,c=-1,=,"})).route
    assert found is not None
    assert found.weights == {}


@pytest.mark.parametrize("port", ["eighty", ""])
def test_a_pod_with_a_garbled_port_does_not_stop_the_reconcile(port: str) -> None:
    body = pod(PLAIN)
    body["spec"]["containers"][0]["env"][0]["value"] = port
    assert [one.name for one in seen(arm(), body).arms[0].pods] == ["p1"]


def test_two_long_names_with_the_same_start_have_revisions_of_their_own() -> None:
    def named(name: str) -> str:
        owner = deployment(name)
        engines = wanted(owner)
        return revision_name(Observation(NOW, owner, engines.baseline, engines.proposers))

    assert named("x" * 52 + "-a") != named("x" * 52 + "-b")
