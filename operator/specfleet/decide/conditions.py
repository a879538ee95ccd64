"""Conditions of a deployment, derived from its status and observation alone (kstatus conventions)."""

import re
from dataclasses import dataclass
from datetime import datetime

from specfleet.api.conditions import Condition, ConditionStatus, ConditionType, merge_conditions
from specfleet.api.status import DeploymentStatus, Phase, Verdict
from specfleet.decide.faults import (
    Fault,
    crash_fault,
    lone_fault,
    no_room,
    route_fault,
    start_fault,
    straggler,
    stuck_rollout,
)
from specfleet.decide.observation import ArmView, Observation
from specfleet.decide.replacement import being_replaced
from specfleet.decide.targets import target
from specfleet.decide.watch_report import UNKNOWN_REPORT, USABLE_ANSWERS, Attribution, Signal, Stage, Suspicion

SETTLED = (
    Phase.BASELINE,
    Phase.BENCHMARKING,
    Phase.SPECULATIVE,
    Phase.ROLLED_BACK,
    Phase.EXHAUSTED,
    Phase.HELD,
)
MISSING_SECONDS = 600.0
"""How long a pod may look for a node before a person is called: an autoscaler brings one within minutes."""
REFUSED = (Phase.ROLLED_BACK, Phase.EXHAUSTED, Phase.HELD)


