"""The reconcile against a real API server and controller manager; kubelets and engines are played by this test."""

import asyncio
import json
import os
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from specfleet.alerts.metrics import OperatorMetrics
from specfleet.api import labels, names
from specfleet.api.base import API_VERSION, RawObject
from specfleet.api.deployment import KIND
from specfleet.api.status import ArmRole, Phase, Verdict
from specfleet.controller.fleet import Fleet
from specfleet.controller.probe import Prober
from specfleet.controller.reconcile import Reconciler
from specfleet.decide.watch_report import Answer, ArmWindow, Comparison, WatchReport
from specfleet.kube import kinds
from specfleet.kube.aio import AioKubeApi, connect
from specfleet.kube.cache import Key
from specfleet.kube.kinds import Kind
from specfleet.kube.lease import Lease
from specfleet.kube.port import ConflictError, KubeError, UnavailableError

from e2e.cluster.controlplane import ControlPlane
from tests.controller.played_driver import measured
from tests.decide.world import spec_of

pytestmark = pytest.mark.integration

OTHER_IMAGE = "vllm/vllm-openai:v0.33.0"


class DiedError(Exception):
    """The operator was killed."""


class Mortal:
    """An API client whose process dies at a given write."""

    def __init__(self, api: AioKubeApi, writes: int | None) -> None:
        self._api = api
        self._left = writes

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._api, name)
        if name not in ("apply", "create", "replace", "patch_status", "delete"):
            return call

        async def counted(*arguments: Any) -> Any:
            news = isinstance(arguments[0], dict) and arguments[0].get("kind") == "Event"
            if self._left is not None and not news:
                if self._left == 0:
                    raise DiedError
                self._left -= 1
            return await call(*arguments)

        return counted


