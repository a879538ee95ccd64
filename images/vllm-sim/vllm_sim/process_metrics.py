"""The python_* and process_* families of prometheus_client."""

import gc
import os
import platform
import resource
import sys
import time
from pathlib import Path

from vllm_sim.exposition import Family, Gauge

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def process_start_time() -> float:
    """Unix time at which this process began.

    From /proc/uptime, which has hundredths: /proc/stat's btime is cut to whole seconds, and a fault that came in the
    second before this process began would look younger than it.
    """
    try:
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return time.time() - uptime + int(_stat()[19]) / _CLOCK_TICKS
    except (OSError, IndexError, ValueError):
        return time.time()


def _stat() -> list[str]:
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()


class GarbageCollection:
    """python_gc_*: three counter families without creation times."""

    _FAMILIES = (
        ("python_gc_objects_collected_total", "Objects collected during gc", "collected"),
        ("python_gc_objects_uncollectable_total", "Uncollectable objects found during GC", "uncollectable"),
        ("python_gc_collections_total", "Number of times this generation was collected", "collections"),
    )

    def render(self, lines: list[str]) -> None:
        """Append the families' lines."""
        generations = gc.get_stats()
        for name, help_text, key in self._FAMILIES:
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} counter"]
            lines += [f'{name}{{generation="{place}"}} {stat[key]}.0' for place, stat in enumerate(generations)]


class ProcessFamilies:
    """process_*: read from /proc at each rendering."""

    def __init__(self, start_time: float) -> None:
        self._gauges: list[Gauge] = []
        self._memory = (0.0, 0.0)
        self._cpu = 0.0
        for name, help_text, kind, place in (
            ("process_virtual_memory_bytes", "Virtual memory size in bytes.", "gauge", 0),
            ("process_resident_memory_bytes", "Resident memory size in bytes.", "gauge", 1),
        ):
            self._add(name, help_text, kind, lambda place=place: self._memory[place])
        self._add(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            "gauge",
            lambda: start_time,
        )
        self._add(
            "process_cpu_seconds_total",
            "Total user and system CPU time spent in seconds.",
            "counter",
            lambda: self._cpu,
        )
        self._add(
            "process_open_fds",
            "Number of open file descriptors.",
            "gauge",
            lambda: float(sum(1 for _ in Path("/proc/self/fd").iterdir())),
        )
        limit = float(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._add("process_max_fds", "Maximum number of open file descriptors.", "gauge", lambda: limit)

    def _add(self, name: str, help_text: str, kind: str, source: object) -> None:
        gauge = Gauge(name, help_text, kind=kind)
        gauge.read(source)  # type: ignore[arg-type]
        self._gauges.append(gauge)

    def render(self, lines: list[str]) -> None:
        """Append the families' lines."""
        stat = _stat()
        self._memory = (float(stat[20]), float(stat[21]) * _PAGE)
        self._cpu = (int(stat[11]) + int(stat[12])) / _CLOCK_TICKS
        for gauge in self._gauges:
            gauge.render(lines)


def process_families(start_time: float) -> list[Family]:
    """Families in the order of the real page."""
    info = Gauge(
        "python_info", "Python platform information", ("implementation", "major", "minor", "patchlevel", "version")
    )
    major, minor, patch = sys.version_info[:3]
    info.read(
        lambda: 1.0,
        platform.python_implementation(),
        str(major),
        str(minor),
        str(patch),
        platform.python_version(),
    )
    return [GarbageCollection(), info, ProcessFamilies(start_time)]
