"""The alerts of a deployment's life in a real Alertmanager."""

import asyncio
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from specfleet.alerts.alertmanager import AlertSender
from specfleet.alerts.derive import alerts_for
from specfleet.api.status import Phase

from e2e.cluster.build import binary, build_parts
from e2e.cluster.parts import ALERTMANAGER
from tests.alerts.made import decision, deployment

pytestmark = pytest.mark.integration

SECONDS = 20.0


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    build_parts([ALERTMANAGER])
    folder = tmp_path_factory.mktemp("alertmanager")
    (folder / "alertmanager.yml").write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    process = subprocess.Popen(
        [
            binary(ALERTMANAGER),
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
        ],
        stderr=(folder / "log").open("w"),
    )
    try:
        _until(lambda: _answers(f"http://{address}/-/ready"), folder / "log")
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(10)


def _answers(url: str) -> bool:
    try:
        return bool(urllib.request.urlopen(url, timeout=2).status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _until(condition: Callable[[], bool], log: Path | None = None) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, log.read_text()[-2000:] if log else "the condition never came true"
        time.sleep(0.05)


def _firing(url: str) -> list[Any]:
    answer: list[Any] = json.loads(urllib.request.urlopen(f"{url}/api/v2/alerts?active=true", timeout=5).read())
    return answer


def test_a_rollback_fires_with_its_evidence_and_resolves_when_it_is_over(url: str) -> None:
    rolled_back = deployment(phase=Phase.ROLLED_BACK, phase_reason="AcceptanceDrift", history=[decision()])
    exhausted = deployment(phase=Phase.EXHAUSTED, phase_reason="AcceptanceDrift", history=[decision()])

    async def life() -> None:
        async with AlertSender(url) as sender:
            await sender.send(alerts_for(rolled_back))
            await sender.send(alerts_for(rolled_back))
            await asyncio.to_thread(_until, lambda: len(_firing(url)) == 1)
            (alert,) = _firing(url)
            assert alert["labels"]["alertname"] == "SpecfleetRolledBack"
            assert alert["labels"]["namespace"] == "models"
            assert alert["startsAt"].startswith("2026-11-29T12:00:00")
            assert "llama-b2-p1" in alert["annotations"]["description"]
            await sender.send(alerts_for(exhausted))
            await asyncio.to_thread(
                _until, lambda: [one["labels"]["alertname"] for one in _firing(url)] == ["SpecfleetExhausted"]
            )
            await sender.send([])
            await asyncio.to_thread(_until, lambda: _firing(url) == [])
            assert sender.failures == 0

    asyncio.run(asyncio.wait_for(life(), 60))
