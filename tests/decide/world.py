"""A small cluster in virtual time: it carries plans out, with delays, so that decide() can be driven through its life.

It can crash the operator between any two writes: `reconcile(writes=n)` carries out only the first n.
"""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any

from specfleet.api.conditions import Condition, ConditionType, find_condition
from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.api.evidence import BenchmarkEvidenceSpec, RunSummary
from specfleet.api.status import ArmRole, DecisionRecord, DeploymentStatus, Phase, Verdict
from specfleet.controller.wanted import WantedArms
from specfleet.decide.decide import decide
from specfleet.decide.exchange import SETTLE_SECONDS
from specfleet.decide.observation import (
    ArmView,
    Command,
    FleetView,
    JobView,
    Observation,
    PodView,
    PreflightView,
    Proof,
    RouteView,
)
from specfleet.decide.plan import ArmIntent, JobIntent, Plan
from specfleet.decide.preflight import pending, screened
from specfleet.decide.traffic_profile import TrafficLook
from specfleet.decide.units import measured_spec
from specfleet.decide.watch_report import Answer, ArmWindow, Comparison, Suspicion, WatchReport
from specfleet.engine.findings import Finding

JOB_SECONDS = 15.0
PREFLIGHT_SECONDS = 3.0
TELEMETRY_TICK_SECONDS = 5.0
RESYNC_SECONDS = 600.0
START = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
Slot = tuple[str, bool]


