"""decide: one observation in, one plan out. Pure; the clock is in the observation. Read this page first.

answer a person's command -> follow a changed spec -> walk the phase -> say what should exist
"""

from collections.abc import Callable
from dataclasses import replace

from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import ArmRole, ArmStatus, DeploymentStatus, Phase
from specfleet.decide import budget, measure, preflight, shared_cause
from specfleet.decide.commands import answer_command
from specfleet.decide.conditions import conditions, serving_pods
from specfleet.decide.evidence_pairs import request_probes
from specfleet.decide.exchange import exchange, settling
from specfleet.decide.observation import ArmView, Observation
from specfleet.decide.phases import benchmarking, canary, deploying, investigating, resting, rolling_back, speculative
from specfleet.decide.plan import ArmIntent, JobIntent, Plan
from specfleet.decide.recommend import mixed_steps
from specfleet.decide.revisions import follow_spec
from specfleet.decide.targets import room, target
from specfleet.decide.turn import Turn
from specfleet.decide.watch_report import SCRAPED_TWICE
from specfleet.engine.fingerprint import observed_fingerprint

PHASES: dict[Phase, Callable[[Turn], None]] = {
    Phase.DEPLOYING: deploying.deploying,
    Phase.BASELINE: resting.baseline,
    Phase.BENCHMARKING: benchmarking.benchmarking,
    Phase.CANARY: canary.canary,
    Phase.SPECULATIVE: speculative.speculative,
    Phase.INVESTIGATING: investigating.investigating,
    Phase.ROLLING_BACK: rolling_back.rolling_back,
    Phase.ROLLED_BACK: resting.rolled_back,
    Phase.EXHAUSTED: resting.exhausted,
    Phase.HELD: resting.held,
}
MOST_PAIRS = 64
"""Twice the most that spec.benchmark.pairs may ask for: a benchmark is extended to that at most."""
MOVES_PER_TURN = 4
"""A turn may pass through several phases (Held -> Baseline -> Benchmarking); more than this would be a loop."""


def decide(obs: Observation) -> Plan:
    """What should exist, what status should say, and when to look again.

    Properties (tests/decide): some arm serves if any can; weight points only at serving pods; at most one trial or
    remedy in flight; every phase has a way out; deciding twice on the same observation gives the same plan.
    """
    turn = Turn(obs, obs.status)
    turn.set(actions=budget.recent_actions(turn.status.actions, obs.now))
    _bound_pairs(turn)
    preflight.record_answer(turn)
    turn.obs = preflight.screened(obs, turn.status)
    turn.obs = obs = shared_cause.remembered(turn)
    follow_spec(turn)
    answer_command(turn)
    for _ in range(MOVES_PER_TURN):
        before = turn.status.phase
        PHASES[before](turn)
        if turn.status.phase is before:
            break
    arms, weights = _serving(turn)
    look = preflight.ask(turn)
    bench, job = _benchmark(turn, arms) if look is None else ((), None)
    bench = (*bench, *_leaving(obs, bench))
    turn.set(**_summary(obs, turn.status, weights))
    turn.set(conditions=conditions(obs, turn.status))
    return Plan(
        status=turn.status,
        arms=(*arms, *bench),
        weights=weights,
        job=job,
        preflight=look,
        record=tuple(turn.record),
        revision=turn.status.revision,
        restarts=tuple(turn.restarts),
        decisions=tuple(turn.decisions),
        requeue_seconds=min(turn.wake, default=None),
    )


def _bound_pairs(turn: Turn) -> None:
    """A status edited by hand may plan a billion pairs: listing them would stop the whole operator."""
    progress = turn.status.benchmark
    if progress is not None and progress.pairs_planned > MOST_PAIRS:
        turn.set(benchmark=progress.model_copy(update={"pairs_planned": MOST_PAIRS}))


def _serving(turn: Turn) -> tuple[tuple[ArmIntent, ...], dict[str, int]]:
    """Serving arms and their weights, one step towards the phase's target."""
    obs, goal = turn.obs, target(turn.obs, turn.status)
    move = exchange(goal, obs.arms, obs.route, room(obs), obs.now)
    if not move.done:
        turn.look_again(2 if settling(obs.arms, obs.route, obs.now) else 15)
    intents = []
    for fingerprint in sorted({*move.replicas, *goal}):
        arm = obs.arm(fingerprint)
        replicas = move.replicas.get(fingerprint, 0)
        empty = arm is None or (arm.replicas == 0 and not arm.pods)
        if replicas == 0 and goal.get(fingerprint, 0) == 0 and empty:
            continue
        intents.append(_intent(turn, fingerprint, replicas, arm))
    listed = {intent.fingerprint for intent in intents}
    return tuple(intents), {name: weight for name, weight in move.weights.items() if name in listed}


def _intent(turn: Turn, fingerprint: str, replicas: int, arm: ArmView | None) -> ArmIntent:
    wanted = turn.obs.wanted(fingerprint)
    if wanted is not None:
        return ArmIntent(wanted.role, fingerprint, replicas)
    stable = turn.status.stable
    earlier = stable is not None and fingerprint in (stable.baseline, stable.speculative)
    role = arm.role if arm is not None else ArmRole.BASELINE
    return ArmIntent(role, fingerprint, replicas, revision=stable.name if stable and earlier else "")


