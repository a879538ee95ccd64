"""An explanation as text, Markdown or JSON. All three say the same."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from specfleet.api.status import ArmRole, DecisionRecord, Phase
from specfleet.cli.explaining import Explanation, ShownGate
from specfleet.decide.gates import Gate
from specfleet.decide.watch_report import ArmWindow, Suspicion, WatchReport

NAMES_SHOWN = 3
PHASE_MEANS: Mapping[Phase, str] = {
    Phase.DEPLOYING: "the plain arm of what was asked for is coming up",
    Phase.BASELINE: "plain decoding serves; nothing is being tried at this moment",
    Phase.BENCHMARKING: "a proposer is measured against plain decoding on pods without user traffic",
    Phase.CANARY: "traffic moves to the trial step by step",
    Phase.SPECULATIVE: "promoted, and watched",
    Phase.INVESTIGATING: "a suspicion is being followed up; what is promoted serves",
    Phase.ROLLING_BACK: "decided; traffic follows as fast as pods come up",
    Phase.ROLLED_BACK: "plain decoding serves after a roll-back",
    Phase.EXHAUSTED: "plain decoding serves and nothing is tried any more",
    Phase.HELD: "evidence or capacity is missing; what serves goes on serving",
}


_CAUSES: Mapping[Phase, str] = {
    Phase.ROLLING_BACK: "RollBack",
    Phase.ROLLED_BACK: "RollBack",
    Phase.EXHAUSTED: "RollBack",
    Phase.HELD: "Hold",
}


@dataclass(frozen=True, slots=True)
class Section:
    """A title and its rows; a row's cells are columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def text(one: Explanation) -> str:
    """For a terminal."""
    lines = [*_head(one)]
    for section in _sections(one):
        lines += ["", section.title]
        lines += [f"  {line}" for line in aligned(section.rows)]
    return "\n".join(lines) + "\n"


def markdown(one: Explanation) -> str:
    """For an issue or a chat."""
    first, *rest = _head(one)
    lines = [f"## {first}", "", *(f"- {line.strip()}" for line in rest)]
    for section in _sections(one):
        lines += ["", f"### {section.title}", ""]
        lines.append(f"| {' | '.join(section.columns)} |")
        lines.append(f"|{'---|' * len(section.columns)}")
        lines += [f"| {' | '.join(escaped(cell) for cell in _padded(row, section))} |" for row in section.rows]
    return "\n".join(lines) + "\n"


def to_json(one: Explanation) -> str:
    """For programs: numbers as numbers, absent ones as null."""
    status = one.status
    body = {
        "name": one.deployment.name,
        "namespace": one.deployment.namespace,
        "at": moment(one.now),
        "phase": status.phase.value,
        "phaseSince": moment(status.phase_since),
        "phaseReason": status.phase_reason,
        "serves": one.serves,
        "inFlight": one.in_flight or None,
        "gates": [_gate_json(gate) for gate in one.gates],
        "limits": [_gate_json(gate) for gate in one.limits],
        "ways": [{"to": way.to.value, "when": way.when} for way in one.ways],
        "watch": _plain(asdict(one.watch)) if one.watch is not None else None,
        "watchInStatus": [condition.to_wire() for condition in one.watch_in_status],
        "decisions": [record.to_wire() for record in one.decisions],
        "conditions": [{**shown.condition.to_wire(), "remedy": shown.remedy or None} for shown in one.conditions],
        "acts": [asdict(act) for act in one.acts],
        "notes": list(one.notes),
    }
    return json.dumps(body, indent=1, allow_nan=False) + "\n"


FORMATS: Mapping[str, Callable[[Explanation], str]] = {"text": text, "json": to_json, "markdown": markdown}


def _head(one: Explanation) -> list[str]:
    status, owner = one.status, one.deployment
    since = status.phase_since
    lasted = f" for {duration((one.now - since).total_seconds())}, since {moment(since)}" if since else ""
    reason = f", reason {status.phase_reason}" if status.phase_reason else ""
    lines = [
        f"{owner.namespace}/{owner.name}: {status.phase.value}{lasted}{reason}",
        f"  means      {PHASE_MEANS[status.phase]}",
        f"  serves     {one.serves}",
    ]
    if one.in_flight:
        lines.append(f"  in flight  {one.in_flight}")
    cause = _cause(one)
    if cause is not None:
        lines.append(f"  because    {_decision_words(cause)}")
    lines.append(f"  waits for  {_waits_for(one)}")
    return lines


