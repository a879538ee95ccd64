"""Moving pods and traffic from one arm to another without losing a request.

Traffic weight follows serving pods, so both arms carry the same load per pod at every moment (a comparison at unequal
load is worthless) and weight never points at capacity that is not there. Pods move within the room that exists.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from specfleet.decide.observation import ArmView, RouteView

SETTLE_SECONDS = 5.0
"""How long a gateway may take to follow an endpoint or a weight. Contour with Envoy needs under one second; a weight
is given to the first pod of an arm, and an arm is scaled down, only this long after the change before it."""


@dataclass(frozen=True, slots=True)
class Room:
    """How many pods may exist and how many must serve."""

    replicas: int
    """spec.replicas: pods that should serve."""
    extra: int
    """Pods beyond `replicas` that this exchange may use; negative while benchmark pods hold more than is declared."""
    floor: int
    """Fewest serving pods that a scale-down may leave."""

    @property
    def ceiling(self) -> int:
        """Most pods at any time."""
        return self.replicas + self.extra


@dataclass(frozen=True, slots=True)
class Move:
    """The next replicas and weights, per fingerprint. `done`: the target is reached and routed."""

    replicas: Mapping[str, int]
    weights: Mapping[str, int]
    done: bool


def exchange(
    target: Mapping[str, int], arms: tuple[ArmView, ...], route: RouteView | None, room: Room, now: datetime
) -> Move:
    """One step towards `target` (pods per fingerprint). Calling it again with its own result applied ends at target.

    `route` is None where no gateway is used: then the Service follows the pods and no weight has to lead.
    """
    views = {arm.fingerprint: arm for arm in arms}
    names = sorted({*views, *target})
    have = {name: views[name].replicas if name in views else 0 for name in names}
    want = {name: target.get(name, 0) for name in names}
    serving = {name: _settled(views.get(name), route, now) for name in names}
    lower = _scale_down(names, have, want, serving, room)
    weights = _weights({name: min(serving[name], lower[name]) for name in names}, want, have)
    replicas = dict(have)
    for name in names:
        if lower[name] < have[name] and _may_shrink(name, lower, weights, serving, route, now):
            replicas[name] = lower[name]
    _scale_up(names, replicas, want, views, room)
    done = all(
        replicas[name] == want[name] and serving[name] >= want[name] and _count(views.get(name)) <= want[name]
        for name in names
    )
    return Move(replicas=replicas, weights=weights, done=done and _routed(weights, route))


def settling(arms: tuple[ArmView, ...], route: RouteView | None, now: datetime) -> bool:
    """Whether the next move only waits for a gateway to follow; otherwise it waits for pods, whose changes are seen."""
    moments = [pod.ready_since for arm in arms for pod in arm.pods] + [route.since if route is not None else None]
    return any(moment is not None and (now - moment).total_seconds() <= 2 * SETTLE_SECONDS for moment in moments)


def _count(arm: ArmView | None) -> int:
    return 0 if arm is None else sum(not pod.deleting for pod in arm.pods)


def _settled(arm: ArmView | None, route: RouteView | None, now: datetime) -> int:
    """Serving pods; the first ones of an arm without weight count only once the gateway must have seen them."""
    if arm is None:
        return 0
    ready = arm.serving
    if route is None or route.weights.get(arm.fingerprint, 0) > 0:
        return len(ready)
    return sum(1 for pod in ready if pod.ready_since and (now - pod.ready_since).total_seconds() >= SETTLE_SECONDS)


def _scale_down(
    names: list[str], have: Mapping[str, int], want: Mapping[str, int], serving: Mapping[str, int], room: Room
) -> dict[str, int]:
    """Replicas that may remain: pods that do not serve go first and freely, serving ones down to the floor."""
    spare = max(0, sum(serving.values()) - room.floor)
    lower = dict(have)
    for name in names:
        if want[name] >= have[name]:
            continue
        idle = max(0, have[name] - serving[name])
        free = min(have[name] - want[name], idle + spare)
        spare -= max(0, free - idle)
        lower[name] = have[name] - free
    return lower


def _scale_up(
    names: list[str], replicas: dict[str, int], want: Mapping[str, int], views: Mapping[str, ArmView], room: Room
) -> None:
    """Grow arms towards their target within the ceiling; pods on their way out still hold their GPU."""
    held = sum(max(replicas[name], views[name].occupying if name in views else 0) for name in names)
    for name in names:
        grow = min(want[name] - replicas[name], room.ceiling - held)
        if grow > 0:
            replicas[name] += grow
            held += grow


def _weights(pods: Mapping[str, int], want: Mapping[str, int], have: Mapping[str, int]) -> dict[str, int]:
    """Weight = serving pods. With none at all, traffic stays where pods should come (a route needs one weight)."""
    if any(pods.values()):
        return dict(pods)
    return dict(have) if any(have.values()) else dict(want)


def _may_shrink(
    name: str,
    lower: Mapping[str, int],
    weights: Mapping[str, int],
    serving: Mapping[str, int],
    route: RouteView | None,
    now: datetime,
) -> bool:
    """Only pods that do not serve leave at once; serving ones leave after the gateway has had time to look away."""
    if route is None or serving[name] <= lower[name]:
        return True
    return _routed(weights, route) and (now - route.since).total_seconds() >= SETTLE_SECONDS


def _routed(weights: Mapping[str, int], route: RouteView | None) -> bool:
    if route is None:
        return True
    listed = {name: weight for name, weight in weights.items() if weight}
    return route.accepted and listed == {name: weight for name, weight in route.weights.items() if weight}
