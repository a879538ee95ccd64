"""Line plots over time as inline SVG: a handful of series, steps or lines, and decisions as vertical lines."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

WIDTH, HEIGHT = 1080, 190
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 26, 26
COLOURS = ("#2563eb", "#d97706", "#059669", "#7c3aed", "#dc2626")


@dataclass(frozen=True, slots=True)
class Line:
    """One series: (seconds since the start, value); None breaks the line."""

    label: str
    points: Sequence[tuple[float, float | None]]
    steps: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A decision: a vertical line with its number."""

    seconds: float
    number: int
    colour: str = "#64748b"
    text: str = ""


@dataclass(frozen=True)
class Plot:
    """One plot. `seconds` is the length of the time axis, the same in all plots of a report."""

    title: str
    unit: str
    lines: Sequence[Line]
    seconds: float
    marks: Sequence[Mark] = ()
    top: float | None = None
    spans: Sequence[tuple[float, float, str]] = field(default_factory=tuple)
    """(start, end, colour) shaded behind the lines."""

    def svg(self) -> str:
        """The plot as an <svg> element."""
        values = [value for line in self.lines for _, value in line.points if value is not None]
        top = self.top if self.top is not None else nice_top(max(values, default=1.0))
        parts = [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(self.title)}">',
            f'<text class="title" x="{LEFT}" y="15">{html.escape(self.title)}</text>',
        ]
        parts += self._spans()
        parts += self._grid(top)
        parts += self._marks()
        for place, line in enumerate(self.lines):
            parts.append(self._line(line, COLOURS[place % len(COLOURS)], top))
        parts += self._legend()
        return "\n".join([*parts, "</svg>"])

    def _x(self, seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, max(0.0, seconds / max(1.0, self.seconds)))

    def _y(self, value: float, top: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(1.05, max(0.0, value / top))

    def _spans(self) -> Iterator[str]:
        for start, end, colour in self.spans:
            x, width = self._x(start), self._x(end) - self._x(start)
            yield (
                f'<rect x="{x:.1f}" y="{TOP}" width="{width:.1f}" height="{HEIGHT - TOP - BOTTOM}" '
                f'fill="{colour}" opacity="0.09"/>'
            )

    def _grid(self, top: float) -> Iterator[str]:
        for part in range(5):
            value = top * part / 4
            y = self._y(value, top)
            yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}{self.unit}</text>'
        for minute in range(0, int(self.seconds // 60) + 1):
            x = self._x(60 * minute)
            yield f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{minute}:00</text>'

    def _marks(self) -> Iterator[str]:
        for mark in self.marks:
            x = self._x(mark.seconds)
            yield (
                f'<g><title>{html.escape(mark.text)}</title><line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" '
                f'y2="{HEIGHT - BOTTOM}" stroke="{mark.colour}" stroke-dasharray="3 3"/>'
                f'<text class="mark" x="{x + 2:.1f}" y="{TOP + 9 + 9 * (mark.number % 3)}" fill="{mark.colour}">'
                f"{mark.number}</text></g>"
            )

    def _line(self, line: Line, colour: str, top: float) -> str:
        path, pen_down = [], False
        previous: float | None = None
        for seconds, value in line.points:
            if value is None or not math.isfinite(value):
                pen_down = False
                continue
            x, y = self._x(seconds), self._y(value, top)
            if pen_down and line.steps and previous is not None:
                path.append(f"L{x:.1f} {self._y(previous, top):.1f}")
            path.append(f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}")
            pen_down, previous = True, value
        return f'<path d="{" ".join(path)}" fill="none" stroke="{colour}" stroke-width="1.8"/>'

    def _legend(self) -> Iterator[str]:
        x = WIDTH - RIGHT
        for place in reversed(range(len(self.lines))):
            label = self.lines[place].label
            x -= 7 * len(label) + 24
            yield f'<rect x="{x}" y="7" width="12" height="4" fill="{COLOURS[place % len(COLOURS)]}"/>'
            yield f'<text class="legend" x="{x + 16}" y="14">{html.escape(label)}</text>'


def nice_top(value: float) -> float:
    """The least of 1, 2, 2.5, 5 times a power of ten that is not below `value`."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * 0.999)
