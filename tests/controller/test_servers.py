"""Which metrics server a deployment uses, and that credentials go nowhere else."""

import asyncio
import base64
from typing import Any

import pytest
from specfleet.api.base import RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.controller import servers
from specfleet.controller.app import App
from specfleet.controller.servers import ServerBook
from specfleet.controller.settings import Settings
from specfleet.kube.kinds import Kind
from specfleet.kube.port import ForbiddenError, KubeError, NotFoundError, UnavailableError
from specfleet.telemetry.servers import MetricsServer

from tests.controller.objects import deployment

SERVERS, NAMESPACES = "specfleet.dev/prometheus-servers", "specfleet.dev/namespaces"


class OneSecret:
    """An API server with one Secret."""

    def __init__(self, annotations: dict[str, str]) -> None:
        self.annotations = annotations
        self.error: KubeError | None = None

    async def get(self, kind: Kind, namespace: str | None, name: str) -> RawObject:
        assert (kind.kind, name) == ("Secret", "token")
        if self.error is not None:
            raise self.error
        return {"metadata": {"annotations": self.annotations}, "data": {"token": base64.b64encode(b"s3cret").decode()}}


def asking(url: str, type_: str = "Bearer") -> SpeculativeDeployment:
    auth: dict[str, Any] = {"url": url, "auth": {"type": type_, "secretName": "token"}}
    return deployment(monitoring={"prometheus": auth})


def answer(owner: SpeculativeDeployment, annotations: dict[str, str]) -> MetricsServer | str:
    app = App(Settings())
    app.fleet.cache.put_deployment(dict(owner.to_wire()))
    book = ServerBook(OneSecret(annotations), Settings())  # type: ignore[arg-type]
    asyncio.run(book.refresh(app.fleet))
    return book.server(owner)


@pytest.mark.parametrize(
    ("error", "used"),
    [(NotFoundError("404", 404), False), (ForbiddenError("403", 403), False), (UnavailableError("503", 503), True)],
    ids=["deleted", "no longer allowed", "nobody answers"],
)
def test_a_secret_that_is_taken_away_is_used_no_more(
    error: KubeError, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = asking("http://prom:9090")
    app, api = App(Settings()), OneSecret({SERVERS: "http://prom:9090"})
    app.fleet.cache.put_deployment(dict(owner.to_wire()))
    book = ServerBook(api, Settings())  # type: ignore[arg-type]
    asyncio.run(book.refresh(app.fleet))
    assert isinstance(book.server(owner), MetricsServer)
    monkeypatch.setattr(servers, "REFRESH_SECONDS", 0.0)
    api.error = error
    asyncio.run(book.refresh(app.fleet))
    found = book.server(owner)
    assert isinstance(found, MetricsServer) == used
    assert used or error.message in str(found)


@pytest.mark.parametrize(
    ("url", "annotations"),
    [
        ("https://thanos.ops:443/api", {SERVERS: "https://thanos.ops"}),
        ("http://prom:9090", {SERVERS: "https://thanos.ops, http://PROM:9090/"}),
        ("http://prom:9090", {SERVERS: "http://prom:9090", NAMESPACES: "search, ml"}),
    ],
    ids=["the same server in another spelling", "one of several", "of a namespace that is listed"],
)
def test_a_secret_goes_to_a_server_that_it_names(url: str, annotations: dict[str, str]) -> None:
    found = answer(asking(url), annotations)
    assert isinstance(found, MetricsServer)
    assert found.bearer_token == "s3cret"


@pytest.mark.parametrize(
    ("url", "annotations", "said"),
    [
        ("http://prom:9090", {}, "annotation specfleet.dev/prometheus-servers: http://prom:9090"),
        ("http://evil:9090", {SERVERS: "http://prom:9090"}, "may not be sent to this server"),
        ("https://prom:9090", {SERVERS: "http://prom:9090"}, "may not be sent to this server"),
        ("http://prom:9090@evil/", {SERVERS: "http://prom:9090"}, "may not be sent to this server"),
        ("http://evil/http://prom:9090", {SERVERS: "http://prom:9090"}, "may not be sent to this server"),
        ("http://prom:9090", {SERVERS: "http://prom:9090", NAMESPACES: "search"}, "not for namespace ml"),
    ],
    ids=[
        "a Secret without the annotation",
        "another host",
        "another scheme",
        "a server dressed up as a user name",
        "a server dressed up as a path",
        "another namespace",
    ],
)
def test_a_secret_goes_nowhere_else_and_the_condition_says_why(
    url: str, annotations: dict[str, str], said: str
) -> None:
    found = answer(asking(url), annotations)
    assert isinstance(found, str)
    assert said in found
    assert "s3cret" not in found


def test_a_secret_without_the_keys_of_its_type_is_told() -> None:
    found = answer(asking("http://prom:9090", "Basic"), {SERVERS: "http://prom:9090"})
    assert found == "spec.monitoring.prometheus.auth.secretName: Secret token lacks the keys of Basic authentication"


def test_without_any_server_it_says_where_to_set_one() -> None:
    found = ServerBook(OneSecret({}), Settings()).server(deployment())  # type: ignore[arg-type]
    assert isinstance(found, str)
    assert "spec.monitoring.prometheus.url" in found
