"""Objects as the API server, the kubelet and the Job controller write them, for tests without any of these."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

from specfleet.api import labels
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.controller.wanted import WantedArms
from specfleet.kube import kinds
from specfleet.kube.cache import Cache

from tests.decide.world import spec_of

NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
KEY = ("ml", "llama")


def stamp(seconds_ago: float = 0) -> str:
    """A time as the API server writes it."""
    return (NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def deployment(name: str = "llama", **changes: Any) -> SpeculativeDeployment:
    """A SpeculativeDeployment of generation 1."""
    meta = {
        "name": name,
        "namespace": "ml",
        "uid": "u-1",
        "generation": 1,
        "resourceVersion": "10",
        "labels": {"argocd.argoproj.io/instance": "prod", "team": "search"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    return SpeculativeDeployment.model_validate({"metadata": meta, "spec": spec_of(**changes)})


def wanted(owner: SpeculativeDeployment) -> WantedArms:
    return WantedArms(owner.spec, {})


def as_stored(manifest: dict[str, Any], uid: str, version: int = 20) -> dict[str, Any]:
    """A manifest as the API server keeps it: with identity, managed fields and some defaults."""
    body = deepcopy(manifest)
    body["metadata"] |= {
        "uid": uid,
        "resourceVersion": str(version),
        "generation": 1,
        "creationTimestamp": stamp(60),
        "managedFields": [{"manager": "specfleet", "operation": "Apply"}],
    }
    if body["kind"] == "Deployment":
        body["status"] = {"observedGeneration": 1}
        pod = body["spec"]["template"]["spec"]
        pod |= {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
        pod["containers"][0] |= {"terminationMessagePath": "/dev/termination-log"}
    if body["kind"] == "Service":
        body["spec"] |= {"type": "ClusterIP", "clusterIP": "10.96.0.7", "sessionAffinity": "None"}
    return body


def pod(fingerprint: str, name: str = "p1", **status: Any) -> dict[str, Any]:
    """A serving engine pod: running and ready for a minute."""
    given: dict[str, Any] = {
        "phase": "Running",
        "podIP": "10.0.0.7",
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(120)},
            {"type": "Ready", "status": "True", "lastTransitionTime": stamp(60)},
        ],
        "containerStatuses": [
            {
                "name": "engine",
                "restartCount": 0,
                "imageID": "docker.io/vllm/vllm-openai@sha256:abc",
                "state": {"running": {"startedAt": stamp(110)}},
                "lastState": {},
            }
        ],
        **status,
    }
    own = {labels.DEPLOYMENT: "llama", labels.FINGERPRINT: fingerprint, labels.ROLE: labels.ROLE_SERVING}
    env = [{"name": "SPECFLEET_PORT", "value": "8000"}, {"name": "SPECFLEET_MODEL", "value": "llama"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "resourceVersion": "30",
            "creationTimestamp": stamp(120),
            "labels": own,
        },
        "spec": {"containers": [{"name": "engine", "env": env}]},
        "status": given,
    }


def not_ready(reason: str | None = None, **container: Any) -> dict[str, Any]:
    """Status of a pod whose engine does not run."""
    state = {"waiting": {"reason": reason, "message": f"{reason} was scripted"}} if reason else {"running": {}}
    status = {"name": "engine", "restartCount": 0, "state": state, "lastState": {}, **container}
    return {
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(120)},
            {"type": "Ready", "status": "False", "lastTransitionTime": stamp(100)},
        ],
        "containerStatuses": [status],
    }


def cache_of(owner: SpeculativeDeployment, *bodies: dict[str, Any]) -> Cache:
    """A cache that has seen the deployment and these children."""
    cache = Cache()
    meta = dict(owner.metadata)
    body = {"metadata": meta, "spec": owner.spec.to_wire()}
    if owner.status is not None:
        body["status"] = owner.status.to_wire()
    cache.put_deployment(body)
    for one in bodies:
        cache.put(kinds.kind_of(one), one)
    return cache
