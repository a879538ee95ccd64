"""The driver as the Job runs it, against two simulated engines on loopback, with the simulated `vllm bench serve`."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import ArmRole, Verdict
from specfleet.benchmark.plan import ArmTarget, build_plan, built_in_prompts
from specfleet.benchmark.result import DriverReport, parse_report
from specfleet.decide.evidence import judge, quantity_of

ROOT = Path(__file__).parents[3]
OTHER = Path(__file__).with_name("other_harness.py")
VLLM = [sys.executable, "-m", "vllm_sim"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "images/vllm-sim"), "VLLM_SIM_PROFILE": '{"time_scale": 2.0}'}
SPECULATION = '{"method": "eagle3", "model": "org/draft", "num_speculative_tokens": 3}'
DEADLINE_SECONDS = 60


@dataclass
class Engine:
    port: int
    words: list[str]
    process: "subprocess.Popen[bytes]"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def restart(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = start(self.port, self.words)


def start(port: int, words: list[str], **variables: str) -> "subprocess.Popen[bytes]":
    command = [*VLLM, "serve", "org/tiny", "--served-model-name", "tiny", "--port", str(port), *words]
    environment = {**ENVIRONMENT, **variables}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_SECONDS} s: {what}"
        time.sleep(0.05)


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[ArmRole, Engine]]:
    found = {}
    for role, words in ((ArmRole.BASELINE, []), (ArmRole.SPECULATIVE, ["--speculative-config", SPECULATION])):
        port = free_port()
        found[role] = Engine(port, words, start(port, words))
    for engine in found.values():
        until(lambda url=engine.url: healthy(url), f"{engine.url} answers")  # type: ignore[misc]
    yield found
    for engine in found.values():
        engine.process.kill()
        engine.process.wait()


def spec(**benchmark: Any) -> DeploymentSpec:
    matrix: dict[str, Any] = {
        "tiers": [{"name": "low", "requestsPerSecond": 8}],
        "slices": [{"name": "chat", "promptTokens": 40, "outputTokens": 24}],
        "runSeconds": 3,
        "warmupSeconds": 0,
        "minimumRequests": 10,
        "pairs": 3,
    }
    return DeploymentSpec.model_validate(
        {
            "model": {"name": "org/tiny", "servedName": "tiny"},
            "engine": {"image": "vllm:0.32.0"},
            "speculation": {"method": "eagle3", "draft": {"model": "org/draft"}, "numSpeculativeTokens": 3},
            "benchmark": {**matrix, **benchmark},
        }
    )


@dataclass
class Job:
    """One run of the driver, as the Job's pod would do it."""

    folder: Path
    plan: dict[str, Any]
    process: "subprocess.Popen[bytes] | None" = None
    program: tuple[str, ...] = ("-m", "specfleet.benchmark.driver")
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def begin(self) -> None:
        (self.folder / "plan.json").write_text(json.dumps(self.plan))
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.program, "--plan", str(self.folder / "plan.json")],
                env={**ENVIRONMENT, **self.variables},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def end(self) -> tuple[int, DriverReport]:
        assert self.process is not None
        code = self.process.wait(timeout=180)
        report = parse_report((self.folder / "message").read_text())
        assert isinstance(report, DriverReport), report
        return code, report

    def run(self) -> tuple[int, DriverReport]:
        self.begin()
        return self.end()


def vllm_script(folder: Path) -> str:
    """The command as an image has it: a script with its interpreter in the first line."""
    script = folder / "vllm"
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom vllm_sim.cli import main\nsys.exit(main(sys.argv[1:]))\n")
    script.chmod(0o755)
    return str(script)


def job(
    folder: Path,
    engines: dict[ArmRole, Engine],
    wanted: DeploymentSpec,
    pair: int = 0,
    purpose: str = "Qualify",
    roles: tuple[ArmRole, ...] = tuple(ArmRole),
) -> Job:
    folder.mkdir(parents=True, exist_ok=True)
    arms = {role: ArmTarget(engines[role].url, f"pod-{role.value}", role.value) for role in roles}
    plan = build_plan(wanted, pair, arms, None, None, purpose, "b1")
    (folder / "prompts.jsonl").write_text(built_in_prompts())
    plan.update(
        bench_command=[vllm_script(folder), "bench", "serve"],
        prompts_file=str(folder / "prompts.jsonl"),
        work_dir=str(folder / "work"),
        termination_path=str(folder / "message"),
        # A shared machine of two cores: what is asserted here is not how punctual it is.
        client_lag_limit_seconds=2.0,
        client_lag_mean_limit_seconds=0.5,
        run_repeats=0,
        little_law_tolerance_ratio=0.5,
    )
    return Job(folder, plan)


