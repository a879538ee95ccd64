"""One deployment of the deep target: from apply to promoted, and what happens to it afterwards, in this order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import pytest

from e2e.engine_cluster import acts
from e2e.engine_cluster.deployments import PAIRS, UP_TO_FOUR, deep, draft, swap_draft
from e2e.road.access import Access
from e2e.scenarios.stage import Stage

DRAFT_TOKENS = 3
WATCH_SECONDS = 20.0
PHANTOMS_AT_ONCE = 2
CACHED = list(range(10, 139))
"""Token ids: one more than a block of the CPU's prefix cache (128), so that a repeated prompt needs one token only."""


def promoted_draft() -> dict[str, object]:
    """The draft by a path whose content can be swapped without a change of the spec."""
    return {**draft("draft", DRAFT_TOKENS), "draft": {"model": swap_draft("draft")}}


@pytest.fixture(scope="module")
def road(access: Access) -> Iterator[Stage]:
    """The deployment on its way."""
    with acts.on_real_stage(access, deep("deep", promoted_draft(), UP_TO_FOUR)) as stage:
        yield stage


@pytest.fixture
def promoted(road: Stage) -> Stage:
    """The deployment while speculation serves."""
    return acts.needs_speculation(road)


def test_1_the_good_draft_goes_from_apply_to_promoted_on_real_metrics(road: Stage) -> None:
    found = acts.until_promoted(road)
    wanted = acts.speculative_fingerprint(road)
    told = {one.fingerprint for one in found}
    arms = {name for sample in road.recorder.samples for name in sample.roles}
    assert told <= arms, f"answers of {told}, arms {arms}"
    assert wanted in told
    status, answer = acts.ask(road, "who answers", 8)
    assert (status, answer["system_fingerprint"]) == (200, wanted)
    for name in told:
        waits = [1000 * one.seconds / one.tokens for one in found if one.fingerprint == name and one.tokens]
        road.narrator.say("users", f"arm {name}: {median(waits):.0f} ms per token of {len(waits)} whole answers")


def test_7_a_restarted_engine_starts_from_zero_without_a_false_drift(promoted: Stage, access: Access) -> None:
    before = len(promoted.recorder.decisions)
    (pod,) = acts.arm_pods(promoted, "speculative")
    acts.restart_container(promoted, pod)
    acts.send_traffic(promoted, long_streams=0)
    seen: list[float] = []
    ends = time.monotonic() + WATCH_SECONDS

    def over() -> bool:
        seen.extend(acts.watched_acceptance(access, promoted))
        return time.monotonic() > ends

    promoted.follow("the restarted engine is watched", over, WATCH_SECONDS + 30)
    assert not acts.faults(acts.end_traffic(promoted))
    assert not acts.alarms(promoted, before)
    assert promoted.condition("DriftDetected").get("status") != "True"
    assert promoted.phase == "Speculative"
    assert seen, "the operator exports no acceptance rate"
    promoted.narrator.say("watched", f"acceptance rate {min(seen):.2f} to {max(seen):.2f}")
    assert min(seen) > 0.3, "a restart was taken for a fall"
    assert max(seen) <= 1.0


def test_8_cached_prompts_with_one_token_answers_raise_no_drift(promoted: Stage, access: Access) -> None:
    before = len(promoted.recorder.decisions)
    acts.send_traffic(promoted, long_streams=0)
    promoted.stay(20)
    clean = acts.raw_acceptance(access, promoted, 20)
    ends = time.monotonic() + WATCH_SECONDS

    def one_token(_: int) -> int:
        sent = 0
        while time.monotonic() < ends:
            status, _answer = acts.ask(promoted, CACHED, 1)
            assert status == 200
            sent += 1
            time.sleep(0.1)
        return sent

    with ThreadPoolExecutor(PHANTOMS_AT_ONCE) as pool:
        running = [pool.submit(one_token, number) for number in range(PHANTOMS_AT_ONCE)]
        promoted.follow("phantom drafts are counted", lambda: all(one.done() for one in running), WATCH_SECONDS + 120)
    phantom = acts.raw_acceptance(access, promoted, 25)
    sent = sum(one.result() for one in running)
    promoted.narrator.say("phantoms", f"{sent} one-token answers: raw acceptance {clean:.2f}, then {phantom:.2f}")
    assert phantom < 0.85 * clean, "the engine counts no phantom drafts: this scenario shows nothing"
    promoted.stay(12)
    assert not acts.faults(acts.end_traffic(promoted))
    assert not acts.alarms(promoted, before)
    assert promoted.phase == "Speculative"


def test_2_a_swapped_draft_is_found_and_rolled_back_and_4_no_stream_is_cut(promoted: Stage) -> None:
    swap_draft("draft-lost")
    promoted.narrator.say("SWAP", "the draft's folder now holds one that agrees seldom")
    acts.replace_pods(promoted, acts.arm_pods(promoted, "speculative"))
    acts.send_traffic(promoted, long_streams=3)
    promoted.follow("the watch finds the decay", lambda: "Investigate" in promoted.actions, acts.CANARY_SECONDS)
    assert not acts.faults(acts.end_traffic(promoted))
    # Two cores measure faster without users; they are back, with long streams, before the last pair is judged.
    acts.until_pairs(promoted, "Suspicion", PAIRS - 1)
    acts.send_traffic(promoted, acts.FEW, long_streams=2)
    promoted.until_rolled_back(acts.BENCHMARK_SECONDS)
    promoted.follow("only plain pods serve", lambda: not acts.arm_pods(promoted, "speculative"), acts.CANARY_SECONDS)
    promoted.stay(5)
    found = acts.end_traffic(promoted)
    decision = promoted.decision("RollBack")
    assert decision is not None
    assert decision["reason"] not in ("CrashLoop", "OutOfMemory", "CommandAbort"), decision
    assert not acts.faults(found)
