"""A small cluster in virtual time: it carries out the plans of decide(), and its engines feed the real watch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import ArmRole, DeploymentStatus
from specfleet.decide.decide import decide
from specfleet.decide.observation import ArmView, JobView, Observation, PodView, Proof, RouteView, WantedArm
from specfleet.decide.plan import JobIntent, Plan
from specfleet.decide.watch_report import UNKNOWN_REPORT, WatchReport
from specfleet.engine.arguments import build_arm

START = datetime(2026, 11, 2, tzinfo=UTC)
STARTUP_SECONDS = 90.0
DRAIN_SECONDS = 30.0
CRASH_AFTER_SECONDS = 20.0
JOB_SECONDS = 300.0

DEFAULT_SPEC: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-8B-Instruct", "revision": "0e9e39f"},
    "engine": {"image": "vllm/vllm-openai:v0.32.0", "startupTimeoutSeconds": 600},
    "replicas": 4,
    "capacity": {"maxExtraReplicas": 2},
    "speculation": {
        "method": "eagle3",
        "draft": {"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "revision": "ada412b"},
        "numSpeculativeTokens": 3,
    },
    "benchmark": {
        "tiers": [{"name": "low", "requestsPerSecond": 1}, {"name": "peak", "concurrency": 32}],
        "slices": [{"name": "chat", "promptTokens": 512, "outputTokens": 256}],
        "pairs": 4,
    },
    "traffic": {"parentRefs": [{"name": "gateway"}]},
    "remedies": {"warmupSeconds": 120},
}
"""Production durations, except a benchmark of few cells and a short warm-up."""


def merged(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """JSON merge patch: null removes, mappings merge, everything else replaces."""
    out = dict(base)
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(out.get(name), Mapping):
            out[name] = merged(out[name], value)
        else:
            out[name] = value
    return out


@dataclass
class Pod:
    """An engine pod."""

    name: str
    slot: int
    """Which column of the traffic it gets."""
    created: datetime
    ready_at: datetime | None
    deleting_until: datetime | None = None
    restarts: int = 0
    last_restart: datetime | None = None
    last_run_started: datetime | None = None
    out_of_memory: bool = False
    failure: str | None = None

    @property
    def uid(self) -> str:
        """Like Kubernetes: never used again."""
        return f"uid-{self.name}"

    def serves(self, now: datetime) -> bool:
        """Whether it answers and may get traffic."""
        return self.ready_at is not None and now >= self.ready_at and self.deleting_until is None

    def view(self, now: datetime) -> PodView:
        """As the operator sees it."""
        ready = self.serves(now)
        return PodView(
            name=self.name,
            uid=self.uid,
            ip="10.0.0.1",
            created=self.created,
            ready_since=self.ready_at if ready else None,
            unready_since=None if ready else self.created,
            proof=Proof.PROVEN if ready else Proof.PENDING,
            deleting=self.deleting_until is not None,
            restarts=self.restarts,
            last_restart=self.last_restart,
            last_run_started=self.last_run_started,
            out_of_memory=self.out_of_memory,
            failure=self.failure,
        )


@dataclass
class Arm:
    """A Deployment."""

    role: ArmRole
    replicas: int = 0
    pods: list[Pod] = field(default_factory=list)


class Cluster:
    """Kubernetes, the gateway and the benchmark Job, as far as decide() can tell."""

    def __init__(self, spec: Mapping[str, Any], number: int = 1) -> None:
        self.key = ("sim", "fleet", f"uid-{number}")
        self.spec = dict(spec)
        self.now = START
        self.status: DeploymentStatus | None = None
        self.generation = 1
        self.arms: dict[tuple[str, bool], Arm] = {}
        self.weights: dict[str, int] = {}
        self.weights_since = START
        self.job: JobIntent | None = None
        self.job_started = START
        self.job_view: JobView | None = None
        self.evidence: list[BenchmarkEvidenceSpec] = []
        self.report: WatchReport = UNKNOWN_REPORT
        self.crashing: frozenset[ArmRole] = frozenset()
        self.violations: list[str] = []
        self._serial = 0
        self._read()

    def _read(self) -> None:
        """Parse the spec, as the operator does once per version of the object."""
        namespace, name, uid = self.key
        metadata = {"name": name, "namespace": namespace, "uid": uid, "generation": self.generation}
        self._owner = SpeculativeDeployment.model_validate({"metadata": metadata, "spec": self.spec})
        self._arms_wanted = _wanted(json.dumps(self.spec, sort_keys=True))

    def change(self, patch: Mapping[str, Any]) -> None:
        """The user applies a changed spec."""
        self.spec = merged(self.spec, patch)
        self.generation += 1
        self._read()

    def observation(self) -> Observation:
        """Everything that decide() sees now."""
        baseline, proposers = self._arms_wanted
        return Observation(
            now=self.now,
            deployment=self._owner.model_copy(update={"status": self.status}),
            baseline=baseline,
            proposers=proposers,
            arms=self._views(benchmark=False),
            bench=self._views(benchmark=True),
            route=RouteView(dict(self.weights), self.weights_since, accepted=True),
            job=self.job_view,
            evidence=tuple(self.evidence),
            watch=self.report,
        )

    def reconcile(self) -> Plan:
        """One turn: observe, decide, apply."""
        plan = decide(self.observation())
        for one in plan.record:
            if not any(known.benchmark == one.benchmark and known.unit == one.unit for known in self.evidence):
                self.evidence.append(one)
        self.status = plan.status
        if dict(plan.weights) != self.weights:
            self.weights, self.weights_since = dict(plan.weights), self.now
        wanted = {(one.fingerprint, one.benchmark): one for one in plan.arms}
        for slot, intent in wanted.items():
            arm = self.arms.setdefault(slot, Arm(intent.role))
            arm.replicas = intent.replicas
        for slot in [slot for slot in self.arms if slot not in wanted]:
            del self.arms[slot]
        if plan.job is None:
            self.job, self.job_view = None, None
        elif self.job is None or (self.job.benchmark, self.job.unit) != (plan.job.benchmark, plan.job.unit):
            self.job, self.job_started = plan.job, self.now
            self.job_view = JobView(plan.job.benchmark, plan.job.unit, self.now)
        doomed = {one.uid for one in plan.restarts}
        for arm in self.arms.values():
            for pod in arm.pods:
                if pod.uid in doomed and pod.deleting_until is None:
                    pod.deleting_until = self.now + timedelta(seconds=DRAIN_SECONDS)
            self._fill(arm)
        return plan

    def advance(self, seconds: float) -> None:
        """Pods start, drain and crash."""
        self.now += timedelta(seconds=seconds)
        for (_, benchmark), arm in self.arms.items():
            arm.pods = [pod for pod in arm.pods if pod.deleting_until is None or pod.deleting_until > self.now]
            for pod in arm.pods:
                if arm.role in self.crashing and not benchmark:
                    self._crash(pod)
            self._fill(arm)
        self._check()

    @property
    def moving(self) -> bool:
        """Whether a pod starts or drains, or a benchmark Job runs."""
        pods = [pod for arm in self.arms.values() for pod in arm.pods]
        return self.job is not None or any(not pod.serves(self.now) for pod in pods)

    def serving(self, fingerprint: str) -> list[Pod]:
        """Pods of a serving arm that answer."""
        arm = self.arms.get((fingerprint, False))
        return [pod for pod in arm.pods if pod.serves(self.now)] if arm else []

    def share(self, fingerprint: str) -> float:
        """Part of the traffic that the route gives to an arm."""
        return self.weights.get(fingerprint, 0) / max(1, sum(self.weights.values()))

    def serving_arms(self) -> dict[str, Arm]:
        """Serving arms by fingerprint."""
        return {fingerprint: arm for (fingerprint, benchmark), arm in self.arms.items() if not benchmark}

    def kill_for_memory(self, role: ArmRole) -> None:
        """One pod of the role is killed for memory and starts again."""
        pods = [pod for arm in self.serving_arms().values() if arm.role is role for pod in arm.pods]
        if pods:
            self._restart(pods[0], "OOMKilled")
            pods[0].out_of_memory = True

    def _crash(self, pod: Pod) -> None:
        alive = (self.now - max(pod.created, pod.last_restart or pod.created)).total_seconds()
        if alive > CRASH_AFTER_SECONDS and pod.deleting_until is None:
            self._restart(pod, "CrashLoopBackOff; last exit 1 (Error)")
            pod.ready_at = None

    def _restart(self, pod: Pod, failure: str) -> None:
        pod.last_run_started, pod.last_restart = pod.last_restart or pod.created, self.now
        pod.restarts += 1
        pod.failure = failure
        pod.ready_at = self.now + timedelta(seconds=STARTUP_SECONDS)

    def _views(self, benchmark: bool) -> tuple[ArmView, ...]:
        return tuple(
            ArmView(name, arm.role, name, arm.replicas, tuple(pod.view(self.now) for pod in arm.pods))
            for (name, bench), arm in sorted(self.arms.items())
            if bench is benchmark
        )

    def _fill(self, arm: Arm) -> None:
        alive = [pod for pod in arm.pods if pod.deleting_until is None]
        for _ in range(arm.replicas - len(alive)):
            self._serial += 1
            used = {pod.slot for other in self.arms.values() for pod in other.pods}
            slot = next(number for number in range(len(used) + 1) if number not in used)
            ready = self.now + timedelta(seconds=STARTUP_SECONDS)
            arm.pods.append(Pod(f"pod-{self._serial:03d}", slot, self.now, ready))
        surplus = sorted(alive, key=lambda pod: (pod.serves(self.now), pod.name))[: max(0, len(alive) - arm.replicas)]
        for pod in surplus:
            pod.deleting_until = self.now + timedelta(seconds=DRAIN_SECONDS)

    def _check(self) -> None:
        """Some arm always serves if any can, and weight points at it."""
        serving = {name: len(self.serving(name)) for name in self.serving_arms()}
        settled = self.status is not None and self.status.stable is not None and any(serving.values())
        if settled and not any(weight and serving.get(name) for name, weight in self.weights.items()):
            self.violations.append(f"{self.now:%d %H:%M:%S}: no weight on a serving arm ({self.weights}, {serving})")


@cache
def _wanted(spec: str) -> tuple[WantedArm, tuple[WantedArm, ...]]:
    parsed = DeploymentSpec.model_validate_json(spec)
    plain = build_arm(parsed, None)
    baseline = WantedArm(ArmRole.BASELINE, plain.fingerprint, None, "plain")
    proposers = parsed.speculation.proposers() if parsed.speculation else ()
    built = [(proposer, build_arm(parsed, proposer)) for proposer in proposers]
    arms = [WantedArm(ArmRole.SPECULATIVE, arm.fingerprint, one, arm.proposer_label) for one, arm in built]
    return baseline, tuple(arms)
