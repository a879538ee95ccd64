"""What a phase needs before it goes on, and what it has: the numbers that the phases decide with, for a person to read.

`explain` shows these very gates; the phases ask them. A gate only says what is; what follows is the phase's business.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from specfleet.api.conditions import ConditionStatus, ConditionType, find_condition
from specfleet.api.status import ArmRole, DeploymentStatus, Verdict
from specfleet.decide import budget
from specfleet.decide.observation import Observation
from specfleet.decide.watch_report import USABLE_ANSWERS, Answer, Severity, WatchReport


class Source(StrEnum):
    """Where a gate looks: who cannot see that (an offline reader) does not know the gate."""

    SPEC = "Spec"
    STATUS = "Status"
    PODS = "Pods"
    WATCH = "Watch"
    FLEET = "Fleet"


class GateName(StrEnum):
    """Names of all gates."""

    NOT_PAUSED = "not paused"
    BREAKER = "fleet breaker closed"
    COOLDOWN = "cool-down over"
    ACTIONS = "actions in 24 h"
    MAINTENANCE = "maintenance window"
    CANDIDATE = "something to try"
    PLAIN_SERVES = "plain pods serve"
    ATTEMPTS = "attempts used"
    BACKOFF = "back-off over"
    ROOM = "extra pods allowed"
    PODS_MOVED = "pods and traffic moved"
    DURATION = "time on this step"
    REQUESTS = "requests per arm"
    METRICS = "metrics answer"
    VERDICT = "verdict of the comparison"
    HOLD = "hold over"
    ADOPTED = "revision not refused"
    PROVEN = "pods proven"
    ON_CHANGE = "changes are tried"
    PAIRS = "benchmark pairs"
    FINDING = "a finding to act on"
    PERSON = "a person's word"
    ATTRIBUTED = "attribution"
    RESTARTED = "restarted pod measured"
    PODS_BACK = "restarted pods are back"
    PATIENCE = "wait before the next remedy"
    USABLE = "engine rules"
    BENCHMARK_TIME = "time budget"
    QUEUE = "place among benchmarks"


@dataclass(frozen=True, slots=True)
class Gate:
    """One thing that the present phase needs. Numbers carry their unit; words have none."""

    name: GateName
    met: bool
    has: float | str
    needs: float | str
    source: Source
    unit: str = ""
    left_seconds: float | None = None
    """Until time alone opens it; None: something else has to happen."""
    note: str = ""


def first_unmet(gates: tuple[Gate, ...]) -> Gate | None:
    """The gate that keeps a phase where it is."""
    return next((gate for gate in gates if not gate.met), None)


def action_gates(
    obs: Observation, status: DeploymentStatus, severity: Severity = Severity.ECONOMIC
) -> tuple[Gate, ...]:
    """Before a finding of the watch may act: cool-down, budget, breaker; what is about money alone waits for a
    maintenance window too. A hard fault that is speculation's asks none."""
    remedies, now = obs.spec.remedies, obs.now
    recent = budget.recent_actions(status.actions, now)
    limit = remedies.max_actions_per_day
    return (
        timer_gate(GateName.COOLDOWN, status.last_change, remedies.cooldown_seconds, now),
        Gate(
            GateName.ACTIONS,
            len(recent) < limit,
            len(recent),
            f"at most {limit - 1}",
            Source.STATUS,
            left_seconds=budget.seconds_until_fewer(recent, limit, now),
        ),
        breaker_gate(obs),
        maintenance_gate(obs, severity),
    )


def breaker_gate(obs: Observation) -> Gate:
    """Three roll-backs in the fleet within an hour stop promotions, economic and SLO actions everywhere."""
    is_open = obs.fleet.breaker_open
    return Gate(
        GateName.BREAKER, not is_open, "open" if is_open else "closed", "closed", Source.FLEET, note=obs.fleet.message
    )


def maintenance_gate(obs: Observation, severity: Severity = Severity.ECONOMIC) -> Gate:
    """Economic actions may be bound to windows. Where users suffer every time is right."""
    windows = obs.spec.remedies.maintenance_windows
    inside = budget.in_maintenance_window(windows, obs.now)
    said = "always" if not windows else ("inside" if inside else "outside")
    if severity is not Severity.ECONOMIC:
        return Gate(GateName.MAINTENANCE, True, said, "always", Source.SPEC)
    left = None if inside else budget.seconds_until_window(windows, obs.now)
    return Gate(GateName.MAINTENANCE, inside, said, "inside" if windows else "always", Source.SPEC, left_seconds=left)


def queue_gate(obs: Observation) -> Gate:
    """A new benchmark waits while as many others run as the operator may have at once."""
    limit, others = obs.fleet.benchmarks_at_once, obs.fleet.others_measuring
    return Gate(
        GateName.QUEUE,
        limit is None or others < limit,
        others,
        "any number" if limit is None else f"fewer than {limit}",
        Source.FLEET,
        "benchmarks of others",
        note="" if limit is None else "benchmarksAtOnce of the operator",
    )


