"""What a report says of each cell and pair beside the gain: queue, cache, pauses and errors per arm; nodes; probes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from specfleet.api.benchmark import TrafficSlice
from specfleet.api.evidence import BenchmarkEvidenceSpec, RequestProbe, RunSummary
from specfleet.api.status import ArmRole
from specfleet.decide.evidence_nodes import nodes_by_pair
from specfleet.decide.evidence_pairs import request_probes

ARMS = {ArmRole.BASELINE: "plain", ArmRole.SPECULATIVE: "speculative"}
SLICE_HEAD = ("slice", "language or task", "prompt tokens", "output tokens", "temperature", "top-p", "weight")
USE_HEAD = ("cell", "arm", "requests", "TTFT mean", "TTFT p95", "queue delay", "pause p95", "KV cache peak",
            "pre-emptions", "4xx", "5xx and aborts")  # fmt: skip


@dataclass(frozen=True, slots=True)
class CellUse:
    """One arm in one cell: means over its valid runs (peaks and counts: over all of its runs)."""

    arm: ArmRole
    tier: str
    slice: str
    requests: int
    ttft_mean_seconds: float | None
    ttft_p95_seconds: float | None
    queue_time_mean_seconds: float | None
    stall_p95_seconds: float | None
    kv_cache_peak_ratio: float | None
    preemptions: int
    client_errors: int
    server_errors: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where and how the arms were measured."""

    slices: tuple[TrafficSlice, ...]
    """Those of the spec, or like production, that were measured; a spec that has changed since may lack some."""
    use: tuple[CellUse, ...]
    nodes: dict[int, dict[ArmRole, str]]
    """By pair, as far as they are known."""
    probes: tuple[RequestProbe, ...]


def surroundings(measured: Sequence[BenchmarkEvidenceSpec], known: Sequence[TrafficSlice]) -> Surroundings:
    """Of one benchmark's pairs. `known`: slices by which the names of the runs can be told."""
    cells: dict[tuple[str, str, ArmRole], list[RunSummary]] = {}
    for run in (run for one in measured for run in one.runs):
        cells.setdefault((run.tier, run.slice, run.arm), []).append(run)
    names = {piece for _, piece, _ in cells}
    slices = tuple({one.name: one for one in known if one.name in names}.values())
    use = tuple(_use(arm, tier, piece, runs) for (tier, piece, arm), runs in cells.items())
    return Surroundings(slices, use, nodes_by_pair(measured), request_probes(measured))


