"""The adapter: every way in which a metrics server can fail is a PrometheusError that says what happened."""

import asyncio
import base64
import json
import shutil
import ssl
import subprocess
import time

import pytest
from specfleet.telemetry.prometheus import (
    Prometheus,
    PrometheusError,
    PrometheusFailed,
    PrometheusGarbled,
    PrometheusPartial,
    PrometheusRefused,
    PrometheusUnreachable,
)
from specfleet.telemetry.servers import MetricsServer

from tests.telemetry.fake_server import fake_prometheus

QUERY = '{__name__=~"up"}[60000ms]'


def ask(server: MetricsServer, query: str = QUERY, at: float = 1000.0):
    client = Prometheus(server)
    try:
        return asyncio.run(client.range_vector(query, at))
    finally:
        client.close()


@pytest.fixture
def fake():
    with fake_prometheus() as server:
        yield server


def reply(**fields: object) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (500, b"boom", PrometheusFailed, "HTTP 500"),
        (503, reply(status="error", error="try later"), PrometheusFailed, "try later"),
        (401, b"no token", PrometheusRefused, "credentials"),
        (404, b"not here", PrometheusRefused, "HTTP 404"),
        (422, reply(status="error", error="too many samples"), PrometheusRefused, "too many samples"),
        (200, b"<html>login</html>", PrometheusGarbled, "instead of JSON"),
        (200, b"[]", PrometheusGarbled, "not an object"),
        (200, reply(status="error", error="bad things"), PrometheusGarbled, "bad things"),
        (200, reply(status="success"), PrometheusGarbled, "unexpected answer"),
        (200, reply(status="success", data={"result": [{"metric": {}}]}), PrometheusGarbled, "plain float samples"),
        (
            200,
            reply(status="success", data={"result": [{"metric": {}, "values": [[1, {"count": "3"}]]}]}),
            PrometheusGarbled,
            "plain float samples",
        ),
        (200, reply(status="success", warnings=["a store is down"], data={"result": []}), PrometheusPartial, "a store"),
    ],
)
def test_an_answer_that_is_not_a_result_is_a_typed_error(fake, status, body, error, words):
    fake.status, fake.body = status, body
    with pytest.raises(error, match=words) as caught:
        ask(MetricsServer(fake.url))
    assert fake.url in str(caught.value)
    assert isinstance(caught.value, PrometheusError)
    assert len(fake.requests) == 1, "nothing is retried within a tick"


@pytest.mark.parametrize("body", [b"<html>db password: hunter2</html>", b'{"password": "hunter2"}', b'["hunter2"]'])
@pytest.mark.parametrize("status", [200, 403, 500])
def test_what_another_service_answers_is_told_to_nobody(fake, status, body):
    fake.status, fake.body = status, body
    with pytest.raises(PrometheusError) as caught:
        ask(MetricsServer(fake.url))
    assert "hunter2" not in str(caught.value)


def test_nobody_listening_is_unreachable():
    with pytest.raises(PrometheusUnreachable, match=r"127\.0\.0\.1"):
        ask(MetricsServer("http://127.0.0.1:9"))


def test_a_server_that_hangs_is_given_up(fake):
    fake.hold.clear()
    before = time.monotonic()
    with pytest.raises(PrometheusUnreachable):
        ask(MetricsServer(fake.url, timeout_seconds=0.3))
    assert time.monotonic() - before < 10
    fake.hold.set()


def test_not_a_number_and_infinity_come_through_as_floats(fake):
    for at, value in ((950.0, 1.0), (960.0, float("nan")), (970.0, float("inf"))):
        fake.store.add(at, value, "up", namespace="ns", pod="p")
    (series,) = ask(MetricsServer(fake.url))
    assert series.labels["pod"] == "p"
    assert series.times.tolist() == [950.0, 960.0, 970.0]
    assert str(series.values.tolist()) == "[1.0, nan, inf]"


def test_no_series_is_an_answer(fake):
    assert ask(MetricsServer(fake.url)) == []


def test_credentials_and_tenant_are_sent_and_never_shown(fake):
    bearer = MetricsServer(fake.url, bearer_token="secret-token", tenant="team-a")
    ask(bearer)
    assert fake.headers[-1]["Authorization"] == "Bearer secret-token"
    assert fake.headers[-1]["X-Scope-OrgID"] == "team-a"
    basic = MetricsServer(fake.url, basic_auth=("me", "secret-password"))
    ask(basic)
    assert fake.headers[-1]["Authorization"] == "Basic " + base64.b64encode(b"me:secret-password").decode()
    assert "secret" not in repr(bearer) + repr(basic)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A CA, and a key with a certificate for 127.0.0.1 that serves both sides."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    make = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    openssl(*make, "-subj", "/CN=test-ca", "-keyout", "ca.key", "-out", "ca.crt")
    names = ("-subj", "/CN=me", "-addext", "subjectAltName=IP:127.0.0.1")
    openssl(*make, "-CA", "ca.crt", "-CAkey", "ca.key", *names, "-keyout", "tls.key", "-out", "tls.crt")
    return folder


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")
def test_mutual_tls_needs_the_certificate_and_the_right_authority(certificates):
    crt, key, authority = (str(certificates / name) for name in ("tls.crt", "tls.key", "ca.crt"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(crt, key)
    context.load_verify_locations(authority)
    context.verify_mode = ssl.CERT_REQUIRED
    with fake_prometheus(context) as secure:
        assert ask(MetricsServer(secure.url, client_certificate=(crt, key), ca_bundle=authority)) == []
        with pytest.raises(PrometheusUnreachable):
            ask(MetricsServer(secure.url, ca_bundle=authority))
        with pytest.raises(PrometheusUnreachable, match="certificate"):
            ask(MetricsServer(secure.url, client_certificate=(crt, key)))


def test_long_queries_travel_in_the_body(fake):
    ask(MetricsServer(fake.url + "/"), '{__name__=~"' + "a|" * 50_000 + 'up"}[60000ms]')
    assert len(fake.requests[-1]["query"]) > 100_000
