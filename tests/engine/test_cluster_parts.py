"""What the cluster does not have is refused with what to install; what nobody has looked for is not."""

from typing import Any

import pytest
from specfleet.controller.wanted import WantedArms
from specfleet.engine.cluster_parts import CLUSTER_PARTS, missing_parts
from specfleet.engine.reference import reference

from tests.engine.specs import spec_of

QUEUED = {"template.kueueQueueName": "gpus"}
SPANNING: dict[str, Any] = {"template.multiNode": {"size": 2}, "engine.tensorParallelSize": 2}
CLAIMED: dict[str, Any] = {
    "template.resources": {},
    "template.resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-h200"}],
}


@pytest.mark.parametrize(
    ("changes", "group", "rule", "field"),
    [
        (QUEUED, "kueue.x-k8s.io", "KueueMissing", "spec.template.kueueQueueName"),
        (SPANNING, "leaderworkerset.x-k8s.io", "LeaderWorkerSetMissing", "spec.template.multiNode"),
        (CLAIMED, "resource.k8s.io", "DynamicResourceAllocationMissing", "spec.template.resourceClaims"),
    ],
)
def test_a_field_is_refused_where_its_api_is_not_served(
    changes: dict[str, Any], group: str, rule: str, field: str
) -> None:
    spec = spec_of(None, changes)
    (found,) = WantedArms(spec, {}, groups=frozenset({"apps"})).baseline.refusals
    assert (found.rule_id, found.field_path) == (rule, field)
    assert group in found.message
    assert found.remedy
    assert WantedArms(spec, {}, groups=frozenset({"apps", group})).baseline.refusals == ()
    assert WantedArms(spec, {}).baseline.refusals == (), "nobody has looked"


def test_a_spec_that_asks_for_none_of_them_runs_on_any_cluster() -> None:
    assert missing_parts(spec_of(), frozenset()) == []


def test_the_reference_lists_what_the_cluster_must_have() -> None:
    page = reference()
    assert all(f"`{part.group}`" in page and f"`{part.field_path}`" in page for part in CLUSTER_PARTS)
