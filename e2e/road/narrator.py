"""Tells the road as it happens: one line per decision, with its evidence in words, and progress while it measures."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from e2e.road.access import Object, RoadError
from e2e.road.recorder import Recorder, elapsed, seconds_of

COLOURS = {"Pass": "32", "Fail": "31", "Inconclusive": "33", "Error": "33"}
WIDTH = 118
INDENT = 34


@dataclass
class Narrator:
    """Prints what is new in a recorder's picture. Only a teller: the checks at the end do not trust it."""

    recorder: Recorder
    began: float = field(default_factory=time.time)
    colour: bool = field(default_factory=sys.stdout.isatty)
    _told: int = 0
    _phase: str = ""
    _progress: tuple[object, ...] = ()
    _conditions: dict[str, str] = field(default_factory=dict)

    def say(self, what: str, text: str, moment: float | None = None, verdict: str | None = None) -> None:
        """One line: elapsed time, subject, text."""
        stamp = f"{elapsed((moment or time.time()) - self.began):>6}"
        subject = f"{what:<{INDENT - 8}}"
        if self.colour and verdict in COLOURS:
            subject = f"\033[{COLOURS[str(verdict)]}m{subject}\033[0m"
        lines = textwrap.wrap(text, WIDTH - INDENT) or [""]
        print(f"{stamp}  {subject}{lines[0]}", flush=True)
        for line in lines[1:]:
            print(f"{'':{INDENT}}{line}", flush=True)

    def tell(self) -> None:
        """Print what is new."""
        for decision in self.recorder.decisions[self._told :]:
            self._told += 1
            self._decision(decision)
        self._state(self.recorder.status)

    def follow(self, what: str, holds: Callable[[], bool], seconds: float) -> None:
        """Tell until `holds`. Raises RoadError when time is up, with the phase that it stands in."""
        deadline = time.monotonic() + seconds
        while True:
            self.tell()
            if holds():
                return
            if time.monotonic() > deadline:
                status = self.recorder.status
                last = status.get("lastDecision", {})
                raise RoadError(
                    f"not so after {seconds:.0f} s: {what}. Phase {status.get('phase')} "
                    f"({status.get('phaseReason')}), last decision: {last.get('action')} {last.get('message', '')}"
                )
            time.sleep(0.5)

    def _decision(self, decision: Object) -> None:
        verdict = decision.get("verdict")
        text = decision.get("message", "")
        if decision.get("evidence"):
            text += f" [evidence: {len(decision['evidence'])} objects, {decision['evidence'][0]} ...]"
        name = f"{decision['action']}{f' {verdict}' if verdict else ''}"
        self.say(name, f"{decision['reason']}: {text}", seconds_of(decision["time"]), verdict)

    def _state(self, status: Object) -> None:
        phase = status.get("phase", "")
        if phase != self._phase:
            self._phase = phase
            self.say(f"[{phase}]", f"{status.get('phaseReason', '')}", seconds_of(status.get("phaseSince")))
        progress = status.get("benchmark") or {}
        seen = (progress.get("id"), progress.get("pairsDone"), progress.get("pairsPlanned"))
        if progress and seen != self._progress:
            self._progress = seen
            self.say("  measuring", f"{progress.get('pairsDone', 0)} of {progress.get('pairsPlanned')} pairs done")
        for condition in status.get("conditions", []):
            kind, value = condition["type"], f"{condition['status']} {condition['reason']}"
            before = self._conditions.get(kind)
            self._conditions[kind] = value
            if kind in ("MetricsAvailable", "DriftDetected", "Stalled") and before is not None and before != value:
                said = ": ".join(part for part in (condition["reason"], condition.get("message")) if part)
                self.say(f"  {kind}={condition['status']}", said)
