"""The port: all that the controller may ask of the API server, and one family of errors."""

from typing import Protocol

from specfleet.api.base import RawObject
from specfleet.kube.kinds import Kind


class KubeError(Exception):
    """The API server refused or could not be asked. `message` is its own text, fit for a status."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class NotFoundError(KubeError):
    """404: the object, or its kind, is not there."""


class ConflictError(KubeError):
    """409: somebody else wrote in between, or the UID is another one's. Look again."""


class ForbiddenError(KubeError):
    """401 or 403: RBAC does not allow it."""


class InvalidError(KubeError):
    """400 or 422: the API server refuses the object."""


class UnavailableError(KubeError):
    """429, 5xx, a time-out or no connection: try again later."""


class KubeApi(Protocol):
    """Reads and writes on plain dictionaries."""

    async def groups(self) -> frozenset[str]:
        """Names of the API groups that the cluster serves (discovery, which every service account may read)."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> RawObject:
        """One object; of a kind that belongs to no namespace, with None. Raises NotFoundError."""

    async def list_all(self, kind: Kind, namespace: str | None, selector: str | None = None) -> list[RawObject]:
        """All objects of a kind, by label selector, in pages."""

    async def apply(self, manifest: RawObject) -> RawObject:
        """Server-side apply, forced (a controller owns its children), with specfleet's field manager."""

    async def create(self, manifest: RawObject) -> bool:
        """Create; False when an object of that name exists already."""

    async def replace(self, manifest: RawObject) -> RawObject:
        """Replace at the manifest's resourceVersion. Raises ConflictError."""

    async def patch_status(self, kind: Kind, current: RawObject, status: RawObject) -> RawObject:
        """Replace status of exactly this object (UID and resourceVersion). Raises ConflictError, NotFoundError."""

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """Delete exactly this object; its being gone already is success."""
