"""Wrong specs are refused with the field name; an image that cannot start is said, and what served goes on serving."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from e2e.road.access import Access
from e2e.road.example import Place, load_quickstart, merge, namespace, overlaid
from e2e.scenarios.stage import on_stage, refusal

STEP = {"minDurationSeconds": 15, "minRequests": 20}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": ({"replica": 3}, "replica"),
    "a negative weight": ({"rollout": {"steps": [{"weightPercent": -5, **STEP}]}}, "weightPercent"),
    "steps that go down": (
        {"rollout": {"steps": [{"weightPercent": 50, **STEP}, {"weightPercent": 25, **STEP}]}},
        "spec.rollout.steps",
    ),
    "k = 0": ({"speculation": {"numSpeculativeTokens": 0}}, "numSpeculativeTokens"),
    "a method without its draft model": ({"speculation": {"draft": None}}, "spec.speculation.draft"),
}


@pytest.mark.parametrize("case", WRONG)
def test_the_api_server_refuses_with_the_field_name(access: Access, space: str, case: str) -> None:
    changes, field = WRONG[case]
    access.apply([namespace(space)])
    body = overlaid(copy.deepcopy(load_quickstart()), Place(space, "wrong"))
    assert refusal(access, body) == ""
    merge(body["spec"], changes)
    said = refusal(access, body)
    print(f"\n{case}: {said.strip()}")
    assert field in said


def test_an_image_that_cannot_start_is_said_in_a_condition(access: Access, space: str) -> None:
    changes = {"replicas": 1, "engine": {"image": "localhost/no-such-engine:0.32.0", "startupTimeoutSeconds": 20}}
    with on_stage(access, space, "no-image", changes) as stage:
        stage.follow("Stalled", lambda: stage.condition("Stalled").get("status") == "True", 120)
        said = stage.condition("Stalled")["message"]
        assert "no-such-engine" in said or "ImagePull" in said or "ErrImage" in said, said
        assert stage.condition("Ready")["status"] == "False"


def test_a_changed_image_that_cannot_start_leaves_the_stable_arm_serving(access: Access, space: str) -> None:
    small = {"replicas": 2, "speculation": None}
    with on_stage(access, space, "bad-update", small, rate=3.0, long_streams=0) as stage:
        stage.start_traffic()
        changed = overlaid(load_quickstart(), stage.place, small)
        changed["spec"]["engine"]["image"] = "localhost/no-such-engine:0.32.0"
        changed["spec"]["engine"]["startupTimeoutSeconds"] = 20
        access.apply([changed])
        stage.follow("the revision is refused", lambda: stage.phase == "RolledBack", 180)
        assert stage.condition("Stalled")["status"] == "True"
        assert stage.condition("Ready")["status"] == "False"
        assert stage.status["replicas"] == 2
        totals = stage.end_traffic()
        assert totals.failed == 0, totals.faults
