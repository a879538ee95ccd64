"""Names that are taken: a forced apply must never take over an object of somebody else."""

from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.api.deployment import KIND, SpeculativeDeployment
from specfleet.kube.kinds import kind_of
from specfleet.kube.port import ConflictError, KubeApi, KubeError, NotFoundError
from specfleet.resources.metadata import base_labels


class TakenError(KubeError):
    """An object of that name exists and is not ours."""


def owned(body: RawObject, owner: SpeculativeDeployment) -> bool:
    """By UID: a namesake's children are not ours."""
    return any(one.get("uid") == owner.uid for one in body["metadata"].get("ownerReferences", []))


async def refuse_taken(api: KubeApi, owner: SpeculativeDeployment, manifest: RawObject) -> None:
    """Ask before the first apply. Raises TakenError, or ConflictError while a namesake's child is being removed."""
    metadata = manifest["metadata"]
    try:
        live = await api.get(kind_of(manifest), metadata["namespace"], metadata["name"])
    except NotFoundError:
        return
    if owned(live, owner):
        return
    references = live["metadata"].get("ownerReferences", [])
    what = f"{manifest['kind']} {metadata['namespace']}/{metadata['name']}"
    if any(one.get("kind") == KIND and one.get("name") == owner.name for one in references):
        raise ConflictError(f"{what} is left from an earlier {KIND} of this name and is being removed")
    own = live["metadata"].get("labels", {})
    if not references and own.get(labels.DEPLOYMENT) == base_labels(owner)[labels.DEPLOYMENT]:
        return  # Ours, restored from a backup: those lose their owner.
    raise TakenError(f"{what} exists and belongs to somebody else: rename it, or rename this {KIND}")