def _benchmark(turn: Turn, serving: tuple[ArmIntent, ...]) -> tuple[tuple[ArmIntent, ...], JobIntent | None]:
    """Benchmark pods and the Job of a benchmark in flight; in Deploying, the one pod that proves a changed engine."""
    if turn.spec.paused:
        return (), None
    if turn.status.benchmark is not None:
        intents, job = measure.bench_intents(turn.obs, turn.status.benchmark)
        return _fitting(turn.obs, serving, intents), job
    proving = (
        turn.status.phase is Phase.DEPLOYING
        and turn.status.stable is not None
        and not turn.obs.baseline.refusals
        and turn.spec.remedies.on_change != "Hold"
        and turn.spec.capacity.max_extra_replicas > 0
    )
    if proving:
        intent = ArmIntent(ArmRole.BASELINE, turn.obs.baseline.fingerprint, 1, benchmark=True)
        return _fitting(turn.obs, serving, (intent,)), None
    return (), None


def _fitting(obs: Observation, serving: tuple[ArmIntent, ...], intents: tuple[ArmIntent, ...]) -> tuple[ArmIntent, ...]:
    """Benchmark pods that run stay; further ones wait until serving pods have left the room for them."""
    held = sum(max(one.replicas, _occupying(obs.arm(one.fingerprint))) for one in serving)
    free = obs.spec.replicas + obs.spec.capacity.max_extra_replicas - held
    free -= sum(max(arm.replicas, arm.occupying) for arm in obs.bench)
    found = []
    for intent in intents:
        arm = obs.bench_arm(intent.fingerprint)
        more = intent.replicas - max(arm.replicas if arm else 0, _occupying(arm))
        if more <= free:
            free -= max(0, more)
            found.append(intent)
        elif arm is not None:
            found.append(replace(intent, replicas=min(intent.replicas, arm.replicas)))
    return tuple(found)


def _leaving(obs: Observation, intents: tuple[ArmIntent, ...]) -> tuple[ArmIntent, ...]:
    """Benchmark arms that are over stay listed until their pods are gone: pods on their way out hold their GPU."""
    listed = {intent.fingerprint for intent in intents}
    over = (arm for arm in obs.bench if arm.fingerprint not in listed and arm.pods)
    return tuple(ArmIntent(arm.role, arm.fingerprint, 0, benchmark=True, revision="") for arm in over)


def _occupying(arm: ArmView | None) -> int:
    return arm.occupying if arm is not None else 0


def _summary(obs: Observation, status: DeploymentStatus, weights: dict[str, int]) -> dict[str, object]:
    """The parts of status that only mirror what is seen. They change rarely, so that a steady state writes nothing."""
    speculative = {arm.fingerprint for arm in obs.arms if arm.role is ArmRole.SPECULATIVE}
    routed = obs.route.weights if obs.route is not None else weights
    total = sum(routed.values())
    share = sum(weight for name, weight in routed.items() if name in speculative)
    percent = round(100 * share / total) if total else 0
    serving = serving_pods(obs)
    promoted = status.stable is not None and status.stable.speculative is not None
    return {
        "observed_generation": int(obs.deployment.metadata.get("generation", 0)),
        "weight_percent": percent,
        "serving_arm": None if not serving else (ArmRole.SPECULATIVE if promoted else ArmRole.BASELINE),
        "arms": [_arm_status(obs, arm) for arm in (*obs.arms, *obs.bench)][:8],
        "replicas": serving,
        "selector": f"specfleet.dev/deployment={obs.deployment.name},specfleet.dev/role=serving",
        "warnings": _warnings(obs, status),
    }


def _warnings(obs: Observation, status: DeploymentStatus) -> list[str]:
    """What a person should know although nothing is refused."""
    rules = {f"{one.field_path}: {one.message}" for arm in (obs.baseline, *obs.proposers) for one in arm.warnings}
    unverified = {f"{arm.label}: `extra` keys are passed on unverified" for arm in obs.proposers if arm.unverified}
    by_proposer: dict[str, list[BenchmarkEvidenceSpec]] = {}
    for item in obs.evidence:
        by_proposer.setdefault(item.proposer, []).append(item)
    broken = {
        f"{proposer}: requests with {probe.name} get HTTP {probe.speculative_status} only with speculation; "
        f"clients that send {obs.spec.traffic.plain_header}: true stay on the plain arm"
        for proposer, mine in by_proposer.items()
        for probe in request_probes(mine)
        if probe.broken
    }
    mixed = set(mixed_steps([arm.proposer for arm in obs.proposers if arm.proposer is not None]))
    unseen = set(preflight.not_compared(status))
    return sorted(rules | unverified | broken | mixed | unseen | _scraped_twice(obs) | set(obs.problems))[:32]


def _scraped_twice(obs: Observation) -> set[str]:
    """One copy of doubled series is used, so the answer is OK: nothing else in status would tell that they are."""
    reports = (one for one in (obs.watch, obs.promoted_watch) if one is not None)
    parts = (part for one in reports for part in one.message.split("; "))
    return {f"metrics: {part}" for part in parts if SCRAPED_TWICE in part}


def _observed(arm: ArmView) -> str | None:
    """Fingerprint with what only running pods tell; None until one of them is proven."""
    pod = next((pod for pod in arm.serving if pod.image_digest and pod.engine_version), None)
    if pod is None:
        return None
    return observed_fingerprint(
        arm.fingerprint, str(pod.image_digest), str(pod.engine_version), pod.gpu_type or "unknown"
    )


def _arm_status(obs: Observation, arm: ArmView) -> ArmStatus:
    wanted = obs.wanted(arm.fingerprint)
    versions = sorted({pod.engine_version for pod in arm.pods if pod.engine_version})
    return ArmStatus(
        role=arm.role,
        fingerprint=arm.fingerprint,
        proposer=wanted.label if wanted else "of an earlier spec",
        observed_fingerprint=_observed(arm),
        engine_version=versions[-1] if versions else None,
        replicas=arm.replicas,
        ready_replicas=len(arm.serving),
        unverified=wanted.unverified if wanted else False,
    )
