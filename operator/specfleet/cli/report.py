"""`kubectl specfleet report`: one file that shows what was measured and why it was decided so."""

import argparse
import json
import sys
from pathlib import Path

from specfleet.cli.exit_codes import OK, UNUSABLE_INPUT
from specfleet.cli.help_text import HelpFormatter, examples
from specfleet.cli.stored import (
    UnusableInputError,
    add_source,
    benchmarks,
    cluster_flags,
    deployments,
    read_objects,
    where,
)

FORMATS = ("html", "md", "json")
STDOUT = "-"
ENDINGS = {".html": "html", ".htm": "html", ".md": "md", ".json": "json"}


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command."""
    command = subparsers.add_parser(
        "report",
        help="write what was measured and decided as one HTML, Markdown or JSON file",
        description="Write evidence and decisions of a SpeculativeDeployment as one file that needs no network.",
        epilog=examples(
            "report llama -n ml -o report.html",
            "report llama -n ml --format md",
            "report -f evidence.yaml -o report.json",
        ),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument("name", nargs="?", help="SpeculativeDeployment; may be left out when there is only one")
    add_source(command)
    command.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="file to write; its ending (.html, .md or .json) chooses the format; default: standard output",
    )
    command.add_argument("--format", choices=FORMATS, help="html (default), md or json")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Exit code: OK or UNUSABLE_INPUT."""
    from specfleet.cli.report_data import build_report, to_json
    from specfleet.cli.report_page import html_page, markdown

    try:
        chosen_format = options.format or _format_of(options.output)
        objects = read_objects(options.filename, options.namespace, cluster_flags(options))
        known = [one for one in deployments(objects) if options.name in (None, one.name)]
        if len(known) != 1:
            names = ", ".join(sorted(one.name for one in deployments(objects))) or "none"
            place = where(options.filename, options.namespace)
            raise UnusableInputError(f"name one SpeculativeDeployment of {place}; there are: {names}")
        mine = [one for one in benchmarks(objects) if one.deployment == known[0]]
        report = build_report(known[0], mine)
        match chosen_format:
            case "json":
                text = json.dumps(to_json(report), indent=1) + "\n"
            case "md":
                text = markdown(report)
            case _:
                text = html_page(report)
        if options.output and options.output != STDOUT:
            Path(options.output).write_text(text, encoding="utf-8")
        else:
            sys.stdout.write(text)
    except (UnusableInputError, OSError) as error:
        print(f"kubectl specfleet report: {error}", file=sys.stderr)
        return UNUSABLE_INPUT
    return OK


def _format_of(output: str | None) -> str:
    """Format by the file's ending; html without one. Raises UnusableInputError for an ending that is no format."""
    ending = Path(output).suffix.lower() if output else ""
    if ending and ending not in ENDINGS:
        raise UnusableInputError(
            f"{output}: no report can be written as {ending}; supported are {', '.join(ENDINGS)} (a browser prints the "
            "HTML page as PDF), or choose with --format"
        )
    return ENDINGS.get(ending, "html")
