"""A deployment that the operator cannot work on says so itself: metric, Event, conditions; and it gets over it."""

import asyncio
import json
import socket
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from specfleet.alerts.derive import alerts_of_unreadable
from specfleet.alerts.metrics import OperatorMetrics
from specfleet.api.base import API_VERSION, RawObject
from specfleet.api.deployment import KIND
from specfleet.controller.app import App
from specfleet.controller.failures import TOLD_FROM, TOLD_FROM_IN_BETWEEN, Failures
from specfleet.controller.fleet import Fleet
from specfleet.controller.probe import Prober
from specfleet.controller.settings import Settings
from specfleet.kube import kinds
from specfleet.kube.kinds import Kind
from specfleet.kube.port import ConflictError, ForbiddenError, KubeError

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.process import run
from tests.controller.objects import KEY, deployment
from tests.decide.world import spec_of

NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
FUTURE = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/future"
DEADLINE_SECONDS = 60.0


class HeldLease:
    """Always held."""

    def check(self) -> None:
        return


@dataclass
class Written:
    """Keeps what is written, or refuses it."""

    refuses: KubeError | None = None
    statuses: list[RawObject] = field(default_factory=list)
    events: list[RawObject] = field(default_factory=list)

    async def patch_status(self, kind: Kind, current: RawObject, status: RawObject) -> RawObject:
        if self.refuses is not None:
            raise self.refuses
        self.statuses.append(status)
        version = str(int(current["metadata"]["resourceVersion"]) + 1)
        return {**current, "metadata": {**current["metadata"], "resourceVersion": version}, "status": status}

    async def create(self, manifest: RawObject) -> bool:
        self.events.append(manifest)
        return True


class Teller:
    """A Failures over one cached deployment."""

    def __init__(self, refuses: KubeError | None = None, **status: Any) -> None:
        self.api, self.metrics = Written(refuses), OperatorMetrics()
        self.fleet = Fleet(Prober(lambda key: None, lambda: NOW))
        body = deployment().to_wire()
        self.fleet.cache.put_deployment({**body, "status": status} if status else body)
        self.failures = Failures(self.api, self.fleet, HeldLease(), self.metrics, lambda: NOW)  # type: ignore[arg-type]

    def fails(self, times: int = 1, family: str = "Internal", told_from: int = TOLD_FROM) -> None:
        for number in range(times):
            asyncio.run(self.failures.happened(KEY, family, f"boom {number}", told_from))

    def failing(self, error: str) -> float | None:
        labels = {"namespace": KEY[0], "name": KEY[1], "error": error}
        return self.metrics.registry.get_sample_value("specfleet_reconcile_failing", labels)

    def conditions(self) -> dict[str, RawObject]:
        return {one["type"]: one for one in self.fleet.cache.deployments[KEY]["status"]["conditions"]}


def test_a_stutter_is_not_told() -> None:
    teller = Teller()
    teller.fails(TOLD_FROM - 1)
    teller.failures.over(KEY)
    teller.fails(TOLD_FROM - 1)
    assert (teller.api.statuses, teller.api.events, teller.failing("Internal")) == ([], [], None)


def test_somebody_who_is_in_the_way_is_told_of_only_after_minutes() -> None:
    teller = Teller()
    teller.fails(TOLD_FROM_IN_BETWEEN - 1, "ConflictError", TOLD_FROM_IN_BETWEEN)
    assert teller.api.statuses == []
    teller.fails(1, "ConflictError", TOLD_FROM_IN_BETWEEN)
    assert teller.conditions()["Stalled"]["message"].startswith("ConflictError: boom")
    assert teller.failures.over(KEY), "status still tells of it: one more reconcile takes it back"
    assert not teller.failures.over(KEY)


