"""`python -m specfleet.simulate run FILE...`: scenarios in virtual time; exit 1 when one is not as expected."""

import argparse
import sys
import time
from pathlib import Path

from specfleet.simulate.run import simulate
from specfleet.simulate.scenario import ScenarioError, load
from specfleet.simulate.story import Result


def main(arguments: list[str] | None = None) -> int:
    """Entry point. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m specfleet.simulate", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run scenario files (fields: benchmarks/decisions/scenarios/README.md)")
    run.add_argument("files", nargs="+", type=Path)
    run.add_argument("--verbose", action="store_true", help="tell everything that happened, also where all is well")
    run.add_argument("--only", default="", help="only scenarios whose name contains this")
    options = parser.parse_args(arguments)
    try:
        scenarios = [one for path in options.files for one in load(path) if options.only in one.name]
    except (ScenarioError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    failed = 0
    for scenario in scenarios:
        began = time.perf_counter()
        result = simulate(scenario)
        failed += not result.passed
        _tell(result, time.perf_counter() - began, options.verbose)
    print(f"{len(scenarios) - failed} of {len(scenarios)} scenarios as expected")
    return 1 if failed else 0


def _tell(result: Result, seconds: float, verbose: bool) -> None:
    print(f"{'ok  ' if result.passed else 'FAIL'} {result.scenario.name} ({seconds:.1f} s)", flush=True)
    for failure in result.failures:
        print(f"     {failure}")
    if verbose or not result.passed:
        for happening in result.happenings:
            print(f"     {happening}")


if __name__ == "__main__":
    sys.exit(main())