@dataclass
class Stage:
    """One namespace of the cluster, with its kubelet, its engines and its clock."""

    api: AioKubeApi
    port: int
    key: Key = field(default_factory=lambda: (f"ns-{uuid.uuid4().hex[:8]}", "llama"))
    offset: timedelta = timedelta()
    engines: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Fingerprint and engine version by pod IP."""
    fewest: int = 1000
    """Fewest ready pods seen since serving began."""
    engines_start: bool = True
    """False: the container of an engine has ended once and waits to be started again."""
    drive: Callable[[dict[str, Any]], str] | None = None
    """Plays the benchmark driver: from its plan to its termination message. None: it finds no engine and stays."""

    def now(self) -> datetime:
        return datetime.now(UTC) + self.offset

    async def begin(self, **changes: Any) -> None:
        """Make the namespace and the deployment."""
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.key[0]}}
        await self.api._ask("POST", "/api/v1/namespaces", {}, space)
        for kind in (kinds.SPECULATIVE_DEPLOYMENT, kinds.SPECULATIVE_BENCHMARK):
            await self.served(kind)
        await self.create_deployment(**changes)

    async def served(self, kind: Kind) -> None:
        """Right after a CRD was made its storage is not there yet (429)."""
        while True:
            try:
                await self.api.list_all(kind, self.key[0])
            except UnavailableError:
                await asyncio.sleep(0.1)
            else:
                return

    async def create_deployment(self, **changes: Any) -> None:
        # The API server dates pods, and this clock runs ahead of it: a new pod looks as old as the whole test.
        engine = {"image": "vllm/vllm-openai:v0.32.0", "port": self.port, "startupTimeoutSeconds": 86400}
        spec = spec_of(
            **{"engine": engine, "replicas": 2, "speculation": None, "traffic": None, "template": None, **changes}
        )
        meta = {"namespace": self.key[0], "name": self.key[1]}
        await self.api.create({"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec})

    async def change(self, **fields: Any) -> None:
        body = await self.body()
        body["spec"] = {**body["spec"], **fields}
        await self.api.replace(body)

    async def body(self) -> RawObject:
        return await self.api.get(kinds.SPECULATIVE_DEPLOYMENT, *self.key)

    async def children(self, kind: Kind) -> list[RawObject]:
        return await self.api.list_all(kind, self.key[0], labels.DEPLOYMENT)

    async def kubelet(self) -> None:
        """Every pod that was made starts; pods that were never bound to a node go at once when they are deleted."""
        ready = 0
        for pod in await self.children(kinds.POD):
            own = pod["metadata"]["labels"]
            serving = own[labels.ROLE] == labels.ROLE_SERVING
            if own[labels.ROLE] in (labels.ROLE_PREFLIGHT, labels.ROLE_DRIVER):
                await self.run_program(pod)
                continue
            if pod.get("status", {}).get("phase") == "Running":
                ready += serving
                continue
            ip = f"127.0.{1 + len(self.engines) // 250}.{2 + len(self.engines) % 250}"
            version = pod["spec"]["containers"][0]["image"].rpartition(":v")[2]
            # A worker of an engine over several pods has no HTTP: asked, it would answer as nobody.
            worker = own[labels.ROLE] == labels.ROLE_WORKER
            self.engines[ip] = ("", "") if worker else (own[labels.FINGERPRINT], version)
            moment = self.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            status = {
                "phase": "Running",
                "podIP": ip,
                "podIPs": [{"ip": ip}],
                "conditions": [{"type": "Ready", "status": str(self.engines_start), "lastTransitionTime": moment}],
            }
            if not self.engines_start:
                ended = {"exitCode": 1, "reason": "Error", "startedAt": moment, "finishedAt": moment}
                status["containerStatuses"] = [
                    {
                        **{"name": "engine", "image": "", "imageID": "", "ready": False, "restartCount": 1},
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": ended},
                    }
                ]
            await self.api.patch_status(kinds.POD, pod, status)
        body = await self.body()
        if body.get("status", {}).get("stable"):
            self.fewest = min(self.fewest, ready)

    async def run_program(self, pod: RawObject) -> None:
        """A preflight's own command, on this machine's files; a driver as `drive` plays it."""
        if pod["status"].get("phase") != "Pending":
            return
        (container,) = pod["spec"]["containers"]
        if pod["metadata"]["labels"][labels.ROLE] == labels.ROLE_DRIVER:
            if self.drive is not None:
                (name,) = [one["configMap"]["name"] for one in pod["spec"]["volumes"] if "configMap" in one]
                plan = await self.api.get(kinds.CONFIG_MAP, self.key[0], name)
                await self.end(pod, 0, self.drive(json.loads(plan["data"]["plan.json"])))
            return
        with tempfile.NamedTemporaryFile("r") as log:
            given = {one["name"]: one["value"] for one in container["env"]}
            environment = {"PATH": os.environ["PATH"], "SPECFLEET_TERMINATION_LOG": log.name, **given}
            program = await asyncio.create_subprocess_exec(
                *container["command"], env=environment, stdout=subprocess.DEVNULL
            )
            code, message = await program.wait(), log.read()
        await self.end(pod, code, message)

    async def end(self, pod: RawObject, code: int, message: str) -> None:
        """The pod's only container ends with these last words."""
        (container,) = pod["spec"]["containers"]
        ended = {"exitCode": code, "message": message, "startedAt": None, "finishedAt": None}
        container_status = {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": ended},
        }
        phase = "Failed" if code else "Succeeded"
        await self.api.patch_status(kinds.POD, pod, {"phase": phase, "containerStatuses": [container_status]})

    async def answer(self, request: web.Request) -> web.Response:
        address = request.transport.get_extra_info("sockname")[0] if request.transport else ""
        fingerprint, version = self.engines.get(address, ("", ""))
        if request.path == "/version":
            return web.json_response({"version": version})
        return web.json_response({"system_fingerprint": fingerprint, "choices": [{"text": "yes"}]})


@dataclass
class Operator:
    """One life of the operator process."""

    stage: Stage
    fleet: Fleet
    reconciler: Reconciler
    lease_task: asyncio.Task[None]

    @classmethod
    async def start(cls, stage: Stage, dies_after: int | None = None) -> "Operator":
        lease = Lease(stage.api, "default", f"lease-{stage.key[0]}", "operator")
        task = asyncio.create_task(lease.run())
        await lease.wait()
        fleet = Fleet(Prober(lambda key: None, stage.now))
        mortal: Any = Mortal(stage.api, dies_after)
        return cls(stage, fleet, Reconciler(mortal, fleet, lease, OperatorMetrics(), stage.now), task)

    async def turn(self) -> None:
        """What the watches bring, a telemetry tick, and one reconcile."""
        key, cache = self.stage.key, self.fleet.cache
        cache.put_deployment(await self.stage.body())
        for kind in kinds.WATCHED:
            if not kind.optional or kind.kind in self.fleet.optional:
                mark = cache.mark()
                cache.replace_children(key, kind, await self.stage.children(kind), mark)
        self.fleet.reports[key] = good_report(self.stage.now())
        try:
            await self.reconciler.reconcile(key)
        except ConflictError:
            return

    async def stop(self) -> None:
        self.lease_task.cancel()
        await self.fleet.prober.close()


