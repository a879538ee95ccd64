"""Which writes a plan needs, and that a steady state needs none."""

import json
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specfleet.api import labels, names
from specfleet.api.base import RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import ArmRole, DeploymentStatus
from specfleet.controller.changes import Changes, Settled, contains, find_changes
from specfleet.controller.children import desired_children
from specfleet.controller.observe import Surroundings, observe
from specfleet.controller.wanted import WantedArms
from specfleet.decide.decide import decide
from specfleet.decide.observation import FleetView, Proof
from specfleet.decide.plan import ArmIntent, Plan
from specfleet.kube import kinds
from specfleet.kube.cache import Cache
from specfleet.resources.revision import controller_revision

from tests.controller.objects import KEY, NOW, as_stored, cache_of, deployment, pod, wanted

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Proven:
    """A prober for which every pod has answered."""

    def answer(self, question: Any) -> Any:
        from specfleet.controller.probe import Answered

        return Answered(Proof.PROVEN, "", "0.32.0")


def think(owner: SpeculativeDeployment, cache: Cache, seconds: float = 0) -> tuple[Plan, list[RawObject], Changes]:
    around = Surroundings(prober=Proven(), reports={}, gateway_api=True, fleet=FleetView())  # type: ignore[arg-type]
    arms = wanted(owner)
    obs = observe(cache, KEY, owner, arms, around, NOW + timedelta(seconds=seconds))
    plan = decide(obs)
    optional = frozenset({"HTTPRoute", "PodMonitor"})
    manifests = desired_children(obs, plan, arms, cache, KEY, optional, None)
    return plan, manifests, find_changes(cache, KEY, owner, plan, manifests, Settled())


def settled() -> tuple[SpeculativeDeployment, Cache]:
    """A deployment whose first plan has been carried out: status and children are there, pods serve."""
    owner = deployment(replicas=2, speculation=None)
    fingerprint = wanted(owner).baseline.fingerprint
    children: dict[str, RawObject] = {}
    status: DeploymentStatus | None = None
    for turn in range(6):
        now = owner.model_copy(update={"status": status})
        pods = [pod(fingerprint, f"p{number}") for number in range(2)] if turn else []
        cache = cache_of(now, *children.values(), *pods)
        plan, manifests, _ = think(now, cache, seconds=10 * turn)
        status = DeploymentStatus.model_validate(plan.status.to_wire())
        for manifest in manifests:
            slot = f"{manifest['kind']}/{manifest['metadata']['name']}"
            children[slot] = as_stored(manifest, uid=f"uid-{slot}")
            if manifest["kind"] == "HTTPRoute":
                told = [{"type": "Accepted", "status": "True"}, {"type": "ResolvedRefs", "status": "True"}]
                children[slot]["status"] = {"parents": [{"conditions": told}]}
    final = owner.model_copy(update={"status": status})
    return final, cache_of(final, *children.values(), *pods)


def test_a_new_deployment_gets_all_its_children_and_its_status() -> None:
    owner = deployment(replicas=2)
    _, _, changes = think(owner, cache_of(owner))
    made = {manifest["kind"] for manifest in (*changes.create, *changes.apply)}
    assert made == {"ControllerRevision", "Service", "Deployment", "HTTPRoute", "PodMonitor"}
    assert changes.status is not None
    assert not changes.remove


def test_a_steady_state_needs_no_write_at_all() -> None:
    owner, cache = settled()
    plan, _, changes = think(owner, cache, seconds=3600)
    assert not changes, f"{changes}"
    assert not plan.decisions


def child_of(cache: Cache, kind: kinds.Kind, index: int = 0) -> RawObject:
    return cache.children(KEY, kind)[index]


def edited(cache: Cache, kind: kinds.Kind, change: Any) -> None:
    body = deepcopy(child_of(cache, kind))
    change(body)
    body["metadata"]["resourceVersion"] = "99"
    cache.put(kind, body)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (kinds.DEPLOYMENT, lambda body: body["spec"].update(replicas=0)),
        (kinds.DEPLOYMENT, lambda body: body["spec"]["template"]["spec"]["containers"][0].update(image="evil")),
        (kinds.SERVICE, lambda body: body["spec"]["selector"].clear()),
        (kinds.HTTP_ROUTE, lambda body: body["spec"]["rules"][0]["backendRefs"][0].update(weight=0)),
        (kinds.HTTP_ROUTE, lambda body: body["spec"]["rules"][0].pop("timeouts")),
        (kinds.POD_MONITOR, lambda body: body["spec"].pop("selector")),
        (kinds.DEPLOYMENT, lambda body: body["metadata"]["labels"].pop(labels.MANAGED_BY)),
    ],
    ids=[
        "scaled by hand",
        "image changed",
        "selector emptied",
        "weight changed",
        "time-out removed",
        "monitor",
        "label",
    ],
)
def test_a_child_that_somebody_edits_is_put_right(kind: kinds.Kind, change: Any) -> None:
    owner, cache = settled()
    edited(cache, kind, change)
    _, _, changes = think(owner, cache, seconds=3600)
    assert [manifest["kind"] for manifest in changes.apply] == [kind.kind]


