"""Settings of the operator process, from the environment (charts/specfleet sets them)."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """All of them have a default that works in a cluster."""

    namespaces: tuple[str, ...] = ()
    """Empty: all namespaces."""
    own_namespace: str = "specfleet"
    identity: str = "specfleet"
    lease_name: str = "specfleet"
    prometheus_url: str | None = None
    alertmanager_url: str | None = None
    webhook_url: str | None = None
    runbooks_url: str | None = None
    """Address of a runbook page, with {alert} in place of the alert's name."""
    log_level: str = "INFO"
    probe_port: int = 8080
    metrics_port: int = 8081
    workers: int = 8
    benchmarks_at_once: int = 0
    """Deployments that may begin to measure at the same time; 0: all."""
    resync_seconds: float = 600.0


def from_environment(environ: Mapping[str, str] | None = None) -> Settings:
    """Read SPECFLEET_* variables. Raises ValueError that names the variable."""
    env = os.environ if environ is None else environ
    shard = env.get("SPECFLEET_SHARD", "")
    return Settings(
        namespaces=tuple(part.strip() for part in env.get("SPECFLEET_NAMESPACES", "").split(",") if part.strip()),
        own_namespace=env.get("POD_NAMESPACE", "specfleet"),
        identity=env.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
        lease_name=f"specfleet-{shard}" if shard else "specfleet",
        prometheus_url=env.get("SPECFLEET_PROMETHEUS_URL") or None,
        alertmanager_url=env.get("SPECFLEET_ALERTMANAGER_URL") or None,
        webhook_url=env.get("SPECFLEET_WEBHOOK_URL") or None,
        runbooks_url=env.get("SPECFLEET_RUNBOOKS_URL") or None,
        log_level=env.get("SPECFLEET_LOG_LEVEL", "INFO").upper(),
        probe_port=_integer(env, "SPECFLEET_PROBE_PORT", 8080),
        metrics_port=_integer(env, "SPECFLEET_METRICS_PORT", 8081),
        workers=_integer(env, "SPECFLEET_WORKERS", 8),
        benchmarks_at_once=_integer(env, "SPECFLEET_BENCHMARKS_AT_ONCE", 0),
        resync_seconds=float(_integer(env, "SPECFLEET_RESYNC_SECONDS", 600)),
    )


def _integer(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise ValueError(f"{name} must be a whole number, not {text!r}") from None