def good_report(now: datetime) -> WatchReport:
    window = ArmWindow(Answer.OK, start=now, end=now, requests=10_000)
    compared = Comparison(Verdict.PASS, "NonInferior", "scripted", now, 1.0, 0.95, 1.05, 1.0)
    return WatchReport(Answer.OK, step=dict.fromkeys(ArmRole, window), comparison=compared)


@pytest.fixture
def on_stage(managed_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run something on a stage of its own."""
    return staged(managed_plane, monkeypatch)


def staged(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs something on a stage of its own on a control plane."""
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))

    def run(work: Callable[[Stage], Awaitable[None]]) -> None:
        async def bounded() -> None:
            api = await connect()
            with socket.socket() as probe:
                probe.bind(("0.0.0.0", 0))
                port = probe.getsockname()[1]
            stage = Stage(api, port)
            application = web.Application()
            application.router.add_route("*", "/{path:.*}", stage.answer)
            runner = web.AppRunner(application)
            await runner.setup()
            await web.TCPSite(runner, "0.0.0.0", port).start()
            try:
                await asyncio.wait_for(work(stage), timeout=120)
            finally:
                await runner.cleanup()
                await api.close()

        asyncio.run(bounded())

    return run


async def live(
    operator: Operator, until: Callable[[RawObject], bool], turns: int = 150, seconds: float = 8
) -> RawObject:
    """Turn after turn, with the clock running fast, until the status shows something."""
    body: RawObject = {}
    for _ in range(turns):
        await operator.turn()
        await operator.stage.kubelet()
        body = await operator.stage.body()
        if until(body.get("status", {})):
            return body
        operator.stage.offset += timedelta(seconds=seconds)
        await asyncio.sleep(0.05)
    status = body.get("status", {})
    raise AssertionError(f"not reached: {status.get('phase')} {status.get('conditions')} {status.get('history')}")


def in_phase(phase: Phase) -> Callable[[RawObject], bool]:
    return lambda status: status.get("phase") == phase.value


def adopted(status: RawObject) -> bool:
    done = [one["action"] for one in status.get("history", [])]
    return "AdoptRevision" in done and status["phase"] == Phase.BASELINE.value


async def settle(operator: Operator, turns: int = 12) -> None:
    for _ in range(turns):
        await operator.turn()
        await operator.stage.kubelet()
        operator.stage.offset += timedelta(seconds=10)
        await asyncio.sleep(0.1)


def test_a_deployment_is_served_and_a_steady_state_writes_nothing(on_stage: Callable[..., None]) -> None:
    async def work(stage: Stage) -> None:
        await stage.begin()
        operator = await Operator.start(stage)
        body = await live(operator, in_phase(Phase.BASELINE))
        await settle(operator)
        ready = {one["type"]: one["status"] for one in (await stage.body())["status"]["conditions"]}
        assert ready["Ready"] == "True"
        (arm,) = await stage.children(kinds.DEPLOYMENT)
        assert arm["spec"]["replicas"] == 2
        assert arm["metadata"]["ownerReferences"][0]["uid"] == body["metadata"]["uid"]
        before = {slot: count for slot, count in stage.api.writes.items() if slot[1] not in ("Pod", "Lease")}
        for _ in range(10):
            stage.offset += timedelta(minutes=5)
            await operator.turn()
        after = {slot: count for slot, count in stage.api.writes.items() if slot[1] not in ("Pod", "Lease")}
        assert after == before
        await operator.stop()

    on_stage(work)


def test_a_new_engine_takes_over_without_a_moment_below_the_asked_pods(on_stage: Callable[..., None]) -> None:
    async def work(stage: Stage) -> None:
        await stage.begin()
        stage.drive = measured({})
        operator = await Operator.start(stage)
        await live(operator, in_phase(Phase.BASELINE))
        await settle(operator, 3)
        old = {one["metadata"]["name"] for one in await stage.children(kinds.DEPLOYMENT)}
        engine = {**(await stage.body())["spec"]["engine"], "image": OTHER_IMAGE}
        await stage.change(engine=engine)
        await live(operator, adopted)
        await settle(operator)
        new = {one["metadata"]["name"] for one in await stage.children(kinds.DEPLOYMENT)}
        assert len(new) == 1
        assert not old & new
        assert stage.fewest == 2
        assert len(await stage.children(kinds.CONTROLLER_REVISION)) == 2, "the way back is kept"
        await operator.stop()

    on_stage(work)


