"""Which metrics server a deployment uses, with credentials from the Secret that the spec names (never logged)."""

import base64
import logging
import time
from pathlib import Path
from tempfile import mkdtemp

from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.operation import PrometheusAuth, PrometheusSpec
from specfleet.controller.fleet import Fleet
from specfleet.controller.settings import Settings
from specfleet.kube.kinds import Kind
from specfleet.kube.port import KubeApi, KubeError
from specfleet.telemetry.servers import MetricsServer

SECRET = Kind("v1", "Secret", "secrets")
REFRESH_SECONDS = 300.0
MISSING_SECONDS = 30.0
"""A Secret that cannot be read is not asked for on every tick, however many deployments name it."""

log = logging.getLogger(__name__)


class ServerBook:
    """Servers by spec. Secrets are read from the operator's own namespace, every five minutes."""

    def __init__(self, api: KubeApi, settings: Settings) -> None:
        self._api = api
        self._settings = settings
        self._secrets: dict[str, dict[str, bytes]] = {}
        self._asked: dict[str, float] = {}
        self._directory: Path | None = None

    def server(self, owner: SpeculativeDeployment) -> MetricsServer | None:
        """The deployment's server, the operator's default, or None when neither is set (or a Secret is not there)."""
        declared = owner.spec.monitoring.prometheus
        if declared is None:
            return MetricsServer(self._settings.prometheus_url) if self._settings.prometheus_url else None
        if declared.auth is None:
            return MetricsServer(declared.url, tenant=declared.tenant)
        secret = self._secrets.get(declared.auth.secret_name)
        return self._with_auth(declared, declared.auth, secret) if secret is not None else None

    async def refresh(self, fleet: Fleet) -> None:
        """Read the Secrets that are named and not fresh."""
        for owner in fleet.readable():
            declared = owner.spec.monitoring.prometheus
            if declared is None or declared.auth is None:
                continue
            name = declared.auth.secret_name
            wait = REFRESH_SECONDS if name in self._secrets else MISSING_SECONDS
            if time.monotonic() - self._asked.get(name, float("-inf")) < wait:
                continue
            self._asked[name] = time.monotonic()
            try:
                found = await self._api.get(SECRET, self._settings.own_namespace, name)
            except KubeError as error:
                log.warning("Secret %s of spec.monitoring.prometheus.auth: %s", name, error.message)
                continue
            data = {key: base64.b64decode(value) for key, value in found.get("data", {}).items()}
            self._secrets[name] = data

    def _with_auth(
        self, declared: PrometheusSpec, auth: PrometheusAuth, secret: dict[str, bytes]
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
        log.warning("Secret %s lacks the keys of %s authentication", auth.secret_name, auth.type)
        return None

    def _files(self, name: str, secret: dict[str, bytes]) -> dict[str, str]:
        """mTLS needs files: in a directory only this process can read."""
        if self._directory is None:
            self._directory = Path(mkdtemp(prefix="specfleet-tls-"))
        written: dict[str, str] = {}
        for key in ("tls.crt", "tls.key", "ca.crt"):
            if key in secret:
                path = self._directory / f"{name}-{key}"
                if not path.exists() or path.read_bytes() != secret[key]:
                    path.touch(mode=0o600)
                    path.write_bytes(secret[key])
                written[key] = str(path)
        return written
