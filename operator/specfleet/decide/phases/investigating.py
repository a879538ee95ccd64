"""Investigating: attribute, restart one pod, measure again, and only then roll back: the least harmful remedy first."""

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.status import ArmRole, Calibration, Investigation, Phase, Verdict
from specfleet.decide import measure
from specfleet.decide.evidence import BenchmarkVerdict
from specfleet.decide.observation import ArmView, PodView
from specfleet.decide.phases.resting import start_benchmark
from specfleet.decide.phases.speculative import gain_below_zero, hard_fault, nothing_promoted
from specfleet.decide.plan import PodRef
from specfleet.decide.replacement import RESTART_POD
from specfleet.decide.resume import resume
from specfleet.decide.rollback import rollback_allowed, start_rollback
from specfleet.decide.traffic import MOVED, look_anew, measured_anew, slices_in_force
from specfleet.decide.turn import Turn
from specfleet.decide.watch_report import Answer, ArmWindow, Attribution, Severity, Stage

HEALED_RATIO = 0.93
"""A pod counts as healed when its acceptance is back above this share of the calibrated one (knowledge, 1.4)."""
MIN_PODS_FOR_PROBE = 2
ATTRIBUTION_TIMEOUT_SECONDS = 5400.0


def investigating(turn: Turn) -> None:
    """One stage at a time; every stage has a way out when its evidence does not come."""
    if turn.status.investigation is None:
        resume(turn, "InvestigationLost")
        return
    if nothing_promoted(turn) or hard_fault(turn) or gain_below_zero(turn):
        return
    if turn.status.investigation.stage == RESTART_POD:
        _restart_pod(turn, turn.status.investigation)
        return
    if turn.spec.paused or turn.obs.fleet.breaker_open:
        return
    stages = {"Attribute": _attribute, "RestartProbe": _restart_probe, "RestartRest": _restart_rest}
    stages.get(turn.status.investigation.stage, _rebenchmark)(turn, turn.status.investigation)


def attribution_timeout(spec: DeploymentSpec) -> float:
    """Longest wait for an attribution, in seconds; then the benchmark has to tell."""
    return max(ATTRIBUTION_TIMEOUT_SECONDS, 4.0 * spec.remedies.confirm_seconds)


def probe_patience(spec: DeploymentSpec) -> float:
    """Longest wait for the figures of a restarted pod, in seconds; then the benchmark has to tell."""
    remedies = spec.remedies
    return float(spec.engine.startup_timeout_seconds + remedies.warmup_seconds + 6 * remedies.confirm_seconds)


def open_by_command(turn: Turn) -> None:
    """A person asked for a re-benchmark of the promoted proposer."""
    case = Investigation(since=turn.now, signal="CommandRebenchmark", stage="Rebenchmark", stage_since=turn.now)
    turn.enter(Phase.INVESTIGATING, "CommandRebenchmark", investigation=case)


def _attribute(turn: Turn, case: Investigation) -> None:
    """With plain pods beside it at matched load: is it speculation, or does everything degrade?"""
    found = next((one for one in turn.promoted_watch.suspicions if one.signal.value == case.signal), None)
    waited = turn.seconds_since(case.stage_since)
    if found is not None and found.attribution is Attribution.SHARED:
        _close(turn, "SharedCause", f"{found.message}; the plain arm degrades too: not speculation")
    elif found is not None and found.stage is Stage.CONFIRMED and found.attribution is Attribution.SPECULATION:
        if found.severity is Severity.SLO and rollback_allowed(turn):
            start_rollback(turn, found.signal.value, found.message)
        else:
            _stage(turn, case, "RestartProbe")
    elif found is None and turn.promoted_watch.answer is Answer.OK and waited > turn.spec.remedies.confirm_seconds:
        _close(turn, "Recovered", f"{case.signal} is gone with a raised control")
    elif waited > attribution_timeout(turn.spec):
        _stage(turn, case, "Rebenchmark")
    else:
        turn.look_again(10)


