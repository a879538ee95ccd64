"""The benchmark decides on what was measured, and on nothing else: mixed winners, a hidden loss, a broken harness,
and runs that something spoilt."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from e2e.road.access import Access, Object
from e2e.road.example import load_quickstart, overlaid
from e2e.scenarios.conftest import GPU, Gpus
from e2e.scenarios.stage import Stage, on_stage

PROFILE = "VLLM_SIM_PROFILE"
LOW, PEAK = 1, 24
MATRIX: dict[str, Any] = {
    "replicas": 1,
    "capacity": {"maxExtraReplicas": 2},
    "benchmark": {
        "tiers": [{"name": "low", "requestsPerSecond": LOW}, {"name": "peak", "concurrency": PEAK}],
        "slices": [{"name": "chat", "promptTokens": 256, "outputTokens": 48}],
        "pairs": 3,
        "runSeconds": 8,
        "warmupSeconds": 0,
        "minimumRequests": 8,
    },
}
"""Far apart, so that a busy machine does not blur the tiers into each other."""
JUDGED_SECONDS = 600.0
CHEAP = {"per_position": 0.2, "per_batched_token": 0.0002}
POST = """
import sys, urllib.request
request = urllib.request.Request(
    "http://127.0.0.1:8000" + sys.argv[1], sys.argv[2].encode(), {"Content-Type": "application/json"})
