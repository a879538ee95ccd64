"""Which metrics server a deployment uses, with credentials from the Secret that the spec names (never logged)."""

import asyncio
import base64
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import urlsplit

from specfleet.api import labels
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.operation import PrometheusAuth, PrometheusSpec
from specfleet.controller.fleet import Fleet
from specfleet.controller.settings import Settings
from specfleet.kube.kinds import Kind
from specfleet.kube.port import ForbiddenError, KubeApi, KubeError, NotFoundError
from specfleet.telemetry.servers import MetricsServer

SECRET = Kind("v1", "Secret", "secrets")
REFRESH_SECONDS = 300.0
MISSING_SECONDS = 30.0
"""A Secret that cannot be read is not asked for on every tick, however many deployments name it."""

TLS_FILES = ("tls.crt", "tls.key", "ca.crt")
NO_SERVER = "no metrics server is set: spec.monitoring.prometheus.url, or SPECFLEET_PROMETHEUS_URL of the operator"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Credentials:
    """A Secret, and whom its owner lets use it: written on the Secret, because a spec may name any address."""

    data: Mapping[str, bytes]
    servers: frozenset[str]
    """Origins (scheme://host:port) that it may be sent to."""
    namespaces: frozenset[str]
    """Whose deployments may use it; empty: all."""


class ServerBook:
    """Servers by spec. Secrets are read from the operator's own namespace, every five minutes."""

    def __init__(self, api: KubeApi, settings: Settings) -> None:
        self._api = api
        self._settings = settings
        self._secrets: dict[str, Credentials] = {}
        self._refused: dict[str, str] = {}
        self._asked: dict[str, float] = {}
        self._directory: Path | None = None

    def server(self, owner: SpeculativeDeployment) -> MetricsServer | str:
        """The deployment's server or the operator's default; otherwise why there is none, for a condition."""
        declared = owner.spec.monitoring.prometheus
        if declared is None:
            return MetricsServer(self._settings.prometheus_url) if self._settings.prometheus_url else NO_SERVER
        if declared.auth is None:
            return MetricsServer(declared.url, tenant=declared.tenant)
        path, name = "spec.monitoring.prometheus.auth.secretName", declared.auth.secret_name
        secret = self._secrets.get(name)
        if secret is None:
            return f"{path}: Secret {name}: {self._refused.get(name, 'not read yet')}"
        if _origin(declared.url) not in secret.servers:
            said = f"{labels.SECRET_SERVERS}: {_origin(declared.url)}"
            return f"{path}: Secret {name} may not be sent to this server; its owner allows that by annotation {said}"
        if secret.namespaces and owner.namespace not in secret.namespaces:
            return f"{path}: Secret {name} is not for namespace {owner.namespace} ({labels.SECRET_NAMESPACES})"
        made = self._with_auth(declared, declared.auth, secret.data)
        return made or f"{path}: Secret {name} lacks the keys of {declared.auth.type} authentication"

    async def refresh(self, fleet: Fleet) -> None:
        """Read the Secrets that are named and not fresh, all at once."""
        due: set[str] = set()
        for owner in fleet.readable():
            declared = owner.spec.monitoring.prometheus
            if declared is None or declared.auth is None:
                continue
            name = declared.auth.secret_name
            wait = REFRESH_SECONDS if name in self._secrets else MISSING_SECONDS
            if time.monotonic() - self._asked.get(name, float("-inf")) >= wait:
                due.add(name)
        await asyncio.gather(*(self._read(name) for name in sorted(due)))

    async def _read(self, name: str) -> None:
        """A Secret that is gone, or that we may not read any more, is used no more. No answer takes nothing away."""
        self._asked[name] = time.monotonic()
        try:
            found = await self._api.get(SECRET, self._settings.own_namespace, name)
        except KubeError as error:
            log.warning("Secret %s of spec.monitoring.prometheus.auth: %s", name, error.message)
            self._refused[name] = error.message
            if isinstance(error, NotFoundError | ForbiddenError):
                self._revoke(name)
            return
        notes = found["metadata"].get("annotations") or {}
        self._secrets[name] = Credentials(
            {key: base64.b64decode(value) for key, value in found.get("data", {}).items()},
            frozenset(_origin(one) for one in notes.get(labels.SECRET_SERVERS, "").replace(",", " ").split()),
            frozenset(notes.get(labels.SECRET_NAMESPACES, "").replace(",", " ").split()),
        )

    def _revoke(self, name: str) -> None:
        self._secrets.pop(name, None)
        for key in TLS_FILES:
            if self._directory is not None:
                (self._directory / f"{name}-{key}").unlink(missing_ok=True)

    def _with_auth(
        self, declared: PrometheusSpec, auth: PrometheusAuth, secret: Mapping[str, bytes]
    ) -> MetricsServer | None:
        if auth.type == "Bearer" and "token" in secret:
            return MetricsServer(declared.url, bearer_token=secret["token"].decode().strip(), tenant=declared.tenant)
        if auth.type == "Basic" and {"username", "password"} <= set(secret):
            pair = (secret["username"].decode(), secret["password"].decode())
            return MetricsServer(declared.url, basic_auth=pair, tenant=declared.tenant)
        if auth.type == "MutualTLS" and {"tls.crt", "tls.key"} <= set(secret):
            files = self._files(auth.secret_name, secret)
            authority = files.get("ca.crt")
            pair = (files["tls.crt"], files["tls.key"])
            return MetricsServer(declared.url, client_certificate=pair, ca_bundle=authority, tenant=declared.tenant)
        return None

    def _files(self, name: str, secret: Mapping[str, bytes]) -> dict[str, str]:
        """mTLS needs files: in a directory only this process can read."""
        if self._directory is None:
            self._directory = Path(mkdtemp(prefix="specfleet-tls-"))
        written: dict[str, str] = {}
        for key in TLS_FILES:
            if key in secret:
                path = self._directory / f"{name}-{key}"
                if not path.exists() or path.read_bytes() != secret[key]:
                    path.touch(mode=0o600)
                    path.write_bytes(secret[key])
                written[key] = str(path)
        return written


def _origin(url: str) -> str:
    """Scheme, host and port in one spelling; user names and paths do not change whom a request reaches."""
    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return url
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}"
