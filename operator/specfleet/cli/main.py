"""`kubectl specfleet COMMAND`: finds the command's module and runs it."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from specfleet.cli.exit_codes import UNUSABLE_INPUT

COMMANDS = ("explain", "lint", "prompts", "render", "report", "verify")
"""Modules specfleet.cli.<command>, each with register(subparsers). A module imports what is slow inside its command."""


def parser() -> argparse.ArgumentParser:
    """The argument parser with every command."""
    top = argparse.ArgumentParser(
        prog="kubectl specfleet",
        description="Check, show and explain SpeculativeDeployments.",
        epilog="`kubectl specfleet COMMAND --help` shows a command's options and examples.",
        allow_abbrev=False,
    )
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        import_module(f"specfleet.cli.{command}").register(subparsers)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code (specfleet.cli.exit_codes). Every command sets `run`."""
    chosen = parser().parse_args(arguments)
    try:
        code: int = chosen.run(chosen)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        print(f"kubectl specfleet {chosen.command}: {error}", file=sys.stderr)
        return UNUSABLE_INPUT
    return code


if __name__ == "__main__":
    sys.exit(main())
