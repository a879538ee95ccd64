"""The table and the plot of a run, from its numbers."""

import html
import math
from pathlib import Path
from typing import Any

from specfleet.decide.bank import Detector

ACCEPTANCE = [one.name for one in Detector if one < Detector.TPOT]
OURS = "specfleet: Confirmed (starts a re-benchmark)"
OURS_SUSPECT = "specfleet: Suspect (acts on nothing)"
COLOURS = ("#1b6", "#7c9", "#d33", "#e88", "#36c", "#93c", "#c9f", "#888", "#c80", "#064")


def upper(events: int, exposure: float) -> float:
    """Upper end of the two-sided 95 % Poisson interval of a rate (chi-square quantile by Wilson-Hilferty)."""
    degrees = 2 * (events + 1)
    z = 1.959964
    cube = 1 - 2 / (9 * degrees) + z * math.sqrt(2 / (9 * degrees))
    return degrees * cube**3 / 2 / exposure


def rows(found: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """rule -> level -> events, months, delays."""
    table: dict[str, dict[str, dict[str, Any]]] = {}
    for rate, one in found["levels"].items():
        for name, stage in ((OURS, "CONFIRMED"), (OURS_SUSPECT, "SUSPECT")):
            events = sum(one["false"][stage][detector] for detector in ACCEPTANCE)
            delays = {change: value[stage] for change, value in one["changes"].items()}
            table.setdefault(name, {})[rate] = {"events": events, "months": one["months"], **delays}
        for name, other in one["others"].items():
            table.setdefault(name, {})[rate] = {"events": other["false"], "months": one["months"], **other}
    return table


def write(found: dict[str, Any], folder: Path) -> None:
    """table.md and plot.svg."""
    table = rows(found)
    (folder / "table.md").write_text("\n".join(_markdown(table, found)) + "\n")
    (folder / "plot.svg").write_text(_plot(table))


def _minutes(value: float | None) -> str:
    return ">1440" if value is None else f"{value:.0f}"


def _table(head: list[str], body: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in body), ""]


def _pair(one: dict[str, Any]) -> str:
    return f"{_minutes(one['median'])}/{_minutes(one['p90'])}"


def _markdown(table: dict[str, dict[str, dict[str, Any]]], found: dict[str, Any]) -> list[str]:
    levels = sorted(found["levels"], key=float)
    runs = [found["levels"][rate] for rate in levels]
    alarms = found.get("alarms") or found["levels"]
    alarms = {rate: alarms[rate] for rate in sorted(alarms, key=float)}
    lines = [
        "False alarms per fleet and 30 days [upper 95 % Poisson bound]; median minutes to find a fall of 20 % / 30 %.",
        "",
        *_table(
            ["rule", *(f"{rate} req/s" for rate in levels), "worst"],
            [[name, *_cells(cells, levels)] for name, cells in table.items()],
        ),
        "Measured at commit: " + ", ".join(f"{rate} req/s {found['levels'][rate].get('commit')}" for rate in levels),
        "",
        "All detectors of the watch, false alarms per fleet and 30 days (Suspect / Confirmed):",
        "",
        *_table(
            ["detector", *alarms],
            [[one.name, *(_both(run, one) for run in alarms.values())] for one in Detector],
        ),
        "Delays of the watch in minutes: Suspect median/p90, Confirmed median/p90, share not confirmed in 24 h.",
        "",
    ]
    lines += _table(
        ["change", *levels],
        [[change, *(_delay(run["changes"][change]) for run in runs)] for change in runs[0]["changes"]],
    )
    lines += ["Blips of -25 % acceptance that trip Suspect / Confirmed (share of fleets):", ""]
    key = "blips of -25 %"
    lines += _table(
        ["length", *levels],
        [
            [length, *("{SUSPECT:.0%} / {CONFIRMED:.0%}".format(**run[key][length]) for run in runs)]
            for length in runs[0][key]
        ],
    )
    lines += ["TPOT +15 % (minutes, median/p90) and what the control says after 24 h:", ""]
    head = ["req/s", "control share", "cause", "Suspect", "Confirmed", "still found", "Speculation", "Shared"]
    lines += _table(head, [row for one in found["latency"] for row in _latency(one)])
    lines += ["Calibrated from two hours only (as after a canary), first week, all detectors:", ""]
    head = ["req/s", "Suspect per 30 days", "Confirmed per 30 days", "-30 %", "-50 %"]
    lines += _table(head, [_first_week(one) for one in found.get("first week", [])])
    lines += ["Fleet-days per minute and core (CPU time, shared machine):", ""]
    return lines + _table(["what", "figure"], [[name, f"{one:,.0f}"] for name, one in found.get("speed", {}).items()])


