"""What follows from traffic that has moved away from what was measured: measure again, with slices like production."""

from collections.abc import Mapping
from hashlib import sha256

from specfleet.api.benchmark import TrafficSlice
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.status import DeploymentStatus, Investigation, Phase, TrafficStatus, Verdict
from specfleet.decide.gates import action_gates, first_unmet
from specfleet.decide.traffic_profile import (
    LOOKS_PER_WINDOW,
    MINIMUM_REQUESTS,
    ProfileState,
    TrafficLook,
    TrafficProfile,
    compare,
    production_slices,
)
from specfleet.decide.turn import Turn

MOVED = "TrafficMoved"


def follow_traffic(turn: Turn) -> None:
    """Remember what was measured, and note when production has moved away from it. Writes only what changes."""
    look, known = turn.obs.traffic, turn.status.traffic
    if look is None:
        return
    if known is None:
        if look.profile.requests >= MINIMUM_REQUESTS:
            turn.set(traffic=_measured_now(look))
        return
    spacing = turn.spec.monitoring.traffic_window_seconds / LOOKS_PER_WINDOW / 2
    if (look.time - known.looked).total_seconds() < spacing:
        return
    answer = compare(_profile(known), look.profile, ProfileState(known.over, known.moved))
    if not answer.known or answer.state == ProfileState(known.over, known.moved):
        return
    after = known.model_copy(update={"over": answer.state.over, "moved": answer.state.moved, "looked": look.time})
    turn.set(traffic=after.model_copy(update={"message": answer.message}))
    if answer.state.moved and not known.moved:
        turn.decide(MOVED, MOVED, f"production is no longer what was measured: {answer.message}")


def may_measure_again(turn: Turn) -> bool:
    """Whether traffic has moved and a benchmark may follow it now: room, budgets, cool-down, maintenance windows."""
    known = turn.status.traffic
    return (
        known is not None
        and known.moved
        and turn.obs.traffic is not None
        and turn.spec.remedies.rebenchmark
        and turn.spec.capacity.max_extra_replicas > 0
        and first_unmet(action_gates(turn.obs, turn.status)) is None
    )


def measure_the_promoted_again(turn: Turn) -> bool:
    """Open the case of a promoted proposer whose evidence is for other traffic. True: opened."""
    if not may_measure_again(turn) or turn.status.traffic is None:
        return False
    message = turn.status.traffic.message
    _aim_at_production(turn)
    turn.decide("Investigate", MOVED, f"the gain was measured on other traffic: {message}")
    turn.enter(
        Phase.INVESTIGATING,
        MOVED,
        investigation=Investigation(
            since=turn.now, signal=MOVED, stage="Rebenchmark", message=message, stage_since=turn.now
        ),
    )
    return True


def measured_anew(turn: Turn) -> None:
    """There is evidence for the present traffic: this is what production is compared with from now on."""
    look, known = turn.obs.traffic, turn.status.traffic
    if look is None or known is None:
        return
    aimed = {"slices": list(known.slices), "declared": known.declared}
    turn.set(traffic=_measured_now(look).model_copy(update=aimed))


def _aim_at_production(turn: Turn) -> None:
    """From here on benchmarks measure slices like the present traffic."""
    look, known = turn.obs.traffic, turn.status.traffic
    if look is None or known is None:
        return
    declared = turn.spec.benchmark.slices
    slices = list(production_slices(look.profile, declared, turn.spec.model.max_model_len))
    turn.set(traffic=known.model_copy(update={"slices": slices, "declared": _digest(declared)}))


def look_anew(turn: Turn) -> None:
    """Nothing could be measured: it has to be seen to have moved again before the next attempt."""
    if turn.status.traffic is not None:
        turn.set(traffic=turn.status.traffic.model_copy(update={"over": 0, "moved": False}))


def try_again_on_other_traffic(turn: Turn) -> None:
    """Proposers that lost on the traffic that was measured are measured again on that which came."""
    lost = bool(turn.status.trials) and all(one.verdict is not Verdict.PASS for one in turn.status.trials)
    if not lost or not may_measure_again(turn):
        return
    message = turn.status.traffic.message if turn.status.traffic is not None else ""
    _aim_at_production(turn)
    measured_anew(turn)
    turn.decide("MeasureAgain", MOVED, f"verdicts were for other traffic: {message}")
    turn.act()
    turn.set(trials=[], search=None, recommendation=None)


def slices_in_force(spec: DeploymentSpec, status: DeploymentStatus) -> list[TrafficSlice]:
    """Slices that the next benchmark measures instead of the declared ones; empty: those of the spec.

    A person who changes the declared slices is right again.
    """
    known = status.traffic
    if known is None or known.declared != _digest(spec.benchmark.slices):
        return []
    return list(known.slices)


def _measured_now(look: TrafficLook) -> TrafficStatus:
    return TrafficStatus(
        since=look.time,
        looked=look.time,
        requests=round(look.profile.requests),
        prompt_tokens=_shares(look.profile.prompt_tokens),
        output_tokens=_shares(look.profile.output_tokens),
    )


def _shares(bands: Mapping[float, float]) -> dict[str, float]:
    total = sum(bands.values()) or 1.0
    return {f"{edge:g}": round(count / total, 4) for edge, count in sorted(bands.items()) if count > 0}


def _profile(known: TrafficStatus) -> TrafficProfile:
    return TrafficProfile(
        {float(edge): share for edge, share in known.prompt_tokens.items()},
        {float(edge): share for edge, share in known.output_tokens.items()},
        known.requests,
    )


def _digest(slices: list[TrafficSlice]) -> str:
    return sha256("".join(one.model_dump_json() for one in slices).encode()).hexdigest()[:8]
