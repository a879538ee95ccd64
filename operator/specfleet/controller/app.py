"""The running operator: workers, telemetry tick, resync, alerts and Lease, as tasks of one event loop."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

from specfleet.alerts.alert import Sender
from specfleet.alerts.alertmanager import AlertSender
from specfleet.alerts.derive import alerts_for, alerts_of_unreadable
from specfleet.alerts.metrics import OperatorMetrics
from specfleet.alerts.webhook import WebhookSender
from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.api.reasons import UNREADABLE
from specfleet.controller.checkpoints import Checkpoints
from specfleet.controller.failures import TOLD_FROM, TOLD_FROM_IN_BETWEEN, Failures
from specfleet.controller.fleet import Fleet, served_optional
from specfleet.controller.observe import UnreadableError
from specfleet.controller.probe import Prober
from specfleet.controller.queue import KeyQueue
from specfleet.controller.reconcile import Reconciler
from specfleet.controller.servers import ServerBook
from specfleet.controller.settings import Settings
from specfleet.controller.watching import Watching
from specfleet.decide.observation import WatchHistory
from specfleet.kube import kinds
from specfleet.kube.aio import AioKubeApi, connect
from specfleet.kube.cache import Key, owner_key
from specfleet.kube.kinds import Kind
from specfleet.kube.lease import Lease, LostLeaseError
from specfleet.kube.port import ConflictError, ForbiddenError, KubeError, NotFoundError

ALERT_SECONDS = 30.0
FIRST_LIST_SECONDS = 2.0
DEAD_SECONDS = 120.0

log = logging.getLogger(__name__)


def utc_now() -> datetime:
    """The clock of the process."""
    return datetime.now(UTC)


async def _watched(name: str, work: Coroutine[Any, Any, None]) -> None:
    """A task that ends with an error says so at once; the liveness probe then restarts the process."""
    try:
        await work
    except Exception:
        log.exception("task %s ended", name)
        raise


class App:
    """Everything that runs. `start` and `stop` are called by Kopf's lifecycle handlers."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.queue = KeyQueue()
        self.fleet = Fleet(Prober(self.queue.add, utc_now), self.settings.benchmarks_at_once or None)
        self.metrics = OperatorMetrics(f"{settings.own_namespace}/{settings.lease_name}")
        self._api: AioKubeApi | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._lease: Lease | None = None
        self._watching: Watching | None = None
        self._checkpoints: Checkpoints | None = None
        self._reconciler: Reconciler | None = None
        self._failures: Failures | None = None
        self._senders: list[Sender] = []
        self._beat = 0.0

    async def start(self) -> None:
        """Connect, take the Lease, list everything once, then start the tasks."""
        self._api = await connect()
        space, name = self.settings.own_namespace, self.settings.lease_name
        self._lease = Lease(self._api, space, name, self.settings.identity, self.fleet.prober.take_over)
        book = ServerBook(self._api, self.settings)
        self._watching = Watching(self.fleet, book.server, self.queue.add)
        self._checkpoints = Checkpoints(
            self._api,
            self._lease,
            self._watching.watch,
            (self.settings.own_namespace, f"{self.settings.lease_name}-watch"),
            self.metrics.count_error,
            asyncio.get_running_loop().time,
        )
        self._reconciler = Reconciler(self._api, self.fleet, self._lease, self.metrics, utc_now)
        self._failures = Failures(self._api, self.fleet, self._lease, self.metrics, utc_now)
        self.follow_itself()
        self.metrics.serve(self.settings.metrics_port)
        self._spawn("lease", self._lease.run())
        self._spawn("lead", self._lead(self._reconciler, book))
        self._beat = asyncio.get_running_loop().time()

    def follow_itself(self) -> None:
        """Let the metrics read what this process does."""
        self.metrics.follow(
            lambda: len(self.queue),
            self._leads,
            lambda: self._api.writes if self._api else {},
            lambda: sum(sender.failures for sender in self._senders),
        )

    async def stop(self) -> None:
        """Stop the tasks, leave checkpoints to the successor, and give the Lease back."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._checkpoints is not None:
            await self._checkpoints.write_all()
        if self._lease is not None and self._api is not None:
            await self._lease.release()
        if self._watching is not None:
            self._watching.close()
        await self.fleet.prober.close()
        self.metrics.close()
        if self._api is not None:
            await self._api.close()

    def healthy(self) -> str | None:
        """Why the process should be restarted, None when it is well."""
        for task in self._tasks:
            if task.done():
                return f"task {task.get_name()} has ended"
        silent = asyncio.get_running_loop().time() - self._beat
        return f"no telemetry tick for {silent:.0f} s" if silent > DEAD_SECONDS and self._leads() else None

    def see_deployment(self, event_type: str | None, body: RawObject) -> None:
        """A SpeculativeDeployment appeared, changed or went."""
        key = (body["metadata"]["namespace"], body["metadata"]["name"])
        if event_type == "DELETED" or body["metadata"].get("deletionTimestamp"):
            if self.fleet.cache.delete_deployment(body) is None:
                return
            self._forget(key)
            return
        self.queue.add(self.fleet.cache.put_deployment(body))

    def see_child(self, kind: Kind, event_type: str | None, body: RawObject) -> None:
        """A child appeared, changed or went."""
        cache = self.fleet.cache
        key = cache.drop(kind, body) if event_type == "DELETED" else cache.put(kind, body)
        if key is not None:
            self.queue.add(key)

    def _forget(self, key: Key) -> None:
        self.fleet.forget(key)
        self.queue.forget(key)
        self.metrics.forget(*key)
        if self._failures is not None:
            self._failures.over(key)

    def _leads(self) -> bool:
        return self._lease is not None and self._lease.held

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(_watched(name, work), name=name))

    async def _lead(self, reconciler: Reconciler, book: ServerBook) -> None:
        """Work only while the Lease is held."""
        assert self._lease is not None
        await self._lease.wait()
        log.info("the Lease is held; working")
        # A stand-by that has waited for hours is not to be restarted at the moment it takes over.
        self._beat = asyncio.get_running_loop().time()
        now = utc_now()
        unheld = self._lease.unheld_since
        self.fleet.watch = WatchHistory(now, (now - unheld).total_seconds() if unheld else 0.0)
        await self._first_resync()
        self.fleet.judge_breaker(utc_now())
        if self._checkpoints is not None:
            await self._checkpoints.read(utc_now())
            self._spawn("checkpoints", self._checkpoints.run())
        for number in range(self.settings.workers):
            self._spawn(f"worker-{number}", self._work(reconciler))
        self._spawn("telemetry", self._telemetry(book))
        self._spawn("resync", self._resync())
        self._spawn("alerts", self._alerts())
        await asyncio.Event().wait()

    async def _first_resync(self) -> None:
        """List everything once before the first decision; an API server that stutters is asked again."""
        while True:
            try:
                await self._resync_once()
                return
            except KubeError as error:
                log.warning("the first list: %s; again in %.0f s", error.message, FIRST_LIST_SECONDS)
                self._beat = asyncio.get_running_loop().time()
                await asyncio.sleep(FIRST_LIST_SECONDS)

    async def _work(self, reconciler: Reconciler) -> None:
        while True:
            key = await self.queue.get()
            try:
                with self.metrics.reconcile_timer():
                    again = await reconciler.reconcile(key)
                self.queue.succeeded(key)
                if self._failures is not None and self._failures.over(key):
                    again = 0.0
                if again is not None:
                    self.queue.add_after(key, again)
            except (ConflictError, NotFoundError) as error:
                log.info("%s/%s: somebody wrote in between, looking again: %s", *key, error.message)
                self.queue.retry(key)
                await self._failed(key, type(error).__name__, error.message, TOLD_FROM_IN_BETWEEN)
            except (KubeError, LostLeaseError) as error:
                seconds = self.queue.retry(key)
                self.metrics.count_error(type(error).__name__)
                log.warning("%s/%s: %s; again in %.1f s", *key, error, seconds)
                await self._failed(key, type(error).__name__, str(error))
            except UnreadableError as error:
                self.metrics.count_error(UNREADABLE)
                log.error("%s/%s does not fit this operator's API: %s", *key, error)
                await self._failed(key, UNREADABLE, f"{error}: another operator's API?", 1)
            except Exception as error:
                seconds = self.queue.retry(key)
                self.metrics.count_error("Internal")
                log.exception("%s/%s: reconcile failed; again in %.1f s", *key, seconds)
                await self._failed(key, "Internal", f"{type(error).__name__}: {error} (see the operator's log)")
            finally:
                self.queue.done(key)

    async def _failed(self, key: Key, family: str, message: str, told_from: int = TOLD_FROM) -> None:
        """Tell of a failure that lasts where a person looks (failures.py)."""
        if self._failures is not None:
            await self._failures.happened(key, family, message, told_from)

    async def _telemetry(self, book: ServerBook) -> None:
        assert self._watching is not None
        while True:
            try:
                await book.refresh(self.fleet)
                self._beat = asyncio.get_running_loop().time()
                wait = await self._watching.tick(utc_now())
            except Exception:
                self.metrics.count_error("Telemetry")
                log.exception("the telemetry tick failed; again in 5 s")
                wait = 5.0
            self.fleet.judge_breaker(utc_now())
            self._show()
            self._beat = asyncio.get_running_loop().time()
            await asyncio.sleep(wait)

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(self.settings.resync_seconds)
            try:
                await self._resync_once()
            except KubeError as error:
                log.warning("resync: %s", error.message)

    async def _resync_once(self) -> None:
        """Compare the cache with full lists: the watches may have missed a deletion."""
        assert self._api is not None
        self.fleet.optional = served_optional(
            {kind.kind: await self._served(kind) for kind in kinds.WATCHED if kind.optional}
        )
        await self._look_for_groups()
        spaces: tuple[str | None, ...] = self.settings.namespaces or (None,)
        listed: set[Key] = set()
        mark = self.fleet.cache.mark()
        for space in spaces:
            for body in await self._api.list_all(kinds.SPECULATIVE_DEPLOYMENT, space):
                listed.add(self.fleet.cache.put_deployment(body))
        for key in self.fleet.cache.missing(listed, mark):
            self._forget(key)
        for kind in kinds.WATCHED:
            if kind.optional and kind.kind not in self.fleet.optional:
                # Its CRD is gone, and its objects with it: cached ones would be deleted again and again.
                for key in listed:
                    self.fleet.cache.replace_children(key, kind, [], self.fleet.cache.mark())
                continue
            found: dict[Key, list[RawObject]] = {key: [] for key in listed}
            mark = self.fleet.cache.mark()
            for space in spaces:
                for body in await self._api.list_all(kind, space, labels.DEPLOYMENT):
                    owner = owner_key(body)
                    if owner in found:
                        found[owner].append(body)
            for key, bodies in found.items():
                if self.fleet.cache.replace_children(key, kind, bodies, mark):
                    self.queue.add(key)
        pods = {body["metadata"]["uid"] for key in listed for body in self.fleet.cache.children(key, kinds.POD)}
        self.fleet.prober.keep_only(pods)
        self.fleet.groups_of_pods.keep_only(self.fleet.cache.uids())
        self.fleet.gpu_types.keep_only(pods)
        if self._reconciler is not None:
            self._reconciler.keep_only(self.fleet.cache.uids())
        for key in listed:
            self.queue.add(key)

    async def _look_for_groups(self) -> None:
        """No answer is not a no: what was known before stays."""
        assert self._api is not None
        try:
            self.fleet.groups = await self._api.groups()
        except KubeError as error:
            log.warning("the API groups of the cluster are not known: %s", error.message)

    async def _served(self, kind: Kind) -> bool:
        """Whether the cluster has the kind. Raises KubeError: no answer is not a no, which would remove every route."""
        assert self._api is not None
        try:
            await self._api.list_all(
                kind, self.settings.namespaces[0] if self.settings.namespaces else None, "specfleet.dev/none"
            )
        except NotFoundError:
            return False
        except ForbiddenError:
            return kind.kind in self.fleet.optional
        return True

    async def _alerts(self) -> None:
        """Send what fires, again and again: alerts follow from status alone, so none is lost in a crash."""
        async with AsyncExitStack() as stack:
            if self.settings.alertmanager_url is not None:
                self._senders.append(await stack.enter_async_context(AlertSender(self.settings.alertmanager_url)))
            if self.settings.webhook_url is not None:
                self._senders.append(await stack.enter_async_context(WebhookSender(self.settings.webhook_url)))
            while True:
                try:
                    owners, pages = self.fleet.readable(), self.settings.runbooks_url
                    firing = [one for owner in owners for one in alerts_for(owner, pages)]
                    firing += [one for body in self.fleet.unreadable() for one in alerts_of_unreadable(body, pages)]
                    for sender in self._senders:
                        await sender.send(firing)
                except Exception:
                    self.metrics.count_error("Alerts")
                    log.exception("alerts could not be sent; again in %.0f s", ALERT_SECONDS)
                await asyncio.sleep(ALERT_SECONDS)

    def _show(self) -> None:
        assert self._watching is not None
        self.metrics.show_fleet(self.fleet.readable())
        self.metrics.show_reports(self.fleet.reports, self._watching.queries)
