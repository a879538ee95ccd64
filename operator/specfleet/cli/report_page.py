"""A report as one HTML page without network needs, and as Markdown."""

from collections.abc import Callable, Sequence
from html import escape

from specfleet import __version__
from specfleet.api.status import ArmRole, DeploymentStatus, Verdict
from specfleet.cli.report_cells import ARMS, cells_html, cells_markdown
from specfleet.cli.report_data import BenchmarkReport, LoadPoint, Report
from specfleet.cli.svg import BAD, GOOD, UNSURE, Interval, Line, bars, forest, heat_map, lines

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:980px;margin:2em auto;padding:0 1em;color:#222}
h1{font-size:1.5em}h2{font-size:1.2em;margin-top:2em;border-bottom:1px solid #ddd}h3{font-size:1em;margin:1.4em 0 .3em}
table{border-collapse:collapse;font-size:13px}td,th{border:1px solid #ddd;padding:3px 8px;text-align:left}
.Pass{color:#2c7a4b;font-weight:600}.Fail,.Error{color:#b3352c;font-weight:600}.Inconclusive{color:#777;font-weight:600}
svg{max-width:100%;height:auto}figure{margin:0}figcaption{font-size:13px;color:#555}
.row{display:flex;flex-wrap:wrap;gap:0 1.5em}
.row figure{max-width:calc(50% - 1em)}footer{margin-top:3em;color:#777;font-size:13px}
code{background:#f4f4f4;padding:0 3px}
"""
TIME = "%Y-%m-%d %H:%M:%S"
INVALID_SHOWN = 40
AGREES = {
    True: "It agrees with the recorded verdict.",
    False: "<b>It DISAGREES with the recorded verdict.</b>",
    None: "",
}
COLOURS = {Verdict.PASS: GOOD, Verdict.FAIL: BAD, Verdict.ERROR: BAD, Verdict.INCONCLUSIVE: UNSURE}


def html_page(report: Report) -> str:
    """The whole page."""
    name = f"{report.deployment.metadata.get('namespace', '')}/{report.deployment.name}".lstrip("/")
    status = report.deployment.status
    parts = [f"<h1>{escape(name)}</h1>", f"<p>{escape(_state(status))}</p>" if status else ""]
    if status is not None and status.recommendation is not None:
        parts.append(f"<p>Recommendation: {escape(status.recommendation.message)}.</p>")
    parts.append(_decisions_html(report))
    parts += [_benchmark_html(report, one) for one in report.benchmarks]
    if not report.benchmarks:
        parts.append("<p>No benchmark has been measured yet.</p>")
    parts.append(f"<footer>specfleet {escape(__version__)}. All times are UTC.</footer>")
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>specfleet: {escape(name)}</title>'
    head += '<meta name="viewport" content="width=device-width, initial-scale=1">'
    return head + f"<style>{STYLE}</style><body>" + "\n".join(parts) + "</body></html>\n"


def _state(status: DeploymentStatus) -> str:
    """Phase, since when and why, and what serves."""
    arm = f"the {ARMS[status.serving_arm]} arm serves" if status.serving_arm else "nothing serves yet"
    since = f" since {status.phase_since:{TIME}}" if status.phase_since else ""
    why = f" ({status.phase_reason})" if status.phase_reason else ""
    return f"{status.phase.value}{since}{why}; {arm}."


def _decisions_html(report: Report) -> str:
    if not report.decisions:
        return ""
    rows = [
        f"<tr><td>{one.time:{TIME}}</td><td>{escape(one.action)}</td>"
        f'<td class="{one.verdict.value if one.verdict else ""}">{one.verdict.value if one.verdict else ""}</td>'
        f"<td>{escape(one.reason)}</td><td>{escape(one.message)}</td></tr>"
        for one in report.decisions
    ]
    head = "<tr><th>time (UTC)</th><th>decision</th><th>verdict</th><th>reason</th><th>evidence in words</th></tr>"
    return f"<h2>Decisions</h2><table>{head}{''.join(rows)}</table>"


def _benchmark_html(report: Report, one: BenchmarkReport) -> str:
    verdict = one.verdict
    parts = [
        f"<h2>{escape(one.purpose)} {escape(one.benchmark)}: {escape(one.proposer)}</h2>",
        f'<p><span class="{verdict.verdict.value}">{verdict.verdict.value}</span> <b>{escape(verdict.reason)}</b> '
        f"{escape(verdict.message)}. {AGREES[one.recomputed.agrees]}</p>",
        f"<p>Recommendation: {escape(verdict.recommendation.rstrip('.'))}.</p>" if verdict.recommendation else "",
        f"<p>Fingerprints: plain <code>{escape(one.baseline)}</code>, "
        f"speculative <code>{escape(one.candidate)}</code>; {escape(one.difference.replace('->', '→'))}.</p>",
        f"<p>Measured {_span(one)} (UTC) on vLLM {escape(one.engine_version or 'of unknown version')}; "
        f"{one.gpu_hours:.2f} GPU hours, {verdict.pairs} complete pair{'' if verdict.pairs == 1 else 's'}.</p>",
        f"<h3>Gain of {report.deployment.spec.benchmark.objective.metric.value} per cell (above zero: faster)</h3>",
        _matrix(one),
        "<h3>Intervals</h3>",
        _intervals(report, one),
        "<h3>Guards</h3>",
        _guards_html(one),
        "<h3>Latency over load</h3>",
        _row_of(_latency(one)) or "<p>No valid run.</p>",
        "<h3>Acceptance rate by position of the draft (of those that reached it)</h3>",
        _row_of(_acceptance(one)) or "<p>Nothing was drafted.</p>",
        _predictions_html(one),
        cells_html(one.surroundings),
    ]
    if one.agreement:
        between, within, prompts = one.agreement
        parts.append(
            f"<p>Greedy texts: the arms agree on {between} of {prompts} prompts, "
            f"the plain arm with itself on {within}.</p>"
        )
    if verdict.incompatible_requests:
        names = ", ".join(map(escape, verdict.incompatible_requests))
        parts.append(f"<p>Requests that only the speculative arm refuses: {names}.</p>")
    if one.invalid:
        items = "".join(f"<li>{escape(text)}</li>" for text in one.invalid[:INVALID_SHOWN])
        if len(one.invalid) > INVALID_SHOWN:
            items += f"<li>and {len(one.invalid) - INVALID_SHOWN} more (all of them: --format json)</li>"
        parts.append(f"<h3>Runs that were not compared</h3><ul>{items}</ul>")
    return "\n".join(part for part in parts if part)


def _span(one: BenchmarkReport) -> str:
    same = one.started.date() == one.finished.date()
    return f"from {one.started:{TIME}} to {one.finished:{'%H:%M:%S' if same else TIME}}"


def _row_of(drawings: Sequence[str]) -> str:
    """Drawings beside each other, as many as the page is wide."""
    figures = "".join(f"<figure>{one}</figure>" for one in drawings if one)
    return f'<div class="row">{figures}</div>' if figures else ""


def _matrix(one: BenchmarkReport) -> str:
    tiers = list(dict.fromkeys(cell.tier for cell in one.verdict.cells))
    slices = list(dict.fromkeys(cell.slice for cell in one.verdict.cells))
    known = {(cell.tier, cell.slice): cell for cell in one.verdict.cells}
    rows: list[list[tuple[float | None, str]]] = []
    for tier in tiers:
        row: list[tuple[float | None, str]] = []
        for piece in slices:
            cell = known.get((tier, piece))
            if cell is None or cell.gain_ratio is None:
                row.append((None, "not measured"))
            else:
                row.append((cell.gain_ratio, f"{cell.gain_ratio:+.0%} {cell.verdict.value}"))
        rows.append(row)
    return heat_map(tiers, slices, rows, "gain per load tier and traffic slice") if tiers else "<p>Not measured.</p>"


def _intervals(report: Report, one: BenchmarkReport) -> str:
    found = [
        Interval(f"{cell.tier}/{cell.slice}", cell.gain_ratio, cell.lower, cell.upper, COLOURS[cell.verdict])
        for cell in one.verdict.cells
        if cell.gain_ratio is not None and cell.lower is not None and cell.upper is not None
    ]
    verdict = one.verdict
    if verdict.gain_ratio is not None and verdict.lower is not None and verdict.upper is not None:
        found.append(Interval("objective", verdict.gain_ratio, verdict.lower, verdict.upper, COLOURS[verdict.verdict]))
    bar = report.deployment.spec.benchmark.objective.minimum_gain_ratio
    return forest(found, [(bar, f"minimum {bar:+.0%}")], "gain with 95 % intervals") if found else ""


def _guards_html(one: BenchmarkReport) -> str:
    rows = [
        f"<tr><td>{escape(guard.name)}</td><td>{escape(guard.tier or 'all')}</td>"
        f'<td class="{guard.verdict.value}">{guard.verdict.value}</td><td>{escape(guard.message)}</td></tr>'
        for guard in one.verdict.guards
    ]
    head = "<tr><th>guard</th><th>tier</th><th>verdict</th><th>observed</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>" if rows else "<p>None could be judged.</p>"


def _latency(one: BenchmarkReport) -> list[str]:
    slices = dict.fromkeys(point.slice for point in one.points)
    return [
        drawing
        for piece in slices
        for drawing in (
            _over_load(one, piece, "TPOT", lambda point: point.tpot_seconds),
            _over_load(one, piece, "TTFT", lambda point: point.ttft_seconds),
        )
    ]


def _over_load(one: BenchmarkReport, piece: str, name: str, of: Callable[[LoadPoint], float | None]) -> str:
    series = []
    for arm in ArmRole:
        own = [(p.requests_per_second, of(p)) for p in one.points if p.arm is arm and p.slice == piece]
        series.append(Line(arm.value, [(x, 1000 * seconds) for x, seconds in own if seconds is not None]))
    return lines(series, f"completed requests/s ({piece})", f"{name} in ms", f"{name} over load, {piece}")


def _acceptance(one: BenchmarkReport) -> list[str]:
    return [
        bars([str(i) for i in range(len(rates))], rates, f"acceptance per position, {cell}")
        + f"<figcaption>{escape(cell)}</figcaption>"
        for cell, rates in one.acceptance.items()
    ]


def _predictions_html(one: BenchmarkReport) -> str:
    if not one.predictions:
        return ""
    rows = [
        f"<tr><td>{escape(guess.tier)}</td><td>{guess.batch:.1f}</td><td>{guess.accepted_length:.2f}</td>"
        f"<td>{guess.step_time_ratio:.2f}</td><td>{guess.gain_ratio:+.1%}</td></tr>"
        for guess in one.predictions
    ]
    head = (
        "<tr><th>tier</th><th>mean batch</th><th>accepted length (tokens per step)</th>"
        "<th>accepted length that breaks even</th><th>gain that follows from the counters</th></tr>"
    )
    return f"<h3>Why: acceptance against step time</h3><table>{head}{''.join(rows)}</table>"


def markdown(report: Report) -> str:
    """The same in Markdown, without the drawings."""
    lines_: list[str] = [f"# {report.deployment.name}", ""]
    status = report.deployment.status
    if status is not None and status.recommendation is not None:
        lines_ += [f"Recommendation: {status.recommendation.message}.", ""]
    if report.decisions:
        lines_ += ["| time (UTC) | decision | verdict | reason | evidence |", "|---|---|---|---|---|"]
        lines_ += [
            _row(
                f"{one.time:{TIME}}",
                one.action,
                one.verdict.value if one.verdict else "",
                one.reason,
                one.message,
            )
            for one in report.decisions
        ]
        lines_.append("")
    for one in report.benchmarks:
        lines_ += _benchmark_markdown(one)
    return "\n".join(lines_) + "\n"


def _row(*fields: str) -> str:
    return "| " + " | ".join(field.replace("|", "\\|") for field in fields) + " |"


def _benchmark_markdown(one: BenchmarkReport) -> list[str]:
    verdict = one.verdict
    found = [
        f"## {one.purpose} {one.benchmark}: {one.proposer}",
        "",
        f"**{verdict.verdict.value}** {verdict.reason}: {verdict.message}",
        "",
        f"plain `{one.baseline}`, speculative `{one.candidate}`: {one.difference.replace('->', '→')}",
        "",
        f"Measured {_span(one)} UTC, {verdict.pairs} complete pairs, {one.gpu_hours:.2f} GPU hours.",
        "",
        "| cell | verdict | gain | 95 % interval | acceptance rate | accepted length |",
        "|---|---|---|---|---|---|",
    ]
    found += [
        _row(
            f"{cell.tier}/{cell.slice}",
            cell.verdict.value,
            _percent(cell.gain_ratio),
            f"{_percent(cell.lower)} .. {_percent(cell.upper)}",
            "" if cell.acceptance_rate is None else f"{cell.acceptance_rate:.3f}",
            "" if cell.accepted_length is None else f"{cell.accepted_length:.2f}",
        )
        for cell in verdict.cells
    ]
    found += ["", "| guard | tier | verdict | observed |", "|---|---|---|---|"]
    found += [_row(guard.name, guard.tier or "all", guard.verdict.value, guard.message) for guard in verdict.guards]
    return [*found, *cells_markdown(one.surroundings), *_notes(one.invalid), ""]


def _notes(invalid: Sequence[str]) -> list[str]:
    return ["", "Not compared:", *(f"- {text}" for text in invalid)] if invalid else []


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:+.1%}"
