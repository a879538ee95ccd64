"""What decide() looks at: one immutable picture of a deployment, its pods, its evidence and its telemetry."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.api.evidence import BenchmarkEvidenceSpec, RequestProbe, RunSummary
from specfleet.api.speculation import Proposer
from specfleet.api.status import ArmRole, DeploymentStatus
from specfleet.decide.traffic_profile import TrafficLook
from specfleet.decide.watch_report import UNKNOWN_REPORT, WatchReport
from specfleet.engine.findings import Finding


class Proof(StrEnum):
    """Whether a pod has answered a real completion with the expected fingerprint and engine version."""

    PENDING = "Pending"
    PROVEN = "Proven"
    CONTRADICTED = "Contradicted"
    """It answered, but as something else: another fingerprint or another engine version."""


@dataclass(frozen=True, slots=True)
class PodView:
    """One engine pod as Kubernetes and the operator's own probe see it; of an engine over several, its leader."""

    name: str
    uid: str
    ip: str | None
    created: datetime
    ready_since: datetime | None
    """None while the kubelet does not call it ready."""
    unready_since: datetime | None = None
    """Since when the kubelet does not call it ready; None while it does, or before it has looked."""
    proof: Proof = Proof.PENDING
    proof_message: str = ""
    asked_since: datetime | None = None
    """When the operator first asked it for a completion; None: not yet, and nothing follows from its silence."""
    deleting: bool = False
    gated: bool = False
    """A queue (Kueue's quota) has not let it go to the scheduler yet."""
    unschedulable_since: datetime | None = None
    unschedulable_message: str = ""
    restarts: int = 0
    last_restart: datetime | None = None
    """When the engine ended last."""
    last_run_started: datetime | None = None
    """Start of the run that ended last: two ends within ten minutes are a crash loop, two in a month are not."""
    out_of_memory: bool = False
    """The last termination was an OOM kill, or the engine said that the GPU memory ran out."""
    failure: str | None = None
    """Why the container does not run, in words (ImagePullBackOff, CrashLoopBackOff with the exit code, ...)."""
    engine_version: str | None = None
    image_digest: str | None = None
    gpu_type: str | None = None
    ran: bool = False
    """Its engine's container has been started once: image and volumes are on the node."""
    node: str | None = None
    """None until the scheduler has found one."""

    @property
    def serves(self) -> bool:
        """Ready for the kubelet, proven by us, and not on its way out."""
        return self.ready_since is not None and self.proof is Proof.PROVEN and not self.deleting


@dataclass(frozen=True, slots=True)
class ArmView:
    """One Deployment of ours and its pods; where engines span nodes, one LeaderWorkerSet and its groups of pods."""

    name: str
    role: ArmRole
    fingerprint: str
    replicas: int
    pods: tuple[PodView, ...] = ()
    created: datetime | None = None
    refused_since: datetime | None = None
    """Since when the API server refuses to make its pods (ReplicaFailure: a quota, an admission rule)."""
    refused_message: str = ""
    leaving: int = 0
    """Engines that hold their devices still and answer no more: groups of pods whose leader is gone."""

    @property
    def serving(self) -> tuple[PodView, ...]:
        """Pods that may get traffic."""
        return tuple(pod for pod in self.pods if pod.serves)

    @property
    def occupying(self) -> int:
        """Pods that hold a GPU or wait for one, those on their way out included."""
        return len(self.pods) + self.leaving


@dataclass(frozen=True, slots=True)
class WantedArm:
    """An arm that a spec asks for: the plain one (`proposer` None) or a proposer's."""

    role: ArmRole
    fingerprint: str
    proposer: Proposer | None
    label: str
    unverified: bool = False
    refusals: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    fingerprint_inputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RouteView:
    """The route as the API server has it: traffic weight per arm name, and since when."""

    weights: Mapping[str, int]
    since: datetime
    accepted: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class JobView:
    """A benchmark Job in flight."""

    benchmark: str
    """Id of the benchmark that it belongs to: units of two benchmarks may have the same name."""
    unit: str
    started: datetime
    finished: datetime | None = None
    failure: str | None = None
    runs: tuple[RunSummary, ...] = ()
    """What the driver's termination message said; empty with `failure` set when it could not be read."""
    request_probes: tuple[RequestProbe, ...] = ()
    greedy_texts: Mapping[str, str] = field(default_factory=dict)
    capacity_requests_per_second: float | None = None
    waits_for: str = ""
    """Why its pod has not started, in Kubernetes' words; "" once it has, or while it is on its way."""