def _use(arm: ArmRole, tier: str, piece: str, runs: Sequence[RunSummary]) -> CellUse:
    valid = [run for run in runs if run.valid]
    peaks = [run.kv_cache_peak_ratio for run in runs if run.kv_cache_peak_ratio is not None]
    return CellUse(
        arm,
        tier,
        piece,
        sum(run.completed_requests for run in runs),
        _mean(run.ttft_mean_seconds for run in valid),
        _mean(run.ttft_p95_seconds for run in valid),
        _mean(run.queue_time_mean_seconds for run in valid),
        _mean(run.stall_p95_seconds for run in valid),
        max(peaks, default=None),
        sum(run.preemptions for run in runs),
        sum(run.client_errors for run in runs),
        sum(run.server_errors for run in runs),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def slice_rows(given: Surroundings) -> list[tuple[str, ...]]:
    """Every slice with its settings; columns are SLICE_HEAD."""
    return [
        (
            one.name,
            one.label or "",
            str(one.prompt_tokens),
            str(one.output_tokens),
            f"{one.temperature:g}",
            f"{one.top_p:g}",
            f"{one.weight:g}",
        )
        for one in given.slices
    ]


def use_rows(given: Surroundings) -> list[tuple[str, ...]]:
    """Words per cell and arm, the two arms of a cell below each other; columns are USE_HEAD."""
    order = list(dict.fromkeys((one.tier, one.slice) for one in given.use))
    listed = sorted(given.use, key=lambda one: (order.index((one.tier, one.slice)), list(ArmRole).index(one.arm)))
    return [
        (
            f"{one.tier}/{one.slice}",
            ARMS[one.arm],
            str(one.requests),
            _milliseconds(one.ttft_mean_seconds),
            _milliseconds(one.ttft_p95_seconds),
            _milliseconds(one.queue_time_mean_seconds),
            _milliseconds(one.stall_p95_seconds),
            "" if one.kv_cache_peak_ratio is None else f"{one.kv_cache_peak_ratio:.0%}",
            str(one.preemptions),
            str(one.client_errors),
            str(one.server_errors),
        )
        for one in listed
    ]


def node_rows(given: Surroundings) -> list[tuple[str, ...]]:
    """Pair, node of the plain arm, node of the speculative one."""
    return [
        (str(pair), nodes.get(ArmRole.BASELINE, "unknown"), nodes.get(ArmRole.SPECULATIVE, "unknown"))
        for pair, nodes in given.nodes.items()
    ]


def probe_rows(given: Surroundings) -> list[tuple[str, ...]]:
    """Kind of request, answer of either arm, and whether only speculation refuses it."""
    return [
        (one.name, _status(one.baseline_status), _status(one.speculative_status), "refused" if one.broken else "")
        for one in given.probes
    ]


def _status(code: int | None) -> str:
    return "no answer" if code is None else str(code)


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{1000 * value:.1f} ms"


def sections(given: Surroundings) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Title, head and rows of every table that has any."""
    found = [
        ("Slices", SLICE_HEAD, slice_rows(given)),
        ("Queue, cache, pauses and errors per cell", USE_HEAD, use_rows(given)),
        ("Nodes by pair", ("pair", "plain", "speculative"), node_rows(given)),
        ("Requests known to break", ("request", "plain", "speculative", "only speculation"), probe_rows(given)),
    ]
    return [one for one in found if one[2]]


def cells_html(given: Surroundings) -> str:
    """The tables as HTML."""
    parts = []
    for title, head, rows in sections(given):
        top = "".join(f"<th>{escape(word)}</th>" for word in head)
        body = "".join("<tr>" + "".join(f"<td>{escape(word)}</td>" for word in row) + "</tr>" for row in rows)
        parts.append(f"<h3>{escape(title)}</h3><table><tr>{top}</tr>{body}</table>")
    return "\n".join(parts)


def cells_markdown(given: Surroundings) -> list[str]:
    """The tables as Markdown lines."""
    found: list[str] = []
    for title, head, rows in sections(given):
        found += ["", f"{title}:", "", _row(head), "|" + "---|" * len(head), *(_row(row) for row in rows)]
    return found


def _row(words: Sequence[str]) -> str:
    return "| " + " | ".join(word.replace("|", "\\|") for word in words) + " |"


def cells_json(given: Surroundings) -> dict[str, Any]:
    """The same as JSON values."""
    return {
        "slices": [one.to_wire() for one in given.slices],
        "use": [
            {
                "arm": one.arm.value,
                "tier": one.tier,
                "slice": one.slice,
                "requests": one.requests,
                "ttftMeanSeconds": one.ttft_mean_seconds,
                "ttftP95Seconds": one.ttft_p95_seconds,
                "queueTimeMeanSeconds": one.queue_time_mean_seconds,
                "stallP95Seconds": one.stall_p95_seconds,
                "kvCachePeakRatio": one.kv_cache_peak_ratio,
                "preemptions": one.preemptions,
                "clientErrors": one.client_errors,
                "serverErrors": one.server_errors,
            }
            for one in given.use
        ],
        "nodes": {str(pair): {arm.value: node for arm, node in nodes.items()} for pair, nodes in given.nodes.items()},
        "requestProbes": [one.to_wire() for one in given.probes],
    }
