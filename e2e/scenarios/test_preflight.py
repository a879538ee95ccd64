"""A draft that cannot work is refused from the models' files, before an engine pod of the proposer exists."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.road.access import Access, Object
from e2e.road.example import FAULTS_FOLDER, FAULTS_SECRET, namespace
from e2e.scenarios.stage import SHORT_ROAD, Stage, on_stage

FOLDER = "/models"
CONFIG = {"hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 4, "max_position_embeddings": 16384}
ANSWER_SECONDS = 240.0


def model_files(space: str, name: str, vocabulary: int) -> Object:
    """A model directory as a ConfigMap, which a pod mounts like any other volume."""
    text = json.dumps({**CONFIG, "vocab_size": vocabulary})
    meta = {"name": f"model-{name}", "namespace": space}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"config.json": text}}


def with_files(draft: str) -> dict[str, Any]:
    """The example with a target and a draft model from volumes."""
    names = ("target", "draft", "narrow")
    return {
        **SHORT_ROAD,
        "replicas": 1,
        "model": {"name": f"{FOLDER}/target"},
        "speculation": {"method": "draft_model", "draft": {"model": f"{FOLDER}/{draft}"}},
        "template": {
            "volumes": [
                {"name": "faults", "secret": {"secretName": FAULTS_SECRET}},
                *({"name": one, "configMap": {"name": f"model-{one}"}} for one in names),
            ],
            "volumeMounts": [
                {"name": "faults", "mountPath": FAULTS_FOLDER, "readOnly": True},
                *({"name": one, "mountPath": f"{FOLDER}/{one}", "readOnly": True} for one in names),
            ],
        },
    }


def made_of(access: Access, stage: Stage, fingerprint: str) -> list[str]:
    """Objects below an arm that ever were, as the controllers of Kubernetes told it."""
    told = access.list("events", stage.place.namespace)
    names = {
        str(one["involvedObject"]["name"]) for one in told if one["involvedObject"]["kind"] != "SpeculativeDeployment"
    }
    return sorted(name for name in names if fingerprint in name)


def job_events(access: Access, stage: Stage) -> list[Object]:
    """What Kubernetes told of the preflight Job."""
    told = access.list("events", stage.place.namespace)
    return [
        one
        for one in told
        if one["involvedObject"]["kind"] == "Job"
        and one["involvedObject"]["name"].startswith(f"{stage.place.name}-")
        and one["involvedObject"]["name"].endswith("-preflight")
    ]


@pytest.mark.parametrize(
    ("name", "draft", "reason", "words"),
    [
        ("no-draft", "nowhere", "DraftMissing", "/models/nowhere does not exist"),
        ("other-words", "narrow", "VocabularyDiffers", "a vocabulary of 512 tokens"),
    ],
)
def test_a_draft_that_cannot_work_is_refused_before_its_engine_pod_exists(
    access: Access, space: str, name: str, draft: str, reason: str, words: str
) -> None:
    files = [model_files(space, "target", 512), model_files(space, "draft", 512), model_files(space, "narrow", 640)]
    access.apply([namespace(space), *files])
    with on_stage(access, space, name, with_files(draft)) as stage:
        stage.follow("the draft is refused", lambda: bool(stage.status.get("trials")), ANSWER_SECONDS)
        (trial,) = stage.status["trials"]
        assert (trial["verdict"], trial["reason"]) == ("Fail", reason)
        said = stage.condition("BenchmarkPassed")
        assert (said["status"], said["reason"]) == ("False", reason)
        assert "spec.speculation.draft.model" in said["message"]
        assert words in said["message"]
        stage.follow("it serves plainly", lambda: stage.condition("Ready").get("status") == "True", 60)
        assert stage.condition("Stalled")["status"] == "False"
        assert made_of(access, stage, trial["fingerprint"]) == []
        assert job_events(access, stage), "the preflight pod ran in this cluster"
        stage.follow(
            "the Job is removed",
            lambda: not access.list("jobs", stage.place.namespace, f"specfleet.dev/deployment={name}"),
            60,
        )


def test_a_draft_that_fits_goes_on_to_its_benchmark(access: Access, space: str) -> None:
    files = [model_files(space, "target", 512), model_files(space, "draft", 512), model_files(space, "narrow", 640)]
    access.apply([namespace(space), *files])
    with on_stage(access, space, "fits", with_files("draft")) as stage:
        stage.follow("the files are compared", lambda: "outcome" in stage.status.get("preflight", {}), ANSWER_SECONDS)
        assert stage.status["preflight"]["outcome"] == "Passed", stage.status["preflight"]
        stage.follow(
            "the proposer's pod runs",
            lambda: bool(stage.pods("specfleet.dev/role=benchmark,specfleet.dev/arm=speculative")),
            60,
        )
