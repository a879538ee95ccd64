"""The chart's rules and dashboard in a real Prometheus that scrapes the operator's own metrics."""

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from specfleet.alerts.derive import ROLLED_BACK
from specfleet.alerts.metrics import OperatorMetrics
from specfleet.api.status import Phase

from e2e.cluster.build import binary, build_parts
from e2e.cluster.parts import PROMETHEUS
from tests.alerts.made import deployment
from tests.chart.conftest import CHART

pytestmark = pytest.mark.integration

SECONDS = 60.0
FILES = CHART / "files"
RULES = [FILES / "alert-rules.yaml", FILES / "recording-rules.yaml"]


def _ask(url: str, **query: str) -> Any:
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
        return json.load(answer)["data"]


def _until(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            if condition():
                return
        except (urllib.error.URLError, OSError, KeyError):
            pass
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.fixture(scope="module")
def metrics() -> Iterator[OperatorMetrics]:
    made = OperatorMetrics()
    made.follow(leader=lambda: True)
    made.serve(0)
    yield made
    made.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, metrics: OperatorMetrics) -> Iterator[str]:
    build_parts([PROMETHEUS])
    folder = tmp_path_factory.mktemp("prometheus")
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())]
    for group in groups:
        group["interval"] = "1s"
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": groups}))
    assert metrics._server is not None
    target = f"127.0.0.1:{metrics._server[0].server_port}"  # type: ignore[attr-defined]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules.yml")],
        "scrape_configs": [
            {
                "job_name": "specfleet",
                "honor_labels": True,
                "static_configs": [{"targets": [target], "labels": {"namespace": "operators", "pod": "specfleet-0"}}],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [
        binary(PROMETHEUS),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    process = subprocess.Popen(command, stderr=(folder / "log").open("w"))
    try:
        _until("Prometheus is ready", lambda: _ask(f"http://{address}/api/v1/status/buildinfo")["version"] != "")
        yield f"http://{address}/api/v1"
    finally:
        process.terminate()
        process.wait(20)


def test_every_rule_is_loaded_and_evaluates(url: str) -> None:
    wanted = sum(len(group["rules"]) for path in RULES for group in yaml.safe_load(path.read_text()))

    def evaluated() -> bool:
        rules = [rule for group in _ask(f"{url}/rules")["groups"] for rule in group["rules"]]
        return len(rules) == wanted and all(rule["health"] == "ok" for rule in rules)

    _until("all rules are healthy", evaluated)


def test_a_rollback_fires_for_its_own_deployment_and_ends_with_it(url: str, metrics: OperatorMetrics) -> None:
    def firing() -> list[tuple[str, str, str]]:
        labels = [one["labels"] for one in _ask(f"{url}/alerts")["alerts"] if one["state"] == "firing"]
        return [(one["alertname"], one["namespace"], one["name"]) for one in labels if "name" in one]

    metrics.show_fleet([deployment(phase=Phase.ROLLED_BACK), deployment(name="healthy", phase=Phase.SPECULATIVE)])
    _until("the roll-back fires", lambda: firing() == [(ROLLED_BACK, "models", "llama")])
    metrics.show_fleet([deployment(phase=Phase.BENCHMARKING), deployment(name="healthy", phase=Phase.SPECULATIVE)])
    _until("the alert ends", lambda: firing() == [])


def test_every_query_of_the_dashboard_is_understood(url: str) -> None:
    board = json.loads((FILES / "dashboard.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries += [one["expr"] for one in board["annotations"]["list"]]
    for query in queries:
        filled = query.replace("$namespace", ".*").replace("$name", ".*")
        assert _ask(f"{url}/query", query=filled)["resultType"] == "vector"
