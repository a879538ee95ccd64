"""What an observation costs: the telemetry tick observes the whole fleet every few seconds."""

from typing import Any

import pytest
from specfleet.api.base import RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import Phase
from specfleet.controller import observe as observing
from specfleet.controller.fleet import UserMaps
from specfleet.controller.observe import Surroundings, observe
from specfleet.controller.probe import Prober
from specfleet.decide.observation import FleetView, Observation
from specfleet.decide.watch_scope import watch_target
from specfleet.resources.evidence import speculative_benchmark
from specfleet.resources.revision import controller_revision

from tests.controller.objects import KEY, NOW, as_stored, cache_of, deployment, pod, wanted
from tests.decide.world import World

AROUND = Surroundings(prober=Prober(lambda key: None, lambda: NOW), reports={}, gateway_api=True, fleet=FleetView())


def promoted() -> tuple[SpeculativeDeployment, list[RawObject]]:
    """A promoted deployment with its evidence, a readable and an unreadable revision, and a pod."""
    world = World()
    world.run_to(Phase.SPECULATIVE)
    owner = deployment().model_copy(update={"status": world.status})
    bodies = [as_stored(speculative_benchmark(owner, one), f"e-{one.unit}") for one in world.evidence]
    odd = as_stored(controller_revision(owner, "odd"), "r-2")
    odd["data"] = {"spec": {"model": 7}}
    return owner, [*bodies, as_stored(controller_revision(owner, "first"), "r-1"), odd, pod(world.plain)]


def seen(owner: SpeculativeDeployment, bodies: list[RawObject], **how: Any) -> Observation:
    return observe(cache_of(owner, *bodies), KEY, owner, wanted(owner), AROUND, NOW, **how)


def test_the_tick_reads_neither_evidence_nor_revisions_and_watches_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    owner, bodies = promoted()
    assert owner.status is not None
    whole = seen(owner, bodies)
    read: list[str] = []
    monkeypatch.setattr(observing, "read_revision", lambda body: read.append(body["metadata"]["name"]))
    monkeypatch.setattr(observing, "_evidence", lambda *args: pytest.fail("evidence was read"))
    tick = seen(owner, bodies, with_evidence=False)
    assert whole.evidence
    assert watch_target(tick, owner.status, NOW) == watch_target(whole, owner.status, NOW)
    assert read == []


def test_revisions_are_there_when_somebody_asks_and_unreadable_ones_are_not() -> None:
    owner, bodies = promoted()
    obs = seen(owner, bodies)
    assert list(obs.revisions) == ["first"]
    assert obs.revisions["first"] == owner.spec
    assert obs.revisions.get("odd") is None


def test_what_was_read_of_config_maps_is_told_apart_by_content() -> None:
    one, same, other = (UserMaps(read=n, found={"a": {"k": text}}) for n, text in enumerate(("x", "x", "y")))
    assert one.digest == same.digest != other.digest
    assert UserMaps(absent={"a": "gone"}).digest != UserMaps(absent={"a": "forbidden"}).digest
