"""One suite of the engine's contract against both engines: the simulated one, then the real one on this CPU.

    python -m e2e.engine.conformance [simulated|real] [pytest arguments]

tests/vllm_sim says what is asked: flags, endpoints, metrics before and after the same 40 requests, SIGTERM, refused
configurations, the bench's result keys. Tests of the simulation itself are skipped on the real engine, and listed.
"""

import os
import subprocess
import sys
from pathlib import Path

from e2e.engine.models import EngineMissingError, deep_models
from e2e.engine.set_up import environment, folder

ROOT = Path(__file__).parents[2]
SUITE = "tests/vllm_sim"


def real_engine() -> dict[str, str]:
    """Environment by which the suite starts the real engine. Raises EngineMissingError.

    The deep target, so that a stream lasts long enough to be cut; its worn draft, so that drafts are refused too.
    """
    models = deep_models()
    return {
        **environment(with_suffix=True),
        "TORCHDYNAMO_DISABLE": "1",
        "SPECFLEET_REAL_ENGINE": str(folder() / "bin" / "vllm"),
        "SPECFLEET_REAL_MODEL": str(models / "target"),
        "SPECFLEET_REAL_DRAFT": str(models / "draft-worn"),
    }


def run(engine: str, arguments: list[str]) -> int:
    """Exit code of the suite against one engine."""
    print(f"\n=== the engine's contract: the {engine} engine ===", flush=True)
    variables = real_engine() if engine == "real" else dict(os.environ)
    command = [sys.executable, "-m", "pytest", SUITE, "-q", "-rs", *arguments]
    return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode


def main(arguments: list[str]) -> int:
    """The worst exit code of the engines asked for; both unless one is named first."""
    chosen = ["simulated", "real"]
    if arguments and arguments[0] in chosen:
        chosen = [arguments.pop(0)]
    try:
        return max(run(engine, arguments) for engine in chosen)
    except EngineMissingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
