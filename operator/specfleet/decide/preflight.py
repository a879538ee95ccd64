"""Preflight: the models' files are compared by a pod without a GPU before the first engine pod of a proposer is made.

Only an answer that refuses keeps a proposer from starting. No answer in time, a Job that failed, or a pod that does not
even see the model that serves: this is said, and the trial goes on.

The model itself is looked at beside its first engine, while that starts: on the same node, so that what this pod does
not see the engine does not see either, and nothing waits for the look. A model that is not there takes the engine back
until the files are looked at again.
"""

from dataclasses import replace
from hashlib import sha256

from specfleet.api.preflight import PreflightFinding, PreflightOutcome, PreflightStatus
from specfleet.api.status import DeploymentStatus, TrialStatus, Verdict
from specfleet.decide.observation import Observation, PreflightView, WantedArm
from specfleet.decide.turn import Turn
from specfleet.engine.findings import Finding, Severity
from specfleet.engine.rules.case import proposer_path

JOB_SECONDS = 120
"""The Job's own time limit: its pod runs where an engine pod runs, so image and volumes are there already."""
LONGEST_SECONDS = 180.0
"""How long a trial waits at most, also for a Job that could not be made or that nobody runs."""
AGAIN_SECONDS = 600.0
"""How long a model that was missing stays refused: somebody may be filling the volume just now."""
_SOURCE = "the preflight pod"


def pending(obs: Observation, status: DeploymentStatus) -> bool:
    """Whether a proposer's pods have to wait for a preflight."""
    if obs.preflight_key is None:
        return False
    known = status.preflight
    return known is None or known.key != obs.preflight_key or known.outcome is None


def screened(obs: Observation, status: DeploymentStatus) -> Observation:
    """The observation with what the files say added to what the rules say of each proposer."""
    known = status.preflight
    if known is None or not _counts(obs, known) or not known.findings:
        return obs
    found = [_finding(one) for one in known.findings]
    plain = tuple(one for one in found if _of_target(one))
    refusals = tuple(one for one in plain if _refuses(one) and known.key == obs.model_key and status.stable is None)
    warnings = tuple(one for one in plain if one not in refusals)
    baseline = replace(
        obs.baseline,
        refusals=(*obs.baseline.refusals, *refusals),
        warnings=(*obs.baseline.warnings, *warnings),
    )
    return replace(obs, baseline=baseline, proposers=tuple(_screened(obs, arm, found) for arm in obs.proposers))


def _screened(obs: Observation, arm: WantedArm, found: list[Finding]) -> WantedArm:
    mine = [one for one in found if _concerns(obs, one, arm)]
    refusals = tuple(one for one in mine if one.severity is Severity.REFUSE and one not in arm.refusals)
    warnings = tuple(one for one in mine if one.severity is Severity.WARN and one not in arm.warnings)
    return replace(arm, refusals=(*arm.refusals, *refusals), warnings=(*arm.warnings, *warnings))


def _concerns(obs: Observation, finding: Finding, arm: WantedArm) -> bool:
    if arm.proposer is None or not finding.field_path.startswith(f"{proposer_path(obs.spec, arm.proposer)}."):
        return False
    return finding.tokens is None or finding.tokens == arm.proposer.num_speculative_tokens


def record_answer(turn: Turn) -> None:
    """Write down what the Job answered, or that it did not; the Job is removed after that."""
    known, obs = turn.status.preflight, turn.obs
    if known is not None and _keeps_model_away(turn, known) and abs(turn.seconds_since(known.started)) > AGAIN_SECONDS:
        turn.set(preflight=None)
        return
    if known is None or known.outcome is not None or not _counts(obs, known):
        return
    seen = obs.preflight or PreflightView(message="its Job does not exist")
    over = abs(turn.seconds_since(known.started)) > LONGEST_SECONDS
    if not seen.finished and not over:
        return
    if known.key == obs.model_key:
        _record_model(turn, known, seen)
    else:
        _record_proposers(turn, known, seen)


def _record_model(turn: Turn, known: PreflightStatus, seen: PreflightView) -> None:
    """The model alone, beside its first engine; without an answer the engine's own words are all there is.

    Nor is an answer one that refuses what serves by now, perhaps on another node: to act on it would take that away.
    """
    found = tuple(one for one in seen.findings or () if _of_target(one))
    refused = next((one for one in found if _refuses(one)), None)
    arm = turn.obs.arm(turn.obs.baseline.fingerprint)
    serves = arm is not None and bool(arm.serving)
    if seen.findings is None or (refused is not None and serves):
        _close(turn, known, PreflightOutcome.NOT_CHECKED, "", ())
    elif refused is None:
        _close(turn, known, PreflightOutcome.PASSED, "", found)
    else:
        _close(turn, known, PreflightOutcome.REFUSED, "", found)
        last = turn.status.last_decision
        if last is None or (last.action, last.message) != ("RefuseModel", refused.sentence()):
            turn.decide("RefuseModel", refused.reason, refused.sentence(), Verdict.FAIL)