def test_a_child_that_somebody_deletes_is_made_again() -> None:
    owner, cache = settled()
    cache.drop(kinds.SERVICE, child_of(cache, kinds.SERVICE))
    _, _, changes = think(owner, cache, seconds=3600)
    assert [manifest["kind"] for manifest in changes.apply] == ["Service"]


def test_what_the_api_server_and_others_add_is_left_alone() -> None:
    owner, cache = settled()
    edited(cache, kinds.SERVICE, lambda body: body["metadata"].update(annotations={"cloud/lb": "yes"}))
    edited(cache, kinds.DEPLOYMENT, lambda body: body["status"].update(readyReplicas=2))
    _, _, changes = think(owner, cache, seconds=3600)
    assert not changes


def test_children_of_a_namesake_with_another_uid_are_never_removed() -> None:
    owner, cache = settled()
    stranger = deepcopy(child_of(cache, kinds.DEPLOYMENT))
    stranger["metadata"] |= {"name": "llama-0ther", "uid": "uid-other"}
    stranger["metadata"]["ownerReferences"][0]["uid"] = "u-of-a-namesake"
    stranger["metadata"]["labels"][labels.FINGERPRINT] = "0ther"
    cache.put(kinds.DEPLOYMENT, stranger)
    _, _, changes = think(owner, cache, seconds=3600)
    assert "uid-other" not in {removal.uid for removal in changes.remove}


def test_a_surplus_child_is_removed_by_its_uid() -> None:
    owner, cache = settled()
    surplus = deepcopy(child_of(cache, kinds.SERVICE))
    surplus["metadata"] |= {"name": "llama-old", "uid": "uid-old"}
    cache.put(kinds.SERVICE, surplus)
    _, _, changes = think(owner, cache, seconds=3600)
    assert [(removal.name, removal.uid) for removal in changes.remove] == [("llama-old", "uid-old")]


def test_evidence_beyond_what_is_kept_goes_oldest_first() -> None:
    owner, cache = settled()
    for number in range(owner.spec.benchmark.evidence_kept + 3):
        meta = {
            "name": f"e{number:03d}",
            "namespace": "ml",
            "uid": f"uid-e{number}",
            "resourceVersion": "5",
            "creationTimestamp": f"2026-10-01T00:{number // 60:02d}:{number % 60:02d}Z",
            "ownerReferences": [owner.owner_reference()],
        }
        cache.put(kinds.SPECULATIVE_BENCHMARK, {"metadata": meta, "spec": {"benchmark": "old"}})
    _, _, changes = think(owner, cache, seconds=3600)
    assert [removal.name for removal in changes.remove] == ["e000", "e001", "e002"]


def test_a_manifest_that_the_api_server_normalises_is_applied_once_and_then_known() -> None:
    memory, manifest = Settled(), {"spec": {"cpu": "0.5"}}
    answered = {"metadata": {"uid": "u", "generation": 3}, "spec": {"cpu": "500m"}}
    assert not contains(answered, manifest)
    memory.remember(manifest, answered)
    assert memory.holds(manifest, answered)
    assert not memory.holds({"spec": {"cpu": "0.6"}}, answered), "another wish"
    assert not memory.holds(manifest, {"metadata": {"uid": "u", "generation": 4}}), "somebody changed it"
    assert not memory.holds(manifest, {"metadata": {"uid": "other", "generation": 3}}), "a namesake"
    memory.keep_only(set())
    assert not memory.holds(manifest, answered)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_everything_contains_itself(value: Any) -> None:
    assert contains(deepcopy(value), value)


@given(st.dictionaries(st.text(max_size=2), values, max_size=3), st.text(min_size=3, max_size=4), values)
def test_added_fields_do_not_matter_and_missing_ones_do(wish: dict[str, Any], name: str, value: Any) -> None:
    assert contains({**wish, name: value}, wish)
    assert not contains(wish, {**wish, name: value})


