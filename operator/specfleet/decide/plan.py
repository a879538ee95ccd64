"""What decide() wants done. The controller turns it into API writes (resources/ builds the manifests)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import ArmRole, DecisionRecord, DeploymentStatus


@dataclass(frozen=True, slots=True)
class ArmIntent:
    """An arm that should exist with so many pods. `revision` names the ControllerRevision whose spec it is built from
    (None: the present spec)."""

    role: ArmRole
    fingerprint: str
    replicas: int
    benchmark: bool = False
    revision: str | None = None
    node: str | None = None
    """Node that its pod should rather run on; the scheduler may choose another. Followed when it starts from none."""


@dataclass(frozen=True, slots=True)
class JobIntent:
    """The benchmark Job that should run now: one unit (a pair, or one arm's half of it) over some cells."""

    benchmark: str
    unit: str
    pair: int
    purpose: str
    arms: Mapping[ArmRole, str]
    """Fingerprint of the bench arm per role measured in this unit."""
    pods: Mapping[ArmRole, str]
    """Name of the bench pod per role."""
    cells: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod to delete; the UID guards against deleting a namesake."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The complete wish: what is not listed is removed (evidence and revisions excepted)."""

    status: DeploymentStatus
    arms: tuple[ArmIntent, ...] = ()
    weights: Mapping[str, int] = field(default_factory=dict)
    """Traffic weight per fingerprint of the arms that may be routed to; arms with weight 0 stay listed in the route."""
    job: JobIntent | None = None
    preflight: str | None = None
    """Id of the preflight whose Job should run."""
    record: tuple[BenchmarkEvidenceSpec, ...] = ()
    """Evidence to write before anything that follows from it."""
    revision: str | None = None
    """ControllerRevision of the present spec that must exist."""
    restarts: tuple[PodRef, ...] = ()
    decisions: tuple[DecisionRecord, ...] = ()
    requeue_seconds: float | None = None
    """Look again after this long even if nothing changes; None: only on change."""