def _first_week(one: dict[str, Any]) -> list[str]:
    totals = [sum(one["false"][stage].values()) for stage in ("SUSPECT", "CONFIRMED")]
    rates = [f"{total / one['months']:.2f} [{upper(total, one['months']):.2f}]" for total in totals]
    return [f"{one['rate']:g}", *rates, _delay(one["-30 %"]), _delay(one["-50 %"])]


def _cells(cells: dict[str, dict[str, Any]], levels: list[str]) -> list[str]:
    texts, worst = [], 0.0
    for rate in levels:
        cell = cells[rate]
        per_month = cell["events"] / cell["months"]
        worst = max(worst, per_month)
        delays = "/".join(_minutes(cell[change]["median"]) for change in ("-20 %", "-30 %") if change in cell)
        texts.append(f"{per_month:.2f} [{upper(cell['events'], cell['months']):.2f}], {delays}")
    return [*texts, f"{worst:.2f}"]


def _both(run: dict[str, Any], detector: Detector) -> str:
    return " / ".join(f"{run['false'][stage][detector.name] / run['months']:.2f}" for stage in ("SUSPECT", "CONFIRMED"))


def _delay(change: dict[str, Any]) -> str:
    return f"{_pair(change['SUSPECT'])}, {_pair(change['CONFIRMED'])}, {change['CONFIRMED']['missed']:.0%}"


def _latency(one: dict[str, Any]) -> list[list[str]]:
    rows_ = []
    for cause in ("own", "shared"):
        who = one[cause]["attributed"]
        delays = [_pair(one[cause][stage]) for stage in ("SUSPECT", "CONFIRMED")]
        counts = [str(who[name]) for name in ("found", "Speculation", "Shared")]
        rows_.append([f"{one['rate']:g}", f"{one['control_share']:.0%}", cause, *delays, *counts])
    return rows_


FONT = 'font-family="sans-serif" font-size="12"'
WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM, TOP = 940, 560, 70, 350, 60, 40
LEAST_ALARMS, MOST_ALARMS, DAY_MINUTES = 0.005, 10_000.0, 1440.0


def _x(alarms: float) -> float:
    part = math.log(max(alarms, LEAST_ALARMS) / LEAST_ALARMS) / math.log(MOST_ALARMS / LEAST_ALARMS)
    return LEFT + part * (WIDTH - LEFT - RIGHT)


def _y(minutes: float | None) -> float:
    value = min(minutes if minutes is not None else DAY_MINUTES, DAY_MINUTES)
    return HEIGHT - BOTTOM - math.log(max(value, 1)) / math.log(DAY_MINUTES) * (HEIGHT - BOTTOM - TOP)


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" {style}/>'


def _text(x: float, y: float, words: str, style: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" {style}>{html.escape(words)}</text>'


def _plot(table: dict[str, dict[str, dict[str, Any]]]) -> str:
    """False alarms against delay for a fall of 20 %; one line per rule through the traffic levels."""
    end, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 20, "False alarms against delay, acceptance -20 % (lower left is better)", 'font-size="15"'),
        _text((LEFT + end) / 2, HEIGHT - 12, "false alarms per fleet and 30 days", 'text-anchor="middle"'),
        _text(14, HEIGHT / 2, "median minutes", f'text-anchor="middle" transform="rotate(-90 14 {HEIGHT / 2:.0f})"'),
    ]
    for alarms in (0.01, 0.1, 1, 10, 100, 1000, 10_000):
        parts.append(_line(_x(alarms), TOP, _x(alarms), floor, 'stroke="#ddd"'))
        parts.append(_text(_x(alarms), floor + 18, f"{alarms:g}", 'text-anchor="middle"'))
    for minutes in (1, 10, 60, 240, 1440):
        parts.append(_line(LEFT, _y(minutes), end, _y(minutes), 'stroke="#ddd"'))
        parts.append(_text(LEFT - 8, _y(minutes) + 4, str(minutes), 'text-anchor="end"'))
    parts.append(_line(_x(1), TOP, _x(1), floor, 'stroke="#1b6" stroke-dasharray="4"'))
    for index, (name, cells) in enumerate(table.items()):
        parts += _rule(name, cells, COLOURS[index % len(COLOURS)], 60 + 20 * index)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _rule(name: str, cells: dict[str, dict[str, Any]], colour: str, legend: int) -> list[str]:
    points = [
        (_x(cell["events"] / cell["months"]), _y(cell["-20 %"]["median"]), rate)
        for rate, cell in sorted(cells.items(), key=lambda one: float(one[0]))
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-opacity="0.5"/>',
        *(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}">'
            f"<title>{html.escape(name)}, {rate} req/s</title></circle>"
            for x, y, rate in points
        ),
        f'<circle cx="{WIDTH - RIGHT + 20}" cy="{legend}" r="5" fill="{colour}"/>',
        _text(WIDTH - RIGHT + 32, legend + 4, name),
    ]
