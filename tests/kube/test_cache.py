"""The cache under events that come late, twice, out of order, and under namesakes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from specfleet.api import labels
from specfleet.kube import kinds
from specfleet.kube.cache import Cache, owner_key

KEY = ("ml", "llama")


def child(name: str, version: int, uid: str | None = None, **fields: Any) -> dict[str, Any]:
    own = {
        "name": name,
        "namespace": "ml",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
        "labels": {labels.DEPLOYMENT: "llama"},
    }
    return {"metadata": own, **fields}


def deployment(version: int, uid: str = "u-1") -> dict[str, Any]:
    return {"metadata": {"name": "llama", "namespace": "ml", "uid": uid, "resourceVersion": str(version)}}


def versions(cache: Cache) -> dict[str, str]:
    return {body["metadata"]["name"]: body["metadata"]["resourceVersion"] for body in cache.children(KEY, kinds.POD)}


@given(st.permutations([1, 2, 9, 10, 100]))
def test_whatever_the_order_of_events_the_newest_one_stays(order: list[int]) -> None:
    cache = Cache()
    for version in order:
        cache.put(kinds.POD, child("p", version))
        cache.put_deployment(deployment(version))
    assert versions(cache) == {"p": "100"}
    assert cache.deployments[KEY]["metadata"]["resourceVersion"] == "100"


def test_a_namesake_made_later_replaces_the_earlier_object_and_not_the_other_way_round() -> None:
    cache = Cache()
    cache.put(kinds.POD, child("p", 20, uid="new"))
    cache.put(kinds.POD, child("p", 10, uid="old"))
    assert cache.children(KEY, kinds.POD)[0]["metadata"]["uid"] == "new"


def test_the_late_deletion_of_an_earlier_namesake_does_not_remove_its_successor() -> None:
    cache = Cache()
    cache.put(kinds.POD, child("p", 20, uid="new"))
    cache.drop(kinds.POD, child("p", 15, uid="old"))
    assert versions(cache) == {"p": "20"}
    cache.put_deployment(deployment(30, uid="u-2"))
    assert cache.delete_deployment(deployment(25, uid="u-1")) is None
    assert cache.deployments[KEY]["metadata"]["uid"] == "u-2"


def test_a_deleted_deployment_takes_its_children_along() -> None:
    cache = Cache()
    cache.put_deployment(deployment(1))
    cache.put(kinds.POD, child("p", 2))
    assert cache.delete_deployment(deployment(3)) == KEY
    assert cache.known() == []
    assert cache.children(KEY, kinds.POD) == []


def test_a_list_removes_what_a_watch_gap_has_hidden() -> None:
    cache = Cache()
    cache.put(kinds.POD, child("kept", 1))
    cache.put(kinds.POD, child("deleted-in-the-gap", 2))
    assert cache.replace_children(KEY, kinds.POD, [child("kept", 1)], cache.mark())
    assert versions(cache) == {"kept": "1"}


def test_a_list_that_shows_nothing_new_is_no_difference() -> None:
    cache = Cache()
    cache.put(kinds.POD, child("p", 1))
    assert not cache.replace_children(KEY, kinds.POD, [child("p", 1)], cache.mark())


def test_a_list_that_was_on_its_way_does_not_undo_events_that_overtook_it() -> None:
    cache = Cache()
    cache.put(kinds.POD, child("changed", 1))
    cache.put(kinds.POD, child("deleted", 2))
    mark = cache.mark()
    listed = [child("changed", 1), child("deleted", 2)]
    cache.put(kinds.POD, child("changed", 5))
    cache.drop(kinds.POD, child("deleted", 6))
    cache.put(kinds.POD, child("made", 7))
    cache.replace_children(KEY, kinds.POD, listed, mark)
    assert versions(cache) == {"changed": "5", "made": "7"}


def test_a_deployment_made_while_all_were_listed_is_not_missing() -> None:
    cache = Cache()
    cache.put_deployment({"metadata": {"name": "gone", "namespace": "ml", "uid": "u-0", "resourceVersion": "1"}})
    mark = cache.mark()
    cache.put_deployment(deployment(2))
    assert cache.missing(set(), mark) == [("ml", "gone")]


def test_a_list_of_one_kind_leaves_other_kinds_alone() -> None:
    cache = Cache()
    cache.put(kinds.POD, child("p", 1))
    cache.put(kinds.JOB, child("j", 2))
    cache.replace_children(KEY, kinds.JOB, [], cache.mark())
    assert versions(cache) == {"p": "1"}
    assert cache.children(KEY, kinds.JOB) == []


def test_children_are_found_by_owner_and_pods_by_label() -> None:
    reference = {"kind": "SpeculativeDeployment", "name": "llama", "uid": "u-1"}
    owned = {"metadata": {"name": "x", "namespace": "ml", "ownerReferences": [reference]}}
    assert owner_key(owned) == KEY
    assert owner_key(child("p", 1)) == KEY
    assert owner_key({"metadata": {"name": "stranger", "namespace": "ml"}}) is None


def test_memory_does_not_grow_with_pods_that_come_and_go() -> None:
    cache = Cache()
    for number in range(300):
        body = child(f"p{number}", number + 1)
        cache.put(kinds.POD, body)
        cache.drop(kinds.POD, body)
    assert not cache._seen[KEY]
    assert not cache._children[KEY]


def test_memory_does_not_grow_with_deployments_that_come_and_go() -> None:
    cache = Cache()
    cache.put_deployment(deployment(1))
    cache.put(kinds.POD, child("p", 2))
    cache.delete_deployment(deployment(3))
    cache.put(kinds.POD, child("p", 4))
    cache.drop(kinds.POD, child("p", 5))
    cache.put(kinds.POD, child("p", 4))
    assert not cache._children
    assert not cache._seen
