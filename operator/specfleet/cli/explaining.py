"""Why the present state of a deployment holds and what would change it, as plain data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from specfleet.api.conditions import Condition, ConditionType, find_condition
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import DecisionRecord, DeploymentStatus, Phase
from specfleet.cli import advice
from specfleet.cli.picture import Picture
from specfleet.decide.gates import Gate, Source, action_gates, attempt_gates
from specfleet.decide.observation import Observation
from specfleet.decide.outlook import Option, options, phase_gates
from specfleet.decide.shared_cause import remembered
from specfleet.decide.turn import Turn
from specfleet.decide.watch_report import WatchReport
from specfleet.decide.ways import Way, ways


@dataclass(frozen=True, slots=True)
class ShownGate:
    """A gate as a reader sees it."""

    gate: Gate
    known: bool
    """False: what it rests on could not be seen."""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ShownCondition:
    """A condition that is not as in a healthy, speculating deployment."""

    condition: Condition
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Act:
    """Something that a person can do now."""

    command: str
    effect: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that explain says."""

    now: datetime
    deployment: SpeculativeDeployment
    status: DeploymentStatus
    serves: str
    """What serves, in words."""
    in_flight: str
    """What is being tried or followed up, in words; "" when nothing is."""
    gates: tuple[ShownGate, ...]
    limits: tuple[ShownGate, ...]
    """Limits of automatic actions that the present phase does not ask, but the next one may."""
    ways: tuple[Way, ...]
    watch: WatchReport | None
    """What Prometheus says now; None: it was not asked."""
    watch_in_status: tuple[Condition, ...]
    """What the operator's own watch last said, as conditions."""
    decisions: tuple[DecisionRecord, ...]
    """Newest first."""
    conditions: tuple[ShownCondition, ...]
    acts: tuple[Act, ...]
    notes: tuple[str, ...]


def explain(seen: Picture, decisions: int, asked: WatchReport | None = None) -> Explanation:
    """The explanation of a picture. `asked`: what Prometheus says; `decisions`: how many of the last to show."""
    obs = seen.obs if asked is None else replace(seen.obs, watch=asked)
    unknown = seen.unknown if asked is None else seen.unknown - {Source.WATCH}
    obs = remembered(Turn(obs, seen.status))
    owner, status = obs.deployment, seen.status
    gates = _shown(owner, phase_gates(obs, status), unknown)
    listed = {one.gate.name for one in gates}
    more = tuple(one for one in (*action_gates(obs, status), *attempt_gates(obs, status)) if one.name not in listed)
    return Explanation(
        now=obs.now,
        deployment=owner,
        status=status,
        serves=_serves(obs, status),
        in_flight=_in_flight(obs, status),
        gates=gates,
        limits=_shown(owner, more, unknown) if owner.spec.speculation is not None else (),
        ways=ways(obs, status),
        watch=asked,
        watch_in_status=_watch_in_status(status),
        decisions=tuple(reversed(status.history))[:decisions],
        conditions=tuple(
            ShownCondition(one, advice.for_condition(owner, one))
            for one in status.conditions
            if advice.needs_a_look(one)
        ),
        acts=_acts(owner, status, gates, options(obs, status)),
        notes=(*seen.notes, *status.warnings),
    )


def _shown(owner: SpeculativeDeployment, gates: Sequence[Gate], unknown: frozenset[Source]) -> tuple[ShownGate, ...]:
    return tuple(ShownGate(one, one.source not in unknown, advice.for_gate(owner, one)) for one in gates)


def _watch_in_status(status: DeploymentStatus) -> tuple[Condition, ...]:
    found = (
        find_condition(status.conditions, kind)
        for kind in (ConditionType.METRICS_AVAILABLE, ConditionType.DRIFT_DETECTED)
    )
    return tuple(one for one in found if one is not None)


def _acts(
    owner: SpeculativeDeployment, status: DeploymentStatus, gates: Sequence[ShownGate], offered: Sequence[Option]
) -> tuple[Act, ...]:
    found = [
        Act(advice.command_line(owner, one), advice.what_it_does(one))
        for one in offered
        if one.accepted and status.phase_since is not None
    ]
    found += [Act(one.remedy, f"opens the gate `{one.gate.name.value}`") for one in gates if one.remedy]
    told = advice.for_phase(owner, status.phase, status.phase_reason)
    if told:
        found.append(Act(told, f"{status.phase_reason} goes away"))
    return tuple({one.command: one for one in found}.values())


def _serves(obs: Observation, status: DeploymentStatus) -> str:
    if status.serving_arm is None:
        return "nothing serves yet" if status.stable is None else "no pod of any arm answers"
    stable = status.stable
    pods = f"{status.replicas} of {obs.spec.replicas} pods"
    if stable is None or stable.speculative is None:
        share = f", {status.weight_percent} % of the traffic on the trial" if status.weight_percent else ""
        return f"plain decoding, {pods}{share}"
    return f"{_label(obs, status, stable.speculative)}, {status.weight_percent} % of the traffic; {pods}"


def _in_flight(obs: Observation, status: DeploymentStatus) -> str:
    match status.phase:
        case Phase.CANARY if status.candidate is not None and status.step is not None:
            steps = obs.spec.rollout.steps
            step = obs.spec.rollout.step_index(status.step)
            share = f"{steps[step].weight_percent} % of traffic and pods"
            return f"canary of {_label(obs, status, status.candidate)}: step {step + 1} of {len(steps)}, {share}"
        case Phase.BENCHMARKING if status.benchmark is not None:
            one = status.benchmark
            return f"benchmark {one.id} ({one.purpose}) of {_label(obs, status, one.candidate)}"
        case Phase.INVESTIGATING if status.investigation is not None:
            case = status.investigation
            return f"investigation of {case.signal}, stage {case.stage}: {case.message}"
        case Phase.ROLLING_BACK:
            return f"traffic leaves {_label(obs, status, status.candidate)}"
        case _:
            return ""


def _label(obs: Observation, status: DeploymentStatus, fingerprint: str | None) -> str:
    """Short form of an arm with its fingerprint."""
    wanted = obs.wanted(fingerprint)
    counted = next((one.proposer for one in status.arms if one.fingerprint == fingerprint), None)
    name = wanted.label if wanted is not None else counted or "an arm of an earlier spec"
    return f"{'plain decoding' if name == 'none' else name} ({fingerprint})"
