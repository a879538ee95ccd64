"""Adapter of the port over kubernetes.aio: raw JSON both ways (its models would triple the memory)."""

import json
import os
from typing import Any

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from specfleet import __version__
from specfleet.api.base import FIELD_MANAGER, RawObject
from specfleet.kube.kinds import Kind, kind_of
from specfleet.kube.port import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubeError,
    NotFoundError,
    UnavailableError,
)

READ_TIMEOUT_SECONDS = 30.0
WRITE_TIMEOUT_SECONDS = 8.0
"""A write that hangs must end before a rival may take the Lease (lease.py): trust and time-out stay below its 30 s."""
PAGE = 500
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


async def connect() -> "AioKubeApi":
    """A client from the service account when there is one, else from KUBECONFIG."""
    configuration = Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        # The library reads KUBECONFIG only once, when it is imported.
        await config.load_kube_config(os.environ.get("KUBECONFIG"), client_configuration=configuration)
    client = ApiClient(configuration)
    client.user_agent = f"specfleet/{__version__}"
    return AioKubeApi(client)


class AioKubeApi:
    """KubeApi over one kubernetes.aio client. `writes` counts requests that change something, by (verb, kind)."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.writes: dict[tuple[str, str], int] = {}

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> RawObject:
        """One object. Raises NotFoundError."""
        return await self._ask("GET", kind.path(namespace, name))

    async def groups(self) -> frozenset[str]:
        """Names of the API groups that the cluster serves."""
        listed = await self._ask("GET", "/apis")
        return frozenset(one["name"] for one in listed["groups"])

    async def list_all(self, kind: Kind, namespace: str | None, selector: str | None = None) -> list[RawObject]:
        """All objects of a kind, in pages of 500."""
        found: list[RawObject] = []
        query: dict[str, str] = {"limit": str(PAGE)}
        if selector:
            query["labelSelector"] = selector
        while True:
            page = await self._ask("GET", kind.path(namespace), query)
            found += [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page.get("items", [])]
            following = page.get("metadata", {}).get("continue")
            if not following:
                return found
            query["continue"] = following

    async def apply(self, manifest: RawObject) -> RawObject:
        """Server-side apply, forced."""
        kind = kind_of(manifest)
        path = kind.path(manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._write("apply", kind, "PATCH", path, query, manifest, APPLY)

    async def create(self, manifest: RawObject) -> bool:
        """Create; False when it exists already."""
        kind = kind_of(manifest)
        path = kind.path(manifest["metadata"]["namespace"])
        try:
            await self._write("create", kind, "POST", path, {"fieldManager": FIELD_MANAGER}, manifest)
        except ConflictError:
            return False
        return True

    async def replace(self, manifest: RawObject) -> RawObject:
        """Replace at the manifest's resourceVersion."""
        kind = kind_of(manifest)
        path = kind.path(manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        return await self._write("replace", kind, "PUT", path, {"fieldManager": FIELD_MANAGER}, manifest)

    async def patch_status(self, kind: Kind, current: RawObject, status: RawObject) -> RawObject:
        """Replace status of exactly this object; fields that are gone are removed (merge patch with null)."""
        meta = current["metadata"]
        body = {
            "metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
            "status": _merge(current.get("status") or {}, status),
        }
        path = kind.path(meta["namespace"], meta["name"], "status")
        return await self._write("patch-status", kind, "PATCH", path, {"fieldManager": FIELD_MANAGER}, body, MERGE)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """Delete exactly this object."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._write("delete", kind, "DELETE", kind.path(namespace, name), {}, body)
        except NotFoundError:
            return

    async def _write(
        self,
        verb: str,
        kind: Kind,
        method: str,
        path: str,
        query: dict[str, str],
        body: Any,
        content: str | None = None,
    ) -> RawObject:
        self.writes[(verb, kind.kind)] = self.writes.get((verb, kind.kind), 0) + 1
        return await self._ask(method, path, query, body, content)

    async def _ask(
        self, method: str, path: str, query: dict[str, str] | None = None, body: Any = None, content: str | None = None
    ) -> RawObject:
        timeout = READ_TIMEOUT_SECONDS if method == "GET" else WRITE_TIMEOUT_SECONDS
        headers = {"Accept": "application/json", "Content-Type": content or "application/json"}
        try:
            request = await self._client.param_serialize(
                method,
                path,
                query_params=list((query or {}).items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            response = await self._client.call_api(*request, _request_timeout=timeout)
            data = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(f"{method} {path}: {type(error).__name__}: {error}") from error
        if response.status >= 400:
            raise _error(method, path, response.status, data)
        answer: RawObject = json.loads(data)
        return answer


def _error(method: str, path: str, status: int, data: bytes) -> KubeError:
    try:
        text = json.loads(data).get("message", "")
    except (ValueError, AttributeError):
        text = data[:500].decode(errors="replace")
    kinds: dict[int, type[KubeError]] = {
        400: InvalidError,
        401: ForbiddenError,
        403: ForbiddenError,
        404: NotFoundError,
        409: ConflictError,
        422: InvalidError,
        429: UnavailableError,
    }
    family = kinds.get(status, UnavailableError if status >= 500 else KubeError)
    return family(f"{method} {path}: {status}: {text}", status)


def _merge(old: RawObject, new: RawObject) -> RawObject:
    """A JSON merge patch (RFC 7386) that turns `old` into `new`."""
    patch: RawObject = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            inner = _merge(before, value)
            if inner:
                patch[key] = inner
        elif value != before:
            patch[key] = value
    return patch