def evidence_of(report: DriverReport, pair: int) -> BenchmarkEvidenceSpec:
    begun = datetime(2026, 1, 1, pair, tzinfo=UTC)
    return BenchmarkEvidenceSpec(
        deployment="d",
        benchmark="b1",
        purpose="Qualify",
        unit=f"p{pair}",
        pair=pair,
        baseline="a",
        candidate="b",
        proposer="eagle3 k=3",
        started=begun,
        finished=begun + timedelta(minutes=1),
        gpu_seconds=60,
        runs=list(report.runs),
        request_probes=list(report.request_probes),
    )


def test_a_proposer_that_wins_at_low_load_and_loses_at_the_peak_fails_and_the_tiers_are_named(
    engines: dict[ArmRole, Engine], tmp_path: Path
) -> None:
    dear = '{"time_scale": 2.0, "proposers": {"eagle3": {"draft_milliseconds": {"per_kv_token": 0.02}}}}'
    port = free_port()
    words = ["--speculative-config", SPECULATION]
    drafted = Engine(port, words, start(port, words, VLLM_SIM_PROFILE=dear))
    both = spec(tiers=[{"name": "low", "requestsPerSecond": 3}, {"name": "peak", "concurrency": 24}], runSeconds=6)
    try:
        until(lambda: healthy(drafted.url), "the dear proposer answers")
        arms = {ArmRole.BASELINE: engines[ArmRole.BASELINE], ArmRole.SPECULATIVE: drafted}
        evidence = []
        for pair in range(3):
            code, report = job(tmp_path / str(pair), arms, both, pair).run()
            assert code == 0
            evidence.append(evidence_of(report, pair))
    finally:
        drafted.process.kill()
        drafted.process.wait()
    verdict = judge(both, evidence)
    assert verdict.verdict is Verdict.FAIL, verdict.message
    assert "speculation wins at low and loses at peak" in verdict.message


def test_three_short_pairs_of_a_true_gain_pass_and_carry_everything_that_is_reported(
    engines: dict[ArmRole, Engine], tmp_path: Path
) -> None:
    both = spec(tiers=[{"name": "low", "requestsPerSecond": 8}, {"name": "peak", "concurrency": 8}])
    evidence = []
    for pair in range(3):
        code, report = job(tmp_path / str(pair), engines, both, pair).run()
        assert code == 0
        assert report.error is None
        assert [run.invalid_reason for run in report.runs] == [None] * 4
        evidence.append(evidence_of(report, pair))
        plain = [run for run in report.runs if run.arm is ArmRole.BASELINE]
        drafted = [run for run in report.runs if run.arm is ArmRole.SPECULATIVE]
        assert all(run.drafts == 0 for run in plain)
        for run in drafted:
            assert run.draft_tokens == 3 * run.drafts > 0
            assert sum(run.accepted_per_position) == run.accepted_tokens
            assert run.agreement_ratio == 1.0
            assert run.pod == "pod-speculative"
        assert all(run.kv_cache_peak_ratio is not None and run.engine_tpot_seconds for run in report.runs)
        assert all((run.client_lag_p99_seconds is None) is (run.concurrency is not None) for run in report.runs)
    probes = {probe.name: probe.broken for one in evidence for probe in one.request_probes}
    assert probes["min_p"]
    assert probes["logit_bias"]
    assert not probes["logprobs"]
    verdict = judge(both, evidence)
    assert verdict.gain_ratio is not None
    assert verdict.gain_ratio > 0.2
    # A machine that is busy with something else delays first tokens at random; everything else has to hold.
    failed = {guard.name for guard in verdict.guards if guard.verdict is Verdict.FAIL}
    assert failed <= {"TimeToFirstToken"}, verdict.message
    assert quantity_of(both)[0](evidence[0].runs[0]) == evidence[0].runs[0].engine_tpot_seconds


def test_capacity_is_measured_in_closed_loop_on_the_plain_arm(engines: dict[ArmRole, Engine], tmp_path: Path) -> None:
    shares = spec(tiers=[{"name": "low", "capacityRatio": 0.5}, {"name": "peak", "concurrency": 4}], runSeconds=2)
    code, report = job(tmp_path, engines, shares, purpose="Capacity", roles=(ArmRole.BASELINE,)).run()
    assert code == 0
    capacity = report.capacity_requests_per_second
    assert capacity == pytest.approx(report.runs[0].completed_requests_per_second, rel=1e-3)
    assert capacity > 0