def test_what_lasts_is_told_once_although_its_words_change() -> None:
    teller = Teller()
    teller.fails(20)
    assert len(teller.api.statuses) == 1, "an own write wakes the reconcile that fails again: no endless loop"
    assert len(teller.api.events) == 1
    said = teller.conditions()
    assert (said["Stalled"]["status"], said["Stalled"]["reason"]) == ("True", "OperatorError")
    assert "boom" in said["Stalled"]["message"]
    assert said["Ready"]["status"] == "Unknown", "what serves goes on serving; nobody looks"
    assert said["Reconciling"]["status"] == "False"
    assert teller.failing("Internal") == 1
    teller.failures.over(KEY)
    assert teller.failing("Internal") is None


def test_another_family_of_error_is_told_again() -> None:
    teller = Teller()
    teller.fails(told_from=1, family="InvalidError")
    teller.fails(TOLD_FROM, family="ForbiddenError")
    assert [one["message"].split(":")[0] for one in teller.api.events] == ["InvalidError", "ForbiddenError"]
    assert (teller.failing("Unreadable"), teller.failing("ForbiddenError")) == (None, 1)


def test_the_rest_of_status_stays_as_it_is() -> None:
    moment = "2026-11-01T00:00:00Z"
    drift = {"type": "DriftDetected", "status": "False", "reason": "WithinCalibration", "lastTransitionTime": moment}
    ready = {"type": "Ready", "status": "True", "reason": "Serving", "lastTransitionTime": moment}
    teller = Teller(phase="Speculative", conditions=[drift, ready], attempts={"revision": "r", "count": 2})
    teller.fails(told_from=1)
    status = teller.fleet.cache.deployments[KEY]["status"]
    assert (status["phase"], status["attempts"]) == ("Speculative", {"revision": "r", "count": 2})
    assert teller.conditions()["DriftDetected"] == drift
    assert teller.conditions()["Ready"]["lastTransitionTime"] == "2026-11-02T09:00:00Z"
    assert status["observedGeneration"] == 1


@pytest.mark.parametrize("odd", [{"conditions": "none"}, {"conditions": [7, {"type": "Ready"}]}, {"phase": 3}])
def test_a_status_that_makes_no_sense_is_no_obstacle(odd: dict[str, Any]) -> None:
    teller = Teller(**odd)
    teller.fails(told_from=1)
    assert teller.conditions()["Stalled"]["reason"] == "OperatorError"


@pytest.mark.parametrize("error", [ForbiddenError("no", 403), ConflictError("again", 409)])
def test_a_refused_status_raises_nothing_and_the_metric_stays(error: KubeError) -> None:
    teller = Teller(refuses=error)
    teller.fails(5)
    assert teller.failing("Internal") == 1


def test_a_deployment_that_is_gone_is_forgotten() -> None:
    teller = Teller()
    teller.fleet.forget(KEY)
    teller.fails(5)
    assert teller.api.statuses == []
    teller.metrics.forget(*KEY)
    assert teller.failing("Internal") is None


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"conditions": "odd"},
        {"conditions": [{"type": "Stalled", "status": "True", "reason": "CrashLoop"}, 3]},
        {"conditions": [{"type": "Stalled", "status": "odd", "reason": "Unreadable", "lastTransitionTime": 3}]},
        3,
    ],
    ids=["none yet", "no list", "of another reason", "a condition that somebody broke", "no object"],
)
def test_an_unreadable_object_alerts_with_what_the_operator_has_written_into_it_and_nothing_else(status: Any) -> None:
    teller = Teller()
    body = teller.fleet.cache.deployments[KEY]
    assert alerts_of_unreadable({**body, "status": status}) == ()
    teller.fails(family="Unreadable", told_from=1)
    (alert,) = alerts_of_unreadable(teller.fleet.cache.deployments[KEY], "https://docs.example.com/{alert}")
    assert alert.description == "boom 0"
    assert alert.runbook_url == "https://docs.example.com/SpecfleetStalled"
    assert (alert.labels["namespace"], alert.labels["name"]) == KEY