def pause_gate(obs: Observation) -> Gate:
    """spec.paused."""
    return Gate(
        GateName.NOT_PAUSED, not obs.spec.paused, "paused" if obs.spec.paused else "running", "running", Source.SPEC
    )


def attempt_gates(obs: Observation, status: DeploymentStatus) -> tuple[Gate, Gate]:
    """Whether the revision has an attempt left, and whether its back-off is over."""
    remedies, revision, attempts = obs.spec.remedies, status.revision or "", status.attempts
    count = attempts.count if attempts is not None and attempts.revision == revision else 0
    wait = budget.seconds_until_attempt(attempts, revision, obs.now)
    left = Gate(
        GateName.ATTEMPTS,
        not budget.exhausted(attempts, revision, remedies),
        count,
        f"at most {remedies.max_attempts - 1}",
        Source.STATUS,
    )
    over = Gate(GateName.BACKOFF, True, "none running", "none running", Source.STATUS)
    if wait > 0:
        begun = attempts.last_rollback if attempts is not None else None
        since = (obs.now - begun).total_seconds() if begun is not None else 0.0
        over = Gate(GateName.BACKOFF, False, since, since + wait, Source.STATUS, "s", wait)
    return left, over


def trial_gates(obs: Observation, status: DeploymentStatus) -> tuple[Gate, ...]:
    """Before the next trial may start, in the order in which they are asked."""
    stable, extra = status.stable, obs.spec.capacity.max_extra_replicas
    arm = obs.arm(stable.baseline) if stable else None
    serving = len(arm.serving) if arm is not None and arm.role is ArmRole.BASELINE else 0
    return (
        Gate(GateName.PLAIN_SERVES, serving >= obs.spec.replicas, serving, obs.spec.replicas, Source.PODS, "pods"),
        *attempt_gates(obs, status),
        maintenance_gate(obs),
        Gate(GateName.ROOM, extra > 0, extra, 1, Source.SPEC, "pods", note="spec.capacity.maxExtraReplicas"),
    )


def step_gates(obs: Observation, status: DeploymentStatus) -> tuple[Gate, ...]:
    """What the present canary step needs to pass. Only all of them together move on."""
    rollout = obs.spec.rollout
    step = rollout.steps[rollout.step_index(status.step)]
    comparison, answer = obs.watch.comparison, obs.watch.answer
    least = least_requests(obs.watch)
    verdict = comparison.verdict if comparison is not None else None
    return (
        timer_gate(GateName.DURATION, status.step_since, step.min_duration_seconds, obs.now),
        Gate(GateName.REQUESTS, least >= step.min_requests, least, step.min_requests, Source.WATCH, "requests"),
        Gate(
            GateName.METRICS,
            answer is Answer.OK,
            answer.value,
            Answer.OK.value,
            Source.WATCH,
            note=obs.watch.message,
        ),
        Gate(
            GateName.VERDICT,
            verdict is Verdict.PASS,
            "pending" if comparison is None else f"{comparison.verdict.value} ({comparison.reason})",
            Verdict.PASS.value,
            Source.WATCH,
            note=comparison.message if comparison is not None else "",
        ),
    )


def least_requests(watch: WatchReport) -> float:
    """Requests that the smaller arm has finished since the step began."""
    return min((watch.step[role].requests if role in watch.step else 0.0) for role in ArmRole)


def fruitless_seconds(obs: Observation, status: DeploymentStatus) -> float:
    """How long the present canary step has waited for a verdict that could have come.

    Not while the metrics server is away, and anew once it is back: an outage is nobody's lack of traffic.
    """
    said = find_condition(status.conditions, ConditionType.METRICS_AVAILABLE)
    usable = obs.watch.answer in USABLE_ANSWERS
    if status.step_since is None or said is None or obs.watch.answer is Answer.UNAVAILABLE:
        return 0.0
    if usable is not (said.status is ConditionStatus.TRUE):
        return 0.0
    return (obs.now - max(status.step_since, said.last_transition_time)).total_seconds()


def hold_gate(obs: Observation, status: DeploymentStatus) -> Gate:
    """A hold ends by itself, but not one that only a changed spec can end."""
    left = (status.hold_until - obs.now).total_seconds() if status.hold_until else 0.0
    own = status.stable is not None and status.stable.baseline == obs.baseline.fingerprint
    no_room = status.phase_reason == "InsufficientCapacity" and obs.spec.capacity.max_extra_replicas == 0 and own
    if no_room:
        return Gate(GateName.HOLD, False, "maxExtraReplicas 0", "at least 1", Source.SPEC)
    since = (obs.now - status.phase_since).total_seconds() if status.phase_since else 0.0
    return Gate(GateName.HOLD, left <= 0, since, since + max(0.0, left), Source.STATUS, "s", left if left > 0 else None)


def timer_gate(name: GateName, since: datetime | None, needs: float, now: datetime) -> Gate:
    """Seconds since a moment; a moment that never was holds nothing back."""
    passed = float("inf") if since is None else (now - since).total_seconds()
    left = needs - passed
    return Gate(name, passed >= needs, passed, needs, Source.STATUS, "s", left if left > 0 else None)
