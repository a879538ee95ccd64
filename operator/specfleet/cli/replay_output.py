"""Replayed decisions as text, Markdown or JSON."""

import json
from collections.abc import Callable, Mapping, Sequence

from specfleet.api.deployment import SpeculativeDeployment
from specfleet.cli.explain_output import aligned, escaped, moment
from specfleet.cli.replay import Outcome, Replayed


def text(owner: SpeculativeDeployment, found: Sequence[Replayed]) -> str:
    """For a terminal: one line a decision, and below it what came out."""
    rows = tuple(
        (one.outcome.value, moment(one.record.time) or "", one.record.action, one.record.reason, one.record.message)
        for one in found
    )
    lines = [f"{owner.namespace}/{owner.name}: {summary(found)}", ""]
    for line, one in zip(aligned(rows) if rows else [], found, strict=True):
        lines += [f"  {line}", f"      {one.why}"]
    return "\n".join(lines).rstrip() + "\n"


def markdown(owner: SpeculativeDeployment, found: Sequence[Replayed]) -> str:
    """For an issue or a chat."""
    lines = [f"## {owner.namespace}/{owner.name}: {summary(found)}", ""]
    lines += ["| outcome | time | action | reason | recorded | now |", "|---|---|---|---|---|---|"]
    for one in found:
        record = one.record
        cells = (one.outcome.value, moment(record.time) or "", record.action, record.reason, record.message, one.why)
        lines.append(f"| {' | '.join(escaped(cell) for cell in cells)} |")
    return "\n".join(lines) + "\n"


def to_json(owner: SpeculativeDeployment, found: Sequence[Replayed]) -> str:
    """For programs."""
    body = {
        "name": owner.name,
        "namespace": owner.namespace,
        "decisions": [{"outcome": one.outcome.name, "why": one.why, "record": one.record.to_wire()} for one in found],
        "counts": {outcome.name: count(found, outcome) for outcome in Outcome},
    }
    return json.dumps(body, indent=1, allow_nan=False) + "\n"


def summary(found: Sequence[Replayed]) -> str:
    """Counts in words."""
    agree, disagree, unknown = (count(found, outcome) for outcome in Outcome)
    return f"{len(found)} decisions: {agree} agree, {disagree} disagree, {unknown} cannot be told"


def count(found: Sequence[Replayed], outcome: Outcome) -> int:
    """How many came out so."""
    return sum(one.outcome is outcome for one in found)


FORMATS: Mapping[str, Callable[[SpeculativeDeployment, Sequence[Replayed]], str]] = {
    "text": text,
    "json": to_json,
    "markdown": markdown,
}
