"""The manifests of the real engine's scenarios say what the scenarios mean; no engine is needed to know that."""

from pathlib import Path
from typing import Any

import pytest
from specfleet.engine.admission import read_spec
from specfleet.engine.rules import check

from e2e.engine_cluster import (
    deployments,
    not_here,
    test_3_dying,
    test_4_drain,
    test_5_engine_change,
    test_6_on_and_off,
)
from e2e.engine_cluster.streams import PodStream


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECFLEET_ENGINE", str(tmp_path))
    for module in (deployments, test_3_dying):
        monkeypatch.setattr(module, "tiny_models", lambda: tmp_path / "models-1")
    monkeypatch.setattr(deployments, "deep_models", lambda: tmp_path / "deep-models-1")


def rules_of(body: dict[str, Any]) -> list[str]:
    spec, findings = read_spec(body["spec"])
    assert spec is not None, findings
    return [one.rule_id for one in (*findings, *check(spec))]


def test_what_should_run_is_refused_by_no_rule() -> None:
    draft, deep, change = deployments.draft, deployments.deep, test_5_engine_change
    bodies = [
        deep("deep", draft("draft", 3), deployments.UP_TO_FOUR),
        deep("refused", draft("draft-worn", 6), deployments.FORTY_EIGHT),
        deep("refused", draft("draft-never", 3), {**deployments.FORTY_EIGHT, **deployments.AT_THE_PEAK}),
        deployments.repeating("ngram", test_6_on_and_off.NGRAM, deployments.ALONE_AND_LONG),
        deep("change", None, change.WITH_OLDER),
        deep("change", None, change.WORSE),
    ]
    assert [rules_of(body) for body in bodies] == [[] for _ in bodies]


def test_a_rule_knows_the_schedule_that_kills_medusa_and_only_the_files_tell_of_the_layers() -> None:
    known = {
        name: rules_of(deployments.tiny(name, make(), test_3_dying.GUARDED))
        for name, make in test_3_dying.CASES.items()
    }
    assert known == {"eagle3-layers": [], "medusa-schedule": ["ScheduleKillsEngine"]}


def test_everything_that_pods_read_lies_in_the_one_mount() -> None:
    body = deployments.deep("deep", deployments.draft("draft", 3))
    (mount,) = body["spec"]["template"]["volumeMounts"]
    assert mount["readOnly"]
    paths = [body["spec"]["model"]["name"], body["spec"]["speculation"]["draft"]["model"]]
    assert all(path.startswith(f"{mount['mountPath']}/") for path in paths)


def test_the_bare_pod_differs_from_the_drained_one_only_in_how_it_leaves() -> None:
    drained, bare = (test_4_drain.engine_pod(name)["spec"] for name in ("drained", "bare"))
    assert "lifecycle" in drained["containers"][0]
    assert "lifecycle" not in bare["containers"][0]
    kept = bare["containers"][0]["args"]
    assert "--shutdown-timeout" not in kept
    assert len(drained["containers"][0]["args"]) == len(kept) + 2
    changed = {key for key in drained if drained[key] != bare[key]}
    assert changed == {"containers", "terminationGracePeriodSeconds"}


def test_a_stream_says_how_it_ended() -> None:
    ends = {
        PodStream("", 1, done=True, finish_reason="length", chunks=3).end,
        PodStream("", 1, done=True, finish_reason="abort", chunks=2).end,
        PodStream("", 1, error="reset", chunks=2).end,
        PodStream("", 1, chunks=2).end,
    }
    assert ends == {
        "whole (3 chunks)",
        "cut after 2 chunks: finish_reason abort",
        "cut after 2 chunks: reset",
        "hanging after 2 chunks",
    }


def test_what_is_not_shown_has_a_reason_each() -> None:
    assert all(what and why for what, why in not_here.NOT_HERE)
    assert len({what for what, _ in not_here.NOT_HERE}) == len(not_here.NOT_HERE)
