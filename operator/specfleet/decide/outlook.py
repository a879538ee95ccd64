"""What the present phase waits for, and which commands a person could give. Pure.

Nothing here decides: gates are those that the phases ask, and commands are tried on a copy of the status by the code
that answers them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from specfleet.api.status import DeploymentStatus, Phase
from specfleet.decide import measure
from specfleet.decide.commands import VERBS, answer_command
from specfleet.decide.exchange import exchange
from specfleet.decide.gates import (
    Gate,
    GateName,
    Source,
    action_gates,
    attempt_gates,
    breaker_gate,
    hold_gate,
    pause_gate,
    queue_gate,
    step_gates,
    timer_gate,
    trial_gates,
)
from specfleet.decide.gpu_budget import gpu_hour_budget
from specfleet.decide.observation import Command, Observation
from specfleet.decide.phases.investigating import attribution_timeout, probe_patience
from specfleet.decide.phases.resting import has_trial
from specfleet.decide.phases.rolling_back import without_failed
from specfleet.decide.phases.speculative import actionable, gain_below_zero, open_findings
from specfleet.decide.replacement import RESTART_POD
from specfleet.decide.targets import room, target
from specfleet.decide.turn import Turn
from specfleet.decide.watch_report import Severity


@dataclass(frozen=True, slots=True)
class Option:
    """A command, whether it would be taken now, and what would follow."""

    verb: str
    accepted: bool
    message: str
    leads_to: Phase


def phase_gates(obs: Observation, status: DeploymentStatus) -> tuple[Gate, ...]:
    """Everything that the present phase needs to go on by itself, met or not."""
    return _GATES[status.phase](obs, status)


def options(obs: Observation, status: DeploymentStatus) -> tuple[Option, ...]:
    """What each command would do now, by the code that carries commands out."""
    found = []
    for verb in VERBS:
        nonce = f"outlook-{verb}"
        turn = Turn(replace(obs, command=Command(verb, nonce)), status)
        answer_command(turn)
        answer = turn.status.command
        if answer is not None:
            found.append(Option(verb, answer.accepted, answer.message, turn.status.phase))
    return tuple(found)


def _deploying(obs: Observation, status: DeploymentStatus) -> tuple[Gate, ...]:
    first = status.stable is None
    arm = obs.arm(obs.baseline.fingerprint) if first else obs.bench_arm(obs.baseline.fingerprint)
    needs = obs.spec.replicas if first else min(1, obs.spec.capacity.max_extra_replicas)
    waiting = next((pod for pod in arm.pods if pod.failure or pod.proof_message), None) if arm else None
    note = (waiting.failure or waiting.proof_message) if waiting else ""
    serving = len(arm.serving) if arm else 0
    gates = (
        _usable(obs),
        Gate(GateName.PROVEN, serving >= needs, serving, needs, Source.PODS, "pods", note=note),
    )
    if first:
        return gates
    mode = obs.spec.remedies.on_change
    tried = Gate(GateName.ON_CHANGE, mode != "Hold", mode, "Rebenchmark or Canary", Source.SPEC)
    return (*gates, pause_gate(obs), tried, *_measuring(obs, status))


def _usable(obs: Observation) -> Gate:
    refusal = obs.baseline.refusals[0] if obs.baseline.refusals else None
    return Gate(
        GateName.USABLE,
        refusal is None,
        refusal.reason if refusal else "usable",
        "usable",
        Source.SPEC,
        note=f"{refusal.field_path}: {refusal.message}. {refusal.remedy}" if refusal else "",
    )


def _baseline(obs: Observation, status: DeploymentStatus) -> tuple[Gate, ...]:
    trial = has_trial(Turn(obs, status))
    left = Gate(
        GateName.CANDIDATE,
        trial,
        "a candidate is left" if trial else "all tried",
        "a candidate is left",
        Source.STATUS,
        note="" if obs.spec.speculation is not None else "spec.speculation is not set",
    )
    queue = (queue_gate(obs),) if obs.fleet.benchmarks_at_once is not None else ()
    return (left, _usable(obs), pause_gate(obs), breaker_gate(obs), *trial_gates(obs, status), *queue)


def _benchmarking(obs: Observation, status: DeploymentStatus) -> tuple[Gate, ...]:
    return (_usable(obs), pause_gate(obs), *_measuring(obs, status))


def _measuring(obs: Observation, status: DeploymentStatus) -> tuple[Gate, ...]:
    progress = status.benchmark
    if progress is None:
        return ()
    left = measure.remaining(obs, progress)
    note = f"{left} Jobs to run; {progress.gpu_hours:.2f} of at most {gpu_hour_budget(obs.spec):g} GPU hours"
    if progress.purpose == "Qualify" and status.search is not None:
        ahead = sum(not one.behind for one in status.search.candidates)
        note = (
            f"search: {ahead} of {len(status.search.candidates)} candidates ahead, {status.search.gpu_hours:.2f} GPU "
        )
        note += f"hours of at most {gpu_hour_budget(obs.spec):g}; {left} Jobs to run for this one"
    if progress.retries:
        note += f"; the present Job is try {progress.retries + 1} of {measure.JOB_RETRIES + 1}"
    done, planned = progress.pairs_done, progress.pairs_planned
    budget = (obs.now - progress.started).total_seconds()
    return (
        Gate(GateName.PAIRS, done >= planned, done, planned, Source.STATUS, "pairs", note=note),
        Gate(
            GateName.BENCHMARK_TIME,
            budget <= obs.spec.benchmark.time_budget_seconds,
            budget,
            f"at most {obs.spec.benchmark.time_budget_seconds} s",
            Source.STATUS,
            "s",
        ),
    )


def _moved(obs: Observation, status: DeploymentStatus) -> Gate:
    goal = target(obs, status)
    move = exchange(goal, obs.arms, obs.route, room(obs), obs.now)
    serving = sum(min(len(arm.serving), goal.get(arm.fingerprint, 0)) for arm in obs.arms)
    wanted = ", ".join(f"{name} {count}" for name, count in sorted(goal.items()))
    note = f"pods per arm: {wanted}"
    if obs.route is not None and not obs.route.accepted:
        note += f"; route: {obs.route.message or 'not accepted by the gateway'}"
    return Gate(GateName.PODS_MOVED, move.done, serving, sum(goal.values()), Source.PODS, "pods in place", note=note)


def _canary(obs: Observation, status: DeploymentStatus) -> tuple[Gate, ...]:
    moved = _moved(obs, status)
    if status.step_since is not None:
        # The step counts from here on; pods that come and go do not stop its clock.
        return (pause_gate(obs), breaker_gate(obs), *step_gates(obs, status))
    return (pause_gate(obs), breaker_gate(obs), moved)


def _speculative(obs: Observation, status: DeploymentStatus) -> tuple[Gate, ...]:
    turn = Turn(obs, status)
    finding = actionable(turn) is not None or gain_below_zero(turn)
    seen = "; ".join(f"{one.signal.value} {one.stage.value} ({one.attribution.value})" for one in obs.watch.suspicions)
    act = Gate(GateName.FINDING, finding, seen or "none", "one that is confirmed and not shared", Source.WATCH)
    severity = next((one.severity for one in open_findings(turn)), Severity.ECONOMIC)
    return (act, pause_gate(obs), *action_gates(obs, status, severity))


def _investigating(obs: Observation, status: DeploymentStatus) -> tuple[Gate, ...]:
    case, remedies = status.investigation, obs.spec.remedies
    if case is None:
        return ()
    gates: tuple[Gate, ...] = (pause_gate(obs), breaker_gate(obs))
    if case.stage == "Attribute":
        found = next((one for one in obs.watch.suspicions if one.signal.value == case.signal), None)
        said = f"{found.stage.value}, {found.attribution.value}" if found else f"{case.signal} is not seen"
        told = Gate(
            GateName.ATTRIBUTED,
            found is not None and found.attribution.value in ("Shared", "Speculation"),
            said,
            "Shared, or confirmed as Speculation",
            Source.WATCH,
            note=found.message if found else case.message,
        )
        patience = attribution_timeout(obs.spec)
        return (*gates, _moved(obs, status), told, timer_gate(GateName.PATIENCE, case.stage_since, patience, obs.now))
    if case.stage == "RestartProbe" and case.restarted_at is not None:
        fresh = [
            obs.watch.pods[pod.name]
            for arm in obs.arms
            for pod in arm.serving
            if pod.created >= case.restarted_at and pod.name in obs.watch.pods
        ]
        spans = [(one.end - one.start).total_seconds() for one in fresh if one.start and one.end]
        seen = max(spans, default=0.0)
        measured = Gate(
            GateName.RESTARTED, seen >= remedies.confirm_seconds, seen, remedies.confirm_seconds, Source.WATCH, "s"
        )
        patience = probe_patience(obs.spec)
        return (*gates, measured, timer_gate(GateName.PATIENCE, case.restarted_at, patience, obs.now))
    if case.stage in (RESTART_POD, "RestartRest"):
        arm = obs.arm(status.stable.speculative) if status.stable else None
        serving, wanted = (len(arm.serving), arm.replicas) if arm else (0, 0)
        return (*gates, Gate(GateName.PODS_BACK, serving >= wanted, serving, wanted, Source.PODS, "pods"))
    return (*gates, *_measuring(obs, status))


def _rolling_back(obs: Observation, status: DeploymentStatus) -> tuple[Gate, ...]:
    return (_moved(obs, without_failed(status)),)


def _rolled_back(obs: Observation, status: DeploymentStatus) -> tuple[Gate, ...]:
    refused = status.revision_refused is not None and status.revision_refused == status.revision
    own = Gate(
        GateName.ADOPTED,
        not refused,
        "refused" if refused else "not refused",
        "not refused",
        Source.STATUS,
        note="the changed model or engine failed: change the spec, or say retry" if refused else "",
    )
    return (own, *attempt_gates(obs, status))


def _exhausted(obs: Observation, status: DeploymentStatus) -> tuple[Gate, ...]:
    del obs, status
    return (Gate(GateName.PERSON, False, "nothing", "the command retry, or a changed spec", Source.SPEC),)


def _held(obs: Observation, status: DeploymentStatus) -> tuple[Gate, ...]:
    return (hold_gate(obs, status),)


_GATES: dict[Phase, Callable[[Observation, DeploymentStatus], tuple[Gate, ...]]] = {
    Phase.DEPLOYING: _deploying,
    Phase.BASELINE: _baseline,
    Phase.BENCHMARKING: _benchmarking,
    Phase.CANARY: _canary,
    Phase.SPECULATIVE: _speculative,
    Phase.INVESTIGATING: _investigating,
    Phase.ROLLING_BACK: _rolling_back,
    Phase.ROLLED_BACK: _rolled_back,
    Phase.EXHAUSTED: _exhausted,
    Phase.HELD: _held,
}