def test_a_capacity_that_was_not_measured_is_an_error_and_no_number(
    engines: dict[ArmRole, Engine], tmp_path: Path
) -> None:
    wrong = job(tmp_path, engines, spec(), purpose="Capacity", roles=(ArmRole.BASELINE,))
    wrong.plan["minimum_requests"] = 10**6
    wrong.plan["runs"][0]["requests"] = 10
    code, report = wrong.run()
    assert code == 1
    assert report.runs == ()
    assert report.capacity_requests_per_second is None
    assert "capacity in slice chat: TooFewRequests" in str(report.error)


@contextmanager
def guarded(**variables: str) -> Iterator[dict[ArmRole, Engine]]:
    """A plain engine whose container has these variables."""
    port = free_port()
    engine = Engine(port, [], start(port, [], **variables))
    try:
        until(lambda: healthy(engine.url), "the guarded engine answers")
        yield {ArmRole.BASELINE: engine}
    finally:
        engine.process.kill()
        engine.process.wait()


def test_engines_behind_an_api_key_are_measured_with_the_key_of_their_own_environment(tmp_path: Path) -> None:
    key = {"VLLM_API_KEY": "secret"}
    with guarded(**key) as engines:
        one = {"roles": (ArmRole.BASELINE,)}
        pair = job(tmp_path / "pair", engines, spec(warmupSeconds=1), **one)  # type: ignore[arg-type]
        most = job(tmp_path / "most", engines, spec(warmupSeconds=1), purpose="Capacity", **one)  # type: ignore[arg-type]
        pair.variables = most.variables = key
        (code, report), (most_code, most_report) = pair.run(), most.run()
    assert (code, report.error, [run.invalid_reason for run in report.runs]) == (0, None, [None])
    assert report.texts
    assert not any("----" in text for texts in report.texts.values() for text in texts), "no greedy text was refused"
    assert not {probe.baseline_status for probe in report.request_probes} & {401, 403}
    assert (most_code, most_report.error) == (0, None)
    assert most_report.capacity_requests_per_second


def test_a_key_that_the_engine_refuses_is_told_as_such(tmp_path: Path) -> None:
    with guarded(VLLM_API_KEY="secret") as engines:
        stale = job(tmp_path, engines, spec(), roles=(ArmRole.BASELINE,))
        stale.variables = {"VLLM_API_KEY": "another"}
        code, report = stale.run()
    assert code == 1
    assert "refuses our API key (HTTP 401); give it as VLLM_API_KEY in spec.engine.env" in str(report.error)


def test_arms_that_take_turns_leave_two_halves_with_the_same_load(
    engines: dict[ArmRole, Engine], tmp_path: Path
) -> None:
    halves = [job(tmp_path / role.value, engines, spec(), roles=(role,)).run() for role in ArmRole]
    assert [code for code, _ in halves] == [0, 0]
    (plain,), (drafted,) = (report.runs for _, report in halves)
    assert (plain.arm, drafted.arm) == (ArmRole.BASELINE, ArmRole.SPECULATIVE)
    assert plain.planned_requests == drafted.planned_requests
    assert plain.prompt_tokens == drafted.prompt_tokens
    assert set(halves[0][1].texts) == {"baseline", "baseline-again"}
    assert set(halves[1][1].texts) == {"speculative"}


def test_a_second_users_traffic_on_the_arm_invalidates_the_run(engines: dict[ArmRole, Engine], tmp_path: Path) -> None:
    over = threading.Event()

    def intrude() -> None:
        body = json.dumps({"model": "tiny", "prompt": "hello", "max_tokens": 4}).encode()
        while not over.is_set():
            request = urllib.request.Request(
                f"{engines[ArmRole.BASELINE].url}/v1/completions", body, {"Content-Type": "application/json"}
            )
            urllib.request.urlopen(request, timeout=30).read()
            over.wait(0.3)

    other = threading.Thread(target=intrude)
    other.start()
    try:
        code, report = job(tmp_path, engines, spec()).run()
    finally:
        over.set()
        other.join()
    assert code == 0
    reasons = {run.arm: run.invalid_reason or "" for run in report.runs}
    assert reasons[ArmRole.BASELINE].startswith("OtherTraffic")
    assert reasons[ArmRole.SPECULATIVE] == ""


