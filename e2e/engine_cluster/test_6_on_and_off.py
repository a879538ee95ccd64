"""N-gram speculation is switched on by the spec, proves itself, is promoted, and is switched off by the spec."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.engine_cluster import acts
from e2e.engine_cluster.deployments import ALONE_AND_LONG, repeating
from e2e.road.access import Access
from e2e.scenarios.stage import Stage

NAME = "ngram"
NGRAM = {"method": "ngram", "numSpeculativeTokens": 3, "ngram": {"promptLookupMin": 2, "promptLookupMax": 4}}


@pytest.fixture(scope="module")
def road(access: Access) -> Iterator[Stage]:
    """A deployment that begins without speculation."""
    with acts.on_real_stage(access, repeating(NAME, None, ALONE_AND_LONG)) as stage:
        stage.until_phase("Baseline", seconds=120)
        yield stage


def test_1_6_ngram_switched_on_by_the_spec_is_promoted_and_no_request_is_lost(road: Stage, access: Access) -> None:
    access.apply([repeating(NAME, NGRAM, ALONE_AND_LONG)])
    road.narrator.say("SPEC", "n-gram speculation comes into the spec")
    acts.until_promoted(road)


def test_6_speculation_switched_off_by_the_spec_loses_no_request(road: Stage, access: Access) -> None:
    acts.send_traffic(acts.needs_speculation(road), long_streams=2)
    road.stay(10)
    access.apply([repeating(NAME, None, ALONE_AND_LONG)])
    road.narrator.say("SPEC", "speculation is taken out of the spec")
    road.until_phase("Baseline", seconds=acts.CANARY_SECONDS)

    def only_plain() -> bool:
        left = acts.arm_pods(road, "speculative")
        return road.recorder.samples[-1].speculative_share == 0.0 and not left

    road.follow("only plain pods serve", only_plain, acts.CANARY_SECONDS)
    road.stay(5)
    assert not acts.faults(acts.end_traffic(road))
