"""Counters, gauges and histograms in the text format of prometheus_client, rendered fast.

Prefixes of every line are made once; rendering a thousand lines costs about a millisecond.
"""

import bisect
import time
from collections.abc import Callable, Sequence
from typing import Protocol

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def go_float(value: float) -> str:
    """A float the way Prometheus clients write it: 1.0, 1.7e+09, +Inf."""
    if value == float("inf"):
        return "+Inf"
    text = repr(float(value))
    dot = text.find(".")
    if value > 0 and dot > 6:
        mantissa = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.")
        return f"{mantissa}e+0{dot - 1}"
    return text


def label_text(names: Sequence[str], values: Sequence[str]) -> str:
    """`a="x",b="y"`, names in alphabetical order, values escaped."""
    pairs = sorted(zip(names, values, strict=True))
    return ",".join(
        '{}="{}"'.format(name, value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\""))
        for name, value in pairs
    )


class Value:
    """One number that goes up, or up and down."""

    __slots__ = ("created", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.created = time.time()

    def add(self, amount: float = 1.0) -> None:
        """Increase by `amount`."""
        self.value += amount


class Distribution:
    """Observations in buckets."""

    __slots__ = ("_edges", "counts", "created", "sum")

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0
        self.created = time.time()

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect.bisect_left(self._edges, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)


class Family(Protocol):
    """One metric family."""

    def render(self, lines: list[str]) -> None:
        """Append its lines."""


def _head(name: str, help_text: str, kind: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


class Counter:
    """A counter family: `name_total` and `name_created` per set of labels."""

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = (), created: bool = True) -> None:
        self._labels = labels
        self._name = name
        self._head = _head(f"{name}_total", help_text, "counter")
        self._created_head = _head(f"{name}_created", help_text, "gauge") if created else None
        self._children: dict[tuple[str, ...], tuple[str, str, Value]] = {}

    def of(self, *values: str) -> Value:
        """The counter of these label values, made at first use."""
        found = self._children.get(values)
        if found is None:
            text = f"{{{label_text(self._labels, values)}}}" if values else ""
            found = self._children[values] = (f"{self._name}_total{text} ", f"{self._name}_created{text} ", Value())
        return found[2]

    def render(self, lines: list[str]) -> None:
        """Append the family's lines."""
        lines += self._head
        children = self._children.values()
        lines += [total + go_float(child.value) for total, _, child in children]
        if self._created_head is not None and children:
            lines += self._created_head
            lines += [made + go_float(child.created) for _, made, child in children]


class Gauge:
    """A gauge family."""

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = (), kind: str = "gauge") -> None:
        self._labels = labels
        self._name = name
        self._head = _head(name, help_text, kind)
        self._children: dict[tuple[str, ...], tuple[str, Callable[[], float]]] = {}

    def read(self, source: Callable[[], float], *values: str) -> None:
        """Take the value of these labels from `source` at each rendering."""
        text = f"{{{label_text(self._labels, values)}}}" if values else ""
        self._children[values] = (f"{self._name}{text} ", source)

    def render(self, lines: list[str]) -> None:
        """Append the family's lines."""
        lines += self._head
        lines += [prefix + go_float(source()) for prefix, source in self._children.values()]


class Histogram:
    """A histogram family: buckets, count, sum and creation time per set of labels."""

    def __init__(self, name: str, help_text: str, edges: Sequence[float], labels: Sequence[str] = ()) -> None:
        self._labels = labels
        self._name = name
        self._edges = tuple(float(edge) for edge in edges)
        self._head = _head(name, help_text, "histogram")
        self._created_head = _head(f"{name}_created", help_text, "gauge")
        self._children: dict[tuple[str, ...], tuple[list[str], str, Distribution]] = {}

    def of(self, *values: str) -> Distribution:
        """The histogram of these label values, made at first use."""
        found = self._children.get(values)
        if found is None:
            names = (*self._labels, "le")
            prefixes = [
                f"{self._name}_bucket{{{label_text(names, (*values, go_float(edge)))}}} "
                for edge in (*self._edges, float("inf"))
            ]
            text = f"{{{label_text(self._labels, values)}}} " if values else " "
            found = self._children[values] = (prefixes, text, Distribution(self._edges))
        return found[2]

    def render(self, lines: list[str]) -> None:
        """Append the family's lines."""
        lines += self._head
        for prefixes, text, child in self._children.values():
            total = 0
            for prefix, count in zip(prefixes, child.counts, strict=True):
                total += count
                lines.append(f"{prefix}{go_float(total)}")
            lines.append(f"{self._name}_count{text}{go_float(total)}")
            lines.append(f"{self._name}_sum{text}{go_float(child.sum)}")
        if self._children:
            lines += self._created_head
            lines += [
                f"{self._name}_created{text}{go_float(child.created)}" for _, text, child in self._children.values()
            ]


class Summary:
    """A summary family without quantiles: count, sum and creation time per set of labels."""

    def __init__(self, name: str, help_text: str, labels: Sequence[str]) -> None:
        self._labels = labels
        self._name = name
        self._head = _head(name, help_text, "summary")
        self._created_head = _head(f"{name}_created", help_text, "gauge")
        self._children: dict[tuple[str, ...], tuple[str, list[float]]] = {}

    def observe(self, amount: float, *values: str) -> None:
        """Count one observation."""
        found = self._children.get(values)
        if found is None:
            text = f"{{{label_text(self._labels, values)}}} "
            found = self._children[values] = (text, [0.0, 0.0, time.time()])
        found[1][0] += 1
        found[1][1] += amount

    def render(self, lines: list[str]) -> None:
        """Append the family's lines."""
        lines += self._head
        for text, (count, total, _) in self._children.values():
            lines.append(f"{self._name}_count{text}{go_float(count)}")
            lines.append(f"{self._name}_sum{text}{go_float(total)}")
        if self._children:
            lines += self._created_head
            lines += [f"{self._name}_created{text}{go_float(made)}" for text, (_, _, made) in self._children.values()]


class Registry:
    """The families of one /metrics page, in order."""

    def __init__(self) -> None:
        self.families: list[Family] = []

    def render(self) -> bytes:
        """The whole page."""
        lines: list[str] = []
        for family in self.families:
            family.render(lines)
        lines.append("")
        return "\n".join(lines).encode()