def test_a_run_that_somebody_else_disturbed_is_repeated(engines: dict[ArmRole, Engine], tmp_path: Path) -> None:
    disturbed = job(tmp_path, engines, spec(), roles=(ArmRole.BASELINE,))
    disturbed.plan["run_repeats"] = 2
    disturbed.begin()
    url = engines[ArmRole.BASELINE].url
    until(lambda: "run 1/1" in disturbed.log, "the run has begun")
    until(lambda: running(url) > 0, "requests are running")
    body = json.dumps({"model": "tiny", "prompt": "hello", "max_tokens": 4}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=30).read()
    code, report = disturbed.end()
    assert code == 0
    assert "repeated: OtherTraffic" in disturbed.log
    assert [run.invalid_reason for run in report.runs] == [None]


def test_a_rate_beyond_capacity_is_never_a_valid_run(engines: dict[ArmRole, Engine], tmp_path: Path) -> None:
    slow = spec(
        tiers=[{"name": "low", "requestsPerSecond": 60}],
        slices=[{"name": "chat", "promptTokens": 40, "outputTokens": 400}],
        runSeconds=8,
    )
    code, report = job(tmp_path, engines, slow, roles=(ArmRole.BASELINE,)).run()
    assert code == 0
    assert not report.runs[0].valid


def test_requests_that_all_fail_are_an_invalid_run_although_the_bench_exits_with_zero(
    engines: dict[ArmRole, Engine], tmp_path: Path
) -> None:
    wrong = job(tmp_path, engines, spec())
    wrong.plan["endpoint"] = "/v1/no-such-path/completions"
    code, report = wrong.run()
    assert code == 0
    assert all((run.invalid_reason or "").startswith("FailedRequests") for run in report.runs)
    assert all(run.completed_requests == 0 for run in report.runs)


def test_an_engine_that_restarts_under_the_run_is_detected(engines: dict[ArmRole, Engine], tmp_path: Path) -> None:
    measured = job(tmp_path, engines, spec(runSeconds=6), roles=(ArmRole.BASELINE,))
    measured.begin()
    engine = engines[ArmRole.BASELINE]
    until(lambda: "run 1/1" in measured.log, "the run has begun")
    until(lambda: (tmp_path / "work").exists() and any((tmp_path / "work").glob("*.log")), "the client has started")
    until(lambda: running(engine.url) > 0, "requests are running")
    engine.restart()
    until(lambda: healthy(engine.url), "the engine is back")
    code, report = measured.end()
    assert code == 0
    assert (report.runs[0].invalid_reason or "").split(":")[0] == "PodRestarted"


def test_an_engine_that_ends_under_the_run_and_does_not_come_back_ends_the_job(tmp_path: Path) -> None:
    port = free_port()
    engine = Engine(port, [], start(port, []))
    until(lambda: healthy(engine.url), "the engine answers")
    measured = job(tmp_path, {ArmRole.BASELINE: engine}, spec(runSeconds=6), roles=(ArmRole.BASELINE,))
    measured.plan["return_seconds"] = 1
    measured.begin()
    until(lambda: "run 1/1" in measured.log, "the run has begun")
    until(lambda: running(engine.url) > 0, "requests are running")
    engine.process.kill()
    engine.process.wait()
    code, report = measured.end()
    assert code == 1
    assert not report.runs
    assert "ended and did not come back within 1 s" in str(report.error)


def running(url: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running"))


def children(process: int) -> list[int]:
    said = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True, check=True).stdout
    return [int(one) for one in said.split()]


def test_a_client_that_gets_no_processor_is_flagged(engines: dict[ArmRole, Engine], tmp_path: Path) -> None:
    starved = job(tmp_path, engines, spec(runSeconds=6), roles=(ArmRole.BASELINE,))
    starved.plan.update(client_lag_limit_seconds=0.025, client_lag_mean_limit_seconds=0.01)
    starved.begin()
    engine = engines[ArmRole.BASELINE]
    until(lambda: "run 1/1" in starved.log, "the run has begun")
    until(lambda: running(engine.url) > 0, "requests are running")
    assert starved.process is not None
    # The client is a fork of the process that did its imports.
    (imports,) = children(starved.process.pid)
    (client,) = children(imports)
    os.kill(client, signal.SIGSTOP)
    begun = time.monotonic()
    until(lambda: time.monotonic() - begun > 1.5, "the client was stopped for a while")
    os.kill(client, signal.SIGCONT)
    code, report = starved.end()
    assert code == 0
    assert report.runs[0].client_lag_p99_seconds is not None
    assert report.runs[0].client_lag_p99_seconds > 0.5
    # Being stopped also looks like time that the pod did not see; either way the run is not compared.
    assert (report.runs[0].invalid_reason or "").split(":")[0] in ("ClientLag", "LittlesLaw")


