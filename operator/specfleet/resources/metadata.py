"""Metadata that every child carries: owner, labels, and nothing copied from the user's object.

Labels and annotations of the SpeculativeDeployment are never copied: GitOps tools would take the children for theirs.
"""

from collections.abc import Mapping

from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.names import MAX_LABEL, shorten
from specfleet.api.status import ArmRole


def child(
    owner: SpeculativeDeployment,
    name: str,
    more_labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> RawObject:
    """metadata of a child; the owner reference lets the garbage collector remove it (no finalizer)."""
    metadata: RawObject = {
        "name": name,
        "namespace": owner.namespace,
        "labels": {**base_labels(owner), **(more_labels or {})},
        "ownerReferences": [owner.owner_reference()],
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return metadata


def base_labels(owner: SpeculativeDeployment) -> dict[str, str]:
    """Labels by which the operator finds its children."""
    return {labels.MANAGED_BY: labels.MANAGER, labels.DEPLOYMENT: shorten(owner.name, MAX_LABEL)}


def pod_labels(owner: SpeculativeDeployment, role: ArmRole, fingerprint: str, benchmark: bool) -> dict[str, str]:
    """Labels of an engine pod; the serving Service and the scale selector choose by `role`."""
    return {
        **base_labels(owner),
        labels.ARM: role.value,
        labels.FINGERPRINT: fingerprint,
        labels.ROLE: labels.ROLE_BENCHMARK if benchmark else labels.ROLE_SERVING,
    }
