"""Asks Prometheus what the operator's watch would say, with the operator's own collector and watch."""

import asyncio
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from specfleet.api.deployment import SpeculativeDeployment
from specfleet.cli.stored import UnusableInputError
from specfleet.decide.counters import TargetFeed
from specfleet.decide.watch import Watch
from specfleet.decide.watch_report import WatchReport
from specfleet.decide.watch_target import Target
from specfleet.telemetry.collector import REPLAY_SECONDS, Collector
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


def ask_watch(
    server: MetricsServer,
    target: Target,
    now: datetime,
    begin: datetime | None = None,
    present: Target | None = None,
) -> WatchReport:
    """The report at `now` of a fresh watch, as after a restart of the operator: it reads the windows again.

    `begin`: from when on it is to have watched; default: as long as an operator reads back. `present`: the target as
    it is at `now`, where `target` also names pods that are gone by then.
    """
    seconds = REPLAY_SECONDS if begin is None else (now - begin).total_seconds() + target.window_seconds
    collector = Collector(seconds, patience_seconds=None)
    watch = Watch()

    async def look(then: datetime, at: Target) -> TargetFeed:
        feeds = await collector.tick({server: [at]}, then)
        watch.observe(then, feeds)
        return feeds[at.key]

    async def read() -> None:
        known = target.calibration.since if target.calibration is not None else target.since
        if begin is not None and begin < min(known, target.since):
            await look(min(target.since, now), replace(target, since=begin))
        feed = await look(now, target)
        if present is not None and present.arms != target.arms:
            answers = {role: answer for role, answer in feed.answers.items() if role in present.arms}
            watch.observe(now, {target.key: TargetFeed(present, {}, answers)})

    try:
        asyncio.run(read())
    finally:
        collector.close()
    return watch.report(target.key)
