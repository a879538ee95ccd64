"""Asks Prometheus what the operator's watch would say, with the operator's own collector and watch."""

import asyncio
from datetime import datetime
from pathlib import Path

from specfleet.api.deployment import SpeculativeDeployment
from specfleet.cli.stored import UnusableInputError
from specfleet.decide.watch import Watch
from specfleet.decide.watch_report import WatchReport
from specfleet.decide.watch_target import Target
from specfleet.telemetry.collector import Collector
from specfleet.telemetry.servers import MetricsServer

TIMEOUT_SECONDS = 30.0


def metrics_server(url: str, owner: SpeculativeDeployment, token_file: str | None) -> MetricsServer:
    """The server at `url` as the spec would ask it (tenant); the token comes from a file, never from the Secret."""
    declared = owner.spec.monitoring.prometheus
    token = None
    if token_file is not None:
        try:
            token = Path(token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UnusableInputError(f"{token_file}: cannot be read: {error.strerror}") from error
    tenant = declared.tenant if declared is not None else None
    return MetricsServer(url, bearer_token=token, tenant=tenant, timeout_seconds=TIMEOUT_SECONDS)


def ask_watch(server: MetricsServer, target: Target, now: datetime, replay_seconds: float | None = None) -> WatchReport:
    """The report at `now` of a fresh watch, as after a restart of the operator: it reads the windows again."""
    collector = Collector() if replay_seconds is None else Collector(replay_seconds)
    watch = Watch()

    async def read() -> None:
        feeds = await collector.tick({server: [target]}, now)
        watch.observe(now, feeds)

    try:
        asyncio.run(read())
    finally:
        collector.close()
    return watch.report(target.key)