def spec_of(**changes: Any) -> dict[str, Any]:
    """A valid spec with short durations; `changes` replace top-level fields."""
    spec: dict[str, Any] = {
        "model": {"name": "meta-llama/Llama-3.1-8B-Instruct", "revision": "0e9e39f"},
        "engine": {"image": "vllm/vllm-openai:v0.32.0", "startupTimeoutSeconds": 120},
        "replicas": 4,
        "capacity": {"maxExtraReplicas": 2},
        "template": {"resources": {"limits": {"nvidia.com/gpu": "1"}}},
        "speculation": {
            "method": "eagle3",
            "draft": {"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "revision": "ada412b"},
            "numSpeculativeTokens": 3,
        },
        "benchmark": {
            "tiers": [{"name": "low", "requestsPerSecond": 2}, {"name": "peak", "concurrency": 16}],
            "slices": [{"name": "chat"}, {"name": "code"}],
            "pairs": 3,
            "runSeconds": 10,
            "warmupSeconds": 0,
            "minimumRequests": 10,
        },
        "rollout": {
            "steps": [
                {"weightPercent": 25, "minDurationSeconds": 30, "minRequests": 50},
                {"weightPercent": 50, "minDurationSeconds": 30, "minRequests": 50},
            ]
        },
        "traffic": {"parentRefs": [{"name": "gateway"}]},
        "remedies": {"cooldownSeconds": 30, "warmupSeconds": 0, "confirmSeconds": 30},
    }
    spec.update(changes)
    return {key: value for key, value in spec.items() if value is not None}


@dataclass
class Pod:
    """A pod of the world."""

    name: str
    created: datetime
    ready_at: datetime | None
    unready_at: datetime | None = None
    deleting_until: datetime | None = None
    restarts: int = 0
    last_restart: datetime | None = None
    last_run_started: datetime | None = None
    out_of_memory: bool = False
    failure: str | None = None
    unschedulable: bool = False
    node: str = "node-a"

    @property
    def uid(self) -> str:
        return f"uid-{self.name}"


@dataclass
class Arm:
    """A Deployment of the world."""

    role: ArmRole
    replicas: int = 0
    pods: list[Pod] = field(default_factory=list)
    refused_since: datetime | None = None
    node: str | None = None
    """Preferred for its next pod."""


@dataclass
class World:
    """State of the cluster. Behaviour is changed by setting the public fields in mid-run."""

    spec: dict[str, Any] = field(default_factory=spec_of)
    now: datetime = START
    capacity: int = 100
    """GPUs: pods beyond it stay unschedulable."""
    refusals: tuple[Finding, ...] = ()
    """What the surroundings refuse of the plain arm, with the same spec."""
    bench_nodes: tuple[str, ...] = ()
    """Nodes with a place for one benchmark pod each, filled in this order; empty: one node has room for all."""
    quota: int | None = None
    """Pods beyond it are not made at all."""
    route_message: str = ""
    """Why no gateway takes the route; empty: it is accepted."""
    startup_seconds: float = 20.0
    drain_seconds: float = 8.0
    gain: Callable[[str, str], float] = lambda tier, piece: 1.6
    """plain / speculative time per token in a benchmark cell."""
    change_gain: Callable[[str, str], float] = lambda tier, piece: 1.0
    """Old plain arm / new plain one, where a changed engine is measured."""
    gains: dict[str, Callable[[str, str], float]] = field(default_factory=dict)
    """The same for single proposers, by their short form (`eagle3 k=5`)."""
    requests_per_second: float = 4.0
    """User requests over all pods; 0: no traffic."""
    name: str = "llama"
    answer: Answer = Answer.OK
    message: str = "scripted"
    suspicions: tuple[Suspicion, ...] = ()
    promoted_suspicions: tuple[Suspicion, ...] = ()
    """About the promoted arm, while a changed engine is tried beside it."""
    promoted_answer: Answer = Answer.OK
    promoted_ratio: tuple[float, float] = (0.55, 0.65)
    """Its time per token over the plain arm's of its own engine, meanwhile."""
    comparison: Verdict = Verdict.PASS
    comparison_ratio: tuple[float, float] = (0.55, 0.65)
    pod_acceptance: Callable[[Pod], float] = lambda pod: 0.7
    broken_roles: frozenset[ArmRole] = frozenset()
    """Pods of these roles never become ready and crash."""
    broken_arms: frozenset[str] = frozenset()
    """The same for single arms, by fingerprint."""
    immune: set[str] = field(default_factory=set)
    """UIDs of pods that `broken_roles` does not touch."""
    job_fails: bool = False
    driver_waits_for: str = ""
    """Why the benchmark's own pod does not start; "" where it does."""
    files_say: Callable[[DeploymentSpec], tuple[Finding, ...] | None] = lambda spec: ()
    """What a preflight answers; None: its Job fails."""
    preflight_runs: bool = True
    """False: its pod finds no node."""
    traffic: Callable[[datetime], TrafficLook] | None = None
    """The newest look at production's lengths."""
    breaker: bool = False
    others_measuring: int = 0
    """Other deployments with a benchmark in flight."""
    benchmarks_at_once: int | None = None
    revisions: dict[str, DeploymentSpec] = field(default_factory=dict)
    """Earlier specs that are kept, by the name of their ControllerRevision."""
    command: Command | None = None
    generation: int = 1
    status: DeploymentStatus | None = None
    arms: dict[Slot, Arm] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    weights_since: datetime = START
    job: JobIntent | None = None
    job_started: datetime = START
    preflight: str | None = None
    preflight_started: datetime = START
    evidence: list[BenchmarkEvidenceSpec] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Violations of the safety rules seen so far."""
    writes: int = 0
    """Requests to the API server that changed something."""
    _serial: int = 0
    _text: tuple[int, str] = (0, "")

    # --- what the operator sees -------------------------------------------------------------------------------

    def deployment(self) -> SpeculativeDeployment:
        meta = {"name": self.name, "namespace": "ml", "uid": "u-1", "generation": self.generation}
        spec = _parsed(self._spec_text())
        return SpeculativeDeployment.model_construct(metadata=meta, spec=spec, status=self.status)

    def _spec_text(self) -> str:
        """The spec as text, made once per generation."""
        if self._text[0] != self.generation:
            self._text = (self.generation, json.dumps(self.spec, sort_keys=True))
        return self._text[1]

    def observation(self) -> Observation:
        owner = self.deployment()
        wanted = _wanted(self._spec_text())
        return Observation(
            now=self.now,
            deployment=owner,
            baseline=replace(wanted.baseline, refusals=(*wanted.baseline.refusals, *self.refusals)),
            proposers=wanted.proposers,
            arms=tuple(self._view(slot, arm) for slot, arm in sorted(self.arms.items()) if not slot[1]),
            bench=tuple(self._view(slot, arm) for slot, arm in sorted(self.arms.items()) if slot[1]),
            route=RouteView(
                dict(self.weights), self.weights_since, accepted=not self.route_message, message=self.route_message
            ),
            job=self._job_view(),
            preflight_key=wanted.preflight_key,
            model_key=wanted.model_key,
            preflight=self._preflight_view(),
            evidence=tuple(self.evidence),
            watch=self._report(),
            promoted_watch=self._promoted_report(),
            revisions=self.revisions,
            traffic=self.traffic(self.now) if self.traffic is not None else None,
            fleet=FleetView(
                breaker_open=self.breaker,
                others_measuring=self.others_measuring,
                benchmarks_at_once=self.benchmarks_at_once,
            ),
            command=self.command,
        )

    def _view(self, slot: Slot, arm: Arm) -> ArmView:
        pods = tuple(self._pod(pod) for pod in arm.pods)
        refused = "exceeded quota: gpus" if arm.refused_since else ""
        return ArmView(
            slot[0], arm.role, slot[0], arm.replicas, pods, refused_since=arm.refused_since, refused_message=refused
        )

    def _pod(self, pod: Pod) -> PodView:
        ready = pod.ready_at is not None and self.now >= pod.ready_at and pod.deleting_until is None
        return PodView(
            name=pod.name,
            uid=pod.uid,
            ip="10.0.0.1",
            created=pod.created,
            ready_since=pod.ready_at if ready else None,
            unready_since=None if ready else pod.unready_at or pod.created,
            proof=Proof.PROVEN if ready else Proof.PENDING,
            deleting=pod.deleting_until is not None,
            unschedulable_since=pod.created if pod.unschedulable else None,
            unschedulable_message="0/1 nodes are available: insufficient nvidia.com/gpu" if pod.unschedulable else "",
            restarts=pod.restarts,
            last_restart=pod.last_restart,
            last_run_started=pod.last_run_started,
            out_of_memory=pod.out_of_memory,
            failure=pod.failure,
            ran=not pod.unschedulable,
            node=None if pod.unschedulable else pod.node,
        )

    @property
    def phase(self) -> Phase:
        """Phase as last written."""
        return self.status.phase if self.status is not None else Phase.DEPLOYING

    @property
    def plain(self) -> str:
        """Fingerprint of the plain arm that the spec asks for."""
        return self.observation().baseline.fingerprint

    @property
    def drafted(self) -> str:
        """Fingerprint of the first proposer that the spec asks for."""
        return self.observation().proposers[0].fingerprint

    def share(self, fingerprint: str) -> float:
        """Share of the traffic that the route gives to an arm."""
        return self.weights.get(fingerprint, 0) / max(1, sum(self.weights.values()))

    def serving_total(self) -> int:
        """Serving pods over all arms."""
        return sum(self.serving(fingerprint) for fingerprint, bench in self.arms if not bench)

    def decisions(self, action: str | None = None) -> list[DecisionRecord]:
        """Decisions so far, in order."""
        found = [one for plan in self.plans for one in plan.decisions]
        return [one for one in found if action is None or one.action == action]

    def condition(self, kind: ConditionType) -> Condition:
        """A condition as last written."""
        assert self.status is not None
        found = find_condition(self.status.conditions, kind)
        assert found is not None
        return found

    def serving(self, fingerprint: str) -> int:
        arm = self.arms.get((fingerprint, False))
        return sum(self._pod(pod).serves for pod in arm.pods) if arm else 0

    def pods(self) -> list[Pod]:
        return [pod for arm in self.arms.values() for pod in arm.pods]

    def _job_view(self) -> JobView | None:
        if self.job is None:
            return None
        named = (self.job.benchmark, self.job.unit)
        finished = self.job_started + timedelta(seconds=JOB_SECONDS)
        if self.driver_waits_for:
            return JobView(*named, self.job_started, waits_for=self.driver_waits_for)
        if self.now < finished:
            return JobView(*named, self.job_started)
        if self.job_fails:
            return JobView(*named, self.job_started, finished, failure="the driver was killed")
        return JobView(*named, self.job_started, finished, runs=tuple(self._runs(self.job)))

    def _preflight_view(self) -> PreflightView | None:
        known = self.status.preflight if self.status is not None else None
        if known is None or known.outcome is not None or self.preflight != known.id:
            return None
        if not self.preflight_runs:
            return PreflightView(message="0/3 nodes are available: 3 Insufficient cpu")
        if self.now < self.preflight_started + timedelta(seconds=PREFLIGHT_SECONDS):
            return PreflightView()
        said = self.files_say(self.deployment().spec)
        return PreflightView(True, said, "" if said is not None else "BackoffLimitExceeded")

    def _runs(self, job: JobIntent) -> list[RunSummary]:
        runs = []
        wanted = _wanted(self._spec_text())
        arm = {one.fingerprint: one for one in wanted.proposers}.get(job.arms.get(ArmRole.SPECULATIVE, ""))
        gain = self.change_gain if job.purpose == "Change" else self.gains.get(arm.label if arm else "", self.gain)
        progress = self.status.benchmark if self.status is not None else None
        asked = _parsed(self._spec_text())
        tiers = (measured_spec(asked, progress) if progress is not None else asked).benchmark.tiers
        concurrency = {one.name: one.concurrency for one in tiers}
        for index, (tier, piece) in enumerate(job.cells):
            for place, role in enumerate(job.arms):
                speedup = gain(tier, piece) if role is ArmRole.SPECULATIVE else 1.0
                noise = 1 + 0.002 * ((job.pair + index + place) % 3 - 1)
                run = run_summary(role, tier, piece, 2 * index + place, speedup * noise)
                runs.append(run.model_copy(update={"pod": job.pods.get(role), "concurrency": concurrency.get(tier)}))
        return runs

    def _report(self) -> WatchReport:
        status = self.status
        if self.answer is not Answer.OK or status is None:
            return WatchReport(answer=self.answer, message=self.message, suspicions=self.suspicions)
        since = status.step_since or status.last_change or START
        if status.investigation is not None:
            since = status.investigation.restarted_at or status.investigation.stage_since or since
        seconds = max(0.0, (self.now - since).total_seconds())
        requests = self.requests_per_second * seconds / 2
        window = ArmWindow(
            Answer.OK,
            start=since,
            end=self.now,
            requests=requests,
            generated_tokens=requests * 200,
            draft_tokens=requests * 100,
            acceptance_rate=0.7,
            accepted_length=3.1,
            position_zero_rate=0.8,
            tpot_seconds=0.02,
        )
        pods = {
            pod.name: replace(window, acceptance_rate=self.pod_acceptance(pod))
            for (_, bench), arm in self.arms.items()
            if not bench and arm.role is ArmRole.SPECULATIVE
            for pod in arm.pods
        }
        low, high = self.comparison_ratio
        comparison = Comparison(self.comparison, "Scripted", "scripted", since, (low + high) / 2, low, high, 1.0)
        return WatchReport(
            Answer.OK,
            fingerprint=self._judged(status),
            last=dict.fromkeys(ArmRole, window),
            step=dict.fromkeys(ArmRole, window),
            pods=pods,
            comparison=comparison if status.phase is Phase.CANARY or self.comparison is Verdict.FAIL else None,
            suspicions=self.suspicions,
        )

    @staticmethod
    def _judged(status: DeploymentStatus) -> str:
        """The arm that the phase asks about: a candidate among users, else what is promoted."""
        promoted = status.stable.speculative if status.stable is not None else None
        return (status.candidate if status.phase is Phase.CANARY else promoted or status.candidate) or ""

    def _promoted_report(self) -> WatchReport | None:
        """What the second target of the watch says beside the trial of a changed engine."""
        status = self.status
        stable = status.stable if status is not None else None
        if status is None or stable is None or stable.speculative is None or status.phase is not Phase.CANARY:
            return None
        answer = self.promoted_answer if self.answer is Answer.OK else self.answer
        if answer is not Answer.OK:
            found = self.promoted_suspicions
            return WatchReport(answer, self.message, fingerprint=stable.speculative, suspicions=found)
        low, high = self.promoted_ratio
        since = status.last_change or START
        compared = Comparison(Verdict.INCONCLUSIVE, "Scripted", "scripted", since, (low + high) / 2, low, high, 1.0)
        return WatchReport(
            Answer.OK, fingerprint=stable.speculative, comparison=compared, suspicions=self.promoted_suspicions
        )

    def fork(self) -> "World":
        """A copy that goes its own way from here."""
        return replace(
            self,
            arms=deepcopy(self.arms),
            evidence=list(self.evidence),
            plans=list(self.plans),
            lost=list(self.lost),
            immune=set(self.immune),
        )

    # --- what happens -----------------------------------------------------------------------------------------

    def change(self, **fields: Any) -> None:
        """The user applies a changed spec (top-level fields)."""
        self.spec = {key: value for key, value in {**self.spec, **fields}.items() if value is not None}
        self.generation += 1

    def reconcile(self, writes: int | None = None) -> Plan:
        """One turn of the operator; with `writes`, it dies after that many."""
        obs = self.observation()
        plan = decide(obs)
        self.plans.append(plan)
        self._check_plan(obs, plan)
        actions: list[Callable[[], None]] = [partial(self._write_evidence, one) for one in plan.record]
        actions.append(lambda: self._write_status(plan.status))
        wanted = {(one.fingerprint, one.benchmark): one for one in plan.arms}
        actions.append(lambda: self._write_route(dict(plan.weights)))
        for slot, intent in wanted.items():
            actions.append(partial(self._scale, slot, intent))
        actions.append(lambda: self._write_job(plan.job))
        actions.append(lambda: self._write_preflight(plan.preflight))
        for pod in plan.restarts:
            actions.append(partial(self._delete_pod, pod.uid))
        for slot in [slot for slot in self.arms if slot not in wanted]:
            actions.append(partial(self._remove, slot))
        for action in actions[:writes]:
            action()
        return plan

    def run(self, seconds: float, until: Callable[["World"], bool] | None = None) -> bool:
        """Let time pass; True when `until` became true.

        As in the real operator a reconcile follows a change, a telemetry tick that matters, or the time that the plan
        asks for, and nothing else: a phase that forgets to ask for its timer stays where it is.
        """
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            before = self.writes
            plan = self.reconcile()
            if until is not None and until(self):
                return True
            self.tick(self._next_event(plan, end) if self.writes == before else 1.0)
        return until is None or until(self)

    def _next_event(self, plan: Plan, end: datetime) -> float:
        """Seconds until something happens that wakes the operator."""
        waits = [(end - self.now).total_seconds(), RESYNC_SECONDS, plan.requeue_seconds or RESYNC_SECONDS]
        for pod in self.pods():
            waits += [(moment - self.now).total_seconds() for moment in (pod.ready_at, pod.deleting_until) if moment]
        if self.job is not None:
            waits.append((self.job_started - self.now).total_seconds() + JOB_SECONDS)
        if self.preflight is not None and self.preflight_runs:
            waits.append((self.preflight_started - self.now).total_seconds() + PREFLIGHT_SECONDS)
        if self.broken_roles or self.broken_arms or self.phase in (Phase.CANARY, Phase.INVESTIGATING):
            waits.append(TELEMETRY_TICK_SECONDS)
        return max(1.0, min(wait for wait in waits if wait > 0))

    def run_to(self, phase: Phase, seconds: float = 3600) -> None:
        """Run until a phase is reached, else fail with what happened instead."""
        reached = self.run(seconds, until=lambda world: world.status is not None and world.status.phase is phase)
        assert reached, f"{phase} not reached, still {self.status.phase if self.status else None}: {self.story()}"

    def tick(self, seconds: float) -> None:
        """Time passes in the cluster."""
        self.now += timedelta(seconds=seconds)
        for slot, arm in self.arms.items():
            arm.pods = [pod for pod in arm.pods if pod.deleting_until is None or pod.deleting_until > self.now]
            for pod in arm.pods:
                if pod.ready_at is None and pod.unready_at is None:
                    pod.unready_at = self.now
                old = (self.now - pod.created).total_seconds() > 10
                if self._broken(slot, arm) and old and pod.uid not in self.immune:
                    pod.ready_at, pod.restarts = None, pod.restarts + 1
                    pod.last_run_started, pod.last_restart = pod.last_restart or pod.created, self.now
                    pod.failure = "CrashLoopBackOff; last exit 1 (Error)"
            self._fill(slot, arm)

    def _broken(self, slot: Slot, arm: Arm) -> bool:
        return arm.role in self.broken_roles or slot[0] in self.broken_arms

    def heal(self) -> None:
        """Everything that is broken works again: pods restart once more and become ready."""
        self.broken_roles = self.broken_arms = frozenset()
        for pod in self.pods():
            if pod.ready_at is None and not pod.unschedulable:
                pod.ready_at, pod.failure = self.now + timedelta(seconds=self.startup_seconds), None

    def _fill(self, slot: Slot, arm: Arm) -> None:
        alive = [pod for pod in arm.pods if pod.deleting_until is None]
        missing = arm.replicas - len(alive)
        if self.quota is not None and missing > 0 and len(self.pods()) + missing > self.quota:
            arm.refused_since = arm.refused_since or self.now
            missing = max(0, self.quota - len(self.pods()))
        else:
            arm.refused_since = None
        for _ in range(missing):
            self._serial += 1
            full = len(self.pods()) >= self.capacity
            ready = None if full or self._broken(slot, arm) else self.now + timedelta(seconds=self.startup_seconds)
            node = self._place(arm)
            arm.pods.append(Pod(f"p{self._serial:03d}", self.now, ready, unschedulable=full, node=node))
        for pod in sorted(alive, key=lambda one: (one.ready_at is not None, one.name))[
            : max(0, len(alive) - arm.replicas)
        ]:
            pod.deleting_until = self.now + timedelta(seconds=self.drain_seconds)
        for pod in arm.pods:
            if pod.unschedulable and len(self.pods()) <= self.capacity:
                pod.unschedulable, pod.ready_at = False, self.now + timedelta(seconds=self.startup_seconds)

    def _check_plan(self, obs: Observation, plan: Plan) -> None:
        """Pods stay within what was declared, weight points at serving arms, one action at a time."""
        ceiling = obs.spec.replicas + obs.spec.capacity.max_extra_replicas
        views = {(arm.fingerprint, False): arm for arm in obs.arms} | {
            (arm.fingerprint, True): arm for arm in obs.bench
        }
        before = {slot: max(view.replicas, view.occupying) for slot, view in views.items()}
        after = dict(before)
        for one in plan.arms:
            slot = (one.fingerprint, one.benchmark)
            after[slot] = max(one.replicas, views[slot].occupying if slot in views else 0)
        grown = any(after[slot] > before.get(slot, 0) for slot in after)
        if grown and sum(after.values()) > ceiling:
            self.lost.append(f"{self.now:%H:%M:%S} {sum(after.values())} pods, {ceiling} declared: {after}")
        usable = {arm.fingerprint for arm in obs.arms if self._usable(arm)}
        routed = {fingerprint for fingerprint, weight in plan.weights.items() if weight}
        if usable and (not routed or routed - {arm.fingerprint for arm in obs.arms if arm.serving}):
            self.lost.append(f"{self.now:%H:%M:%S} weights {dict(plan.weights)}, but only {usable} serve")
        self._check_floor(obs, plan)
        self._check_preflight(obs, plan)
        listed = {(one.fingerprint, one.benchmark) for one in plan.arms}
        for slot, view in views.items():
            if slot not in listed and view.pods:
                self.lost.append(f"{self.now:%H:%M:%S} arm {slot} is removed while it has pods")
        status = plan.status
        in_flight = [status.benchmark is not None, status.step is not None]
        if sum(in_flight) > 1 or (status.step is not None and status.investigation is not None):
            self.lost.append(f"{self.now:%H:%M:%S} two actions in flight in {status.phase}")

    def _usable(self, arm: ArmView) -> bool:
        """Whether a gateway that follows within SETTLE_SECONDS can route to an arm."""
        ready = [pod.ready_since for pod in arm.serving if pod.ready_since]
        return any((self.now - moment).total_seconds() >= SETTLE_SECONDS for moment in ready)

    def _check_preflight(self, obs: Observation, plan: Plan) -> None:
        """No pod of a proposer before its files were compared (or could not be), and none of one that they refuse."""
        known = screened(obs, plan.status)
        for one in plan.arms:
            arm = known.wanted(one.fingerprint)
            if arm is None or arm.role is ArmRole.BASELINE or obs.bench_arm(one.fingerprint) or not one.benchmark:
                continue
            if pending(obs, plan.status) or arm.refusals:
                self.lost.append(f"{self.now:%H:%M:%S} {arm.label} starts: {plan.status.preflight}")

    def _check_floor(self, obs: Observation, plan: Plan) -> None:
        """No plan takes serving pods below what was declared; the last one only where nothing spare is declared."""
        after = {one.fingerprint: one.replicas for one in plan.arms if not one.benchmark}
        serving = {arm.fingerprint: len(arm.serving) for arm in obs.arms}
        left = sum(min(count, after.get(name, 0)) for name, count in serving.items())
        floor = obs.spec.replicas - obs.spec.rollout.max_unavailable
        if obs.spec.capacity.max_extra_replicas:
            floor = max(1, floor)
        if left < min(floor, sum(serving.values())):
            self.lost.append(f"{self.now:%H:%M:%S} {left} of {sum(serving.values())} serving pods left, floor {floor}")

    def _write_status(self, status: DeploymentStatus) -> None:
        if status == self.status:
            return
        self.status = DeploymentStatus.model_validate(status.to_wire())
        self.writes += 1

    def _write_evidence(self, evidence: BenchmarkEvidenceSpec) -> None:
        if not any(one.benchmark == evidence.benchmark and one.unit == evidence.unit for one in self.evidence):
            self.evidence.append(evidence)
            self.writes += 1

    def _write_route(self, weights: dict[str, int]) -> None:
        if weights != self.weights:
            self.weights, self.weights_since = weights, self.now
            self.writes += 1

    def _scale(self, slot: Slot, intent: ArmIntent) -> None:
        if slot not in self.arms or self.arms[slot].replicas != intent.replicas:
            self.writes += 1
        arm = self.arms.setdefault(slot, Arm(intent.role))
        if arm.replicas == 0:
            arm.node = intent.node
        arm.replicas = intent.replicas
        self._fill(slot, arm)

    def _place(self, arm: Arm) -> str:
        taken = {pod.node for (_, bench), one in self.arms.items() if bench for pod in one.pods}
        free = [node for node in self.bench_nodes if node not in taken]
        return arm.node if arm.node in free else next(iter(free), "node-a")  # type: ignore[return-value]

    def _remove(self, slot: Slot) -> None:
        self.arms.pop(slot)
        self.writes += 1

    def _write_job(self, job: JobIntent | None) -> None:
        before = self.job
        if job is None:
            self.job = None
        elif self.job is None or (self.job.benchmark, self.job.unit) != (job.benchmark, job.unit):
            self.job, self.job_started = job, self.now
        self.writes += self.job is not before

    def _write_preflight(self, preflight: str | None) -> None:
        if preflight != self.preflight:
            self.preflight, self.preflight_started = preflight, self.now
            self.writes += 1

    def _delete_pod(self, uid: str) -> None:
        for slot, arm in self.arms.items():
            for pod in arm.pods:
                if pod.uid == uid and pod.deleting_until is None:
                    pod.deleting_until = self.now + timedelta(seconds=self.drain_seconds)
                    self.writes += 1
            self._fill(slot, arm)

    def story(self) -> str:
        """Decisions so far, for failure messages."""
        return " | ".join(f"{one.action}:{one.reason}" for plan in self.plans for one in plan.decisions)


@cache
def _wanted(spec: str) -> WantedArms:
    return WantedArms(_parsed(spec), {})


@cache
def _parsed(spec: str) -> DeploymentSpec:
    return DeploymentSpec.model_validate_json(spec)


def run_summary(role: ArmRole, tier: str, piece: str, order: int, speedup: float) -> RunSummary:
    """A valid run whose tokens take 20 ms / speedup each."""
    tpot = 0.020 / speedup
    closed = tier == "peak"
    rate = 8.0 * speedup if closed else 2.0
    return RunSummary(
        arm=role,
        tier=tier,
        slice=piece,
        order=order,
        valid=True,
        started=1000.0,
        duration_seconds=10.0,
        planned_requests=20,
        completed_requests=20,
        failed_requests=0,
        requests_per_second=None if closed else 2.0,
        concurrency=16 if closed else None,
        completed_requests_per_second=rate,
        prompt_tokens=4000,
        output_tokens=2000,
        output_tokens_per_second=rate * 100,
        tpot_mean_seconds=tpot,
        tpot_p95_seconds=tpot * 1.2,
        ttft_mean_seconds=0.1,
        ttft_p95_seconds=0.15,
        e2e_mean_seconds=0.1 + 100 * tpot,
        client_lag_p99_seconds=0.002,
        drafts=600 if role is ArmRole.SPECULATIVE else 0,
        draft_tokens=1800 if role is ArmRole.SPECULATIVE else 0,
        accepted_tokens=1260 if role is ArmRole.SPECULATIVE else 0,
        engine_tpot_seconds=tpot,
        kv_cache_peak_ratio=0.3,
        queue_time_mean_seconds=0.01,
    )


__all__ = ["Arm", "Pod", "World", "run_summary", "spec_of"]
