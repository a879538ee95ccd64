"""The operator dies between any two writes of any reconcile; a fresh one ends where an undisturbed one ends."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from specfleet.api.status import Phase, Verdict
from specfleet.decide.plan import Plan
from specfleet.engine.findings import Finding, Severity

from tests.decide.test_road import NEW_ENGINE, suspicion
from tests.decide.world import START, World, spec_of


@dataclass(frozen=True)
class Road:
    """What happens to a deployment, and where that ends."""

    spec: dict[str, object]
    script: Callable[[World], None]
    end: Phase
    seconds: float = 3600


def plain_road(world: World) -> None:
    """Nothing happens besides."""


def drift(world: World) -> None:
    """Once promoted, acceptance decays and the gain is gone."""
    if world.phase is Phase.SPECULATIVE and not world.suspicions:
        world.suspicions = (suspicion(),)
        world.pod_acceptance = lambda pod: 0.4
        world.gain = lambda tier, piece: 0.8


def bad_canary(world: World) -> None:
    """The canary is slower than the plain arm."""
    world.comparison = Verdict.FAIL


def draft_without_files(world: World) -> None:
    """The draft's folder is not there."""
    world.files_say = lambda spec: (MISSING,)


def nobody_looks(world: World) -> None:
    """The preflight pod finds no node."""
    world.preflight_runs = False


def new_engine(world: World) -> None:
    """Once promoted, the engine is changed."""
    if world.phase is Phase.SPECULATIVE and world.generation == 1:
        world.change(engine=NEW_ENGINE)


ON_DISK = {"method": "draft_model", "draft": {"model": "/models/draft"}, "numSpeculativeTokens": 3}
MISSING = Finding(
    "DraftMissing", Severity.REFUSE, "spec.speculation.draft.model", "DraftMissing", "is not there", "Copy it", "test"
)
ONE_STEP = {"steps": [{"weightPercent": 50, "minDurationSeconds": 30, "minRequests": 50}]}
LOOKS = {**spec_of()["benchmark"], "pairs": 5, "looks": [3]}
ROADS = {
    "promotion": Road(spec_of(replicas=4), plain_road, Phase.SPECULATIVE),
    "promotion in turns with an early look": Road(
        spec_of(replicas=1, capacity={"maxExtraReplicas": 1}, benchmark=LOOKS), plain_road, Phase.SPECULATIVE
    ),
    "failed canary": Road(spec_of(replicas=2, rollout=ONE_STEP), bad_canary, Phase.ROLLED_BACK),
    "drift and roll-back": Road(spec_of(replicas=2, rollout=ONE_STEP), drift, Phase.ROLLED_BACK),
    "files that fit": Road(spec_of(replicas=2, speculation=ON_DISK), plain_road, Phase.SPECULATIVE),
    "files that do not exist": Road(spec_of(replicas=2, speculation=ON_DISK), draft_without_files, Phase.BASELINE),
    "files that nobody looks at": Road(spec_of(replicas=2, speculation=ON_DISK), nobody_looks, Phase.SPECULATIVE),
    "new engine": Road(spec_of(replicas=2, rollout=ONE_STEP), new_engine, Phase.SPECULATIVE),
}


def finished(road: Road, world: World) -> bool:
    """Whether everything that the road asks for has happened."""
    asked = {new_engine: "AdoptRevision", drift: "RollBack", draft_without_files: "RefuseCandidate"}.get(road.script)
    return world.phase is road.end and (asked is None or bool(world.decisions(asked)))


def turn(road: Road, world: World, writes: int | None = None) -> Plan:
    """One reconcile, cut off after so many writes, what happens besides, and time."""
    plan = world.reconcile(writes)
    road.script(world)
    world.tick(max(1.0, min(5.0, plan.requeue_seconds or 5.0)))
    return plan


def travel(road: Road, world: World) -> World:
    """Go to the end and stay until nothing is written any more."""
    quiet = 0
    while quiet < 8 and (world.now - START).total_seconds() < road.seconds:
        before = world.writes
        turn(road, world)
        quiet = quiet + 1 if finished(road, world) and world.writes == before else 0
    assert quiet, f"{road.end} not reached: {world.phase} {world.story()}"
    return world


def outcome(world: World) -> dict[str, object]:
    """What a user could tell the difference by."""
    assert world.status is not None
    status = world.status
    return {
        "phase": status.phase,
        "stable": (status.stable.baseline, status.stable.speculative) if status.stable else None,
        "weights": {name: weight for name, weight in world.weights.items() if weight},
        "arms": {slot: arm.replicas for slot, arm in world.arms.items()},
        "evidence": len(world.evidence),
        "attempts": status.attempts.count if status.attempts else 0,
        "history": Counter(one.action for one in status.history),
        "verdicts": [one.verdict for one in status.trials],
    }


def crash_points(road: Road) -> Iterator[tuple[World, int]]:
    """The world before each kind of reconcile that writes something, with every number of writes that it may die after.

    Reconciles with the same pattern of writes in the same phase differ only in numbers: one of each kind is enough.
    """
    world = World(spec=dict(road.spec))
    seen: set[str] = set()
    quiet = 0
    while quiet < 8:
        before, writes = world.fork(), world.writes
        plan = turn(road, world)
        made = world.writes - writes
        quiet = quiet + 1 if finished(road, world) and not made else 0
        kind = (
            f"{world.phase} {[one.action for one in plan.decisions]} {len(plan.record)} {len(plan.restarts)} {made > 1}"
        )
        if made and kind not in seen:
            seen.add(kind)
            for count in range(len(plan.record) + 3 + len(plan.arms) + 1 + len(plan.restarts)):
                yield before.fork(), count


@pytest.mark.parametrize("name", ROADS)
def test_a_crash_after_any_write_ends_the_same(name: str) -> None:
    road = ROADS[name]
    expected = outcome(travel(road, World(spec=dict(road.spec))))
    tried = 0
    for world, writes in crash_points(road):
        tried += 1
        moment = f"died in {world.phase} at {world.now:%H:%M:%S} after {writes} writes"
        turn(road, world, writes)
        travel(road, world)
        assert outcome(world) == expected, f"{moment}: {world.story()}"
        units = [(one.benchmark, one.unit) for one in world.evidence]
        assert len(units) == len(set(units)), f"{moment}: something was measured twice"
        assert not world.lost, f"{moment}: {world.lost}"
    assert tried > 10
