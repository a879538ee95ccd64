"""Properties of exchange(): pods and traffic move from any arms to any target without losing a request."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from specfleet.api.status import ArmRole
from specfleet.decide.exchange import SETTLE_SECONDS, Move, Room, exchange
from specfleet.decide.observation import ArmView, PodView, Proof, RouteView

START = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
NAMES = ("aaa", "bbb", "ccc")
STEPS = 400


@dataclass
class Cluster:
    """Arms whose pods become ready and drain with delays."""

    replicas: dict[str, int]
    ready_seconds: int = 9
    drain_seconds: int = 7
    routed: bool = True
    accepted: bool = True
    now: datetime = START
    weights: dict[str, int] = field(default_factory=dict)
    since: datetime = START
    pods: dict[str, list[tuple[str, datetime, datetime | None]]] = field(default_factory=dict)
    """Per arm: (name, ready at, gone at)."""
    serial: int = 0

    def __post_init__(self) -> None:
        for name in self.replicas:
            self.fill(name, ready=START - timedelta(minutes=5))
        self.weights = {name: count for name, count in self.replicas.items() if count}

    def fill(self, name: str, ready: datetime | None = None) -> None:
        alive = [pod for pod in self.pods.setdefault(name, []) if pod[2] is None]
        for _ in range(self.replicas[name] - len(alive)):
            self.serial += 1
            moment = ready if ready is not None else self.now + timedelta(seconds=self.ready_seconds)
            self.pods[name].append((f"p{self.serial}", moment, None))
        for pod in sorted(alive, key=lambda one: one[1], reverse=True)[: max(0, len(alive) - self.replicas[name])]:
            self.pods[name].remove(pod)
            self.pods[name].append((pod[0], pod[1], self.now + timedelta(seconds=self.drain_seconds)))

    def views(self) -> tuple[ArmView, ...]:
        return tuple(
            ArmView(name, ArmRole.BASELINE, name, count, tuple(self.view(*pod) for pod in self.pods[name]))
            for name, count in sorted(self.replicas.items())
        )

    def view(self, name: str, ready: datetime, gone: datetime | None) -> PodView:
        up = ready <= self.now and gone is None
        return PodView(
            name, name, "10.0.0.1", START, ready if up else None, proof=Proof.PROVEN, deleting=gone is not None
        )

    def serving(self) -> dict[str, int]:
        return {arm.fingerprint: len(arm.serving) for arm in self.views()}

    def step(self, target: dict[str, int], room: Room) -> Move:
        route = RouteView(dict(self.weights), self.since, self.accepted) if self.routed else None
        move = exchange(target, self.views(), route, room, self.now)
        if dict(move.weights) != self.weights:
            self.weights, self.since = dict(move.weights), self.now
        for name, count in move.replicas.items():
            self.replicas[name] = count
            self.fill(name)
        self.now += timedelta(seconds=1)
        for name in self.pods:
            self.pods[name] = [pod for pod in self.pods[name] if pod[2] is None or pod[2] > self.now]
        return move


@st.composite
def cases(draw: st.DrawFn) -> tuple[Cluster, dict[str, int], Room]:
    replicas = draw(st.integers(1, 8))
    extra = draw(st.integers(0, 3))
    unavailable = draw(st.integers(0 if extra else 1, 3))
    start, target = draw(split(replicas)), draw(split(replicas))
    cluster = Cluster(start, draw(st.integers(1, 30)), draw(st.integers(1, 30)), draw(st.booleans()))
    floor = replicas if extra else max(0, replicas - unavailable)
    return cluster, target, Room(replicas, extra, floor)


@st.composite
def split(draw: st.DrawFn, total: int) -> dict[str, int]:
    first = draw(st.integers(0, total))
    second = draw(st.integers(0, total - first))
    return dict(zip(NAMES, (first, second, total - first - second), strict=True))


@given(cases())
@settings(max_examples=150, deadline=None)
def test_every_exchange_ends_at_its_target_and_stays_there(case: tuple[Cluster, dict[str, int], Room]) -> None:
    cluster, target, room = case
    for _ in range(STEPS * 3):
        if cluster.step(target, room).done:
            break
    else:
        raise AssertionError(f"not done: {cluster.replicas} instead of {target}")
    for _ in range(30):
        move = cluster.step(target, room)
        assert move.done
        assert move.replicas == {name: target.get(name, 0) for name in NAMES}
        assert {name: one for name, one in move.weights.items() if one} == {
            name: one for name, one in target.items() if one
        }


@given(cases())
@settings(max_examples=150, deadline=None)
def test_pods_never_exceed_the_ceiling_and_scaling_down_never_breaks_the_floor(
    case: tuple[Cluster, dict[str, int], Room],
) -> None:
    cluster, target, room = case
    for _ in range(STEPS):
        serving, before = cluster.serving(), dict(cluster.replicas)
        occupied = sum(len(arm.pods) for arm in cluster.views())
        move = cluster.step(target, room)
        grown = {name for name in NAMES if move.replicas[name] > before[name]}
        if grown:
            assert sum(len(arm.pods) for arm in cluster.views()) <= max(room.ceiling, occupied)
        left = sum(min(serving[name], move.replicas[name]) for name in NAMES)
        if any(move.replicas[name] < before[name] for name in NAMES):
            assert left >= min(room.floor, sum(serving.values()))
        if move.done:
            break


@given(cases())
@settings(max_examples=150, deadline=None)
def test_weight_is_only_given_to_serving_pods_and_is_equal_per_pod(
    case: tuple[Cluster, dict[str, int], Room],
) -> None:
    cluster, target, room = case
    for _ in range(STEPS):
        serving = cluster.serving()
        move = cluster.step(target, room)
        if any(serving.values()):
            assert any(move.weights.values()), "some arm gets the traffic"
            for name, weight in move.weights.items():
                assert weight <= serving[name], f"{name} gets {weight} with {serving[name]} serving pods"
        if move.done:
            break


@given(cases())
@settings(max_examples=150, deadline=None)
def test_every_arm_moves_towards_its_target_and_never_back(case: tuple[Cluster, dict[str, int], Room]) -> None:
    cluster, target, room = case
    for _ in range(STEPS):
        before = dict(cluster.replicas)
        move = cluster.step(target, room)
        for name in NAMES:
            low, high = sorted((before[name], target[name]))
            assert low <= move.replicas[name] <= high
        if move.done:
            break


@given(cases())
@settings(max_examples=100, deadline=None)
def test_a_serving_pod_leaves_only_after_the_gateway_had_time_to_look_away(
    case: tuple[Cluster, dict[str, int], Room],
) -> None:
    cluster, target, room = case
    cluster.routed = True
    for _ in range(STEPS):
        before, serving = dict(cluster.replicas), cluster.serving()
        weights, since, now = dict(cluster.weights), cluster.since, cluster.now
        move = cluster.step(target, room)
        for name in NAMES:
            alone = serving[name] == sum(serving.values())  # then there is nowhere to look
            if move.replicas[name] < min(before[name], serving[name]) and not (alone and room.floor == 0):
                assert weights.get(name, 0) <= move.replicas[name]
                assert (now - since).total_seconds() >= SETTLE_SECONDS
        if move.done:
            break


def run(cluster: Cluster, target: dict[str, int], room: Room) -> int:
    """Least serving pods on the way."""
    least = sum(cluster.serving().values())
    for _ in range(STEPS):
        done = cluster.step(target, room).done
        least = min(least, sum(cluster.serving().values()))
        if done:
            return least
    raise AssertionError("not done")


def test_without_extra_room_at_most_max_unavailable_pods_are_missing_at_any_time() -> None:
    assert run(Cluster({"aaa": 4, "bbb": 0}), {"aaa": 0, "bbb": 4}, Room(4, extra=0, floor=3)) == 3


def test_with_one_extra_pod_nobody_is_missing_at_any_time() -> None:
    assert run(Cluster({"aaa": 4, "bbb": 0}), {"aaa": 0, "bbb": 4}, Room(4, extra=1, floor=4)) == 4


def test_pods_that_do_not_serve_leave_at_once_and_free_their_room() -> None:
    cluster = Cluster({"aaa": 3, "bbb": 0})
    cluster.pods["aaa"] = [(name, START + timedelta(days=1), None) for name, _, _ in cluster.pods["aaa"]]
    move = cluster.step({"aaa": 0, "bbb": 3}, Room(3, extra=0, floor=2))
    assert move.replicas["aaa"] == 0


def test_a_route_that_no_gateway_has_accepted_keeps_serving_pods_where_they_are() -> None:
    cluster = Cluster({"aaa": 2, "bbb": 2}, accepted=False)
    for _ in range(60):
        move = cluster.step({"aaa": 0, "bbb": 2}, Room(2, extra=2, floor=2))
    assert move.replicas["aaa"] == 2
    assert not move.done


def test_with_nothing_serving_the_route_still_names_the_arm_that_should_serve() -> None:
    move = exchange({"aaa": 2}, (), RouteView({}, START, False), Room(2, 1, 2), START)
    assert move.weights == {"aaa": 2}
    assert move.replicas == {"aaa": 2}
