"""From a deployment and its status to what the watch should look at. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from specfleet.api.benchmark import GuardrailsSpec
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.speculation import Proposer
from specfleet.api.status import ArmRole, DeploymentStatus, Phase
from specfleet.decide.observation import Observation
from specfleet.decide.watch_target import Target, TargetPod

PROMOTED = "/promoted"
"""Ends the key of the target that guards a promoted arm beside a trial: two targets of one deployment."""


def watch_target(obs: Observation, status: DeploymentStatus, now: datetime) -> Target:
    """What the present phase asks about: pods per arm, start of the present comparison, and the limits of the spec."""
    promoted = None if _engine_trial(obs, status) or status.stable is None else status.stable.speculative
    return _target(obs, status, promoted or status.candidate or "", _roles(obs, status), counted_since(status, now))


def promoted_target(obs: Observation, status: DeploymentStatus, now: datetime) -> Target | None:
    """The promoted arm against the plain pods of its own engine, while the phase asks about the trial of another one.

    Most users are served by it meanwhile. None: nothing is promoted, or it is what `watch_target` looks at.
    """
    stable = status.stable
    if stable is None or stable.speculative is None or not _engine_trial(obs, status):
        return None
    roles = {ArmRole.BASELINE: (stable.baseline,), ArmRole.SPECULATIVE: (stable.speculative,)}
    found = _target(obs, status, stable.speculative, roles, promoted_since(status, now))
    namespace, name, uid = found.key
    return replace(found, key=(namespace, name, uid + PROMOTED))


def _target(
    obs: Observation,
    status: DeploymentStatus,
    fingerprint: str,
    roles: Mapping[ArmRole, tuple[str, ...]],
    since: datetime,
) -> Target:
    spec = obs.spec
    arms = {
        role: tuple(
            TargetPod(pod.name, pod.uid, pod.ready_since)
            for one in fingerprints
            if (arm := obs.arm(one)) is not None
            for pod in arm.serving
        )
        for role, fingerprints in roles.items()
    }
    proposer = _proposer(obs, status, fingerprint)
    step = spec.rollout.steps[spec.rollout.step_index(status.step)]
    return Target(
        key=(obs.deployment.namespace, obs.deployment.name, obs.deployment.uid),
        arms={role: pods for role, pods in arms.items() if pods},
        since=since,
        window_seconds=spec.window_seconds,
        scrape_interval_seconds=spec.monitoring.scrape_interval_seconds,
        warmup_seconds=spec.remedies.warmup_seconds,
        confirm_seconds=spec.remedies.confirm_seconds,
        traffic_window_seconds=spec.monitoring.traffic_window_seconds,
        min_requests=step.min_requests,
        fingerprint=fingerprint,
        calibration=status.calibration,
        method=proposer.method if proposer is not None else None,
        scheduled_depth=bool(proposer and proposer.tokens_per_batch_size),
        guardrails=_guardrails(spec),
        interesting_drop_ratio=spec.monitoring.interesting_drop_ratio,
        rollback_error_share_ratio=spec.remedies.rollback_error_share_ratio,
        false_alarms=spec.monitoring.false_alarms,
        namespace_label=spec.monitoring.labels.namespace,
        pod_label=spec.monitoring.labels.pod,
    )


def _proposer(obs: Observation, status: DeploymentStatus, fingerprint: str) -> Proposer | None:
    """What an arm drafts with. One of an earlier spec is looked up in its revision, where only one can be meant."""
    asked = obs.wanted(fingerprint)
    if asked is not None:
        return asked.proposer
    earlier = obs.revisions.get(status.stable.name) if status.stable is not None else None
    drafted = earlier.speculation.proposers() if earlier is not None and earlier.speculation is not None else ()
    return drafted[0] if len({one.method for one in drafted}) == 1 else None


def _guardrails(spec: DeploymentSpec) -> GuardrailsSpec:
    """The guardrails of the watch; with `incompatibleRequests: Accept` the 4xx share is not one of them."""
    accepted = spec.speculation is not None and spec.speculation.incompatible_requests == "Accept"
    update = {"max_client_error_share_increase_ratio": 1.0} if accepted else {}
    return spec.guardrails.model_copy(update=update)


def _plain(obs: Observation) -> tuple[str, ...]:
    return tuple(arm.fingerprint for arm in obs.arms if arm.role is ArmRole.BASELINE)


def _roles(obs: Observation, status: DeploymentStatus) -> Mapping[ArmRole, tuple[str, ...]]:
    """Fingerprints per role. In a revision's canary the changed plain arm takes the place of the speculative one."""
    stable = status.stable
    plain = _plain(obs)
    drafted = tuple(arm.fingerprint for arm in obs.arms if arm.role is ArmRole.SPECULATIVE)
    if stable is not None and _engine_trial(obs, status):
        old = obs.arm(stable.baseline)
        # Plain with plain, wherever an old plain pod serves: against a speculative arm every engine would look slow.
        reference = (stable.baseline,) if old is not None and old.serving else (*plain, *drafted)
        reference = tuple(one for one in reference if one != status.candidate)
        return {ArmRole.BASELINE: reference, ArmRole.SPECULATIVE: (str(status.candidate),)}
    if status.phase is Phase.ROLLING_BACK and stable is not None and status.candidate != stable.baseline:
        # A changed engine that failed is no reference for what is promoted while its pods leave.
        plain = tuple(one for one in plain if one != status.candidate)
    return {ArmRole.BASELINE: plain, ArmRole.SPECULATIVE: drafted}


def _engine_trial(obs: Observation, status: DeploymentStatus) -> bool:
    """Whether users meet a changed model or engine."""
    return status.phase is Phase.CANARY and status.candidate in _plain(obs)


def promoted_since(status: DeploymentStatus, now: datetime) -> datetime:
    """Start of the span in which the promoted arm is compared while something else is asked about."""
    return status.last_change or status.phase_since or now


def counted_since(status: DeploymentStatus, now: datetime) -> datetime:
    """Start of the span that `WatchReport.step`, `pods` and `comparison` cover in the present phase."""
    if status.phase is Phase.CANARY:
        return status.step_since or now
    if status.investigation is not None:
        case = status.investigation
        return case.restarted_at or case.stage_since or case.since
    return promoted_since(status, now)
