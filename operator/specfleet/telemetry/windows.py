"""From intervals to windows: edges at scrapes, a pod counts only with a whole and undisturbed window."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specfleet.decide.counters import Counter, PodWindow
from specfleet.decide.watch_report import SCRAPED_TWICE, Answer
from specfleet.telemetry.deltas import JITTER, MAX_SCRAPE_INTERVAL_SECONDS, Intervals

SCRAPES_PER_WINDOW = 4
COVERED = 0.5
"""Part of a window that a pod's usable intervals must cover."""
STALE_STEPS = 3


@dataclass(frozen=True, slots=True)
class PodState:
    """What is known of a pod's metrics at a tick."""

    intervals: Intervals | None
    last_sample: float | None
    missing: tuple[str, ...] = ()
    speculates: bool = False
    duplicate: bool = False
    """Several jobs or servers scrape it; one of them is used."""


def window_length(window_seconds: float, step_seconds: float) -> float:
    """The shortest multiple of the declared window that holds at least four scrapes."""
    least = SCRAPES_PER_WINDOW * step_seconds * (1 - JITTER)
    return window_seconds * max(1, int(np.ceil(least / window_seconds)))


def pod_window(seen: Intervals, start: float, end: float) -> PodWindow | None:
    """One pod over [start, end): the intervals that end in it. None when any of them is disturbed."""
    inside = (seen.ends > start) & (seen.ends <= end)
    if not inside.any() or not seen.usable[inside].all():
        return None
    seconds = float((seen.ends[inside] - seen.starts[inside]).sum())
    if seconds < COVERED * (end - start):
        return None
    gauges = seen.gauges[:, inside]
    with np.errstate(invalid="ignore"):
        summary = np.array([gauges[0].mean(), gauges[1].mean(), gauges[2].max()])
    return PodWindow(seconds, np.nan_to_num(seen.counts[:, inside].sum(axis=1)), summary)


def scrape_refusal(step_seconds: float) -> str | None:
    """Why a scrape interval cannot be watched."""
    if step_seconds <= MAX_SCRAPE_INTERVAL_SECONDS * (1 + JITTER):
        return None
    return (
        f"scraped every {step_seconds:.0f} s: windows need an interval of at most "
        f"{MAX_SCRAPE_INTERVAL_SECONDS:.0f} s (set scrape_interval of the job or spec.monitoring.scrapeIntervalSeconds)"
    )


def window_answer(
    pods: Mapping[str, PodWindow], states: Mapping[str, PodState], speculative: bool
) -> tuple[Answer, str]:
    """Type of one closed window of an arm."""
    if not pods:
        return Answer.INSUFFICIENT, "no pod had an undisturbed window (warm-up, restart, scrape gap or a value missing)"
    total = sum((pod.counts for pod in pods.values()), start=np.zeros(len(Counter)))
    if total[Counter.GENERATED_TOKENS] == 0 and total[Counter.FIRST_TOKENS] == 0:
        return Answer.NO_TRAFFIC, "no token was generated"
    if speculative and total[Counter.DRAFTS] == 0:
        if not any(states[name].speculates for name in pods if name in states):
            return Answer.NOT_SPECULATING, "tokens are generated but the engine has no vllm:spec_decode counters"
        decoded = total[Counter.GENERATED_TOKENS] - total[Counter.FIRST_TOKENS]
        if decoded > 0:
            return Answer.NOT_SPECULATING, f"{decoded:.0f} tokens decoded without a single draft"
    return Answer.OK, ""


def arm_answer(states: Mapping[str, PodState], now: float, window_seconds: float) -> tuple[Answer, str]:
    """State of an arm's metrics at a tick, before any window: is every pod scraped, complete and fresh?"""
    if not states:
        return Answer.TARGET_DOWN, "the arm has no pod"
    dark = sorted(name for name, state in states.items() if state.last_sample is None)
    if len(dark) == len(states):
        return Answer.TARGET_DOWN, f"no sample of {_names(dark)}: is the pod scraped, and are the label names right?"
    for name, state in sorted(states.items()):
        if state.missing:
            return Answer.SCHEMA_MISSING, f"pod {name} does not expose {', '.join(state.missing)}"
    steps = [s.intervals.step_seconds for s in states.values() if s.intervals and s.intervals.step_seconds]
    step = float(np.median(steps)) if steps else window_seconds / SCRAPES_PER_WINDOW
    refusal = scrape_refusal(step) if steps else None
    if refusal:
        return Answer.UNAVAILABLE, refusal
    fresh = [
        name
        for name, s in states.items()
        if s.last_sample is not None and now - s.last_sample <= STALE_STEPS * step + 1
    ]
    if not fresh:
        newest = max(s.last_sample for s in states.values() if s.last_sample is not None)
        return Answer.STALE, f"the newest sample is {now - newest:.0f} s old, scraped every {step:.0f} s"
    twice = sorted(name for name, state in states.items() if state.duplicate)
    said = [f"not scraped: {_names(dark)}"] if dark else []
    if twice:
        said.append(f"{SCRAPED_TWICE}: {_names(twice)} (two jobs, or replicas without deduplication)")
    return Answer.OK, "; ".join(said)


def _names(pods: list[str]) -> str:
    return ", ".join(pods[:3]) + (f" and {len(pods) - 3} more" if len(pods) > 3 else "")
