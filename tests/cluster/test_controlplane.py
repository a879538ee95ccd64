import json
import subprocess
from pathlib import Path

import pytest

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.process import alive

pytestmark = pytest.mark.integration


def writes_by(user: str, audit_log: Path) -> list[str]:
    events = [json.loads(line) for line in audit_log.read_text().splitlines()]
    written = {"create", "update", "patch", "delete"}
    return [
        f"{e['verb']} {e['objectRef']['name']}"
        for e in events
        if e["user"]["username"] == user and e["verb"] in written
    ]


def test_two_control_planes_serve_at_once_without_seeing_each_other_and_leave_no_process(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "one") as one, ControlPlane(tmp_path / "two") as two:
        one.apply(
            json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine", "namespace": "default"}})
        )
        query = ["get", "configmap", "mine", "-n", "default"]
        assert subprocess.run([*one.kubectl, *query], capture_output=True, check=False).returncode == 0
        assert subprocess.run([*two.kubectl, *query], capture_output=True, check=False).returncode == 1
        assert writes_by("admin", one.audit_log) == ["patch mine"]
        assert writes_by("admin", two.audit_log) == []
        pids = [*one.daemons.marked(), *two.daemons.marked()]
        assert len(pids) == 4
    assert not any(alive(pid) for pid in pids)


def test_a_control_plane_that_was_killed_is_replaced_by_the_next_in_its_folder(tmp_path: Path) -> None:
    left = ControlPlane(tmp_path)
    left.start()
    orphans = left.daemons.marked()
    with ControlPlane(tmp_path) as next_one:
        assert not any(alive(pid) for pid in orphans)
        assert (
            subprocess.run([*next_one.kubectl, "get", "namespaces"], capture_output=True, check=False).returncode == 0
        )
