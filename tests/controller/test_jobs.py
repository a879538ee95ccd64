"""Why the pod of a benchmark Job has not started, and when it has ended, as the cluster's objects say it."""

from datetime import timedelta
from typing import Any

import pytest
from specfleet.api import labels
from specfleet.controller.jobs import driver_waits_for, reported_at, termination_message
from specfleet.decide.plan import JobIntent
from specfleet.resources.benchmark_job import benchmark_job

from tests.controller.objects import KEY, NOW, as_stored, cache_of, deployment, not_ready, pod, stamp

INTENT = JobIntent(benchmark="b1", unit="p0", pair=0, purpose="Qualify", arms={}, pods={}, cells=())
NO_NODE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/5 nodes are available: 5 Insufficient cpu.",
}
PLACED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(2000)}
QUEUED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
ENDED = {"name": "engine", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}


@pytest.mark.parametrize(
    ("job", "its_pod", "said"),
    [
        ({}, {"phase": "Pending", "conditions": [NO_NODE], "containerStatuses": []}, "5 Insufficient cpu"),
        ({}, {"phase": "Pending", "conditions": [QUEUED], "containerStatuses": []}, "stands in a queue"),
        ({}, {"phase": "Pending", **not_ready("ImagePullBackOff")}, "ImagePullBackOff was scripted"),
        ({}, {"phase": "Pending", **not_ready("ContainerCreating")}, None),
        (
            {},
            {"phase": "Pending", **not_ready("ContainerCreating"), "conditions": [PLACED]},
            "has not been created (a v",
        ),
        ({"status": {"active": 1}}, {"phase": "Running", "conditions": [PLACED]}, None),
        ({"status": {"active": 1}}, {"phase": "Running"}, None),
        ({"status": {"active": 1}}, {"phase": "Succeeded", "containerStatuses": [ENDED]}, None),
        ({"status": {"active": 1}}, {"phase": "Failed", "reason": "Evicted"}, None),
        ({}, None, "nobody makes the pod of Job llama-b1-p0 (a quota"),
        ({"status": {"active": 1}}, None, None),
        ({"spec": {"suspend": True}}, None, "is suspended"),
    ],
    ids=[
        "no node",
        "a queue",
        "no image",
        "on its way up",
        "a volume that cannot be mounted",
        "it has run for long",
        "it runs",
        "it has ended and the Job does not know",
        "it was evicted",
        "a quota refuses it",
        "its pod has not been seen yet",
        "the Job stands in a queue",
    ],
)
def test_a_pod_that_has_not_started_says_what_it_waits_for(
    job: dict[str, Any], its_pod: dict[str, Any] | None, said: str | None
) -> None:
    owner = deployment()
    body = as_stored(benchmark_job(owner, "b1", INTENT, 600), "job")
    body["spec"] |= job.get("spec", {})
    body["status"] = job.get("status", {})
    bodies = [body]
    if its_pod is not None:
        made = pod("f", **its_pod)
        own = {"batch.kubernetes.io/job-name": body["metadata"]["name"], labels.ROLE: labels.ROLE_DRIVER}
        made["metadata"]["labels"] |= own
        bodies.append(made)
    found = driver_waits_for(cache_of(owner, *bodies), KEY, owner, body, NOW)
    assert found == "" if said is None else said in found


@pytest.mark.parametrize(
    ("engine", "said", "reported"),
    [
        ({"terminated": {"exitCode": 0, "message": "{}", "finishedAt": stamp(30)}}, "{}", True),
        ({"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": stamp(30)}}, "", False),
        ({"running": {"startedAt": stamp(30)}}, None, False),
    ],
    ids=["it has reported", "it was killed", "it measures"],
)
def test_a_report_counts_as_soon_as_it_is_there_whatever_a_sidecar_does(
    engine: dict[str, Any], said: str | None, reported: bool
) -> None:
    owner = deployment()
    body = as_stored(benchmark_job(owner, "b1", INTENT, 600), "job")
    body["status"] = {"active": 1}
    sidecar = {"name": "istio-proxy", "state": {"running": {"startedAt": stamp(60)}}}
    made = pod("f", containerStatuses=[sidecar, {"name": "engine", "state": engine}])
    own = {"batch.kubernetes.io/job-name": body["metadata"]["name"], labels.ROLE: labels.ROLE_DRIVER}
    made["metadata"]["labels"] |= own
    cache, name = cache_of(owner, body, made), body["metadata"]["name"]
    assert termination_message(cache, KEY, name) == said
    assert reported_at(cache, KEY, name) == (NOW - timedelta(seconds=30) if reported else None)
