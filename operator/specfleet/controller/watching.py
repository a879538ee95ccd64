"""The telemetry tick: all deployments at once, and a wake-up for those whose report says something new."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from specfleet.api.benchmark import GuardrailsSpec
from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.api.status import ArmRole, DeploymentStatus, Phase
from specfleet.controller.fleet import Fleet
from specfleet.controller.observe import UnreadableError, observe
from specfleet.decide.observation import Observation
from specfleet.decide.watch import Watch
from specfleet.decide.watch_report import Answer, WatchReport
from specfleet.decide.watch_target import Target, TargetPod
from specfleet.kube.cache import Key
from specfleet.telemetry.collector import Collector
from specfleet.telemetry.servers import MetricsServer

LONGEST_TICK_SECONDS = 5.0
UNAVAILABLE_NO_SERVER = WatchReport(
    answer=Answer.UNAVAILABLE,
    message="no metrics server is set: spec.monitoring.prometheus.url, or SPECFLEET_PROMETHEUS_URL of the operator",
)

log = logging.getLogger(__name__)


class Watching:
    """Reads the metrics of the whole fleet and keeps the reports that decide() sees."""

    def __init__(
        self,
        fleet: Fleet,
        servers: Callable[[SpeculativeDeployment], MetricsServer | None],
        wake: Callable[[Key], None],
    ) -> None:
        self._fleet = fleet
        self._servers = servers
        self._wake = wake
        self._collector = Collector()
        self._watch = Watch()
        self._watched: set[tuple[str, str, str]] = set()

    @property
    def queries(self) -> int:
        """Requests sent to metrics servers so far."""
        return self._collector.queries

    def close(self) -> None:
        """Let go of the metrics servers."""
        self._collector.close()

    async def tick(self, now: datetime) -> float:
        """Read, watch, report. Returns the seconds until the next tick."""
        targets: dict[MetricsServer, list[Target]] = {}
        keys: dict[tuple[str, str, str], Key] = {}
        shortest = 4 * LONGEST_TICK_SECONDS
        for key in self._fleet.cache.known():
            target, server = self._target(key, now)
            if target is None:
                continue
            if server is None:
                self._publish(key, UNAVAILABLE_NO_SERVER)
                continue
            keys[target.key] = key
            shortest = min(shortest, target.window_seconds)
            targets.setdefault(server, []).append(target)
        feeds = await self._collector.tick(targets, now)
        self._watch.observe(now, feeds)
        for watched, key in keys.items():
            self._publish(key, self._watch.report(watched))
        for gone in self._watched - set(keys):
            self._watch.forget(gone)
        self._watched = set(keys)
        return max(1.0, min(LONGEST_TICK_SECONDS, shortest / 4))

    def _target(self, key: Key, now: datetime) -> tuple[Target | None, MetricsServer | None]:
        try:
            owner = self._fleet.deployment(key)
        except UnreadableError:
            return None, None
        status = owner.status
        if status is None or status.stable is None:
            return None, None
        wanted = self._fleet.wanted(key, owner)
        obs = observe(self._fleet.cache, key, owner, wanted, self._fleet.surroundings(key), now)
        return build_target(obs, status, now), self._servers(owner)

    def _publish(self, key: Key, report: WatchReport) -> None:
        before = self._fleet.reports.get(key)
        self._fleet.reports[key] = report
        status = self._fleet.cache.deployments[key].get("status") or {}
        moving = status.get("phase") in (Phase.CANARY, Phase.INVESTIGATING)
        if moving or before is None or _gist(before) != _gist(report):
            self._wake(key)


def build_target(obs: Observation, status: DeploymentStatus, now: datetime) -> Target:
    """What the watch should look at for one deployment."""
    spec = obs.spec
    arms: dict[ArmRole, tuple[TargetPod, ...]] = {}
    for role, fingerprints in _roles(obs, status).items():
        pods = [
            TargetPod(pod.name, pod.uid, pod.ready_since)
            for fingerprint in fingerprints
            if (arm := obs.arm(fingerprint)) is not None
            for pod in arm.serving
        ]
        if pods:
            arms[role] = tuple(pods)
    promoted = obs.wanted(
        status.stable.speculative if status.stable and status.stable.speculative else status.candidate
    )
    step = spec.rollout.steps[min(status.step or 0, len(spec.rollout.steps) - 1)]
    return Target(
        key=(obs.deployment.namespace, obs.deployment.name, obs.deployment.uid),
        arms=arms,
        since=_since(status, now),
        window_seconds=spec.window_seconds,
        scrape_interval_seconds=spec.monitoring.scrape_interval_seconds,
        warmup_seconds=spec.remedies.warmup_seconds,
        confirm_seconds=spec.remedies.confirm_seconds,
        min_requests=step.min_requests,
        fingerprint=promoted.fingerprint if promoted is not None else "",
        calibration=status.calibration,
        method=promoted.proposer.method if promoted is not None and promoted.proposer is not None else None,
        scheduled_depth=bool(promoted and promoted.proposer and promoted.proposer.tokens_per_batch_size),
        guardrails=_guardrails(spec),
        interesting_drop_ratio=spec.monitoring.interesting_drop_ratio,
        rollback_error_share_ratio=spec.remedies.rollback_error_share_ratio,
        false_alarms=spec.monitoring.false_alarms,
        namespace_label=spec.monitoring.labels.namespace,
        pod_label=spec.monitoring.labels.pod,
    )


def _guardrails(spec: DeploymentSpec) -> GuardrailsSpec:
    """The guardrails of the watch; with `incompatibleRequests: Accept` the 4xx share is not one of them."""
    accepted = spec.speculation is not None and spec.speculation.incompatible_requests == "Accept"
    update = {"max_client_error_share_increase_ratio": 1.0} if accepted else {}
    return spec.guardrails.model_copy(update=update)


def _roles(obs: Observation, status: DeploymentStatus) -> Mapping[ArmRole, tuple[str, ...]]:
    """Fingerprints per role. In a revision's canary the changed plain arm takes the place of the speculative one."""
    stable = status.stable
    plain = tuple(arm.fingerprint for arm in obs.arms if arm.role is ArmRole.BASELINE)
    drafted = tuple(arm.fingerprint for arm in obs.arms if arm.role is ArmRole.SPECULATIVE)
    if status.phase is Phase.CANARY and stable is not None and status.candidate in plain:
        old = obs.arm(stable.baseline)
        # Plain with plain, wherever an old plain pod serves: against a speculative arm every engine would look slow.
        reference = (stable.baseline,) if old is not None and old.serving else (*plain, *drafted)
        reference = tuple(one for one in reference if one != status.candidate)
        return {ArmRole.BASELINE: reference, ArmRole.SPECULATIVE: (str(status.candidate),)}
    return {ArmRole.BASELINE: plain, ArmRole.SPECULATIVE: drafted}


def _since(status: DeploymentStatus, now: datetime) -> datetime:
    """Start of the present comparison: the canary step, the restart, the stage, or the last change."""
    if status.phase is Phase.CANARY:
        return status.step_since or now
    if status.investigation is not None:
        case = status.investigation
        return case.restarted_at or case.stage_since or case.since
    return status.last_change or status.phase_since or now


def _gist(report: WatchReport) -> object:
    """What would make decide() think again: not the numbers, which change every window."""
    comparison = report.comparison
    slower = comparison is not None and (comparison.tpot_ratio_lower or 0.0) > 1.0
    findings = tuple((one.signal, one.stage, one.attribution, one.pod) for one in report.suspicions)
    return report.answer, findings, slower, report.calibration is not None