def test_an_operator_that_dies_every_few_writes_ends_where_an_immortal_one_does(on_stage: Callable[..., None]) -> None:
    async def work(stage: Stage) -> None:
        await stage.begin()
        stage.drive = measured({})
        deaths = 0
        changed = False
        operator = await Operator.start(stage, dies_after=1)
        for _ in range(400):
            try:
                await operator.turn()
            except DiedError:
                deaths += 1
                await operator.stop()
                operator = await Operator.start(stage, dies_after=1 + deaths % 3)
            await stage.kubelet()
            status = (await stage.body()).get("status", {})
            if not changed and status.get("phase") == Phase.BASELINE.value:
                changed = True
                engine = {**(await stage.body())["spec"]["engine"], "image": OTHER_IMAGE}
                await stage.change(engine=engine)
            stage.offset += timedelta(seconds=8)
            arms = await stage.children(kinds.DEPLOYMENT)
            if changed and adopted(status) and len(arms) == 1:
                break
            await asyncio.sleep(0.02)
        else:
            raise AssertionError(f"not there after {deaths} deaths: {status.get('history')}")
        assert deaths > 5
        actions = [one["action"] for one in status["history"]]
        assert actions == [
            "ServeBaseline",
            "NewRevision",
            "StartBenchmark",
            "Judge",
            "TryRevision",
            "NextStep",
            "AdoptRevision",
            "CompareThree",
        ]
        assert stage.fewest == 2
        await operator.stop()

    on_stage(work)


def test_a_service_of_somebody_else_is_never_taken_over_and_the_status_says_so(on_stage: Callable[..., None]) -> None:
    async def work(stage: Stage) -> None:
        await stage.begin()
        theirs = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": stage.key[0], "name": names.service("llama")},
            "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]},
        }
        await stage.api.create(theirs)
        operator = await Operator.start(stage)
        await live(operator, in_phase(Phase.BASELINE))
        await settle(operator, 3)
        kept = await stage.api.get(kinds.SERVICE, stage.key[0], "llama")
        assert kept["spec"]["selector"] == {"app": "theirs"}
        told = (await stage.body())["status"]["warnings"]
        assert any("Service" in one and "belongs to somebody else" in one for one in told)
        await stage.api.delete(kinds.SERVICE, stage.key[0], "llama", kept["metadata"]["uid"])
        await settle(operator, 3)
        ours = await stage.api.get(kinds.SERVICE, stage.key[0], "llama")
        assert ours["spec"]["selector"][labels.DEPLOYMENT] == "llama"
        assert not [one for one in (await stage.body())["status"]["warnings"] if "somebody else" in one]
        await operator.stop()

    on_stage(work)


def test_a_pod_template_that_the_api_server_refuses_is_told_and_what_serves_stays(
    on_stage: Callable[..., None],
) -> None:
    async def work(stage: Stage) -> None:
        await stage.begin()
        operator = await Operator.start(stage)
        await live(operator, in_phase(Phase.BASELINE))
        await settle(operator, 3)
        await stage.change(template={"tolerations": [{"key": "gpu", "operator": "Bogus"}]})
        await settle(operator, 6)
        conditions = {one["type"]: one for one in (await stage.body())["status"]["conditions"]}
        assert conditions["Stalled"]["status"] == "True"
        assert "Bogus" in conditions["Stalled"]["message"]
        assert stage.fewest == 2
        await stage.change(template={})
        await live(operator, in_phase(Phase.BASELINE))
        await operator.stop()

    on_stage(work)


def test_a_missing_config_map_begins_nothing_and_one_replaced_in_a_moment_changes_nothing(
    on_stage: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specfleet.controller.fleet.CONFIG_MAP_SECONDS", 0.0)
    monkeypatch.setattr("specfleet.controller.fleet.ABSENT_SECONDS", 0.0)

    async def work(stage: Stage) -> None:
        template = {"volumes": [{"name": "templates", "configMap": {"name": "chat-template"}}]}
        await stage.begin(template=template)
        operator = await Operator.start(stage)
        await operator.turn()
        ready = await stalled_on(operator, "ConfigMapMissing")
        assert "spec.template.volumes[0].configMap" in ready["message"]
        assert not await stage.children(kinds.DEPLOYMENT)
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": stage.key[0], "name": "chat-template"},
            "data": {"chat.jinja": "one"},
        }
        await stage.api.create(config)
        await live(operator, in_phase(Phase.BASELINE))
        await settle(operator, 2)
        (before,) = await stage.children(kinds.DEPLOYMENT)
        body = await stage.api.get(kinds.CONFIG_MAP, stage.key[0], "chat-template")
        await stage.api.delete(kinds.CONFIG_MAP, stage.key[0], "chat-template", body["metadata"]["uid"])
        await operator.turn()
        assert (await stage.body())["status"]["phase"] == Phase.BASELINE.value
        await stalled_on(operator, "ConfigMapMissing")
        await stage.api.create(config)
        await live(operator, in_phase(Phase.BASELINE))
        (after,) = await stage.children(kinds.DEPLOYMENT)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert stage.fewest == 2
        await operator.stop()

    on_stage(work)


