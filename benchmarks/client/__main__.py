"""`make bench-client`: how punctual the benchmark's client is beside an engine, and whether a starved one is found out.

    python -m benchmarks.client [--real] [--seconds N]

The driver runs as in its Job, against one simulated engine, at 20 requests/s with 64 streamed tokens each: first as it
is, then with its client stopped (SIGSTOP) for a fifth of the time. The first run must have a send lag p99 below 10 ms,
the second must be called invalid. Needs a quiet machine of two cores: what is measured is the machine too.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import RunSummary
from specfleet.api.status import ArmRole
from specfleet.benchmark.plan import ArmTarget, build_plan, built_in_prompts
from specfleet.benchmark.result import DriverReport, parse_report

from e2e.engine.engine import free_port
from e2e.engine.models import tiny_models
from e2e.engine.set_up import environment, folder

ROOT = Path(__file__).parents[2]
SIMULATED = [sys.executable, "-m", "vllm_sim"]
ENVIRONMENT = {**environment(), "PYTHONPATH": str(ROOT / "images/vllm-sim")}
REQUESTS_PER_SECOND, TOKENS = 20, 64
LIMIT_SECONDS = 0.010
STOPPED_SECONDS, RUNNING_SECONDS = 0.2, 0.8
START_SECONDS = 60
FOUND_OUT = ("ClientLag", "LittlesLaw")
"""Being stopped looks like lateness, or like time that the pod did not see; either way the run is not compared."""


@contextmanager
def engine() -> Iterator[str]:
    """A simulated engine at its ordinary speed; its URL."""
    port = free_port()
    command = [*SIMULATED, "serve", "org/tiny", "--served-model-name", "tiny", "--port", str(port)]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS
    try:
        while not _healthy(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the simulated engine does not answer at {url}")
            time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.wait()


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def measured(
    url: str, bench: Sequence[str], tokenizer: str, seconds: int, disturb: Callable[[int], None]
) -> RunSummary:
    """One run by the driver, as its Job does it. `disturb` gets the process id of the driver while it runs."""
    spec = DeploymentSpec.model_validate(
        {
            "model": {"name": "org/tiny", "servedName": "tiny", "tokenizer": tokenizer},
            "engine": {"image": "vllm:0.32.0"},
            "benchmark": {
                "tiers": [{"name": "load", "requestsPerSecond": REQUESTS_PER_SECOND}],
                "slices": [{"name": "chat", "promptTokens": 64, "outputTokens": TOKENS}],
                "runSeconds": seconds,
                "warmupSeconds": 4,
                "minimumRequests": 20,
            },
        }
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arms = {ArmRole.BASELINE: ArmTarget(url, "engine", "f")}
        plan = build_plan(spec, 0, arms, None, None, "Suspicion", "client")
        plan.update(
            bench_command=list(bench),
            prompts_file=str(folder / "prompts.jsonl"),
            work_dir=str(folder / "work"),
            termination_path=str(folder / "message"),
            run_repeats=0,
        )
        (folder / "prompts.jsonl").write_text(built_in_prompts())
        (folder / "plan.json").write_text(json.dumps(plan))
        command = [sys.executable, "-m", "specfleet.benchmark.driver", "--plan", str(folder / "plan.json")]
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=sys.stderr)
        thread = threading.Thread(target=disturb, args=(process.pid,), daemon=True)
        thread.start()
        process.wait()
        thread.join()
        report = parse_report((folder / "message").read_text())
        if not isinstance(report, DriverReport) or len(report.runs) != 1:
            raise RuntimeError(f"the driver measured nothing: {report}")
        return report.runs[0]


def leave_alone(driver: int) -> None:
    """No disturbance."""
    del driver


def starve(driver: int) -> None:
    """Stop the driver's client for a fifth of each second, until the driver ends."""
    while _alive(driver):
        for client in _descendants(driver):
            _signal(client, signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        for client in _descendants(driver):
            _signal(client, signal.SIGCONT)
        time.sleep(RUNNING_SECONDS)


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _descendants(process: int) -> list[int]:
    """The process with the client's imports, and the client that it forked."""
    try:
        children = [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(one for child in children for one in _descendants(child))]


def _signal(process: int, number: int) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return


def told(name: str, run: RunSummary) -> str:
    """One row of the table."""
    lag = "unknown" if run.client_lag_p99_seconds is None else f"{1000 * run.client_lag_p99_seconds:.2f} ms"
    load = f"{run.completed_requests} of {run.planned_requests} requests, {run.output_tokens} tokens"
    return f"| {name} | {load} | {lag} | {run.invalid_reason or 'valid'} |"


def real_client() -> tuple[list[str], str]:
    """`vllm bench serve` of the installed engine, and the tokenizer of its test models. Raises EngineMissingError."""
    return [str(folder() / "bin" / "vllm"), "bench", "serve"], str(tiny_models() / "target")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 only if the undisturbed client is punctual and the starved one is found out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=30, help="length of each run (default 30)")
    parser.add_argument("--real", action="store_true", help="the client of the real engine (make engine), not ours")
    options = parser.parse_args(arguments)
    bench, tokenizer = real_client() if options.real else ([*SIMULATED, "bench", "serve"], "org/tiny")
    with engine() as url:
        quiet = measured(url, bench, tokenizer, options.seconds, leave_alone)
        starved = measured(url, bench, tokenizer, options.seconds, starve)
    print(f"{REQUESTS_PER_SECOND} requests/s x {TOKENS} streamed tokens, limit {1000 * LIMIT_SECONDS:.0f} ms\n")
    print("| client | sent | send lag p99 | run |\n|---|---|---|---|")
    print(told("undisturbed", quiet))
    print(told("stopped for a fifth of the time", starved))
    punctual = quiet.client_lag_p99_seconds is not None and quiet.client_lag_p99_seconds < LIMIT_SECONDS
    found_out = (starved.invalid_reason or "").split(":")[0] in FOUND_OUT
    if not punctual:
        print("the undisturbed client was not punctual: is the machine quiet?", file=sys.stderr)
    if not found_out:
        print("the starved client was not found out", file=sys.stderr)
    return 0 if punctual and found_out else 1


if __name__ == "__main__":
    sys.exit(main())