@pytest.mark.parametrize(
    ("live", "wish"),
    [
        ({"a": [1, 2]}, {"a": [1]}),
        ({"a": [1]}, {"a": [1, 2]}),
        ({"a": [2, 1]}, {"a": [1, 2]}),
        ({"a": "1"}, {"a": 1}),
        ({"a": {}}, {"a": {"b": 1}}),
        ({"a": []}, {"a": {}}),
        ([], {}),
    ],
)
def test_other_lists_types_and_values_are_differences(live: Any, wish: Any) -> None:
    assert not contains(live, wish)


def test_the_route_is_written_before_arms_shrink_and_after_services_exist() -> None:
    owner = deployment(replicas=2)
    _, manifests, _ = think(owner, cache_of(owner))
    order = [manifest["kind"] for manifest in manifests]
    assert order.index("Service") < order.index("HTTPRoute") < order.index("Deployment")


TEMPLATE = {
    "volumes": [{"name": "chat", "configMap": {"name": "chat"}}],
    "volumeMounts": [{"name": "chat", "mountPath": "/chat"}],
}


@pytest.mark.parametrize("benchmark", [False, True], ids=["to roll back to", "to measure a change against"])
def test_a_plain_arm_can_be_made_again_although_a_config_map_has_changed_under_it(benchmark: bool) -> None:
    owner = deployment(template=TEMPLATE)
    before = WantedArms(owner.spec, {"chat": {"template": "old"}})
    now = WantedArms(owner.spec, {"chat": {"template": "new"}})
    known = before.baseline.fingerprint
    assert known != now.baseline.fingerprint
    cache = cache_of(owner, as_stored(controller_revision(owner, "first"), "r-1"))
    around = Surroundings(prober=Proven(), reports={}, gateway_api=True, fleet=FleetView())  # type: ignore[arg-type]
    obs = observe(cache, KEY, owner, now, around, NOW)
    intent = ArmIntent(ArmRole.BASELINE, known, 2, benchmark=benchmark, revision="first")
    plan = replace(decide(obs), arms=(intent,), job=None)
    made = [
        one for one in desired_children(obs, plan, now, cache, KEY, frozenset(), None) if one["kind"] == "Deployment"
    ]
    assert [(one["metadata"]["name"], one["spec"]["replicas"]) for one in made] == [
        (names.arm(owner.name, known, benchmark), 2)
    ]
    container = made[0]["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "SPECFLEET_FINGERPRINT", "value": known} in container["env"]
    assert known in json.dumps(container), "the engine answers with the fingerprint by which it is known"
    assert now.baseline.fingerprint not in json.dumps(made[0])


@pytest.mark.parametrize(("replicas", "moves"), [(0, True), (1, False)], ids=["no pods now", "a pod is measured"])
def test_the_arm_of_an_earlier_spec_changes_places_too_half_way_through_a_benchmark(replicas: int, moves: bool) -> None:
    zone = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
    before = deployment(template={"affinity": {"nodeAffinity": {PREFERRED: [zone]}}})
    known = wanted(before).baseline.fingerprint
    owner = deployment(engine={"image": "vllm/vllm-openai:v0.33.0"})
    cache = cache_of(owner, as_stored(controller_revision(before, "first"), "r-1"))
    around = Surroundings(prober=Proven(), reports={}, gateway_api=True, fleet=FleetView())  # type: ignore[arg-type]
    obs = observe(cache, KEY, owner, wanted(owner), around, NOW)

    def made(*live: RawObject, node: str | None) -> RawObject:
        plan = replace(decide(obs), arms=(ArmIntent(ArmRole.BASELINE, known, 1, True, "first", node),), job=None)
        children = desired_children(obs, plan, wanted(owner), cache_of(owner, *live), KEY, frozenset(), None)
        return next(one for one in children if one["kind"] == "Deployment")

    def preferred(body: RawObject) -> list[RawObject]:
        found: list[RawObject] = body["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][PREFERRED]
        return found

    live = made(node="node-a")
    live["spec"]["replicas"] = replicas
    again = made(as_stored(live, "d-1"), node="node-b")
    assert preferred(again)[0] == zone, "the user's own wishes stay"
    named = [one["preference"]["matchFields"][0]["values"] for one in preferred(again)[1:]]
    assert named == [["node-b"] if moves else ["node-a"]]
