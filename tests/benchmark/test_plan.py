"""The plan of a pair: order, seeds, load."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.status import ArmRole
from specfleet.benchmark.driver.harness import HARNESSES
from specfleet.benchmark.plan import (
    DRIVER,
    ArmTarget,
    PlanError,
    build_plan,
    built_in_prompts,
    driver_sources,
    latest_end_seconds,
)

ARMS = {
    ArmRole.BASELINE: ArmTarget("http://10.0.0.1:8000", "plain-0", "f0"),
    ArmRole.SPECULATIVE: ArmTarget("http://10.0.0.2:8000/", "spec-0", "f1"),
}


def spec(**benchmark: Any) -> DeploymentSpec:
    return DeploymentSpec.model_validate(
        {"model": {"name": "m", "servedName": "served"}, "engine": {"image": "vllm:0.32.0"}, "benchmark": benchmark}
    )


TWO_BY_TWO = {
    "tiers": [{"name": "low", "requestsPerSecond": 2}, {"name": "peak", "concurrency": 8}],
    "slices": [{"name": "chat"}, {"name": "code", "temperature": 0.7}],
    "runSeconds": 10,
    "minimumRequests": 10,
}


def order_of(plan: dict[str, Any]) -> str:
    return "".join("A" if run["arm"] == "baseline" else "B" for run in plan["runs"])


def test_pairs_run_in_abba_order_and_turn_round() -> None:
    assert order_of(build_plan(spec(**TWO_BY_TWO), 0, ARMS, None, None, "Qualify")) == "ABBAABBA"
    assert order_of(build_plan(spec(**TWO_BY_TWO), 1, ARMS, None, None, "Qualify")) == "BAABBAAB"


def test_both_arms_of_a_pair_get_the_same_prompts_arrivals_and_number_of_requests() -> None:
    plan = build_plan(spec(**TWO_BY_TWO), 3, ARMS, None, None, "Qualify", "b1")
    for first, second in zip(plan["runs"][::2], plan["runs"][1::2], strict=True):
        same = ("tier", "slice", "seed", "prompt_seed", "requests", "requests_per_second", "concurrency")
        assert [first[key] for key in same] == [second[key] for key in same]
        assert first["arm"] != second["arm"]
        assert second["order"] == first["order"] + 1


def test_no_two_cells_pairs_or_benchmarks_share_a_seed() -> None:
    seeds = [
        run["prompt_seed"]
        for name in ("b1", "b2")
        for pair in range(4)
        for run in build_plan(spec(**TWO_BY_TWO), pair, ARMS, None, None, "Qualify", name)["runs"][::2]
    ]
    assert len(set(seeds)) == len(seeds) == 32


def test_the_same_input_gives_the_same_plan_and_it_is_json() -> None:
    one = build_plan(spec(**TWO_BY_TWO), 0, ARMS, None, None, "Qualify", "b1")
    assert json.loads(json.dumps(one)) == build_plan(spec(**TWO_BY_TWO), 0, ARMS, None, None, "Qualify", "b1")


def test_a_half_measures_exactly_what_the_other_half_measures() -> None:
    halves = [
        build_plan(spec(**TWO_BY_TWO), 1, {role: arm}, None, None, "Qualify", "b1")["runs"]
        for role, arm in ARMS.items()
    ]
    both = build_plan(spec(**TWO_BY_TWO), 1, ARMS, None, None, "Qualify", "b1")["runs"]
    assert sorted([*halves[0], *halves[1]], key=lambda run: run["order"]) == both


def test_capacity_shares_need_a_measured_capacity_which_may_differ_per_slice() -> None:
    shares = spec(tiers=[{"name": "low", "capacityRatio": 0.5}], slices=[{"name": "a"}, {"name": "b"}])
    assert shares.benchmark.needs_capacity
    with pytest.raises(PlanError, match="has not been measured"):
        build_plan(shares, 0, ARMS, None, None, "Qualify")
    rates = {
        run["slice"]: run["requests_per_second"] for run in build_plan(shares, 0, ARMS, None, 8.0, "Qualify")["runs"]
    }
    assert rates == {"a": 4.0, "b": 4.0}
    plan = build_plan(shares, 0, ARMS, None, {"a": 8.0, "b": 2.0}, "Qualify")
    assert {run["slice"]: run["requests_per_second"] for run in plan["runs"]} == {"a": 4.0, "b": 1.0}


def test_a_run_is_long_enough_for_the_minimum_number_of_requests_and_for_its_duration() -> None:
    plan = build_plan(spec(**{**TWO_BY_TWO, "runSeconds": 60}), 0, ARMS, None, 5.0, "Qualify")
    assert {run["tier"]: run["requests"] for run in plan["runs"]} == {"low": 120, "peak": 300}
    short = build_plan(spec(**{**TWO_BY_TWO, "runSeconds": 2}), 0, ARMS, None, None, "Qualify")
    assert {run["tier"]: run["requests"] for run in short["runs"]} == {"low": 10, "peak": 16}


def test_a_plan_whose_requests_take_longer_than_its_runs_has_the_time_for_them() -> None:
    slow = {"tiers": [{"name": "low", "requestsPerSecond": 0.25}], "slices": [{"name": "chat"}], "warmupSeconds": 0}
    plan = build_plan(spec(**slow, runSeconds=300, minimumRequests=300), 0, ARMS, None, None, "Qualify")
    assert plan["deadline_seconds"] == 3 * 2 * 1200 + 600
    assert plan["return_seconds"] == 1800, "an engine may end in its last run, and is waited for"
    assert latest_end_seconds(plan) == plan["deadline_seconds"] + 1800 + 2580, "a run that began in time may end"


def test_the_prompts_of_a_unit_that_is_measured_again_are_counted_on() -> None:
    firsts = [
        build_plan(spec(**TWO_BY_TWO), 0, ARMS, None, None, "Qualify", "b1", repeat)["first_attempt"]
        for repeat in range(3)
    ]
    assert firsts == [0, 4, 8], "three attempts of a run, and one with a client of its own"


def test_capacity_is_one_closed_loop_run_of_the_plain_arm_per_slice() -> None:
    plan = build_plan(spec(**TWO_BY_TWO), 0, {ArmRole.BASELINE: ARMS[ArmRole.BASELINE]}, None, None, "Capacity")
    assert [(run["arm"], run["slice"], run["concurrency"], run["requests"]) for run in plan["runs"]] == [
        ("baseline", "chat", 8, None),
        ("baseline", "code", 8, None),
    ]
    with pytest.raises(PlanError, match="plain arm"):
        build_plan(spec(), 0, {ArmRole.SPECULATIVE: ARMS[ArmRole.SPECULATIVE]}, None, None, "Capacity")


def test_suspect_cells_only() -> None:
    plan = build_plan(spec(**TWO_BY_TWO), 0, ARMS, [("peak", "code")], None, "Suspicion")
    assert {(run["tier"], run["slice"]) for run in plan["runs"]} == {("peak", "code")}
    with pytest.raises(PlanError, match="night/chat is not a cell"):
        build_plan(spec(**TWO_BY_TWO), 0, ARMS, [("night", "chat")], None, "Suspicion")


def test_a_matrix_too_large_for_one_message_is_refused() -> None:
    large = spec(
        tiers=[{"name": f"t{i}", "requestsPerSecond": 1} for i in range(6)],
        slices=[{"name": f"s{i}"} for i in range(8)],
    )
    with pytest.raises(PlanError, match="several Jobs"):
        build_plan(large, 0, ARMS, None, None, "Qualify")


def test_the_built_in_prompts_are_prose_code_and_questions() -> None:
    prompts = [json.loads(line)["prompt"] for line in built_in_prompts().splitlines()]
    assert len(prompts) >= 12
    assert any("```python" in prompt for prompt in prompts)
    assert any(prompt.startswith("Question:") for prompt in prompts)
    assert min(map(len, prompts)) > 300


def test_what_is_mounted_runs_without_the_package_and_without_any_other(tmp_path: Path) -> None:
    (tmp_path / DRIVER).mkdir()
    for name, text in driver_sources().items():
        (tmp_path / DRIVER / name).write_text(text)
    # -S: no site-packages, so neither specfleet nor what it needs can be imported.
    command = [sys.executable, "-S", "-m", DRIVER, "--plan", str(tmp_path / "plan.json")]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env={}, cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (2, "")
    assert "plan.json" in answer.stdout


def test_a_plan_names_a_harness_that_the_driver_has() -> None:
    assert build_plan(spec(**TWO_BY_TWO), 0, ARMS, None, None, "Qualify")["harness"] in HARNESSES
