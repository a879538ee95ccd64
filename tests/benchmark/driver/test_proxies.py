"""A benchmark whose engines' environment names a proxy (HTTP_PROXY in spec.engine.env)."""

import urllib.request

import pytest
from specfleet.benchmark.driver.proxies import name_direct_hosts

ARMS = {"arms": {"baseline": {"url": "http://10.0.0.7:8000"}, "speculative": {"url": "http://[fd00::9]:8000"}}}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"NO_PROXY": "10.1.0.0/16,.svc"},
        {"no_proxy": "10.1.0.0/16,.svc"},
        {"NO_PROXY": "ignored", "no_proxy": "10.1.0.0/16,.svc"},
    ],
)
def test_arms_are_reached_directly_and_everything_else_as_before(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    environment = {"HTTPS_PROXY": "http://proxy.example:3128", **given}
    name_direct_hosts(ARMS, environment)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    # urllib asks with brackets, aiohttp without; both ask this function.
    for host in ("10.0.0.7:8000", "[fd00::9]:8000", "10.0.0.7", "fd00::9"):
        assert urllib.request.proxy_bypass(host), host
    assert bool(urllib.request.proxy_bypass("metrics.monitoring.svc")) == bool(given)
    assert not urllib.request.proxy_bypass("huggingface.co:443")
    assert urllib.request.getproxies()["https"] == "http://proxy.example:3128"


def test_to_name_them_again_adds_nothing() -> None:
    environment: dict[str, str] = {}
    name_direct_hosts(ARMS, environment)
    once = dict(environment)
    name_direct_hosts(ARMS, environment)
    assert environment == once
