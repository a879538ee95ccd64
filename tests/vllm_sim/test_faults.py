"""Faults that are switched on while the engine runs."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from vllm_sim.faults import FaultError, FaultSource, Identity, combine, parse_faults

from tests.vllm_sim.launch import RunningEngine, parse_page, running, wait_until

pytestmark = pytest.mark.usefixtures("simulated_only")

EAGLE = {"method": "eagle3", "model": "sim/draft", "num_speculative_tokens": 3}
ON = {"VLLM_SIM_FAULTS": "1"}
PLAIN = Identity(None, "F1", ("tiny",), "m", None, started=1000.0)
SPECULATIVE = Identity("eagle3", "F2", ("tiny",), "m", "sim/draft", started=1000.0)


def _post(engine: RunningEngine, *faults: dict[str, Any]) -> None:
    answer = engine.post("/sim/faults", {"faults": list(faults)})
    assert answer.status == 200, answer.body


def _acceptance(engine: RunningEngine, requests: int = 6) -> float:
    """Accepted share of the draft tokens of some requests."""
    before = parse_page(engine.metrics())
    for number in range(requests):
        assert engine.complete(f"prompt {number} {time.time()}", max_tokens=100, ignore_eos=True).status == 200
    after = parse_page(engine.metrics())

    def delta(name: str) -> float:
        return after.value(f"vllm:spec_decode_{name}_total") - before.value(f"vllm:spec_decode_{name}_total")

    return delta("num_accepted_tokens") / delta("num_draft_tokens")


def test_acceptance_decays_by_factor_and_by_position_and_comes_back(folder: Path) -> None:
    profile = {"proposers": {"eagle3": {"acceptance": [1.0]}}}
    with running(folder, speculative=EAGLE, env=ON, profile=profile) as engine:
        assert _acceptance(engine) == 1.0
        _post(engine, {"kind": "acceptance_decay", "factor": 0.5})
        assert 0.15 < _acceptance(engine) < 0.45  # (0.5 + 0.25 + 0.125) / 3 = 0.29
        _post(engine, {"kind": "acceptance_decay", "acceptance": [1.0, 0.0]})
        assert _acceptance(engine) == pytest.approx(1 / 3)
        _post(engine)
        assert _acceptance(engine) == 1.0


def test_a_file_changes_the_faults_of_a_running_engine(folder: Path) -> None:
    file = folder / "faults.json"
    profile = {"proposers": {"eagle3": {"acceptance": [1.0]}}}
    with running(folder, speculative=EAGLE, env={"VLLM_SIM_FAULTS_FILE": str(file)}, profile=profile) as engine:
        assert engine.post("/sim/faults", []).status == 404
        file.write_text(json.dumps({"faults": [{"id": "decay", "kind": "acceptance_decay", "acceptance": [0.0]}]}))
        wait_until(lambda: engine.get("/sim/state").json()["faults"]["active"] == ["decay"], 10, "the file was read")
        assert _acceptance(engine) == 0.0
        file.unlink()
        wait_until(lambda: engine.get("/sim/state").json()["faults"]["active"] == [], 10, "the fault is gone")
        assert _acceptance(engine) == 1.0


def test_slower_steps_make_answers_slower(folder: Path) -> None:
    def per_token() -> float:
        before = parse_page(engine.metrics())
        engine.complete(f"prompt {time.time()}", max_tokens=50, ignore_eos=True)
        after = parse_page(engine.metrics())
        name = "vllm:request_decode_time_seconds_sum"
        return (after.value(name) - before.value(name)) / 49

    with running(folder, env=ON, profile={"step_noise_sd": 0}) as engine:
        healthy = per_token()
        _post(engine, {"kind": "slow_steps", "factor": 3})
        # Engine time, not the test machine's: exact but for the step in which the fault came.
        assert per_token() == pytest.approx(3 * healthy, rel=0.1)


def test_a_hang_stops_progress_while_health_stays_green(folder: Path) -> None:
    with running(folder, env=ON) as engine:
        _post(engine, {"kind": "hang"})
        stream = engine.open_stream("prompt", max_tokens=5)
        wait_until(lambda: engine.get("/sim/state").json()["unfinished"] == 1, 10, "the request is in")
        assert engine.get("/health").status == 200
        assert parse_page(engine.metrics()).value("vllm:generation_tokens_total") == 0
        _post(engine)
        assert b"[DONE]" in stream.read()


def test_a_share_of_requests_fails_with_500(folder: Path) -> None:
    with running(folder, env=ON) as engine:
        _post(engine, {"kind": "error_share", "share": 0.5})
        statuses = [engine.complete(f"p{n}", max_tokens=1).status for n in range(60)]
        page = parse_page(engine.metrics())
    assert set(statuses) == {200, 500}
    assert page.value("http_requests_total", status="5xx") == statuses.count(500)


def test_wrong_output_breaks_agreement(folder: Path) -> None:
    with running(folder, env=ON) as engine:
        right = engine.complete("same").json()["choices"][0]["text"]
        _post(engine, {"kind": "wrong_output"})
        assert engine.complete("same").json()["choices"][0]["text"] != right


def test_phantom_drafts_lower_the_counted_acceptance(folder: Path) -> None:
    profile = {"proposers": {"eagle3": {"acceptance": [1.0]}}}
    with running(folder, speculative=EAGLE, env=ON, profile=profile) as engine:
        _post(engine, {"kind": "phantom_drafts", "per_request": 25})
        assert 0.4 < _acceptance(engine) < 0.6


@pytest.mark.parametrize(("exit_code", "expected"), [(1, 1), (137, -9)])
def test_out_of_memory_ends_the_process(exit_code: int, expected: int, folder: Path) -> None:
    with running(folder, env=ON, profile={"engine_dead_seconds": 0.1}) as engine:
        _post(engine, {"kind": "out_of_memory", "exit_code": exit_code, "running_at_least": 1})
        try:
            assert engine.complete("x", max_tokens=50).status == 500
        except OSError:
            assert expected == -9
        assert engine.exit_code() == expected
        assert "CUDA out of memory" in engine.log.read_text()


def test_out_of_memory_without_a_minimum_load_ends_an_idle_engine(folder: Path) -> None:
    with running(folder, env=ON, profile={"engine_dead_seconds": 0.1}) as engine:
        _post(engine, {"kind": "out_of_memory", "exit_code": 1})
        assert engine.exit_code() == 1


def test_a_crash_on_the_first_request_answers_500_and_ends(folder: Path) -> None:
    with running(folder, env=ON, profile={"engine_dead_seconds": 0.3}) as engine:
        _post(engine, {"kind": "crash_on_request", "exit_code": 1})
        assert engine.complete("x").status == 500
        assert engine.get("/health").status == 503
        assert engine.exit_code() == 1


def test_a_start_up_failure_ends_before_listening(folder: Path) -> None:
    file = folder / "faults.json"
    file.write_text(json.dumps([{"kind": "startup_failure", "exit_code": 3, "message": "no GPU"}]))
    with (
        pytest.raises(AssertionError, match=r"(?s)ended with 3.*no GPU"),
        running(folder, env={"VLLM_SIM_FAULTS_FILE": str(file)}) as engine,
    ):
        engine.exit_code()


def test_the_engine_that_cannot_take_a_schedule_dies_on_its_first_request(folder: Path) -> None:
    config = {"method": "medusa", "model": "a/b", "num_speculative_tokens": 3}
    config["num_speculative_tokens_per_batch_size"] = [[1, 8, 3]]
    with running(folder, speculative=config, profile={"engine_dead_seconds": 0.1}) as engine:
        assert engine.complete("x").status == 500
        assert engine.exit_code() == 1


# ---------------------------------------------------------------------------------------------- selection and time


@pytest.mark.parametrize(
    ("arms", "plain", "speculative"),
    [
        ({}, True, True),
        ({"speculation": True}, False, True),
        ({"speculation": False}, True, False),
        ({"methods": ["eagle3"]}, False, True),
        ({"methods": ["none"]}, True, False),
        ({"fingerprints": ["F2", "F9"]}, False, True),
        ({"draft_models": ["sim/draft"], "methods": ["ngram"]}, False, False),
        ({"served_names": ["tiny"]}, True, True),
    ],
)
def test_a_fault_names_its_arms(arms: dict[str, Any], plain: bool, speculative: bool) -> None:
    document = [{"kind": "hang", "arms": arms}]
    assert bool(parse_faults(document, PLAIN, 0.0)) is plain
    assert bool(parse_faults(document, SPECULATIVE, 0.0)) is speculative


@pytest.mark.parametrize(
    ("heals", "started", "works"), [(True, 999.0, True), (True, 1001.0, False), (False, 1001.0, True)]
)
def test_a_restart_heals_only_what_says_so(heals: bool, started: float, works: bool) -> None:
    identity = Identity("eagle3", "F", ("tiny",), "m", None, started)
    faults = parse_faults([{"kind": "hang", "at": 1000.0, "heals_on_restart": heals}], identity, 0.0)
    assert combine(faults, identity, 1002.0).hang is works


def test_a_decay_can_come_slowly() -> None:
    faults = parse_faults(
        [{"kind": "acceptance_decay", "factor": 0.5, "over_seconds": 100, "at": 1000}], SPECULATIVE, 0
    )
    factors = [combine(faults, SPECULATIVE, now).acceptance.factor for now in (999, 1000, 1050, 1100, 2000)]
    assert factors == [1.0, 1.0, 0.75, 0.5, 0.5]


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ([{"kind": "nosuch"}], r"faults\[0\].kind"),
        ([{"kind": "hang", "share": 1}], r"faults\[0\].share"),
        ([{"kind": "hang", "arms": {"method": "x"}}], r"faults\[0\].arms.method"),
        ({"fault": []}, "faults"),
        ([{"kind": "slow_steps", "factor": "x"}], r"faults\[0\].factor"),
    ],
)
def test_a_document_that_cannot_be_used_names_the_field(document: object, path: str) -> None:
    with pytest.raises(FaultError, match=path):
        parse_faults(document, PLAIN, 0.0)


def test_a_broken_file_keeps_the_last_good_faults(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text('[{"id": "h", "kind": "hang"}]')
    source = FaultSource(PLAIN, {"VLLM_SIM_FAULTS_FILE": str(file)})
    assert source.poll(2e9).hang
    file.write_text("[broken")
    os.utime(file, (1, 1))
    assert source.poll(2e9).hang
    assert "faults.json" in source.error


def test_a_fault_told_by_file_and_by_post_works_once(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    document = [{"id": "slow", "kind": "slow_steps", "factor": 3}]
    file.write_text(json.dumps(document))
    source = FaultSource(PLAIN, {"VLLM_SIM_FAULTS_FILE": str(file)})
    source.poll(2e9)
    assert source.post(document).step_factor == 3.0


def test_a_fault_without_a_time_keeps_its_first_one_when_the_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    entry = '{"id": "h", "kind": "hang", "heals_on_restart": true}'
    file.write_text(f"[{entry}]")
    os.utime(file, (900, 900))  # written before this process began at 1000: healed
    source = FaultSource(PLAIN, {"VLLM_SIM_FAULTS_FILE": str(file)})
    assert not source.poll(2000.0).hang
    file.write_text(f'[{entry}, {{"kind": "slow_steps"}}]')
    os.utime(file, (1500, 1500))
    assert not source.poll(2000.0).hang
    assert source.poll(2000.0).step_factor == 2.0
