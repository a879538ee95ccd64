"""The preflight Job against a real API server and Job controller; its program really runs, on files of this machine."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.api.status import ArmRole, Phase
from specfleet.decide.preflight import AGAIN_SECONDS
from specfleet.kube import kinds

from tests.controller.test_reconcile import DiedError, Operator, Stage, live, on_stage, settle

pytestmark = pytest.mark.integration
__all__ = ["on_stage"]


def model(folder: Path, name: str, vocabulary: int) -> str:
    place = folder / name
    place.mkdir()
    config = {
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": 64,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
    }
    (place / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
    return str(place)


def asked(target: str, draft: str) -> dict[str, Any]:
    return {
        "model": {"name": target},
        "speculation": {"method": "draft_model", "draft": {"model": draft}, "numSpeculativeTokens": 3},
        "template": {"resources": {"limits": {"nvidia.com/gpu": "1"}}},
    }


def refused(status: RawObject) -> bool:
    said = {one["type"]: one for one in status.get("conditions", [])}
    return bool(status.get("trials")) and said["BenchmarkPassed"]["status"] == "False"


async def speculative(stage: Stage) -> list[str]:
    arms = await stage.children(kinds.DEPLOYMENT)
    return [one["metadata"]["name"] for one in arms if one["metadata"]["labels"][labels.ARM] == ArmRole.SPECULATIVE]


@pytest.mark.parametrize(
    ("draft", "reason", "words"),
    [("draft", "VocabularyDiffers", "512"), ("nowhere", "DraftMissing", "does not exist")],
)
def test_a_draft_that_cannot_work_is_refused_before_its_pod_exists_and_then_nothing_is_written(
    on_stage: Callable[..., None], tmp_path: Path, draft: str, reason: str, words: str
) -> None:
    target = model(tmp_path, "target", 512)
    model(tmp_path, "draft", 640)

    async def work(stage: Stage) -> None:
        await stage.begin(**asked(target, str(tmp_path / draft)))
        operator = await Operator.start(stage)
        seen: set[str] = set()
        looked: list[str] = []
        for _ in range(150):
            await operator.turn()
            await stage.kubelet()
            seen.update(await speculative(stage))
            looked += [one["metadata"]["name"] for one in await stage.children(kinds.JOB)]
            if refused((await stage.body()).get("status", {})):
                break
            stage.offset += timedelta(seconds=2)
            await asyncio.sleep(0.05)
        await settle(operator)
        status = (await stage.body())["status"]
        said = {one["type"]: one for one in status["conditions"]}
        assert looked
        assert said["BenchmarkPassed"]["reason"] == reason
        assert "spec.speculation.draft.model" in said["BenchmarkPassed"]["message"]
        assert words in said["BenchmarkPassed"]["message"]
        assert said["Ready"]["status"] == "True"
        assert status["phase"] == Phase.BASELINE.value
        assert not seen
        assert not await stage.children(kinds.JOB), "the Job is removed once its answer is recorded"
        quiet = {slot: count for slot, count in stage.api.writes.items() if slot[1] not in ("Pod", "Lease")}
        for _ in range(6):
            stage.offset += timedelta(minutes=5)
            await operator.turn()
        assert {slot: count for slot, count in stage.api.writes.items() if slot[1] not in ("Pod", "Lease")} == quiet
        await operator.stop()

    on_stage(work)


def test_files_that_fit_are_followed_by_the_proposers_pod(on_stage: Callable[..., None], tmp_path: Path) -> None:
    target, draft = model(tmp_path, "target", 512), model(tmp_path, "draft", 512)

    async def work(stage: Stage) -> None:
        await stage.begin(**asked(target, draft))
        operator = await Operator.start(stage)
        await live(operator, lambda status: status.get("preflight", {}).get("outcome") == "Passed", seconds=2)
        await settle(operator, 3)
        assert len(await speculative(stage)) == 1
        roles = [one["metadata"]["labels"][labels.ROLE] for one in await stage.children(kinds.JOB)]
        assert labels.ROLE_PREFLIGHT not in roles
        await operator.stop()

    on_stage(work)


def test_an_operator_that_dies_at_every_write_asks_and_refuses_once(
    on_stage: Callable[..., None], tmp_path: Path
) -> None:
    target = model(tmp_path, "target", 512)

    async def work(stage: Stage) -> None:
        await stage.begin(**asked(target, str(tmp_path / "nowhere")))
        deaths = 0
        operator = await Operator.start(stage, dies_after=1)
        for _ in range(300):
            try:
                await operator.turn()
            except DiedError:
                deaths += 1
                await operator.stop()
                operator = await Operator.start(stage, dies_after=1 + deaths % 2)
            await stage.kubelet()
            assert not await speculative(stage)
            if refused((await stage.body()).get("status", {})) and not await stage.children(kinds.JOB):
                break
            stage.offset += timedelta(seconds=2)
            await asyncio.sleep(0.02)
        status = (await stage.body())["status"]
        assert [one["action"] for one in status["history"]] == ["ServeBaseline", "StartBenchmark", "RefuseCandidate"]
        assert deaths > 3
        await operator.stop()

    on_stage(work)


def test_a_job_that_the_cluster_never_makes_is_waited_for_no_longer_than_its_limit(
    on_stage: Callable[..., None], tmp_path: Path
) -> None:
    target = model(tmp_path, "target", 512)

    async def work(stage: Stage) -> None:
        await stage.begin(**asked(target, str(tmp_path / "nowhere")))
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": stage.key[0]}}
        await stage.api._ask(
            "POST",
            f"/api/v1/namespaces/{stage.key[0]}/resourcequotas",
            {},
            {**quota, "spec": {"hard": {"count/jobs.batch": "0"}}},
        )
        operator = await Operator.start(stage)
        await live(operator, lambda status: status.get("preflight", {}).get("outcome") == "NotChecked")
        await settle(operator, 3)
        assert len(await speculative(stage)) == 1
        assert any("were not compared" in one for one in (await stage.body())["status"]["warnings"])
        await operator.stop()

    on_stage(work)


def test_a_model_that_is_not_there_is_named_its_engine_goes_and_comes_back_with_the_files(
    on_stage: Callable[..., None], tmp_path: Path
) -> None:
    async def work(stage: Stage) -> None:
        await stage.begin(**{**asked(str(tmp_path / "target"), ""), "speculation": None})
        stage.engines_start = False
        operator = await Operator.start(stage)

        def told(status: RawObject) -> bool:
            said = {one["type"]: one for one in status.get("conditions", [])}
            return bool(said) and said["Stalled"]["reason"] == "ModelMissing"

        body = await live(operator, told, seconds=2)
        await settle(operator, 4)
        stalled = next(one for one in body["status"]["conditions"] if one["type"] == "Stalled")
        assert f"spec.model.name: {tmp_path / 'target'} does not exist" in stalled["message"]
        assert await stage.children(kinds.DEPLOYMENT) == []
        assert await stage.children(kinds.POD) == []
        assert await stage.children(kinds.JOB) == []
        model(tmp_path, "target", 512)
        stage.engines_start = True
        stage.offset += timedelta(seconds=AGAIN_SECONDS)
        await live(operator, lambda status: status.get("phase") == Phase.BASELINE.value, seconds=2)
        await operator.stop()

    on_stage(work)