FROM_WATCH = (ConditionType.METRICS_AVAILABLE, ConditionType.DRIFT_DETECTED)
NUMBER = re.compile(r"(?<!HTTP )(?<!HTTP \d)(?<!HTTP \d\d)[-+]?\d[\d.,:]*(e[-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class _Said:
    status: ConditionStatus
    reason: str
    message: str = ""


def _true(reason: str, message: str = "") -> _Said:
    return _Said(ConditionStatus.TRUE, reason, message)


def _false(reason: str, message: str = "") -> _Said:
    return _Said(ConditionStatus.FALSE, reason, message)


def _unknown(reason: str, message: str = "") -> _Said:
    return _Said(ConditionStatus.UNKNOWN, reason, message)


def conditions(obs: Observation, status: DeploymentStatus) -> list[Condition]:
    """All conditions; transitions are stamped only where the status of a condition changed."""
    generation = int(obs.deployment.metadata.get("generation", 0))
    baseline = _baseline_ready(obs, status)
    stalled = _stalled(obs, status)
    said = {
        ConditionType.BASELINE_READY: baseline,
        ConditionType.STALLED: stalled,
        ConditionType.RECONCILING: _reconciling(status, stalled),
        ConditionType.READY: _ready(obs, status, stalled),
        ConditionType.BENCHMARK_PASSED: _benchmark_passed(obs, status),
        ConditionType.METRICS_AVAILABLE: _metrics(obs, status),
        ConditionType.SPECULATION_ACTIVE: _speculation(obs, status),
        ConditionType.DRIFT_DETECTED: _drift(obs, status),
    }
    before = {one.type: one for one in status.conditions}
    now = obs.now.replace(microsecond=0)
    return merge_conditions(
        status.conditions, [_condition(kind, one, before.get(kind), now, generation) for kind, one in said.items()]
    )


def _condition(kind: ConditionType, said: _Said, known: Condition | None, now: datetime, generation: int) -> Condition:
    """Numbers of the watch change with every window; what was said first stays until something else is to be said.

    That is another reason, or other words: a server that was not reached and now wants a token is another cause.
    """
    reason, message = _reason(said.reason), said.message[:1024]
    if known is not None and (known.status, known.reason) == (said.status, reason):
        counted = kind in FROM_WATCH or reason == Signal.NO_PROGRESS.value
        if counted and NUMBER.sub("#", message) == NUMBER.sub("#", known.message):
            message = known.message
        if (known.message, known.observed_generation) == (message, generation):
            return known  # Most turns change nothing, and making eight of them again was a third of a turn.
    return Condition(
        type=kind,
        status=said.status,
        reason=reason,
        message=message,
        last_transition_time=now,
        observed_generation=generation,
    )


def _reason(text: str) -> str:
    """A reason that the API takes (CamelCase words), also when somebody wrote something else into the status."""
    kept = re.sub(r"[^A-Za-z0-9_]", "", text)
    return kept if kept[:1].isalpha() else "Unknown"


def serving_pods(obs: Observation) -> int:
    """Pods that may answer user requests now, over all arms."""
    return sum(len(arm.serving) for arm in obs.arms)


def _pods(count: int) -> str:
    return f"{count} pod" if count == 1 else f"{count} pods"


def _not_coming(obs: Observation, arm: ArmView | None) -> Fault | None:
    """Why an arm's pods do not come up: without a place nothing of them has started."""
    return no_room(arm, obs.now) or start_fault(arm, obs.now, obs.spec.engine.startup_timeout_seconds)


def _baseline_ready(obs: Observation, status: DeploymentStatus) -> _Said:
    if obs.baseline.refusals:
        finding = obs.baseline.refusals[0]
        return _false(finding.reason, f"{finding.field_path}: {finding.message}. {finding.remedy}")
    arm = obs.arm(obs.baseline.fingerprint) or obs.bench_arm(obs.baseline.fingerprint)
    fault = _not_coming(obs, arm)
    if fault is not None:
        return _false(fault.reason, fault.message)
    if arm is not None and arm.serving:
        return _true("Answered", f"{_pods(len(arm.serving))} answered a completion with the expected fingerprint")
    if status.stable is not None and status.stable.speculative and status.stable.baseline == obs.baseline.fingerprint:
        return _true("ProvenBefore", "no plain pod is kept; the plain arm was proven before promotion")
    waiting = next((pod for pod in arm.pods if pod.failure or pod.proof_message), None) if arm else None
    return _false("Starting", (waiting.failure or waiting.proof_message) if waiting else "waiting for the first pod")


def _stalled(obs: Observation, status: DeploymentStatus) -> _Said:
    if obs.baseline.refusals:
        finding = obs.baseline.refusals[0]
        return _true(finding.reason, f"{finding.field_path}: {finding.message}. {finding.remedy}")
    if status.revision_refused is not None and status.revision_refused == status.revision:
        last = status.last_decision
        return _true(
            "RevisionRolledBack", last.message if last else "the changed model or engine failed; stable serves"
        )
    refused = status.phase in REFUSED or (status.phase is Phase.BASELINE and bool(status.trials))
    if obs.spec.rollout.require_speculation and obs.spec.speculation and refused:
        return _true(status.phase_reason or "SpeculationNotServing", "rollout.requireSpeculation is true")
    arm = obs.arm(obs.baseline.fingerprint)
    if status.stable is None:
        if obs.problems:
            return _true("Refused", obs.problems[0])
        fault = _not_coming(obs, arm) or _incomplete(obs, status, arm)
        if fault is not None:
            return _true(fault.reason, fault.message)
    if status.stable is not None and not serving_pods(obs):
        return _true("NothingServes", "no pod of any arm answers")
    if status.phase is Phase.ROLLING_BACK and status.stable is not None:
        # After the trial of another engine it is what was promoted that takes the traffic back.
        for name in (status.stable.baseline, status.stable.speculative):
            arm = obs.arm(name) if name != status.candidate else None
            full = no_room(arm, obs.now)
            which = "the plain arm" if name == status.stable.baseline else "the promoted arm"
            if full is not None:
                return _true("RollBackBlocked", f"{which} cannot take the traffic back: {full.message}")
            fault = start_fault(arm, obs.now, obs.spec.engine.startup_timeout_seconds)
            if fault is not None:
                return _true("BothArmsFail", f"{which} does not come up either: {fault.message}")
            fault = _incomplete(obs, status, arm)
            if fault is not None:
                return _true("RollBackBlocked", f"{which} cannot take all the traffic back: {fault.message}")
    if obs.problems:
        # Behind what nobody is served by: that is the fault to mend first, and these stay in status.warnings.
        return _true("Refused", obs.problems[0])
    hung = next((one for one in obs.watch.suspicions if _hangs(one, status)), None)
    if hung is not None:
        return _true(hung.signal.value, hung.message)
    missing = _missing(obs, status)
    if missing is not None:
        return _true(missing.reason, missing.message)
    stuck = _stuck(obs, status)
    if stuck is not None:
        return _true(stuck.reason, stuck.message)
    unrouted = route_fault(obs.route, obs.now)
    if unrouted is not None:
        return _true(unrouted.reason, unrouted.message)
    if status.phase is Phase.DEPLOYING and status.stable is not None and obs.spec.remedies.on_change == "Hold":
        return _true("ChangeHeld", "spec.remedies.onChange is Hold: set it to Rebenchmark to try the changed engine")
    return _false("Progressing")


def _hangs(finding: Suspicion, status: DeploymentStatus) -> bool:
    """Pods are ready and generate nothing, and nothing follows: plain decoding is no better, or is all there is."""
    told = finding.signal is Signal.NO_PROGRESS and finding.stage is Stage.CONFIRMED
    plain = status.stable is not None and status.stable.speculative is None
    return told and (finding.attribution is Attribution.SHARED or (plain and finding.attribution is Attribution.POD))


def _incomplete(obs: Observation, status: DeploymentStatus, arm: ArmView | None) -> Fault | None:
    """Why an arm of which some pods serve does not come to all of them, once nothing follows by itself."""
    fault = crash_fault(arm, obs.now) or straggler(arm, obs.now, obs.spec.engine.startup_timeout_seconds)
    return None if fault is None or arm is None or being_replaced(status, arm, fault) else fault


def _missing(obs: Observation, status: DeploymentStatus) -> Fault | None:
    """Why fewer pods serve than the spec asks for, or a canary's step waits, where nothing is in flight to end it."""
    serving, wanted = serving_pods(obs), obs.spec.replicas
    if status.phase is Phase.CANARY and status.step_since is None:
        return _blocks_the_step(obs, status)
    if status.phase not in SETTLED or serving >= wanted:
        return None
    goal = target(obs, status)
    for arm in obs.arms:
        if len(arm.serving) < goal.get(arm.fingerprint, 0):
            fault = no_room(arm, obs.now, MISSING_SECONDS) or crash_fault(arm, obs.now) or lone_fault(arm, obs.now)
            if fault is not None and not being_replaced(status, arm, fault):
                return Fault(fault.reason, f"{serving} of {wanted} pods serve: {fault.message}")
    return None


def _blocks_the_step(obs: Observation, status: DeploymentStatus) -> Fault | None:
    """A stable arm that is not whole; the candidate's own faults end the canary."""
    goal, step = target(obs, status), (status.step or 0) + 1
    for arm in obs.arms:
        if arm.fingerprint != status.candidate and len(arm.serving) < goal.get(arm.fingerprint, 0):
            fault = _incomplete(obs, status, arm)
            if fault is not None:
                return Fault(fault.reason, f"the canary's step {step} waits for {arm.name}: {fault.message}")
    return None


def _stuck(obs: Observation, status: DeploymentStatus) -> Fault | None:
    """A roll-out within an arm that waits for ever, where no trial moves pods meanwhile."""
    if status.phase not in SETTLED:
        return None
    timeout = obs.spec.engine.startup_timeout_seconds
    return next((one for arm in obs.arms if (one := stuck_rollout(arm, obs.now, timeout)) is not None), None)


def _reconciling(status: DeploymentStatus, stalled: _Said) -> _Said:
    """True only while what the user asked for does not serve yet; a trial in flight does not block a sync wave."""
    if stalled.status is ConditionStatus.TRUE:
        return _false("Stalled")
    if status.phase is Phase.DEPLOYING:
        return _true("Deploying", "the plain arm is coming up")
    if status.phase is Phase.CANARY and status.stable and status.candidate and status.stable.name != status.revision:
        return _true("RevisionTrial", "the changed model or engine takes over step by step")
    return _false("Settled")


def _ready(obs: Observation, status: DeploymentStatus, stalled: _Said) -> _Said:
    if stalled.status is ConditionStatus.TRUE:
        return _false(stalled.reason, stalled.message)
    if status.phase is Phase.DEPLOYING:
        return _false("Deploying", "the plain arm is not proven yet")
    count = serving_pods(obs)
    if count < obs.spec.replicas:
        return _false("TooFewPods", f"{count} of {obs.spec.replicas} pods serve")
    return _true("Serving", f"{_pods(count)} {'serves' if count == 1 else 'serve'}")


def _benchmark_passed(obs: Observation, status: DeploymentStatus) -> _Said:
    if obs.spec.speculation is None:
        return _unknown("NoSpeculation", "spec.speculation is not set")
    if status.benchmark is not None and status.phase is Phase.BENCHMARKING:
        if status.preflight is not None and status.preflight.outcome is None:
            return _unknown("Preflight", "the models' files are being compared; no engine pod of the proposer exists")
        done, planned = status.benchmark.pairs_done, status.benchmark.pairs_planned
        return _unknown("Measuring", f"{done} of {planned} pairs")
    passed = [one for one in status.trials if one.verdict is Verdict.PASS]
    if passed:
        return _true(passed[0].reason, f"{passed[0].proposer} passed")
    if status.trials:
        worst = status.trials[-1]
        arm = obs.wanted(worst.fingerprint)
        if arm is not None and arm.refusals:
            return _false(worst.reason, f"{worst.proposer}: {arm.refusals[0].sentence()}")
        return _false(worst.reason, f"{worst.proposer}: {worst.verdict.value}")
    refused = [arm for arm in obs.proposers if arm.refusals]
    if refused and len(refused) == len(obs.proposers):
        finding = refused[0].refusals[0]
        return _false(finding.reason, f"{finding.field_path}: {finding.message}. {finding.remedy}")
    return _unknown("NotMeasured")


def _metrics(obs: Observation, status: DeploymentStatus) -> _Said:
    del status
    reports = [one for one in (obs.watch, obs.promoted_watch) if one is not None and one.answer not in USABLE_ANSWERS]
    for report in reports:
        if report != UNKNOWN_REPORT:
            return _false(report.answer.value, report.message)
    if reports:
        return _unknown("NotRead", UNKNOWN_REPORT.message)
    # One reason for all: a service with little traffic goes from window to window between them, and a condition that
    # follows would write the status every minute.
    return _true("Answered")


def _speculation(obs: Observation, status: DeploymentStatus) -> _Said:
    stable = status.stable
    if stable is not None and stable.speculative is not None:
        arm = obs.arm(stable.speculative)
        wanted = obs.wanted(stable.speculative)
        label = wanted.label if wanted else stable.speculative
        if arm is not None and arm.serving:
            return _true("Promoted", f"{label} serves {status.weight_percent} % of the traffic")
        return _false("NoSpeculativePod", f"{label} is promoted, but none of its pods serves")
    if obs.spec.speculation is None:
        return _false("NoSpeculation", "spec.speculation is not set")
    return _false(status.phase_reason or status.phase.value, _why_refused(status))


def _why_refused(status: DeploymentStatus) -> str:
    """What led here, not that it is over: "RolledBack" says only that traffic has moved."""
    if status.phase not in REFUSED:
        return ""
    told = [one for one in status.history if one.action != "RolledBack"]
    last = next(iter(told[-1:]), status.last_decision)
    return last.message if last is not None else ""


def _drift(obs: Observation, status: DeploymentStatus) -> _Said:
    if status.investigation is not None:
        return _true(status.investigation.signal, status.investigation.message)
    promoted = status.stable.speculative if status.stable is not None else None
    for one in obs.watch_of(promoted).suspicions if promoted is not None else ():
        if one.stage is Stage.CONFIRMED and one.attribution is not Attribution.SHARED:
            # Nothing follows yet (cool-down, budget, breaker, pause, followed up before): users suffer all the same.
            return _true(one.signal.value, one.message)
    for one in (*obs.watch.suspicions, *obs.watch_of(promoted).suspicions):
        if one.attribution is Attribution.SHARED:
            return _true("SharedCause", one.message)
    if promoted is None:
        return _unknown("NotSpeculating")
    read = _metrics(obs, status).status is ConditionStatus.TRUE
    return _false("WithinCalibration") if read else _unknown("NoMetrics")
