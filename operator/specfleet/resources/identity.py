"""What the workloads of arms have in common, whichever kind they are: which arm, who built it, how it rolls."""

from collections.abc import Mapping
from dataclasses import dataclass

from specfleet.api import labels
from specfleet.api.base import GROUP, RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import ArmRole

BUILDER = f"{GROUP}/builder"
BUILDER_VERSION = "6"
"""Raised when the pod template that is built for the same spec changes: running arms then keep the template they have,
so that an upgrade of the operator never restarts a fleet."""


@dataclass(frozen=True, slots=True)
class ArmIdentity:
    """Which arm a workload is."""

    role: ArmRole
    fingerprint: str
    benchmark: bool


def identity(own: Mapping[str, str]) -> ArmIdentity | None:
    """Which arm the labels of an engine pod say, None when they are none of ours."""
    said, fingerprint, role = own.get(labels.ARM), own.get(labels.FINGERPRINT), own.get(labels.ROLE)
    if not fingerprint or role not in (labels.ROLE_SERVING, labels.ROLE_BENCHMARK) or said not in list(ArmRole):
        return None
    return ArmIdentity(ArmRole(said), fingerprint, role == labels.ROLE_BENCHMARK)


def builder_of(live: RawObject | None) -> str:
    """Version of the builder that a workload's pod template was made by; of one that is yet to be made, this one."""
    if live is None:
        return BUILDER_VERSION
    return str(live["metadata"].get("annotations", {}).get(BUILDER, BUILDER_VERSION))


def has_pods(live: RawObject) -> bool:
    """Whether a workload is asked to have pods."""
    return int(live["spec"].get("replicas", 0)) > 0


def rolling(owner: SpeculativeDeployment) -> RawObject:
    """For changes of the template that no engine notices (a toleration): in place, and with one replica not at the cost
    of the only pod, where a spare one is declared."""
    if owner.spec.capacity.max_extra_replicas > 0:
        return {"maxSurge": 1, "maxUnavailable": 0}
    return {"maxSurge": 0, "maxUnavailable": max(1, owner.spec.rollout.max_unavailable)}