def _cause(one: Explanation) -> DecisionRecord | None:
    """The decision that led to the phase: after a roll-back not its completion, but what it was for."""
    action = _CAUSES.get(one.status.phase)
    found = (record for record in reversed(one.status.history) if record.action == action)
    return next(found, one.status.last_decision)


def _waits_for(one: Explanation) -> str:
    closed = [shown for shown in one.gates if shown.known and not shown.gate.met]
    unknown = [shown for shown in one.gates if not shown.known]
    if closed:
        return "; ".join(f"{shown.gate.name.value} ({_has_of_needs(shown.gate)})" for shown in closed)
    if unknown:
        return f"not known: {', '.join(shown.gate.name.value for shown in unknown)}"
    return "nothing: it goes on at the operator's next look" if one.gates else "nothing"


def _sections(one: Explanation) -> list[Section]:
    found = [
        Section("What this phase needs", ("", "gate", "has", "needs", "note"), _gate_rows(one.gates)),
        Section("Limits of automatic actions", ("", "gate", "has", "needs", "note"), _gate_rows(one.limits)),
        Section(
            "Where it goes from here",
            ("phase", "when"),
            tuple((way.to.value, way.when) for way in one.ways)
            or (("nowhere", "until a person gives a command or changes the spec"),),
        ),
        Section("What the watch says", ("what", "says"), tuple(_watch_rows(one))),
        Section(
            "Last decisions",
            ("time", "action", "verdict", "reason", "message"),
            tuple(_decision_row(record) for record in one.decisions),
        ),
        Section(
            "Conditions to look at",
            ("condition", "status", "reason", "message", "what to do"),
            tuple(
                (
                    shown.condition.type.value,
                    shown.condition.status.value,
                    shown.condition.reason,
                    shown.condition.message,
                    f"-> {shown.remedy}" if shown.remedy else "",
                )
                for shown in one.conditions
            ),
        ),
        Section("What a person can do", ("command", "effect"), tuple((act.command, act.effect) for act in one.acts)),
        Section("Notes", ("note",), tuple((note,) for note in one.notes)),
    ]
    return [section for section in found if section.rows]


def _gate_rows(gates: Iterable[ShownGate]) -> tuple[tuple[str, ...], ...]:
    rows = []
    for shown in gates:
        gate = shown.gate
        mark = "?" if not shown.known else "ok" if gate.met else "no"
        has = "not known" if not shown.known else _amount(gate.has, gate.unit)
        left = f"{duration(gate.left_seconds)} left" if gate.left_seconds is not None and shown.known else ""
        note = "; ".join(part for part in (left, gate.note if shown.known else "") if part)
        rows.append((mark, gate.name.value, has, _amount(gate.needs, gate.unit), note))
    return tuple(rows)


def _has_of_needs(gate: Gate) -> str:
    left = f", {duration(gate.left_seconds)} left" if gate.left_seconds is not None else ""
    if isinstance(gate.has, str) or isinstance(gate.needs, str):
        return f"{_amount(gate.has, gate.unit)}, needs {_amount(gate.needs, gate.unit)}{left}"
    return f"{_amount(gate.has, '')} of {_amount(gate.needs, gate.unit)}{left}"


def _amount(value: float | str, unit: str) -> str:
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return "long ago"
    number = f"{value:.0f}"
    return f"{number} {unit}".rstrip()


def _watch_rows(one: Explanation) -> list[tuple[str, str]]:
    if one.watch is not None:
        return _report_rows(one.watch)
    rows = [
        (
            "status",
            f"{condition.type.value}={condition.status.value} {condition.reason} since "
            f"{moment(condition.last_transition_time)}{': ' if condition.message else ''}{condition.message}",
        )
        for condition in one.watch_in_status
    ]
    calibration = one.status.calibration
    if calibration is not None:
        rows.append(("normal", _calibration_words(one)))
    where = one.deployment.spec.monitoring.prometheus
    said = f" (the operator asks {where.url})" if where is not None else ""
    return [*rows, ("numbers", f"not asked: give --prometheus URL{said}")]


def _calibration_words(one: Explanation) -> str:
    known = one.status.calibration
    assert known is not None
    parts = [
        ("acceptance rate", known.acceptance_rate, "{:.3f}"),
        ("accepted length", known.accepted_length, "{:.2f}"),
        ("TPOT", known.tpot_seconds, "{:.4f} s"),
    ]
    figures = ", ".join(f"{name} {form.format(value)}" for name, value, form in parts if value is not None)
    return f"{figures or 'no figures'} (from {known.source}, {moment(known.since)})"


