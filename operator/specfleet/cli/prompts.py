"""`kubectl specfleet prompts`: prompts for a benchmark from requests of production, on this machine only."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from specfleet.cli.exit_codes import OK, UNUSABLE_INPUT
from specfleet.cli.help_text import HelpFormatter, examples

STDIN = "-"
MOST = 400


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command."""
    command = subparsers.add_parser(
        "prompts",
        help="make prompts.jsonl for a benchmark from requests of production, without what identifies people",
        description="Sample request bodies (one JSON object per line, as sent to /v1/completions or "
        "/v1/chat/completions), mask e-mail addresses, numbers, tokens, keys and addresses, and write prompts.jsonl. "
        "Nothing leaves this machine. Names are not recognised: read the file before you use it.",
        epilog=examples(
            "prompts -f requests.jsonl -o prompts.jsonl",
            "prompts -f requests.jsonl -o prompts.jsonl --slice chat --most 200",
        ),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument("-f", "--filename", required=True, metavar="FILE", help="request bodies, or - for stdin")
    command.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write, readable by you alone")
    command.add_argument("--slice", metavar="NAME", help="slice of spec.benchmark that the prompts stand for")
    command.add_argument("--most", type=int, default=MOST, metavar="N", help=f"prompts to keep (default {MOST})")
    command.add_argument("--seed", type=int, default=0, metavar="N", help="another sample of the same requests")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Exit code: OK or UNUSABLE_INPUT."""
    from specfleet.benchmark.capture import capture

    if options.most < 1:
        print("kubectl specfleet prompts: --most must be at least 1", file=sys.stderr)
        return UNUSABLE_INPUT
    with _opened(options.filename) as lines:
        found = capture(lines, options.most, options.seed)
    if not found.prompts:
        said = f"none of {found.read} lines is a request with a prompt in words (prompt, or messages with content)"
        print(f"kubectl specfleet prompts: {options.filename}: {said}", file=sys.stderr)
        return UNUSABLE_INPUT
    labels = {"slice": options.slice} if options.slice else {}
    path = Path(options.output)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as output:
        path.chmod(0o600)
        output.writelines(json.dumps({"prompt": one, **labels}, ensure_ascii=False) + "\n" for one in found.prompts)
    masks = ", ".join(f"{count} x {kind}" for kind, count in found.masked.most_common()) or "nothing"
    print(
        f"{len(found.prompts)} prompts from {found.read} requests ({found.unusable} unusable) in {path}\n"
        f"masked: {masks}\nnames and what only a person can tell are still there: read the file before you use it",
        file=sys.stderr,
    )
    return OK


@contextmanager
def _opened(name: str) -> Iterator[TextIO]:
    if name == STDIN:
        yield sys.stdin
        return
    with Path(name).open(encoding="utf-8", errors="replace") as file:
        yield file
