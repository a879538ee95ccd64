"""Proposers that real metrics refuse: one that wins alone and loses under load, one that never agrees, and n-gram."""

from __future__ import annotations

from e2e.engine_cluster import acts
from e2e.engine_cluster.deployments import AT_THE_PEAK, deep, draft, tiny
from e2e.road.access import Access, Object
from e2e.scenarios.stage import Stage

NGRAM = {"method": "ngram", "numSpeculativeTokens": 3, "ngram": {"promptLookupMin": 2, "promptLookupMax": 4}}
ALONE = {"benchmark": {"tiers": [{"name": "single", "concurrency": 1}]}}


def told(stage: Stage, verdict: Object) -> str:
    """The verdict with its cells, printed."""
    cells = [f"{one['tier']}/{one['slice']} {one.get('gainRatio')}" for one in stage.status.get("cells", [])]
    stage.narrator.say("cells", "; ".join(cells))
    return str(verdict["message"])


def test_a_draft_that_wins_alone_and_loses_under_load_is_refused_as_a_whole(access: Access) -> None:
    with acts.on_real_stage(access, deep("worn", draft("draft-worn", 6))) as stage:
        verdict = acts.until_judged(stage)
        message = told(stage, verdict)
        assert verdict["verdict"] == "Fail", message
        assert "peak" in message
        single = next(one for one in stage.status["cells"] if one["tier"] == "single")
        assert single["gainRatio"] > 0, "it does not win alone: this scenario shows less than it says"
        stage.until_phase("Baseline", seconds=60)
        assert stage.status["servingArm"] == "baseline"
        assert acts.evidence_agrees(stage)


def test_a_draft_that_never_agrees_is_refused(access: Access) -> None:
    # Under load: alone its drafts cost so little that three pairs leave it at Inconclusive.
    with acts.on_real_stage(access, deep("never", draft("draft-never", 3), AT_THE_PEAK)) as stage:
        verdict = acts.until_judged(stage)
        message = told(stage, verdict)
        assert verdict["verdict"] == "Fail", message
        assert acts.evidence_agrees(stage)
        stage.until_phase("Baseline", seconds=60)


def test_ngram_is_judged_as_far_as_its_evidence_carries(access: Access) -> None:
    with acts.on_real_stage(access, tiny("ngram", NGRAM, ALONE)) as stage:
        verdict = acts.until_judged(stage)
        told(stage, verdict)
        # Random text repeats little: nothing to win. A promotion of it would be a false one.
        assert verdict["verdict"] in ("Fail", "Inconclusive")
        assert acts.evidence_agrees(stage)
