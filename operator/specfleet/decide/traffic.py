"""What follows from traffic that has moved away from what was measured: measure again, with slices like production."""

from collections.abc import Mapping, Sequence
from hashlib import sha256

from specfleet.api.benchmark import BenchmarkSpec, LoadTier, TrafficSlice
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec, RunSummary
from specfleet.api.status import ArmRole, DeploymentStatus, Investigation, Phase, TrafficStatus, Verdict
from specfleet.decide.gates import action_gates, first_unmet
from specfleet.decide.traffic_profile import (
    LOOKS_PER_WINDOW,
    MINIMUM_REQUESTS,
    PRODUCTION,
    ProfileState,
    TrafficLook,
    TrafficProfile,
    compare,
    doublings_beyond,
    exceeded_batch,
    heaviest_tier,
    mean_batch,
    production_slices,
)
from specfleet.decide.turn import Turn

MOVED = "TrafficMoved"
LARGEST_LOAD_RATIO = 16.0


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
    answer = compare(_measured(turn, known), look.profile, ProfileState(known.over, known.moved))
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
    aimed = {
        "slices": list(known.slices),
        "declared": known.declared,
        "load_ratio": known.load_ratio,
        "peak_batch": known.peak_batch,
    }
    turn.set(traffic=_measured_now(look).model_copy(update=aimed))


def _aim_at_production(turn: Turn) -> None:
    """From here on benchmarks measure slices like the present traffic, up to its peak."""
    look, known = turn.obs.traffic, turn.status.traffic
    if look is None or known is None:
        return
    benchmark = turn.spec.benchmark
    slices = list(production_slices(look.profile, benchmark.slices, turn.spec.model.max_model_len))
    ratio = round(_load_ratio(turn, look.profile.peak_batch), 3)
    aimed = {"slices": slices, "load_ratio": ratio, "declared": _digest(benchmark)}
    turn.set(traffic=known.model_copy(update={**aimed, "peak_batch": look.profile.peak_batch}))


def _load_ratio(turn: Turn, peak: float | None) -> float:
    """By how much the heaviest declared tier is raised so that it fills production's peak; never less than in force.

    From its declared load: raised from the load in force, a peak whose runs came to nothing would be aimed at higher
    and higher.
    """
    in_force = load_in_force(turn.spec, turn.status)
    tier = heaviest_tier(turn.spec.benchmark.tiers)
    declared = tier.concurrency or _declared_batch(turn.obs.evidence, tier)
    if peak is None or not doublings_beyond(largest_batch(turn), peak) or not declared:
        return in_force
    wanted = peak if tier.concurrency else mean_batch(peak)
    return min(LARGEST_LOAD_RATIO, max(in_force, wanted / declared))


def _declared_batch(evidence: Sequence[BenchmarkEvidenceSpec], tier: LoadTier) -> float | None:
    """Mean batch of an open-loop tier at its declared rate, from its newest valid runs; None: never measured."""
    newest_first = sorted(evidence, key=lambda one: one.started, reverse=True)
    capacity = next((one.capacity_requests_per_second for one in newest_first if one.capacity_requests_per_second), 0.0)
    rate = tier.requests_per_second or (tier.capacity_ratio or 0.0) * (capacity or 0.0)
    for one in newest_first:
        runs = [run for run in one.runs if run.valid and run.arm is ArmRole.BASELINE and run.tier == tier.name]
        found = [_mean_in_flight(run) * rate / run.requests_per_second for run in runs if run.requests_per_second]
        if any(found):
            return max(found)
    return None


def look_anew(turn: Turn) -> None:
    """Nothing could be measured: it has to be seen to have moved again before the next attempt."""
    if turn.status.traffic is not None:
        again = {"over": 0, "moved": False, "peak_batch": None}
        turn.set(traffic=turn.status.traffic.model_copy(update=again))


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
    if known is None or known.declared != _digest(spec.benchmark):
        return []
    return list(known.slices)


def load_in_force(spec: DeploymentSpec, status: DeploymentStatus) -> float:
    """By how much the next benchmark raises the heaviest declared tier; 1: not at all."""
    known = status.traffic
    return known.load_ratio if known is not None and known.declared == _digest(spec.benchmark) else 1.0


def largest_batch(turn: Turn) -> float | None:
    """Most requests in one engine at a time in what is measured; None while nothing is.

    In closed loop that is the concurrency, in open loop what is exceeded for one percent of the time. Only the newest
    benchmark over the whole matrix counts: what an older one with other tiers saw does not speak for this proposer.
    """
    whole = [one for one in turn.obs.evidence if one.purpose in ("Qualify", "Confirm") or _everything(one)]
    newest = max(whole, key=lambda one: one.started, default=None)
    if newest is None:
        return None
    runs = [run for one in whole if one.benchmark == newest.benchmark for run in one.runs]
    plain = [run for run in runs if run.valid and run.arm is ArmRole.BASELINE]
    return max(map(_in_flight, plain), default=None) or None


def _everything(evidence: BenchmarkEvidenceSpec) -> bool:
    """Whether a re-benchmark followed the traffic: one after a suspicion measures suspect cells only."""
    return evidence.purpose == "Suspicion" and any(run.slice.startswith(PRODUCTION) for run in evidence.runs)


def _in_flight(run: RunSummary) -> float:
    return float(run.concurrency) if run.concurrency is not None else exceeded_batch(_mean_in_flight(run))


def _mean_in_flight(run: RunSummary) -> float:
    """By Little's law; 0 where no request was answered."""
    return run.completed_requests_per_second * (run.e2e_mean_seconds or 0.0)


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


def _measured(turn: Turn, known: TrafficStatus) -> TrafficProfile:
    """A peak that a benchmark was aimed at counts as measured, also where no valid run came up to it (a tier of at most
    the whole capacity, a saturated one): to aim at it again would bring no more, and again the next day."""
    largest = largest_batch(turn)
    if largest is not None and known.peak_batch is not None and known.declared == _digest(turn.spec.benchmark):
        largest = max(largest, known.peak_batch)
    return TrafficProfile(
        {float(edge): share for edge, share in known.prompt_tokens.items()},
        {float(edge): share for edge, share in known.output_tokens.items()},
        known.requests,
        largest,
    )


def _digest(benchmark: BenchmarkSpec) -> str:
    listed = [one.model_dump_json() for one in (*benchmark.tiers, *benchmark.slices)]
    return sha256("".join(listed).encode()).hexdigest()[:8]
