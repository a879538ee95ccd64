"""The `vllm` command: `serve`, `bench serve` and `--version`, with the real one's exit codes."""

import sys
from collections.abc import Sequence

from vllm_sim import ENGINE_VERSION

USAGE = "usage: vllm [-h] [-v] {chat,complete,serve,bench,collect-env,run-batch} ..."


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    words = list(arguments)
    if words[:1] in (["-v"], ["--version"]):
        print(ENGINE_VERSION)
        return 0
    if words[:1] == ["serve"]:
        # Imported late: `vllm bench` should not load the engine, nor the engine the benchmark client.
        from vllm_sim.serve import serve

        return serve(words[1:])
    if words[:2] == ["bench", "serve"]:
        from vllm_sim.bench.command import bench_serve

        return bench_serve(words[2:])
    print(USAGE, file=sys.stderr)
    if words[:1] in (["-h"], ["--help"]):
        return 0
    if not words:
        return 1
    print(f"vllm: error: argument subparser: invalid choice: {words[0]!r}", file=sys.stderr)
    return 2
