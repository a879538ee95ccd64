"""The line of an ended engine's last words that says why it ended.

Kubernetes keeps the last 2 KiB of a container's log as its termination message (FallbackToLogsOnError). vLLM's own last
line often only points up ("See root cause above"), and pydantic's to a web page.
"""

import re

from specfleet.engine.redaction import redacted

LINE_LIMIT = 300
POINTERS = ("see root cause above", "see stack trace above", "(above) for the root cause")
FURTHER_UP = "the cause stands further up in the log: kubectl logs {pod} -c {container} --previous"

_PREFIX = re.compile(
    r"^(?:\([\w .=-]*pid=\d+\)\s*)?(?:(?:ERROR|CRITICAL|WARNING|INFO)\s+\d\d-\d\d [\d:.]+ \[[^\]]*\]\s?)?"
)
"""What vLLM puts before each line: the process, and of logged lines the level, time and place."""
_RAISED = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt)(?::\s|$)")
_CAUSED = "was the direct cause of the following exception"
_DETAIL_ENDS = ("For further information", "Traceback (most recent call last)", "During handling of", "The above exc")
_INPUT = re.compile(r"\s*\[type=\w+, input_value=.*$")
"""pydantic repeats what it was given, which may hold anything."""
_NOISE = ("For further information", "^^^", "~~~")


def why_it_ended(message: str, pod: str, container: str) -> str:
    """One line of at most LINE_LIMIT characters; "" for an engine that said nothing."""
    lines = [line for line in (_PREFIX.sub("", one).rstrip() for one in message.splitlines()) if line.strip()]
    raised = [index for index, line in enumerate(lines) if _RAISED.match(line)]
    telling = [index for index in raised if not _points_up(lines[index])]
    if telling:
        return _bounded(_with_detail(lines, _root(lines, telling)))
    if any(_points_up(line) for line in lines):
        pointer = next(line for line in reversed(lines) if _points_up(line))
        return _bounded(pointer, FURTHER_UP.format(pod=pod, container=container))
    said = [line.strip() for line in lines if not any(noise in line for noise in _NOISE)]
    return _bounded(next((line for line in reversed(said) if "error" in line.lower()), said[-1] if said else ""))


def _points_up(line: str) -> bool:
    return any(pointer in line.lower() for pointer in POINTERS)


def _root(lines: list[str], raised: list[int]) -> int:
    """The last exception, or the one that it says to be its cause. What was only being handled explains less."""
    at = len(raised) - 1
    while at > 0 and any(_CAUSED in line for line in lines[raised[at - 1] : raised[at]]):
        at -= 1
    return raised[at]


def _with_detail(lines: list[str], at: int) -> str:
    """A validation error says in the lines below it what is wrong."""
    found = [lines[at].strip()]
    if "validation error" in lines[at]:
        for line in lines[at + 1 :]:
            if line.strip().startswith(_DETAIL_ENDS) or _RAISED.match(line):
                break
            found.append(line.strip())
    return " ".join(_INPUT.sub("", line) for line in found).strip()


def _bounded(line: str, after: str = "") -> str:
    """Without credentials, and short enough for a status."""
    line = redacted(line)
    if not after:
        return line[:LINE_LIMIT]
    return f"{line[: LINE_LIMIT - len(after) - 2]}; {after}"