def test_an_object_that_becomes_readable_and_then_fails_otherwise_says_the_other_thing() -> None:
    teller = Teller()
    teller.fails(family="Unreadable", told_from=1)
    assert teller.conditions()["Ready"]["status"] == "False"
    teller.fails(TOLD_FROM)
    said = teller.conditions()
    assert (said["Ready"]["status"], said["Stalled"]["reason"]) == ("Unknown", "OperatorError")
    assert [one["reason"] for one in teller.api.events] == ["Unreadable", "OperatorError"]


@pytest.fixture
def newer_crd(managed_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The CRD of a later version, which has a field that this operator does not know."""
    crd = [*managed_plane.kubectl, "patch", "crd", "speculativedeployments.specfleet.dev", "--type=json", "-p"]
    run([*crd, json.dumps([{"op": "add", "path": FUTURE, "value": {"type": "integer"}}])])
    yield managed_plane
    run([*crd, json.dumps([{"op": "remove", "path": FUTURE}])])


@pytest.mark.integration
def test_an_operator_that_is_older_than_the_spec_says_so_and_recovers(
    newer_crd: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(newer_crd.kubeconfig))
    namespace = f"ns-{uuid.uuid4().hex[:8]}"
    run([*newer_crd.kubectl, "create", "namespace", namespace])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = Settings(
        namespaces=(namespace,), own_namespace=namespace, lease_name=namespace, metrics_port=port, resync_seconds=1.0
    )
    spec = {**spec_of(speculation=None, traffic=None), "future": 1}
    manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "llama", "namespace": namespace}}
    asyncio.run(_lived(newer_crd, settings, {**manifest, "spec": spec}))


async def _lived(plane: ControlPlane, settings: Settings, manifest: RawObject) -> None:
    app, namespace = App(settings), settings.own_namespace
    await app.start()
    try:
        api = app._api
        assert api is not None

        async def taken() -> bool:
            """A changed CRD is served a moment after it was written."""
            try:
                await api.create(manifest)
            except KubeError:
                return False
            body = await api.get(kinds.SPECULATIVE_DEPLOYMENT, namespace, "llama")
            if "future" not in body["spec"]:
                await api.delete(kinds.SPECULATIVE_DEPLOYMENT, namespace, "llama", body["metadata"]["uid"])
                return False
            return True

        async def conditions() -> dict[str, Any]:
            body = await api.get(kinds.SPECULATIVE_DEPLOYMENT, namespace, "llama")
            return {one["type"]: one for one in body.get("status", {}).get("conditions", [])}

        async def stalled(reason: str) -> bool:
            return (await conditions()).get("Stalled", {}).get("reason") == reason

        await _until(taken)
        await _until(lambda: stalled("Unreadable"))
        said = await conditions()
        assert said["Stalled"]["message"].startswith("spec.future: ")
        assert (said["Ready"]["status"], said["Ready"]["reason"]) == ("False", "Unreadable")
        columns = run([*plane.kubectl, "get", "sd", "llama", "-n", namespace]).stdout.split("\n")[1].split()
        assert columns[-3:-1] == ["False", "Unreadable"], "a person sees it in the list"
        (alert,) = alerts_of_unreadable(app.fleet.unreadable()[0])
        assert (alert.name, alert.severity, alert.labels["reason"]) == ("SpecfleetStalled", "critical", "Unreadable")
        assert "spec.future" in alert.description
        events = await api.list_all(kinds.EVENT, namespace)
        mine = [one for one in events if one["reason"] == "Unreadable"]
        assert [one["involvedObject"]["name"] for one in mine] == ["llama"], "told once"
        assert mine[0]["type"] == "Warning"
        text = app.metrics.registry.get_sample_value(
            "specfleet_reconcile_failing", {"namespace": namespace, "name": "llama", "error": "Unreadable"}
        )
        assert text == 1
        current = await api.get(kinds.SPECULATIVE_DEPLOYMENT, namespace, "llama")
        del current["spec"]["future"]
        await api.replace(current)
        await _until(lambda: stalled("Progressing"))
        assert (await conditions())["Ready"]["reason"] == "Deploying"
    finally:
        await app.stop()


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not await holds():
            await asyncio.sleep(0.1)