def other(folder: Path, engines: dict[ArmRole, Engine], wanted: DeploymentSpec, *mischief: str, pair: int = 0) -> Job:
    """The same Job with another harness behind the port."""
    made = job(folder, engines, wanted, pair)
    made.program = (str(OTHER), "drive")
    made.plan.update(harness="even", mischief=list(mischief))
    return made


def test_another_harness_behind_the_port_goes_through_the_same_validation_to_a_verdict(
    engines: dict[ArmRole, Engine], tmp_path: Path
) -> None:
    both = spec(tiers=[{"name": "low", "requestsPerSecond": 8}, {"name": "peak", "concurrency": 8}])
    evidence = []
    for pair in range(3):
        code, report = other(tmp_path / str(pair), engines, both, pair=pair).run()
        assert code == 0
        assert [run.invalid_reason for run in report.runs] == [None] * 4
        assert all(run.ttft_mean_seconds and run.tpot_mean_seconds and run.prompt_tokens for run in report.runs)
        assert all((run.client_lag_p99_seconds is None) is (run.concurrency is not None) for run in report.runs)
        evidence.append(evidence_of(report, pair))
    verdict = judge(both, evidence)
    assert verdict.gain_ratio is not None
    assert verdict.gain_ratio > 0.2


@pytest.mark.parametrize(
    ("mischief", "reason"),
    [("--invent-tokens", "TokenMismatch: the pod generated"), ("--write-garbage", "BenchFailed: even left no usable")],
)
def test_what_another_harness_says_of_itself_is_held_against_the_pods_own_counters(
    engines: dict[ArmRole, Engine], tmp_path: Path, mischief: str, reason: str
) -> None:
    code, report = other(tmp_path, engines, spec(), mischief).run()
    assert code == 0
    assert all((run.invalid_reason or "").startswith(reason) for run in report.runs), report.runs


def test_a_harness_that_does_not_say_when_it_sent_proves_no_open_loop_latency(
    engines: dict[ArmRole, Engine], tmp_path: Path
) -> None:
    evidence = []
    for pair in range(3):
        _, report = other(tmp_path / str(pair), engines, spec(), "--forget-starts", pair=pair).run()
        assert all(run.valid and run.client_lag_p99_seconds is None for run in report.runs)
        evidence.append(evidence_of(report, pair))
    verdict = judge(spec(), evidence)
    assert verdict.verdict is not Verdict.PASS
    assert "ClientLagUnknown" in {guard.name for guard in verdict.guards if guard.verdict is Verdict.INCONCLUSIVE}


def test_a_plan_with_an_unknown_harness_is_refused_and_the_known_ones_are_named(
    engines: dict[ArmRole, Engine], tmp_path: Path
) -> None:
    wrong = job(tmp_path, engines, spec())
    wrong.plan["harness"] = "aiperf"
    wrong.begin()
    assert wrong.process is not None
    assert wrong.process.wait(timeout=30) == 2
    assert "the harness 'aiperf' is not known; there are: vllm-bench-serve" in wrong.log


def test_sigterm_leaves_what_is_finished(engines: dict[ArmRole, Engine], tmp_path: Path) -> None:
    stopped = job(tmp_path, engines, spec(runSeconds=4))
    stopped.begin()
    until(lambda: "run 2/2" in stopped.log, "the second run has begun")
    assert stopped.process is not None
    stopped.process.send_signal(signal.SIGTERM)
    code, report = stopped.end()
    assert code == 3
    assert [run.invalid_reason and run.invalid_reason.split(":")[0] for run in report.runs] == [None, "NotMeasured"]
    assert "SIGTERM" in str(report.error)
    bench = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False)
    assert bench.stdout.strip() == ""


def test_a_pod_that_does_not_answer_is_no_measurement(tmp_path: Path) -> None:
    nobody = Engine(free_port(), [], None)  # type: ignore[arg-type]
    code, report = job(tmp_path, dict.fromkeys(ArmRole, nobody), spec()).run()
    assert code == 1
    assert report.runs == ()
    assert "does not answer" in str(report.error)


@pytest.mark.parametrize("text", ["", "{", '{"version": 99}', "[]"])
def test_an_unusable_plan_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    answer = subprocess.run(
        [sys.executable, "-m", "specfleet.benchmark.driver", "--plan", str(tmp_path / "plan.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 2
    assert "plan.json" in answer.stdout
