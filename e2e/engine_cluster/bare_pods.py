"""Engine pods as the operator builds them, without the operator: for what its rules would never let start."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import ArmRole
from specfleet.engine.arguments import build_arm
from specfleet.resources.pods import pod_template

from e2e.engine_cluster.deployments import SPACE
from e2e.road.access import Access, Object
from e2e.road.example import namespace


def pod_of(body: Object, name: str) -> Object:
    """A core/v1 Pod of the deployment's proposer (or its plain arm), without the labels that the operator looks for."""
    owner = SpeculativeDeployment.model_validate({**body, "metadata": {**body["metadata"], "uid": name}})
    proposer = owner.spec.speculation.proposers()[0] if owner.spec.speculation else None
    role = ArmRole.BASELINE if proposer is None else ArmRole.SPECULATIVE
    template = pod_template(owner, owner.spec, build_arm(owner.spec, proposer), role, benchmark=False)
    spec = copy.deepcopy(template["spec"])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": SPACE}, "spec": spec}


@contextmanager
def standing(access: Access, pods: Sequence[Object]) -> Iterator[None]:
    """The pods, made; removed at the end."""
    names = [pod["metadata"]["name"] for pod in pods]
    delete = ["delete", "pod", *names, "-n", SPACE, "--ignore-not-found", "--grace-period=5"]
    access.apply([namespace(SPACE)])
    access.kubectl(*delete, seconds=120)
    access.apply(pods)
    try:
        yield
    finally:
        access.kubectl(*delete, seconds=300)


def found(access: Access, name: str) -> Object:
    """The pod, {} when it is gone."""
    return access.get("pod", name, SPACE) or {}
