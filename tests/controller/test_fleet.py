"""What the operator knows of all deployments together."""

from specfleet.api.status import BenchmarkProgress, DeploymentStatus
from specfleet.controller.fleet import Fleet
from specfleet.controller.probe import Prober
from specfleet.controller.settings import from_environment

from tests.controller.objects import NOW, deployment

KEYS = [("ml", "one"), ("ml", "two"), ("ml", "three")]
PROGRESS = BenchmarkProgress(id="b", purpose="Qualify", candidate="f", started=NOW, pairs_planned=3)


def fleet(limit: int | None, measuring: int) -> Fleet:
    """Three deployments of which so many measure, as a fresh operator finds them."""
    found = Fleet(Prober(lambda key: None, lambda: NOW), limit)
    for place, (namespace, name) in enumerate(KEYS):
        status = DeploymentStatus(benchmark=PROGRESS if place < measuring else None)
        body = {**deployment().to_wire(), "status": status.to_wire()}
        metadata = {**body["metadata"], "namespace": namespace, "name": name, "uid": name}
        found.cache.put_deployment({**body, "metadata": metadata})
    return found


def test_a_fresh_operator_counts_the_benchmarks_that_run_already_but_nobody_counts_their_own() -> None:
    found = fleet(2, measuring=2)
    seen = {key: found.surroundings(key).fleet for key in KEYS}
    assert [one.others_measuring for one in seen.values()] == [1, 1, 2]
    assert {one.benchmarks_at_once for one in seen.values()} == {2}


def test_a_place_that_was_just_given_is_taken_for_the_next_and_free_when_the_deployment_goes() -> None:
    found = fleet(1, measuring=0)
    found.note_measuring(KEYS[0], True)
    assert found.surroundings(KEYS[1]).fleet.others_measuring == 1
    found.note_measuring(KEYS[0], False)
    assert found.surroundings(KEYS[1]).fleet.others_measuring == 0
    found.note_measuring(KEYS[0], True)
    found.forget(KEYS[0])
    assert found.surroundings(KEYS[1]).fleet.others_measuring == 0


def test_a_stand_by_that_sees_a_deployment_go_counts_the_others_when_it_takes_over() -> None:
    found = fleet(2, measuring=0)
    found.forget(KEYS[2])
    started = {**found.cache.deployments[KEYS[0]], "status": DeploymentStatus(benchmark=PROGRESS).to_wire()}
    found.cache.put_deployment(started)
    assert found.surroundings(KEYS[1]).fleet.others_measuring == 1


def test_without_the_setting_any_number_may_measure() -> None:
    assert from_environment({}).benchmarks_at_once == 0
    assert from_environment({"SPECFLEET_BENCHMARKS_AT_ONCE": "3"}).benchmarks_at_once == 3
    assert fleet(None, measuring=3).surroundings(KEYS[0]).fleet.benchmarks_at_once is None