def _restart_probe(turn: Turn, case: Investigation) -> None:
    """Some engines decay until they are restarted (vllm#41838): restart one pod and see whether it heals."""
    arm = _speculative(turn)
    if case.restarted_at is None:
        pods = arm.serving if arm else ()
        if not turn.spec.remedies.restart_probe or len(pods) < MIN_PODS_FOR_PROBE:
            _stage(turn, case, "Rebenchmark")
            return
        pod = next((one for one in pods if one.name == case.restarted_pod), min(pods, key=lambda one: one.name))
        turn.decide("RestartProbe", case.signal, f"restarting pod {pod.name} to see whether {case.signal} heals")
        turn.set(
            investigation=case.model_copy(
                update={"restarted_pod": pod.name, "restarted_pod_uid": pod.uid, "restarted_at": turn.now}
            ),
            last_change=turn.now,
        )
        turn.restarts.append(PodRef(pod.name, pod.uid))
        return
    _delete_again(turn, arm, case)
    window, name = _fresh_window(turn, arm, case)
    expected = turn.status.calibration.acceptance_rate if turn.status.calibration else None
    if window is None or window.acceptance_rate is None or expected is None:
        _wait_or_go_on(turn, case)
        return
    said = f"restarted pod {name}: acceptance rate {window.acceptance_rate:.3f}, calibrated {expected:.3f}"
    if window.acceptance_rate >= HEALED_RATIO * expected:
        turn.decide("RestartRest", "RestartHeals", said, Verdict.PASS)
        _stage(turn, case, "RestartRest")
    else:
        turn.decide("RestartProbeFailed", case.signal, f"{said}: a restart does not heal it", Verdict.FAIL)
        _stage(turn, case, "Rebenchmark")


def _restart_pod(turn: Turn, case: Investigation) -> None:
    """Only one pod is bad: it alone is restarted."""
    arm = _speculative(turn)
    if case.restarted_at is None:
        pods = arm.pods if arm else ()
        pod = next((one for one in pods if one.name == case.restarted_pod and not one.deleting), None)
        if pod is None:
            _close(turn, "PodGone", f"pod {case.restarted_pod} is gone: {case.message}")
            return
        turn.decide(RESTART_POD, case.signal, f"restarting pod {pod.name}: {case.message}")
        turn.set(investigation=case.model_copy(update={"restarted_pod_uid": pod.uid, "restarted_at": turn.now}))
        turn.restarts.append(PodRef(pod.name, pod.uid))
        return
    _delete_again(turn, arm, case)
    back = arm is not None and len(arm.serving) >= arm.replicas and not any(pod.deleting for pod in arm.pods)
    if back or turn.seconds_since(case.restarted_at) > _restart_seconds(turn):
        _close(turn, "PodRestarted", f"pod {case.restarted_pod} was restarted: {case.message}")
    else:
        turn.look_again(5)


def _restart_seconds(turn: Turn) -> float:
    """Longest time that one restart may take: drain, stop, start."""
    engine = turn.spec.engine
    return float(engine.drain_timeout_seconds + engine.shutdown_timeout_seconds + engine.startup_timeout_seconds)


def _restart_rest(turn: Turn, case: Investigation) -> None:
    """The restart healed: restart the other pods one by one, never with another one away."""
    arm = _speculative(turn)
    if arm is None or case.restarted_at is None:
        _close(turn, "RestartHealed", "no speculative pod is left to restart")
        return
    old = [pod for pod in arm.pods if pod.created < case.restarted_at and not pod.deleting]
    if not old:
        if len(arm.serving) >= arm.replicas:
            _close(turn, "RestartHealed", f"all {len(arm.serving)} speculative pods were restarted")
        return
    if len(arm.serving) >= arm.replicas and not any(pod.deleting for pod in arm.pods):
        pod = min(old, key=lambda one: one.name)
        turn.restarts.append(PodRef(pod.name, pod.uid))
    elif turn.seconds_since(case.stage_since) > _restart_seconds(turn) * (arm.replicas + 1):
        said = f"{len(old)} speculative pods could not be restarted: the others do not come up"
        _close(turn, "RestartIncomplete", said)
        return
    turn.look_again(5)


def _rebenchmark(turn: Turn, case: Investigation) -> None:
    """Measure the suspect cells again on fresh pods."""
    stable = turn.status.stable
    wanted = turn.obs.wanted(stable.speculative) if stable else None
    refused = bool(turn.obs.baseline.refusals)
    if not turn.spec.remedies.rebenchmark or turn.spec.capacity.max_extra_replicas == 0 or wanted is None or refused:
        _close(turn, "NotMeasured", f"{case.message}; a re-benchmark is not possible here: a person has to look")
        return
    if turn.status.benchmark is None:
        start_benchmark(turn, wanted, "Suspicion", _suspect_cells(turn))
        return
    outcome = measure.advance(turn)
    if outcome is None or isinstance(outcome, measure.RoundOver):
        turn.look_again(10)
    elif isinstance(outcome, measure.Interruption):
        if outcome.role is ArmRole.SPECULATIVE and rollback_allowed(turn):
            start_rollback(turn, outcome.fault.reason, outcome.fault.message)
        else:
            _close(turn, "NotMeasured", f"{case.message}; not measured: {outcome.fault.message}")
    else:
        _judged(turn, case, outcome)


