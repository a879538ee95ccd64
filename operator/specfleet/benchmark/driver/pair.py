"""All probes and runs of one pair, in the order of its plan."""

import http.client
import time

from .counters import Counters, scrape
from .failures import CannotMeasureError
from .harness import Json
from .probes import probe_agreement, probe_requests
from .progress import say
from .runs import measure, not_measured
from .session import Session
from .summary import Run
from .texts import characters_per_token


def run_pair(session: Session) -> None:
    """All probes and runs of the plan, in its order."""
    plan = session.plan
    first = plan["arms"][plan["runs"][0]["arm"]] if plan["runs"] else next(iter(plan["arms"].values()))
    for role, arm in plan["arms"].items():
        session.seen[role] = _first_look(arm)
    try:
        session.characters_per_token = characters_per_token(first["url"], first["model"], session.source)
        probe_requests(session)
        probe_agreement(session)
    except (OSError, http.client.HTTPException) as error:
        raise CannotMeasureError(f"{first['url']} does not answer: {error}") from error
    try:
        _all_runs(session)
    except Exception as error:
        _mark_missing(session, f"the Job ended before it: {str(error) or type(error).__name__}")
        raise
    if plan["purpose"] == "Capacity":
        set_capacity(session)


def _first_look(arm: Json) -> Counters:
    try:
        return scrape(arm["url"])
    except (OSError, http.client.HTTPException) as error:
        raise CannotMeasureError(f"{arm['url']} does not answer: {error}") from error


def _all_runs(session: Session) -> None:
    plan, begun = session.plan, time.monotonic()
    for number, run in enumerate(plan["runs"], 1):
        session.bench.check()
        load = (
            f"{run['concurrency']} in flight" if run.get("concurrency") else f"{run['requests_per_second']:.3g} req/s"
        )
        say(f"pair {plan['pair']} run {number}/{len(plan['runs'])}: {run['tier']}/{run['slice']} {run['arm']}, {load}")
        if time.monotonic() - begun > plan["deadline_seconds"]:
            session.error = f"the time budget of {plan['deadline_seconds']} s ended before run {number}"
            say(session.error)
            _mark_missing(session, "the time budget ended")
            return
        session.runs.append(measure(session, run))
        say(describe(session.runs[-1]))


def _mark_missing(session: Session, why: str) -> None:
    """A row for every run that was planned and is missing, if any was measured: a cell that no row names would not be
    missed, and the rest would pass for the whole. Without one there is no report but the error, and so half a capacity
    is none."""
    if session.plan["purpose"] == "Capacity":
        session.runs.clear()
    if session.runs:
        session.runs += [not_measured(run, why) for run in session.plan["runs"][len(session.runs) :]]


def set_capacity(session: Session) -> None:
    """The smallest rate over the slices. One slice without a valid run leaves no unit for the tiers: no report."""
    if len(session.runs) < len(session.plan["runs"]):
        raise CannotMeasureError(session.error or "not every slice's capacity was measured")
    bad = next((run for run in session.runs if run.get("invalid_reason") is not None), None)
    if bad is not None:
        session.runs.clear()
        raise CannotMeasureError(f"the plain arm's capacity in slice {bad['slice']}: {bad['invalid_reason']}")
    session.capacity_requests_per_second = min(run["completed_requests_per_second"] for run in session.runs)


def describe(summary: Run) -> str:
    """A run in words."""
    if summary.get("invalid_reason"):
        return f"  invalid: {summary['invalid_reason']}"
    tpot, ttft = summary["tpot_mean_seconds"], summary["ttft_mean_seconds"]
    text = f"  {summary['completed_requests']} requests, {summary['completed_requests_per_second']:.3g} req/s, "
    text += f"TPOT {1000 * tpot:.2f} ms, TTFT {1000 * ttft:.1f} ms"
    if summary.get("draft_tokens"):
        text += f", acceptance {summary['accepted_tokens'] / summary['draft_tokens']:.3f}"
    return text
