"""`kubectl specfleet lint FILE...`: the engine rules, offline."""

import argparse
import sys
from pathlib import Path
from typing import Any

from specfleet.cli.exit_codes import OK, REFUSED, UNUSABLE_INPUT
from specfleet.cli.help_text import HelpFormatter, examples


def register(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "lint",
        help="check manifests offline with the operator's own rules",
        description="Checks SpeculativeDeployments with the schema, the admission rules and the engine rules that the "
        "operator uses. Exit code 0: nothing is refused; 1: something is; 2: a file cannot be used.",
        epilog=examples(
            "lint app.yaml",
            "lint --strict --format sarif deploy/ > specfleet.sarif",
            "lint --models /srv/models app.yaml",
        )
        + "\n  kustomize build overlays/prod | kubectl specfleet lint -",
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="manifest, folder of manifests, or - for stdin")
    parser.add_argument("--format", choices=("text", "json", "sarif"), default="text", help="default: text")
    parser.add_argument("--strict", action="store_true", help="exit 1 for warnings too")
    parser.add_argument(
        "--models", type=Path, metavar="DIR", help="folder with the models' files: compares their config.json"
    )
    parser.add_argument("--with-engine", action="store_true", help="also ask the vllm package installed in this Python")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Lints and prints."""
    from specfleet.cli.lint_output import FORMATS
    from specfleet.cli.linting import lint, locate_below
    from specfleet.cli.manifests import read_manifests

    locate, ask_engine = None, None
    if chosen.models is not None:
        if not chosen.models.is_dir():
            return _unusable(f"--models {chosen.models}: no such folder")
        locate = locate_below(chosen.models)
    if chosen.with_engine:
        from specfleet.cli.with_engine import EngineMissingError, engine_asker

        try:
            ask_engine = engine_asker(locate)
        except EngineMissingError as error:
            return _unusable(str(error))
    reading = read_manifests(chosen.files)
    results = [lint(manifest, locate, ask_engine) for manifest in reading.manifests]
    if results:
        print(FORMATS[chosen.format](results))
    for message in reading.unusable:
        _unusable(message)
    if reading.unusable:
        return UNUSABLE_INPUT
    if not results:
        return _unusable(reading.nothing(chosen.files))
    failed = any(result.refused or (chosen.strict and result.warned) for result in results)
    return REFUSED if failed else OK


def _unusable(message: str) -> int:
    print(f"kubectl specfleet lint: {message}", file=sys.stderr)
    return UNUSABLE_INPUT