def _judged(turn: Turn, case: Investigation, outcome: BenchmarkVerdict) -> None:
    turn.set(cells=_merge_cells(turn, outcome))
    if case.signal == MOVED:
        # A harness that failed has measured nothing: the traffic that was measured stays the reference.
        (look_anew if outcome.verdict is Verdict.ERROR else measured_anew)(turn)
    if outcome.verdict is Verdict.FAIL and rollback_allowed(turn):
        turn.decide("Judge", outcome.reason, outcome.message, Verdict.FAIL, measure.evidence_names(turn))
        start_rollback(turn, case.signal, f"{case.message}; measured again: {outcome.message}")
        return
    turn.decide("Judge", outcome.reason, outcome.message, outcome.verdict, measure.evidence_names(turn))
    if outcome.verdict is Verdict.PASS:
        _close(
            turn,
            "StillFaster",
            f"{case.signal}, but measured again it still gains: {outcome.message}",
            recalibrate=True,
        )
    else:
        _close(turn, "NotProven", f"{case.message}; measured again: {outcome.message}")


def _suspect_cells(turn: Turn) -> tuple[str, ...]:
    """Cells to measure again: the open-loop tiers, where acceptance shows; all when every tier is closed-loop."""
    spec = turn.spec.benchmark
    slices = slices_in_force(turn.spec, turn.status) or spec.slices
    if turn.status.investigation is not None and turn.status.investigation.signal == MOVED:
        return ()
    tiers = [tier.name for tier in spec.tiers if not tier.closed_loop] or [tier.name for tier in spec.tiers]
    return tuple(f"{tier}/{piece.name}" for tier in tiers[-1:] for piece in slices)


def _merge_cells(turn: Turn, outcome: BenchmarkVerdict) -> list[object]:
    fresh = {(cell.tier, cell.slice): cell for cell in outcome.cells}
    kept = [fresh.pop((cell.tier, cell.slice), cell) for cell in turn.status.cells]
    return [*kept, *fresh.values()]


def _close(turn: Turn, reason: str, message: str, recalibrate: bool = False) -> None:
    """Back to watching, or to the changed revision that waits, with a cool-down.

    Only a passed benchmark makes a new normal, never drifted traffic.
    """
    turn.decide("CloseInvestigation", reason, message)
    if turn.status.phase_reason == MOVED and reason == "NotMeasured":
        look_anew(turn)
    turn.act()
    calibration: Calibration | None = turn.status.calibration
    if recalibrate:
        calibration = None
    turn.set(calibration=calibration)
    resume(turn, reason)


def _stage(turn: Turn, case: Investigation, stage: str) -> None:
    current = turn.status.investigation or case
    turn.set(investigation=current.model_copy(update={"stage": stage, "stage_since": turn.now}))
    turn.look_again(1)


def _speculative(turn: Turn) -> ArmView | None:
    stable = turn.status.stable
    return turn.obs.arm(stable.speculative) if stable else None


def _delete_again(turn: Turn, arm: ArmView | None, case: Investigation) -> None:
    """A crash between the decision and the deletion must not leave the pod running."""
    for pod in arm.pods if arm else ():
        if pod.uid == case.restarted_pod_uid and not pod.deleting:
            turn.restarts.append(PodRef(pod.name, pod.uid))


def _fresh_window(turn: Turn, arm: ArmView | None, case: Investigation) -> tuple[ArmWindow | None, str]:
    """The restarted pod's own window, once it is long enough to speak."""
    fresh: list[PodView] = [
        pod for pod in (arm.serving if arm else ()) if case.restarted_at and pod.created >= case.restarted_at
    ]
    for pod in fresh:
        window = turn.promoted_watch.pods.get(pod.name)
        if window is None or window.answer is not Answer.OK or window.start is None or window.end is None:
            continue
        if (window.end - window.start).total_seconds() >= turn.spec.remedies.confirm_seconds:
            return window, pod.name
    return None, ""


def _wait_or_go_on(turn: Turn, case: Investigation) -> None:
    patience = probe_patience(turn.spec)
    if turn.seconds_since(case.restarted_at) > patience and turn.promoted_watch.answer is not Answer.UNAVAILABLE:
        _stage(turn, case, "Rebenchmark")
    else:
        turn.look_again(5)
