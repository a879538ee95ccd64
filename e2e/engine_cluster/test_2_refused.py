"""Proposers that real metrics refuse: one that wins alone and loses under load, then one that never agrees."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.engine_cluster import acts
from e2e.engine_cluster.deployments import AT_THE_PEAK, FORTY_EIGHT, deep, draft
from e2e.road.access import Access
from e2e.scenarios.stage import Stage


@pytest.fixture(scope="module")
def refused(access: Access) -> Iterator[Stage]:
    """One deployment, whose spec asks for one proposer after the other."""
    with acts.on_real_stage(access, deep("refused", draft("draft-worn", 6), FORTY_EIGHT)) as stage:
        yield stage


def message(stage: Stage, after: int) -> str:
    """Tell until one more verdict than `after` is there, and print its cells. It has to be Fail; returns its text."""
    verdict = acts.until_judged(stage, after)
    cells = [f"{one['tier']}/{one['slice']} {one.get('gainRatio')}" for one in stage.status.get("cells", [])]
    stage.narrator.say("cells", "; ".join(cells))
    assert verdict["verdict"] == "Fail", verdict["message"]
    return str(verdict["message"])


def only_the_plain_arm_serves(stage: Stage) -> bool:
    """Once the road has ended there."""
    stage.until_phase("Baseline", seconds=120)
    return bool(stage.status["servingArm"] == "baseline")


def test_2_a_draft_that_wins_alone_and_loses_under_load_is_refused_as_a_whole(refused: Stage) -> None:
    assert "peak" in message(refused, after=0)
    single = next(one for one in refused.status["cells"] if one["tier"] == "single")
    assert single["gainRatio"] > 0, "it does not win alone: this scenario shows less than it says"
    assert only_the_plain_arm_serves(refused)
    assert acts.evidence_agrees(refused)


def test_2_a_draft_that_never_agrees_is_refused(refused: Stage, access: Access) -> None:
    before = acts.verdicts(refused)
    # Under load: alone its drafts cost so little that three pairs leave it at Inconclusive.
    # The engine stays as it is: another argument would be another revision, which has to prove itself first.
    access.apply([deep("refused", draft("draft-never", 3), {**FORTY_EIGHT, **AT_THE_PEAK})])
    refused.narrator.say("SPEC", "another draft, which never agrees")
    assert message(refused, before)
    assert only_the_plain_arm_serves(refused)
    assert acts.evidence_agrees(refused)
