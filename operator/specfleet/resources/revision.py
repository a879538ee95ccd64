"""ControllerRevision: what the user asked for at one moment, kept so that a roll-back needs no Git."""

from specfleet.api.base import RawObject
from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.resources.metadata import child


def controller_revision(owner: SpeculativeDeployment, name: str) -> RawObject:
    """apps/v1 ControllerRevision with the whole spec. Its data is immutable for the API server."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": child(owner, name),
        "revision": int(owner.metadata.get("generation", 1)),
        "data": {"spec": owner.spec.to_wire()},
    }


def read_revision(revision: RawObject) -> DeploymentSpec:
    """The spec of a ControllerRevision. Raises pydantic.ValidationError when a newer operator wrote another shape."""
    return DeploymentSpec.model_validate(revision["data"]["spec"])