def _report_rows(report: WatchReport) -> list[tuple[str, str]]:
    rows = [("answer", f"{report.answer.value}{': ' if report.message else ''}{report.message}")]
    for title, windows in (("last window", report.last), ("since the step", report.step)):
        rows += [
            (f"{title}, {role.value}", window_words(windows[role])) for role in ArmRole if windows.get(role) is not None
        ]
    if report.comparison is not None:
        found = report.comparison
        rows.append(
            ("comparison", f"{found.verdict.value} {found.reason}: {found.message} (since {moment(found.since)})")
        )
    rows += [("suspicion", suspicion_words(finding)) for finding in report.suspicions]
    return rows if report.suspicions else [*rows, ("suspicion", "none")]


def window_words(window: ArmWindow) -> str:
    """Figures of a window that were measured."""
    if window.start is None:
        return window.answer.value
    parts = [
        ("{:.0f} requests", window.requests),
        ("{:.2f} requests/s and pod", window.requests_per_second_per_pod),
        ("acceptance rate {:.3f}", window.acceptance_rate),
        ("accepted length {:.2f}", window.accepted_length),
        ("TPOT {:.4f} s", window.tpot_seconds),
        ("TTFT {:.3f} s", window.ttft_seconds),
        ("errors {:.2%}", window.server_error_share),
        ("4xx {:.2%}", window.client_error_share),
    ]
    figures = ", ".join(form.format(value) for form, value in parts if value is not None)
    span = f"{moment(window.start)} to {moment(window.end)}: " if window.start and window.end else ""
    return f"{span}{window.answer.value}{', ' if figures else ''}{figures}"


def suspicion_words(finding: Suspicion) -> str:
    """Signal, stage and whose fault, with the numbers."""
    return (
        f"{finding.signal.value} {finding.stage.value} ({finding.severity.value}, {finding.attribution.value}) "
        f"since {moment(finding.since)}: {finding.message}"
    )


def _decision_words(record: DecisionRecord) -> str:
    verdict = f" ({record.verdict.value})" if record.verdict is not None else ""
    return f"{record.action} {record.reason}{verdict} at {moment(record.time)}: {record.message}"


def _decision_row(record: DecisionRecord) -> tuple[str, ...]:
    names = record.evidence
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    evidence = f" [evidence: {', '.join(names[:NAMES_SHOWN])}{more}]" if names else ""
    verdict = record.verdict.value if record.verdict is not None else "-"
    return moment(record.time) or "", record.action, verdict, record.reason, record.message + evidence


def _gate_json(shown: ShownGate) -> dict[str, Any]:
    gate = shown.gate
    body = {
        "name": gate.name.value,
        "met": gate.met if shown.known else None,
        "has": gate.has if shown.known else None,
        "needs": gate.needs,
        "unit": gate.unit or None,
        "leftSeconds": gate.left_seconds if shown.known else None,
        "source": gate.source.value,
        "note": gate.note if shown.known and gate.note else None,
        "remedy": shown.remedy or None,
    }
    return {name: _plain(value) for name, value in body.items()}


def _plain(value: Any) -> Any:
    """JSON values: camelCase keys, times as text, numbers that are none as null."""
    if isinstance(value, Mapping):
        return {_camel(str(getattr(key, "value", key))): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    if hasattr(value, "to_wire"):
        return value.to_wire()
    return getattr(value, "value", value)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def duration(seconds: float) -> str:
    """The two largest units: 2 d 3 h, 5 min 10 s, 12 s."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if left >= size or (unit == "s" and not parts):
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts[:2])


def moment(when: datetime | None) -> str | None:
    """RFC 3339 in UTC, as kubectl shows times."""
    return None if when is None else when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def aligned(rows: tuple[tuple[str, ...], ...]) -> list[str]:
    """Rows with aligned columns; the last filled cell of a row is not padded, lines of text are not cut."""
    columns = max(len(row) for row in rows)
    widths = [max((len(row[at]) for row in rows if at < len(row) - 1), default=0) for at in range(columns)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]


def _padded(row: tuple[str, ...], section: Section) -> tuple[str, ...]:
    return (*row, *([""] * (len(section.columns) - len(row))))


def escaped(value: str) -> str:
    """A cell of a Markdown table."""
    return value.replace("|", "\\|").replace("\n", " ")
