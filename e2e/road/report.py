"""The report of a demo run: plots from Prometheus and the route, the decisions, the checks. One file, no network."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from e2e.road import outcomes
from e2e.road.access import RoadError
from e2e.road.plot import Line, Mark, Plot
from e2e.road.recorder import elapsed, seconds_of, utc
from e2e.road.verify import Check, Road

STEP_SECONDS = 2
RATE_SECONDS = 12
COLOURS = {"Pass": "#059669", "Fail": "#dc2626", "Inconclusive": "#d97706", "Error": "#d97706"}
STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:1120px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
svg{width:100%;height:auto;margin:.4rem 0}
.title{font-size:13px;font-weight:600;fill:currentColor}.tick,.legend,.mark{font-size:10px;fill:currentColor}
.grid{stroke:currentColor;opacity:.13}
table{border-collapse:collapse;width:100%;font-size:.88rem}
td,th{text-align:left;vertical-align:top;padding:.25rem .6rem;border-bottom:1px solid #8884}
.ok{color:#059669;font-weight:600}.bad{color:#dc2626;font-weight:600}code{font-size:.85em}
"""


def write_report(road: Road, checks: Sequence[Check], ended: float, injected: float | None, path: Path) -> None:
    """Write the HTML file."""
    seconds = ended - road.began
    marks = _marks(road)
    plots = [plot.svg() for plot in _plots(road, seconds, ended, marks, injected)]
    totals = outcomes.totals(outcomes.read_log(road.requests)) if road.requests.exists() else None
    passed = sum(check.passed for check in checks)
    text = f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>specfleet demo: {html.escape(road.place.name)}</title><style>{STYLE}</style></head><body>
<h1>specfleet: the road of <code>{html.escape(road.place.namespace)}/{html.escape(road.place.name)}</code></h1>
<p>{passed} of {len(checks)} checks passed; {seconds / 60:.1f} minutes; {_traffic_words(totals)}.
Times are minutes and seconds since the apply at {utc(road.began)}, as in the transcript.
Vertical lines are decisions, numbered as in the table below{_shade_words(injected)}.</p>
{"".join(plots)}
<h2>Decisions</h2>{_decisions(road)}
<h2>Checks</h2>{_checks(checks)}
</body></html>
"""
    path.write_text(text, encoding="utf-8")


def _shade_words(injected: float | None) -> str:
    return "; the shaded part is after the drafts stopped fitting" if injected is not None else ""


def _traffic_words(totals: outcomes.Totals | None) -> str:
    if totals is None:
        return "no traffic was sent"
    return (
        f"{totals.requests} requests, {totals.failed} failed or cut, "
        f"{totals.long_streams} whole streams of over a minute"
    )


def _marks(road: Road) -> list[Mark]:
    found = []
    for number, decision in enumerate(road.recorder.decisions, 1):
        moment = seconds_of(decision["time"])
        assert moment is not None
        colour = COLOURS.get(decision.get("verdict") or "", "#64748b")
        found.append(Mark(moment - road.began, number, colour, f"{decision['action']}: {decision.get('message', '')}"))
    return found


def _plots(road: Road, seconds: float, ended: float, marks: list[Mark], injected: float | None) -> Iterable[Plot]:
    spans = [(injected - road.began, seconds, "#dc2626")] if injected is not None else []
    arms = _arms(road)
    acceptance = [
        _series(road, ended, f"acceptance rate, {role}", _acceptance(road, name))
        for name, role in arms
        if role == "speculative"
    ]
    tpot = [_series(road, ended, role, _tpot(road, name), scale=1000) for name, role in arms]
    share = [
        (sample.time - road.began, None if (seen := sample.speculative_share) is None else 100 * seen)
        for sample in road.recorder.samples
    ]
    pods = [
        Line(f"{role} pods", [(one.time - road.began, float(one.ready.get(name, 0))) for one in road.recorder.samples],
             steps=True)
        for name, role in arms
    ]  # fmt: skip
    yield Plot("Acceptance rate (accepted / drafted tokens)", "", acceptance, seconds, marks, 1.0, spans)
    yield Plot("Time per output token, serving pods", " ms", tpot, seconds, marks, None, spans)
    yield Plot(
        "Traffic weight of the speculative arm", " %", [Line("weight", share, steps=True)], seconds, marks, 100.0, spans
    )
    yield Plot("Ready serving pods", "", pods, seconds, marks, 8.0, spans)
    yield Plot("Requests as the client saw them, per second", "/s", _client(road, seconds), seconds, marks, None, spans)


def _arms(road: Road) -> list[tuple[str, str]]:
    roles: dict[str, str] = {}
    for sample in road.recorder.samples:
        roles |= sample.roles
    return sorted(roles.items(), key=lambda item: item[1])


def _pods(road: Road, fingerprint: str) -> str:
    return f'namespace="{road.place.namespace}",pod=~"{road.place.name}-{fingerprint}-.*"'


def _acceptance(road: Road, fingerprint: str) -> str:
    pods = _pods(road, fingerprint)
    parts = [
        f"sum(rate(vllm:spec_decode_num_{what}_tokens_total{{{pods}}}[{RATE_SECONDS}s]))"
        for what in ("accepted", "draft")
    ]
    return " / ".join(parts)


def _tpot(road: Road, fingerprint: str) -> str:
    """Token-weighted decode time: step seconds over tokens after each request's first one."""
    pods, span = _pods(road, fingerprint), f"[{RATE_SECONDS}s]"
    first = f"sum(rate(vllm:time_to_first_token_seconds_count{{{pods}}}{span}))"
    tokens = f"sum(rate(vllm:generation_tokens_total{{{pods}}}{span}))"
    return f"sum(rate(vllm:inter_token_latency_seconds_sum{{{pods}}}{span})) / ({tokens} - {first})"