@dataclass(frozen=True, slots=True)
class PreflightView:
    """The preflight Job of status.preflight."""

    finished: bool = False
    findings: tuple[Finding, ...] | None = None
    """What its pod answered; None when there is no answer."""
    message: str = ""
    """Why there is none: what the pod waits for, or how the Job ended."""


@dataclass(frozen=True, slots=True)
class Command:
    """A person's request by annotation: `specfleet.dev/command: <verb> <nonce>`."""

    verb: str
    nonce: str


@dataclass(frozen=True, slots=True)
class FleetView:
    """What the fleet as a whole allows."""

    breaker_open: bool = False
    message: str = ""
    others_measuring: int = 0
    """Other deployments with a benchmark in flight."""
    benchmarks_at_once: int | None = None
    """How many may have one; None: any number."""


@dataclass(frozen=True, slots=True)
class WatchHistory:
    """Since when this operator watches, and for how long nobody did before."""

    since: datetime | None = None
    """None: it has not begun yet, or this is the first installation."""
    gap_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that a decision may depend on. The same observation always gives the same plan."""

    now: datetime
    deployment: SpeculativeDeployment
    baseline: WantedArm
    proposers: tuple[WantedArm, ...]
    arms: tuple[ArmView, ...] = ()
    """Serving arms."""
    bench: tuple[ArmView, ...] = ()
    """Benchmark arms, never in the serving Service."""
    route: RouteView | None = None
    job: JobView | None = None
    preflight_key: str | None = None
    """What the models' files of this spec are compared by; None: no file can be seen from the cluster."""
    model_key: str | None = None
    """The same for the model alone; None: it comes from the hub, or lies where nobody can look beside the engine."""
    preflight: PreflightView | None = None
    evidence: tuple[BenchmarkEvidenceSpec, ...] = ()
    watch: WatchReport = UNKNOWN_REPORT
    promoted_watch: WatchReport | None = None
    """What telemetry says of the promoted arm while `watch` looks at the trial of a changed engine beside it."""
    traffic: TrafficLook | None = None
    """The newest window of production requests, by length; None: not known."""
    revisions: Mapping[str, DeploymentSpec] = field(default_factory=dict)
    fleet: FleetView = FleetView()
    command: Command | None = None
    problems: tuple[str, ...] = ()
    """Faults of the surroundings that a person has to know (route not accepted, PodMonitor kind missing, ...)."""
    history: WatchHistory = WatchHistory()

    @property
    def spec(self) -> DeploymentSpec:
        """spec of the deployment."""
        return self.deployment.spec

    @property
    def status(self) -> DeploymentStatus:
        """status as last written; the empty one for a new deployment."""
        return self.deployment.status or DeploymentStatus()

    def arm(self, fingerprint: str | None) -> ArmView | None:
        """The serving arm with that requested fingerprint."""
        return next((arm for arm in self.arms if arm.fingerprint == fingerprint), None)

    def bench_arm(self, fingerprint: str | None) -> ArmView | None:
        """The benchmark arm with that requested fingerprint."""
        return next((arm for arm in self.bench if arm.fingerprint == fingerprint), None)

    def watch_of(self, fingerprint: str | None) -> WatchReport:
        """The report about that arm. One about another arm may lag behind the phase by a tick: it says nothing here."""
        found = (one for one in (self.promoted_watch, self.watch) if one is not None)
        return next((one for one in found if one.fingerprint in ("", fingerprint)), UNKNOWN_REPORT)

    def wanted(self, fingerprint: str | None) -> WantedArm | None:
        """What the present spec asks for under that fingerprint; None for arms of an earlier spec."""
        return next((arm for arm in (self.baseline, *self.proposers) if arm.fingerprint == fingerprint), None)
