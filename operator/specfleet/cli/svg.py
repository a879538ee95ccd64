"""The few shapes that the report draws, as inline SVG. No script, no font, no network."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

GOOD, BAD, UNSURE, INK, FAINT = "#2c7a4b", "#b3352c", "#8a8a8a", "#222222", "#dddddd"
SERIES = ("#30609c", "#c46a1b")
FONT = 'font-family="system-ui, sans-serif" font-size="12"'


@dataclass(frozen=True, slots=True)
class Interval:
    """One row of a forest plot."""

    label: str
    middle: float
    low: float
    high: float
    colour: str = INK


@dataclass(frozen=True, slots=True)
class Line:
    """One series of points (x, y)."""

    label: str
    points: Sequence[tuple[float, float]]


def _text(x: float, y: float, content: str, anchor: str = "start", colour: str = INK) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(content)}</text>'


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
    return head + f'role="img" aria-label="{escape(title)}" {FONT}>' + "".join(parts) + "</svg>"


def gain_colour(gain: float) -> str:
    """Blue-green for gains, red for losses, white at zero; full colour at a factor of two."""
    strength = min(1.0, abs(math.log1p(max(gain, -0.99))) / math.log(2))
    base = (44, 122, 75) if gain >= 0 else (179, 53, 44)
    red, green, blue = (round(255 + (one - 255) * strength) for one in base)
    return f"#{red:02x}{green:02x}{blue:02x}"


def heat_map(
    rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[tuple[float | None, str]]], title: str
) -> str:
    """A matrix of (value, caption); None is drawn hatched grey: not measured is not zero."""
    left, top, cell_width, cell_height = 110, 24, 130, 40
    parts = [_text(left + (i + 0.5) * cell_width, 16, name, "middle") for i, name in enumerate(columns)]
    for r, name in enumerate(rows):
        y = top + r * cell_height
        parts.append(_text(left - 8, y + 24, name, "end"))
        for c, (value, caption) in enumerate(values[r]):
            fill = FAINT if value is None else gain_colour(value)
            x = left + c * cell_width
            parts.append(
                f'<rect x="{x}" y="{y}" width="{cell_width - 3}" height="{cell_height - 3}" fill="{fill}">'
                f"<title>{escape(f'{name} / {columns[c]}: {caption}')}</title></rect>"
            )
            dark = value is not None and abs(math.log1p(max(value, -0.99))) > 0.45
            parts.append(_text(x + cell_width / 2 - 1, y + 23, caption, "middle", "#ffffff" if dark else INK))
    return _svg(left + cell_width * len(columns), top + cell_height * len(rows), title, parts)


def forest(intervals: Sequence[Interval], marks: Sequence[tuple[float, str]], title: str) -> str:
    """Estimates with their intervals as percentages, and vertical marks (a bar, a margin)."""
    left, width, row = 250, 420, 24
    known = [v for one in intervals for v in (one.low, one.high)] + [mark for mark, _ in marks] + [0.0]
    low, high = min(known), max(known)
    pad = 0.06 * (high - low or 1.0)
    low, high = low - pad, high + pad

    def place(value: float) -> float:
        return left + (value - low) / (high - low) * width

    bottom = 24 + row * len(intervals)
    parts = [f'<line x1="{place(0):.1f}" x2="{place(0):.1f}" y1="18" y2="{bottom}" stroke="{UNSURE}"/>']
    for value, name in marks:
        x = place(value)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="18" y2="{bottom}" stroke="{INK}" stroke-dasharray="4 3"/>')
        parts.append(_text(x, 12, name, "middle"))
    for i, one in enumerate(intervals):
        y = 24 + row * i + row / 2
        parts.append(_text(left - 10, y + 4, one.label, "end"))
        parts.append(
            f'<line x1="{place(one.low):.1f}" x2="{place(one.high):.1f}" y1="{y}" y2="{y}" stroke="{one.colour}" '
            f'stroke-width="2"/><circle cx="{place(one.middle):.1f}" cy="{y}" r="4" fill="{one.colour}">'
            f"<title>{one.middle:+.1%} [{one.low:+.1%}, {one.high:+.1%}]</title></circle>"
        )
        parts.append(_text(left + width + 8, y + 4, f"{one.middle:+.1%} [{one.low:+.1%}, {one.high:+.1%}]"))
    parts.append(_text(place(low + pad), bottom + 14, f"{low + pad:+.0%}", "middle", UNSURE))
    parts.append(_text(place(high - pad), bottom + 14, f"{high - pad:+.0%}", "middle", UNSURE))
    return _svg(left + width + 230, bottom + 20, title, parts)


def _ticks(high: float) -> list[float]:
    """Three to seven round numbers above zero, up to `high`."""
    power = 10 ** math.floor(math.log10(high))
    step = next(size * power / 10 for size in (2, 5, 10, 20, 50) if high / (size * power / 10) <= 7)
    return [float(f"{step * i:.6g}") for i in range(1, math.floor(high / step) + 1)]


def lines(series: Sequence[Line], x_name: str, y_name: str, title: str) -> str:
    """Lines through points, both axes from zero."""
    left, top, width, height = 64, 28, 430, 210
    points = [point for one in series for point in one.points]
    if not points:
        return ""
    x_high = max(x for x, _ in points) * 1.08 or 1.0
    y_high = max(y for _, y in points) * 1.12 or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        return left + x / x_high * width, top + height - y / y_high * height

    axis = f'<path d="M{left} {top} V{top + height} H{left + width}" fill="none" stroke="{UNSURE}"/>'
    parts = [axis, _text(left + width / 2, top + height + 32, x_name, "middle"), _text(left - 40, 14, y_name)]
    for value in _ticks(x_high):
        parts.append(_text(at(value, 0)[0], top + height + 15, f"{value:g}", "middle", UNSURE))
    for value in _ticks(y_high):
        y = at(0, value)[1]
        parts.append(_text(left - 6, y + 4, f"{value:g}", "end", UNSURE))
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="{FAINT}"/>')
    for i, one in enumerate(series):
        colour = SERIES[i % len(SERIES)]
        places = [at(x, y) for x, y in sorted(one.points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        parts.append(_text(left + width - 4, top + 16 + 16 * i, one.label, "end", colour))
    return _svg(left + width + 20, top + height + 40, title, parts)


def bars(labels: Sequence[str], values: Sequence[float], title: str) -> str:
    """Bars of shares 0..1."""
    left, top, step, height = 40, 10, 44, 110
    parts = []
    for i, (label, value) in enumerate(zip(labels, values, strict=True)):
        tall = max(0.0, min(1.0, value)) * height
        x = left + i * step
        parts.append(
            f'<rect x="{x}" y="{top + height - tall:.1f}" width="{step - 8}" height="{tall:.1f}" fill="{SERIES[0]}"/>'
        )
        parts.append(_text(x + step / 2 - 4, top + height + 15, label, "middle"))
        parts.append(_text(x + step / 2 - 4, top + height - tall - 3, f"{value:.2f}", "middle"))
    return _svg(left + step * len(labels) + 10, top + height + 22, title, parts)