def _series(road: Road, ended: float, label: str, query: str, scale: float = 1.0) -> Line:
    """A range query as a line; gaps stay gaps."""
    try:
        answer = road.access.prometheus(
            "query_range", query=query, start=f"{road.began:.0f}", end=f"{ended:.0f}", step=str(STEP_SECONDS)
        )["result"]
    except RoadError:
        return Line(f"{label} (Prometheus did not answer)", [])
    points: list[tuple[float, float | None]] = []
    before: float | None = None
    for moment, text in answer[0]["values"] if answer else []:
        if before is not None and moment - before > 1.5 * STEP_SECONDS:
            points.append((before + STEP_SECONDS - road.began, None))
        value = float(text)
        points.append((moment - road.began, scale * value if math.isfinite(value) else None))
        before = moment
    return Line(label, points)


def _client(road: Road, seconds: float) -> list[Line]:
    if not road.requests.exists():
        return []
    width = 5
    served: dict[int, int] = {}
    failed: dict[int, int] = {}
    for one in outcomes.read_log(road.requests):
        counted = served if one.fault is None else failed
        place = int((one.end - road.began) // width)
        counted[place] = counted.get(place, 0) + 1
    places = range(int(seconds // width) + 1)
    return [
        Line(label, [(width * (place + 0.5), counted.get(place, 0) / width) for place in places])
        for label, counted in (("served", served), ("failed or cut", failed))
    ]


def _decisions(road: Road) -> str:
    rows = []
    for number, one in enumerate(road.recorder.decisions, 1):
        moment = seconds_of(one["time"])
        assert moment is not None
        verdict = one.get("verdict") or ""
        rows.append(
            f"<tr><td>{number}</td><td>{elapsed(moment - road.began)}</td><td>{utc(moment)[11:19]}</td>"
            f"<td>{html.escape(one['action'])}</td>"
            f'<td style="color:{COLOURS.get(verdict, "inherit")}">{verdict}</td>'
            f"<td>{html.escape(one['reason'])}: {html.escape(one.get('message', ''))}</td></tr>"
        )
    head = "<tr><th>#</th><th>since apply</th><th>UTC</th><th>decision</th><th>verdict</th><th>evidence</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _checks(checks: Sequence[Check]) -> str:
    rows = [
        f"<tr><td class={'ok' if one.passed else 'bad'}>{'ok' if one.passed else 'NOT OK'}</td>"
        f"<td>{html.escape(one.name)}</td><td>{html.escape(one.said)}</td></tr>"
        for one in checks
    ]
    return f"<table>{''.join(rows)}</table>"
