"""Engines over several nodes in the command line: what would run, what is there, and whose samples are replayed."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from specfleet.api import names
from specfleet.api.base import RawObject
from specfleet.api.conditions import Condition
from specfleet.api.status import ArmRole, ArmStatus, DeploymentStatus, Phase, RevisionStatus
from specfleet.cli.main import main
from specfleet.cli.picture import picture
from specfleet.cli.replay_pods import arm_pattern
from specfleet.kube import kinds

from tests.controller.objects import NOW, as_stored
from tests.controller.test_groups import OWNER, Played

MANIFEST = {
    "apiVersion": "specfleet.dev/v1alpha1",
    "kind": "SpeculativeDeployment",
    "metadata": {"name": "llama", "namespace": "ml"},
    "spec": {
        "model": {"name": "/models/m"},
        "engine": {"image": "vllm/vllm-openai:v0.32.0", "pipelineParallelSize": 3},
        "replicas": 1,
        "template": {"multiNode": {"size": 3}, "resources": {"limits": {"nvidia.com/gpu": "1"}}},
    },
}


def rendered(tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    file = tmp_path / "llama.yaml"
    file.write_text(yaml.safe_dump(MANIFEST))
    assert main(["render", str(file), *words]) == 0
    return capsys.readouterr().out


def test_render_shows_the_leader_and_the_other_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = rendered(tmp_path, capsys)
    assert "the leader of 3 pods" in text
    assert "each of the other 2 pods" in text
    leader, worker = yaml.safe_load_all(text)
    assert leader["spec"]["containers"][0]["readinessProbe"]
    assert worker["spec"]["containers"][0]["args"][-1] == "--headless"
    assert worker["metadata"]["labels"]["specfleet.dev/role"] == "worker"


def test_render_shows_both_command_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [one for one in rendered(tmp_path, capsys, "--output", "command").splitlines() if one[:1] != "#"]
    assert len(lines) == 2
    assert lines[1] == f"{lines[0]} --headless"
    assert "--node-rank '$(LWS_WORKER_INDEX)'" in lines[0], "quoted: a shell must not run it"


def stored(status: DeploymentStatus) -> RawObject:
    body: dict[str, Any] = {"metadata": dict(OWNER.metadata), "spec": OWNER.spec.to_wire(), "status": status.to_wire()}
    return {"apiVersion": "specfleet.dev/v1alpha1", "kind": "SpeculativeDeployment", **body}


def test_explain_counts_groups_that_status_counts_and_takes_no_worker_for_one() -> None:
    played = Played()
    fingerprint = played.arm.fingerprint
    status = DeploymentStatus(
        phase=Phase.BASELINE,
        conditions=list[Condition](),
        stable=RevisionStatus(name="llama-1", baseline=fingerprint),
        arms=[ArmStatus(role=ArmRole.BASELINE, fingerprint=fingerprint, proposer="none", replicas=2, ready_replicas=2)],
    )
    pods = [*played.group(0), *played.group(1)]
    # Workers that came first must not be taken for the proven ones.
    for one in pods:
        if one["metadata"]["name"].count("-") > played.body["metadata"]["name"].count("-") + 1:
            one["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
            one["status"]["conditions"][1]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    seen = picture([stored(status), as_stored(played.body, "set-1"), *pods], "llama", "ml", NOW)
    (arm,) = seen.obs.arms
    assert [one.name for one in arm.serving] == [f"{played.body['metadata']['name']}-{index}" for index in (0, 1)]
    assert seen.pods_seen


def test_replay_finds_the_pods_of_both_kinds_of_workload_and_of_no_benchmark() -> None:
    pattern = arm_pattern("llama", "0123456789ab")
    for made, wanted in (
        (f"{names.arm('llama', '0123456789ab')}-7d9f-x", True),
        (f"{names.group_set('llama', '0123456789ab')}-0", True),
        (f"{names.group_set('llama', '0123456789ab', benchmark=True)}-0", False),
        (f"{names.arm('llama', '0123456789ab', benchmark=True)}-7d9f-x", False),
    ):
        found = re.fullmatch(pattern, made)
        assert (found is not None) is wanted, made
        assert found is None or found[1] == "0123456789ab"


def test_the_kind_is_asked_for_apart_so_that_explain_works_without_it() -> None:
    from specfleet.cli.picture import CHILDREN

    assert kinds.LEADER_WORKER_SET not in CHILDREN
