"""Where metrics are asked for, with credentials as plain data (the caller reads the Secrets)."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MetricsServer:
    """One Prometheus-compatible server. Two deployments with equal settings share its queries."""

    url: str
    bearer_token: str | None = field(default=None, repr=False)
    basic_auth: tuple[str, str] | None = field(default=None, repr=False)
    client_certificate: tuple[str, str] | None = None
    """Paths of certificate and key (mTLS)."""
    ca_bundle: str | None = None
    """Path of the CA bundle; None: the system's."""
    tenant: str | None = None
    """Value of X-Scope-OrgID (Mimir, Thanos, Loki-style multi-tenancy)."""
    timeout_seconds: float = 10.0

    def headers(self) -> dict[str, str]:
        """HTTP headers of every request."""
        headers = {"Accept": "application/json"}
        if self.bearer_token is not None:
            headers["Authorization"] = f"Bearer {self.bearer_token}"
        if self.tenant is not None:
            headers["X-Scope-OrgID"] = self.tenant
        return headers