print(urllib.request.urlopen(request, timeout=30).status)
"""
DISTURB = """
import json, sys, threading, time, urllib.request
ends = time.time() + float(sys.argv[1])
def user():
    while time.time() < ends:
        body = {"model": sys.argv[2], "prompt": "Another user asks", "max_tokens": 4}
        request = urllib.request.Request(
            "http://127.0.0.1:8000/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            urllib.request.urlopen(request, timeout=30).read()
        except OSError:
            pass
        time.sleep(0.2)
threads = [threading.Thread(target=user) for _ in range(2)]
[one.start() for one in threads]
[one.join() for one in threads]
"""


def engines(**profile: Any) -> dict[str, Any]:
    """MATRIX on engines of that profile."""
    return {**MATRIX, "engine": {"env": [{"name": PROFILE, "value": json.dumps(profile)}]}}


def evidence(access: Access, stage: Stage) -> list[Object]:
    """Specs of the SpeculativeBenchmarks so far."""
    bodies = access.list("speculativebenchmarks.specfleet.dev", stage.place.namespace)
    return [dict(body["spec"]) for body in bodies if body["spec"]["deployment"] == stage.place.name]


def benchmark_pod(stage: Stage, arm: str) -> str:
    """The benchmark pod of an arm; "" while there is none that is ready."""
    for pod in stage.pods(f"specfleet.dev/role=benchmark,specfleet.dev/arm={arm}"):
        ready = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
        if ready.get("Ready") == "True":
            return str(pod["metadata"]["name"])
    return ""


def drivers(stage: Stage) -> list[str]:
    """Driver pods that run."""
    found = stage.pods("specfleet.dev/role=driver")
    return [str(pod["metadata"]["name"]) for pod in found if pod["status"].get("phase") == "Running"]


def run_inside(access: Access, stage: Stage, pod: str, script: str, *words: str) -> None:
    """Run a script in an engine's container."""
    where = ["exec", "-n", stage.place.namespace, pod, "-c", "engine", "--", "python3", "-c", script]
    access.kubectl(*where, *words, check=False)


def reasons(access: Access, stage: Stage) -> list[str]:
    """Why runs do not count, first word each."""
    runs = [run for one in evidence(access, stage) for run in one["runs"]]
    return [str(run["invalidReason"]).partition(":")[0] for run in runs if not run["valid"]]


def judged(stage: Stage, seconds: float = JUDGED_SECONDS) -> Object:
    """The first verdict."""
    stage.follow("a verdict", lambda: stage.decision("Judge") is not None, seconds)
    found = stage.decision("Judge")
    assert found is not None
    return found


def test_a_proposer_that_wins_at_low_load_and_loses_at_the_peak_is_not_promoted_and_the_tiers_are_named(
    access: Access, space: str
) -> None:
    changes = engines(proposers={"eagle3": {"draft_milliseconds": {**CHEAP, "per_kv_token": 0.003}}})
    with on_stage(access, space, "mixed", changes) as stage:
        verdict = judged(stage)
        assert verdict["verdict"] == "Fail", verdict
        stage.follow("the recommendation", lambda: bool(stage.status.get("recommendation")), 30)
        advice = stage.status["recommendation"]
        print(f"\n{advice['message']}")
        assert {one["tier"]: one["proposer"] for one in advice["tiers"]} == {"low": "eagle3 k=3", "peak": "none"}
        assert [one["tokens"] for one in advice["tokensPerBatchSize"]] == [3, 0]
        stage.stay(10)
        assert "StartCanary" not in stage.actions
        assert stage.condition("Ready")["status"] == "True"


def test_a_better_time_per_token_does_not_hide_fewer_completed_requests_at_the_peak(access: Access, space: str) -> None:
    squeezed = {"kv_capacity_factor": 0.04, "draft_milliseconds": CHEAP}
    changes = engines(kv_capacity_tokens=30000, proposers={"eagle3": squeezed})
    changes["model"] = {"maxModelLen": 1024}
    # The cache is what the draft takes here; what is to be seen is what users notice of it.
    changes["guardrails"] = {"maxKvCacheIncreaseRatio": 1000, "maxPreemptionIncreaseRatio": 1000}
    with on_stage(access, space, "squeezed", changes) as stage:
        verdict = judged(stage)
        cells = {one["tier"]: one for one in stage.status["cells"]}
        print(f"\n{verdict['message']}\n{cells}")
        assert (verdict["verdict"], verdict["reason"]) == ("Fail", "ThroughputLoss")
        assert cells["peak"]["gainRatio"] > 0.1, "its time per token is better at the peak too"
        assert "StartCanary" not in stage.actions


def test_a_harness_that_fails_every_request_gives_an_error_and_no_verdict_on_the_proposer(
    access: Access, space: str
) -> None:
    # Longer than the context: the engines refuse every one of them, and the client ends with exit code 0 all the same.
    too_long = [{"name": "chat", "promptTokens": 2048, "outputTokens": 48}]
    changes = {**MATRIX, "model": {"maxModelLen": 1024}, "benchmark": {**MATRIX["benchmark"], "slices": too_long}}
    with on_stage(access, space, "harness", changes) as stage:
        verdict = judged(stage)
        print(f"\n{verdict['message']}")
        assert (verdict["verdict"], verdict["reason"]) == ("Error", "HarnessFailed"), verdict
        assert "failed" in verdict["message"]
        stage.until_phase("Held", seconds=30)
        assert stage.status["phaseReason"] == "BenchmarkError"
        assert not stage.status.get("trials")
        assert stage.condition("Ready")["status"] == "True"


def test_a_killed_job_a_restarted_pod_and_another_user_cost_pairs_and_never_count(access: Access, space: str) -> None:
    with on_stage(access, space, "spoilt", MATRIX) as stage:
        stage.follow("the first pair runs", lambda: bool(drivers(stage)), 120)
        stage.stay(5)
        access.kubectl("delete", "pod", drivers(stage)[0], "-n", space, "--force", "--grace-period=0")
        stage.follow("the unit is repeated", lambda: "RepeatUnit" in stage.actions, 120)
        stage.follow("it runs again", lambda: bool(drivers(stage)), 60)
        stage.stay(5)
        crash = json.dumps({"faults": [{"id": "once", "kind": "crash_on_request", "arms": {"speculation": False}}]})
        run_inside(access, stage, benchmark_pod(stage, "baseline"), POST, "/sim/faults", crash)
        stage.follow("the spoilt pair is recorded", lambda: bool(evidence(access, stage)), 240)
        print(f"\nafter the restart: {reasons(access, stage)}")
        assert reasons(access, stage), "a run during which the engine died must not count"
        stage.follow("the engine is back", lambda: bool(benchmark_pod(stage, "baseline")), 120)
        before = len(evidence(access, stage))
        ends = time.monotonic() + 300
        while len(evidence(access, stage)) == before and time.monotonic() < ends:
            pod = benchmark_pod(stage, "baseline")
            if pod:
                run_inside(access, stage, pod, DISTURB, "10", "meta-llama/Llama-3.1-8B-Instruct")
        print(f"with another user: {reasons(access, stage)}")
        assert "OtherTraffic" in reasons(access, stage)
        verdict = judged(stage)
        print(verdict["message"])
        assert verdict["verdict"] == "Pass", verdict
        assert "(3 pairs)" in verdict["message"]
        spoilt = [
            one for one in evidence(access, stage) if any(not run["valid"] for run in one["runs"]) or one.get("error")
        ]
        assert len(evidence(access, stage)) >= 3 + len(spoilt)
        units = [one["unit"] for one in evidence(access, stage)]
        assert len(units) == len(set(units))


def test_a_slower_engine_is_refused_on_the_bench_and_users_notice_nothing(access: Access, space: str) -> None:
    plain = {**MATRIX, "speculation": None}
    with on_stage(access, space, "slower", plain, rate=2.0, long_streams=0) as stage:
        stage.start_traffic()
        changed = overlaid(load_quickstart(), stage.place, plain)
        slow = {"name": PROFILE, "value": json.dumps({"time_scale": 8})}
        changed["spec"]["engine"]["env"] = [
            one for one in changed["spec"]["engine"]["env"] if one["name"] != PROFILE
        ] + [slow]
        access.apply([changed])
        stage.follow("the revision is refused", lambda: "RefuseRevision" in stage.actions, JUDGED_SECONDS)
        verdict = stage.decision("Judge")
        assert verdict is not None
        print(f"\n{verdict['message']}")
        assert verdict["verdict"] == "Fail"
        assert stage.status["change"]["serve"] == "OldStable"
        assert "TryRevision" not in stage.actions
        assert {one["purpose"] for one in evidence(access, stage)} == {"Change"}
        stage.follow("it says so", lambda: stage.condition("Stalled").get("reason") == "RevisionRolledBack", 30)
        totals = stage.end_traffic()
        assert totals.failed == 0, totals.faults


@pytest.mark.long
def test_of_several_depths_the_best_is_confirmed_and_goes_to_the_canary(access: Access, space: str) -> None:
    draft = {"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}
    ranged = {"method": "eagle3", "draft": draft, "numSpeculativeTokensRange": {"min": 1, "max": 2}}
    changes = {
        **MATRIX,
        "speculation": {"method": None, "draft": None, "numSpeculativeTokens": None, "candidates": [ranged]},
    }
    with on_stage(access, space, "search", changes) as stage:
        stage.follow("a winner", lambda: "StartCanary" in stage.actions, 2 * JUDGED_SECONDS)
        trials = {one["proposer"]: one for one in stage.status["trials"]}
        print(f"\n{trials}")
        winner = trials["eagle3 k=2"]
        assert (winner["verdict"], winner["confirmed"]) == ("Pass", True)
        assert winner["gainRatio"] > trials["eagle3 k=1"]["gainRatio"]
        listed = evidence(access, stage)
        assert {one["purpose"] for one in listed} == {"Qualify", "Confirm"}
        assert {one["candidates"] for one in listed if one["purpose"] == "Confirm"} == {1}
        assert {one["candidates"] for one in listed if one["purpose"] == "Qualify"} <= {1, 2}


@pytest.mark.long
def test_with_room_for_one_of_two_declared_arms_they_take_turns_and_come_to_a_verdict(
    access: Access, space: str, gpus: Gpus
) -> None:
    gpus.set(2)
    resources = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {GPU: 1}}
    with on_stage(access, space, "turns", {**MATRIX, "template": {"resources": resources}}) as stage:
        stage.follow("a verdict", lambda: "Judge" in stage.actions, 2 * JUDGED_SECONDS)
        assert "TakeTurns" in stage.actions
        assert "Hold" not in stage.actions
        listed = evidence(access, stage)
        # A pair that something spoilt is measured again, by halves too.
        units = sorted(one["unit"] for one in listed)
        assert units == [f"p{pair}{half}" for pair in range(len(units) // 2) for half in "ab"]
        assert len(units) >= 6
        assert {node for one in listed for node in one["nodes"].values()} == {gpus.node}
