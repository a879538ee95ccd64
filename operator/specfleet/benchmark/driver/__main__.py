"""Runs one pair of the benchmark inside a Job's pod.

    python3 -m driver --plan /specfleet/plan.json       in the folder that the Job mounts

Reads a plan (benchmark/plan.py writes it), runs its harness (harness.py) against pod addresses, takes its own /metrics
deltas from those pods (counters.py), validates every run (validity.py) and leaves one termination message of at most
4096 bytes (message.py; benchmark/result.py reads it).

Exit code 0: measured, even if some runs are invalid. 1: could not measure. 2: the plan cannot be used. 3: stopped by
SIGTERM; the message holds what was finished.
"""

import argparse
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from .bench import Bench
from .failures import BadPlanError, CannotMeasureError, StoppedError
from .harness import HARNESSES, PLAN_VERSION, Json
from .message import MESSAGE_VERSION, encode_message
from .pair import run_pair
from .progress import say
from .proxies import name_direct_hosts
from .session import Session
from .texts import load_prompts


def read_plan(path: str) -> Json:
    """The plan as benchmark/plan.py wrote it. Raises BadPlanError."""
    try:
        plan = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadPlanError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(plan, dict) or plan.get("version") != PLAN_VERSION:
        raise BadPlanError(f"{path} is not a plan of version {PLAN_VERSION}: operator and driver differ")
    if plan.get("harness") not in HARNESSES:
        known = ", ".join(sorted(HARNESSES))
        raise BadPlanError(f"{path}: the harness {plan.get('harness')!r} is not known; there are: {known}")
    return plan


def finish(session: Session, code: int, path: str) -> int:
    """Write the termination message; a message that does not fit is itself a failure to measure."""
    try:
        text = encode_message(session)
    except CannotMeasureError as error:
        text, code = json.dumps({"v": MESSAGE_VERSION, "tiers": [], "slices": [], "runs": [], "error": str(error)}), 1
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        say(f"the termination message cannot be written to {path}: {error}")
        return 1
    say(f"{len(session.runs)} runs recorded in {len(text.encode())} bytes, exit {code}")
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code (see the module's text)."""
    parser = argparse.ArgumentParser(description="Run one pair of the specfleet benchmark.")
    parser.add_argument("--plan", required=True, help="plan file (JSON)")
    options = parser.parse_args(arguments)
    try:
        plan = read_plan(options.plan)
    except BadPlanError as error:
        say(str(error))
        return 2
    work = Path(plan["work_dir"])
    work.mkdir(parents=True, exist_ok=True)
    name_direct_hosts(plan, os.environ)
    harness = HARNESSES[plan["harness"]]
    bench = Bench(harness, environment=harness.environment(work))
    session = Session(plan=plan, source=[], bench=bench, work=work)

    def stop(_signal: int, _frame: object) -> None:
        bench.stop = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    bench.prepare(harness.prepared_command(plan))
    try:
        session.source = load_prompts(plan["prompts_file"])
        run_pair(session)
        code = 0
    except StoppedError:
        session.error, code = "stopped by SIGTERM before the pair was complete", 3
    except CannotMeasureError as error:
        session.error, code = str(error), 1
    except Exception as error:
        # What is finished is worth its GPU hours, and the operator reads nothing but the message.
        traceback.print_exc()
        session.error, code = f"the driver failed: {type(error).__name__}: {error}", 1
    finally:
        bench.give_up_prepared()
    if session.error:
        say(session.error)
    return finish(session, code, plan["termination_path"])


if __name__ == "__main__":
    sys.exit(main())
