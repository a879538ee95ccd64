"""Watches one SpeculativeDeployment through the API, once a second, and remembers what it saw."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from e2e.road.access import Access, Object, RoadError
from e2e.road.example import RESOURCE, Place

WEIGHTS_ANNOTATION = "specfleet.dev/weights"
LOOKED_AT = (RESOURCE, "httproutes.gateway.networking.k8s.io", "deployments.apps")


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen at one moment."""

    time: float
    phase: str
    weights: dict[str, int]
    """Traffic weight per fingerprint, from the HTTPRoute."""
    replicas: dict[str, int]
    """Serving replicas per fingerprint, from the Deployments."""
    ready: dict[str, int]
    roles: dict[str, str]
    """baseline or speculative, per fingerprint."""

    @property
    def speculative_share(self) -> float | None:
        """Share of the traffic weight on speculative arms (0..1); None without a route."""
        total = sum(self.weights.values())
        if total == 0:
            return None
        return sum(weight for name, weight in self.weights.items() if self.roles.get(name) == "speculative") / total


@dataclass
class Recorder:
    """Polls until stopped. Readers take `samples` and `status`; nothing is written to the cluster."""

    access: Access
    place: Place
    samples: list[Sample] = field(default_factory=list)
    decisions: list[Object] = field(default_factory=list)
    """status.history without gaps: the object itself keeps the last 20 only."""
    body: Object | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _trouble: int = 0

    def start(self) -> None:
        """Poll in the background."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop polling."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=30)

    @property
    def status(self) -> Object:
        """status as last seen; {} before there is one."""
        return dict((self.body or {}).get("status") or {})

    def _run(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                self.look()
                self._trouble = 0
            except RoadError as error:
                self._trouble += 1
                if self._trouble in (5, 60):
                    print(f"        (the API server does not answer the narrator: {error})", flush=True)
            self._stop.wait(max(0.1, 1.0 - (time.monotonic() - begun)))

    def look(self) -> None:
        """One look."""
        mine = [one for kind in LOOKED_AT for one in self.access.list(kind, self.place.namespace) if self._is_mine(one)]
        body = next((one for one in mine if one["kind"] == "SpeculativeDeployment"), None)
        if body is None:
            return
        for decision in (body.get("status") or {}).get("history", []):
            if decision not in self.decisions:
                self.decisions.append(decision)
        self.samples.append(_sample(time.time(), body, mine))
        self.body = body

    def _is_mine(self, one: Object) -> bool:
        if one["kind"] == "SpeculativeDeployment":
            return bool(one["metadata"]["name"] == self.place.name)
        owners = one["metadata"].get("ownerReferences", [])
        return any(owner["kind"] == "SpeculativeDeployment" and owner["name"] == self.place.name for owner in owners)


def _sample(moment: float, body: Object, children: list[Object]) -> Sample:
    weights: dict[str, int] = {}
    replicas: dict[str, int] = {}
    ready: dict[str, int] = {}
    roles: dict[str, str] = {}
    for one in children:
        own: dict[str, str] = one["metadata"].get("labels", {})
        if one["kind"] == "HTTPRoute":
            weights = parse_weights(one["metadata"].get("annotations", {}).get(WEIGHTS_ANNOTATION, ""))
        elif one["kind"] == "Deployment" and own.get("specfleet.dev/role") == "serving":
            name = own["specfleet.dev/fingerprint"]
            roles[name] = own.get("specfleet.dev/arm", "")
            replicas[name] = int(one["spec"].get("replicas", 0))
            ready[name] = int(one.get("status", {}).get("readyReplicas", 0))
    return Sample(moment, (body.get("status") or {}).get("phase", ""), weights, replicas, ready, roles)


def parse_weights(said: str) -> dict[str, int]:
    """`fingerprint=weight,...` as the route's annotation has it."""
    pairs = (part.partition("=") for part in said.split(",") if part)
    return {name: int(weight) for name, _, weight in pairs if weight.isdigit()}


def switches(samples: list[Sample]) -> list[float]:
    """Moments at which the routed weights changed, the first appearance of the route left out."""
    routed = [one for one in samples if one.weights]
    return [after.time for before, after in pairwise(routed) if _shares(before) != _shares(after)]


def _shares(sample: Sample) -> dict[str, float]:
    total = sum(sample.weights.values()) or 1
    return {name: round(weight / total, 4) for name, weight in sample.weights.items() if weight}


def seconds_of(moment: str | None) -> float | None:
    """Unix seconds of a Kubernetes timestamp."""
    return None if moment is None else datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def utc(moment: float) -> str:
    """A moment (Unix seconds) as people read it."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def elapsed(seconds: float) -> str:
    """Minutes and seconds since the start, the same in transcript and report; what came before it is 0:00."""
    whole = int(max(0.0, seconds))
    return f"{whole // 60}:{whole % 60:02d}"


def find_decision(decisions: list[Object], action: str, **fields: Any) -> Object | None:
    """The first decision with that action and those fields."""
    return next(
        (one for one in decisions if one["action"] == action and all(one.get(k) == v for k, v in fields.items())), None
    )