def _record_proposers(turn: Turn, known: PreflightStatus, seen: PreflightView) -> None:
    blind = next((one for one in seen.findings or () if _refuses(one) and _of_target(one)), None)
    if seen.findings is None or blind is not None:
        why = f"{blind.field_path}: {blind.message}, yet it serves" if blind is not None else seen.message
        said = f"the models' files were not compared: {why or 'no answer'}"
        _close(turn, known, PreflightOutcome.NOT_CHECKED, said, ())
        turn.decide("Preflight", PreflightOutcome.NOT_CHECKED.value, said, Verdict.INCONCLUSIVE)
        return
    refused = any(_refuses(one) for one in seen.findings)
    outcome = PreflightOutcome.REFUSED if refused else PreflightOutcome.PASSED
    _close(turn, known, outcome, "", seen.findings)
    if not refused:
        turn.decide("Preflight", outcome.value, "the models' files fit each other", Verdict.PASS)
    _refuse(turn)


def _refuse(turn: Turn) -> None:
    """A refused candidate has its verdict: nothing of it will be started."""
    for arm in screened(turn.obs, turn.status).proposers:
        before = turn.obs.wanted(arm.fingerprint)
        if before is None or before.refusals or not arm.refusals:
            continue
        first = arm.refusals[0]
        turn.decide("RefuseCandidate", first.reason, f"{arm.label}: {first.sentence()}", Verdict.FAIL)
        trial = TrialStatus(fingerprint=arm.fingerprint, proposer=arm.label, verdict=Verdict.FAIL, reason=first.reason)
        others = [one for one in turn.status.trials if one.fingerprint != arm.fingerprint]
        turn.set(trials=[*others, trial][-64:])


def ask(turn: Turn) -> str | None:
    """Id of the preflight whose Job should run now; None when none is needed, or no trial waits for it."""
    known, progress = turn.status.preflight, turn.status.benchmark
    if _first_look(turn):
        return _begin(turn, turn.obs.model_key or "", known)
    candidate = turn.obs.wanted(progress.candidate) if progress is not None else None
    waiting = candidate is not None and candidate.proposer is not None and not turn.spec.paused
    started = progress is not None and turn.obs.bench_arm(progress.candidate) is not None
    if started or not waiting or not pending(turn.obs, turn.status):
        if known is not None and known.outcome is None:
            turn.set(preflight=None)
        return None
    return _begin(turn, turn.obs.preflight_key or "", known)


def _begin(turn: Turn, key: str, known: PreflightStatus | None) -> str:
    if known is None or known.key != key:
        seed = f"{turn.obs.deployment.uid}/{key}/{turn.now.isoformat()}"
        known = PreflightStatus(id=sha256(seed.encode()).hexdigest()[:8], key=key, started=turn.now)
        turn.set(preflight=known)
    turn.look_again(min(10.0, LONGEST_SECONDS + 1 - turn.seconds_since(known.started)))
    return known.id


def _first_look(turn: Turn) -> bool:
    """Whether the model has to be looked at beside its first engine, which has been started and does not serve yet."""
    obs, status = turn.obs, turn.status
    arm = obs.arm(obs.baseline.fingerprint)
    if obs.model_key is None or status.stable is not None or obs.baseline.refusals or obs.spec.paused:
        return False
    judged = status.preflight is not None and status.preflight.key == obs.model_key and status.preflight.outcome
    return not judged and arm is not None and not arm.serving and any(pod.ran for pod in arm.pods)


def _counts(obs: Observation, known: PreflightStatus) -> bool:
    """Whether a look was at the files that the present spec names."""
    return known.key in (obs.preflight_key, obs.model_key)


def _keeps_model_away(turn: Turn, known: PreflightStatus) -> bool:
    """Whether a look keeps the first engine from starting; asks to be looked at again when that is over."""
    away = known.outcome is PreflightOutcome.REFUSED and known.key == turn.obs.model_key
    if away and turn.status.stable is None:
        turn.look_again(max(1.0, AGAIN_SECONDS + 1 - turn.seconds_since(known.started)))
    return away and turn.status.stable is None


def _close(
    turn: Turn, known: PreflightStatus, outcome: PreflightOutcome, message: str, findings: tuple[Finding, ...]
) -> None:
    listed = [
        PreflightFinding(
            rule=one.rule_id,
            severity=one.severity.value,
            field_path=one.field_path,
            message=one.message[:2048],
            remedy=one.remedy[:1024],
            tokens=one.tokens,
        )
        for one in findings[:64]
    ]
    update = {"outcome": outcome, "message": message[:2048], "findings": listed}
    turn.set(preflight=known.model_copy(update=update))


def not_compared(status: DeploymentStatus) -> tuple[str, ...]:
    """The warning for a trial that went on without an answer."""
    known = status.preflight
    told = known is not None and known.outcome is PreflightOutcome.NOT_CHECKED and known.message
    return (known.message,) if known is not None and told else ()


def _finding(one: PreflightFinding) -> Finding:
    severity = Severity.REFUSE if one.severity == Severity.REFUSE else Severity.WARN
    return Finding(one.rule, severity, one.field_path, one.rule, one.message, one.remedy, _SOURCE, one.tokens)


def _refuses(one: Finding) -> bool:
    return one.severity is Severity.REFUSE


def _of_target(one: Finding) -> bool:
    """About the model that both arms serve: it serves at this very moment, so the pod does not see what engines see."""
    return not one.field_path.startswith("spec.speculation")