async def stalled_on(operator: Operator, reason: str) -> RawObject:
    """The condition Stalled, once it is True for that reason."""

    def stalled(status: RawObject) -> bool:
        return any(one["type"] == "Stalled" and one["reason"] == reason for one in status.get("conditions", []))

    body = await live(operator, stalled)
    return next(one for one in body["status"]["conditions"] if one["type"] == "Stalled")


def test_a_child_edited_by_hand_is_put_right(on_stage: Callable[..., None]) -> None:
    async def work(stage: Stage) -> None:
        await stage.begin()
        operator = await Operator.start(stage)
        await live(operator, in_phase(Phase.BASELINE))
        await settle(operator, 3)
        (arm,) = await stage.children(kinds.DEPLOYMENT)
        arm["spec"]["replicas"] = 0
        await stage.api.replace(arm)
        await settle(operator, 4)
        (arm,) = await stage.children(kinds.DEPLOYMENT)
        assert arm["spec"]["replicas"] == 2
        await operator.stop()

    on_stage(work)


def test_a_deployment_made_again_under_its_name_gets_children_of_its_own(on_stage: Callable[..., None]) -> None:
    async def work(stage: Stage) -> None:
        await stage.begin()
        operator = await Operator.start(stage)
        old = await live(operator, in_phase(Phase.BASELINE))
        await stage.api.delete(kinds.SPECULATIVE_DEPLOYMENT, *stage.key, old["metadata"]["uid"])
        await stage.create_deployment()
        stage.fewest = 1000

        async def again() -> RawObject:
            for _ in range(200):
                with suppress(KubeError):  # The worker tries again; the old children are still being removed.
                    await operator.turn()
                await stage.kubelet()
                body = await stage.body()
                owners = {
                    one["metadata"]["ownerReferences"][0]["uid"] for one in await stage.children(kinds.DEPLOYMENT)
                }
                if in_phase(Phase.BASELINE)(body.get("status", {})) and owners == {body["metadata"]["uid"]}:
                    return body
                stage.offset += timedelta(seconds=5)
                await asyncio.sleep(0.05)
            raise AssertionError(f"not served again: {body.get('status', {}).get('phase')} {owners}")

        body = await again()
        assert body["metadata"]["uid"] != old["metadata"]["uid"]
        await operator.stop()

    on_stage(work)


def test_deleting_a_deployment_leaves_nothing_behind_and_needs_no_operator(on_stage: Callable[..., None]) -> None:
    async def work(stage: Stage) -> None:
        await stage.begin()
        operator = await Operator.start(stage)
        body = await live(operator, in_phase(Phase.BASELINE))
        await operator.stop()
        await stage.api.delete(kinds.SPECULATIVE_DEPLOYMENT, *stage.key, body["metadata"]["uid"])
        for _ in range(300):
            left = [one for kind in kinds.WATCHED if not kind.optional for one in await stage.children(kind)]
            if not left:
                return
            await asyncio.sleep(0.1)
        raise AssertionError([f"{one['kind']} {one['metadata']['name']}" for one in left])

    on_stage(work)


def test_what_somebody_adds_to_one_arms_pods_is_told_until_it_is_taken_back(on_stage: Callable[..., None]) -> None:
    async def patched(stage: Stage, selector: RawObject | None) -> None:
        (arm,) = await stage.children(kinds.DEPLOYMENT)
        path = kinds.DEPLOYMENT.path(stage.key[0], arm["metadata"]["name"])
        body = {"spec": {"template": {"spec": {"nodeSelector": selector}}}}
        merge = "application/merge-patch+json"
        await stage.api._ask("PATCH", path, {"fieldManager": "kubectl-patch"}, body, merge)

    async def work(stage: Stage) -> None:
        await stage.begin()
        operator = await Operator.start(stage)
        await live(operator, in_phase(Phase.BASELINE))
        await settle(operator, 3)
        stalled = {one["type"]: one for one in (await stage.body())["status"]["conditions"]}["Stalled"]
        assert stalled["status"] == "False", stalled
        await patched(stage, {"disk": "ssd"})
        assert "kubectl-patch set nodeSelector" in (await stalled_on(operator, "Refused"))["message"]
        await patched(stage, None)
        await live(operator, lambda status: all(one["reason"] != "Refused" for one in status["conditions"]))
        await operator.stop()

    on_stage(work)
