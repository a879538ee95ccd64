"""One deployment under test: applied, watched and told, with traffic if wanted, removed at the end."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.road import outcomes
from e2e.road.access import ROOT, Access, Object, RoadError, cluster_command, wait_until
from e2e.road.demo import DECAYED_ACCEPTANCE, PROMOTE_SECONDS, ROLLBACK_SECONDS, remove
from e2e.road.example import (
    RESOURCE,
    Place,
    acceptance_decay,
    faults_secret,
    inject,
    load_quickstart,
    namespace,
    overlaid,
)
from e2e.road.narrator import Narrator
from e2e.road.recorder import Recorder, find_decision
from e2e.road.traffic_process import TrafficProcess

LOGS = ROOT / "build" / "e2e"
SERVE_SECONDS = 180.0
SHORT_ROAD: dict[str, Any] = {
    "benchmark": {"slices": [{"name": "chat", "promptTokens": 256, "outputTokens": 48}]},
    "rollout": {
        "steps": [
            {"weightPercent": 50, "minDurationSeconds": 15, "minRequests": 20},
            {"weightPercent": 75, "minDurationSeconds": 15, "minRequests": 20},
        ]
    },
}
"""For scenarios that begin after the promotion: fewer cells and steps."""


@dataclass
class Stage:
    """A deployment and its onlookers."""

    access: Access
    place: Place
    recorder: Recorder
    narrator: Narrator
    traffic: TrafficProcess

    @property
    def phase(self) -> str:
        """status.phase as last seen."""
        return str(self.recorder.status.get("phase", ""))

    @property
    def status(self) -> Object:
        """status as last seen."""
        return self.recorder.status

    @property
    def actions(self) -> list[str]:
        """All decisions so far."""
        return [one["action"] for one in self.recorder.decisions]

    def decision(self, action: str, **fields: Any) -> Object | None:
        """The first decision of that kind."""
        return find_decision(self.recorder.decisions, action, **fields)

    def condition(self, kind: str) -> Object:
        """One condition; {} before it is there."""
        listed = self.status.get("conditions", [])
        return next((dict(one) for one in listed if one["type"] == kind), {})

    def follow(self, what: str, holds: Callable[[], bool], seconds: float) -> None:
        """Tell until it holds. Raises RoadError when time is up."""
        self.narrator.follow(what, holds, seconds)

    def stay(self, seconds: float) -> None:
        """Tell for so long."""
        ends = time.monotonic() + seconds
        self.follow(f"{seconds:.0f} s are over", lambda: time.monotonic() >= ends, seconds + 30)

    def until_phase(self, *phases: str, seconds: float) -> None:
        """Tell until one of the phases is reached."""
        self.follow(f"phase {' or '.join(phases)}", lambda: self.phase in phases, seconds)

    def until_promoted(self, seconds: float = PROMOTE_SECONDS) -> None:
        """Tell until speculation is promoted."""
        self.follow("promoted", lambda: "Promote" in self.actions and self.phase == "Speculative", seconds)

    def until_rolled_back(self, seconds: float = ROLLBACK_SECONDS) -> None:
        """Tell until the plain arm serves alone again."""
        self.until_phase("RolledBack", "Exhausted", seconds=seconds)

    def start_traffic(self) -> None:
        """Send traffic from now on."""
        self.follow("the plain arm serves", lambda: self.phase not in ("", "Deploying"), SERVE_SECONDS)
        wait_until("the gateway answers", self.traffic.answers, 60)
        self.traffic.start()

    def end_traffic(self) -> outcomes.Totals:
        """Stop the traffic, wait for the open requests, and sum it up."""
        self.traffic.stop()
        assert self.traffic.wait(), "the client had to be killed: its log is not whole"
        return outcomes.totals(outcomes.read_log(self.traffic.log))

    def decay(self) -> None:
        """The drafts stop fitting, for good."""
        pods = inject(self.access, self.place, [acceptance_decay(DECAYED_ACCEPTANCE)])
        self.narrator.say("DECAY", f"the drafts stop fitting in {pods} pods")

    def faults(self, faults: Sequence[Mapping[str, Any]]) -> None:
        """Other faults of the simulated engine."""
        inject(self.access, self.place, faults)
        self.narrator.say("FAULT", ", ".join(str(one["kind"]) for one in faults) or "none any more")

    def pods(self, selector: str = "") -> list[Object]:
        """Pods of the deployment that are not on their way out."""
        chosen = f"specfleet.dev/deployment={self.place.name}" + (f",{selector}" if selector else "")
        found = self.access.list("pods", self.place.namespace, chosen)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


@contextmanager
def on_stage(
    access: Access,
    space: str,
    name: str,
    changes: Mapping[str, Any] | None = None,
    rate: float = 6.0,
    long_streams: int = 2,
) -> Iterator[Stage]:
    """Apply the example with `changes` in a namespace and remove it afterwards."""
    body = overlaid(load_quickstart(), Place(space, name), changes)
    with performed(access, body, [faults_secret(space, [])], rate, long_streams) as stage:
        yield stage


@contextmanager
def performed(
    access: Access,
    body: Object,
    before: Sequence[Object],
    rate: float,
    long_streams: int,
    more: tuple[str, ...] = (),
    wait_at_the_end: bool = True,
) -> Iterator[Stage]:
    """Apply a deployment of one's own, after what it needs, and remove it afterwards; `wait_at_the_end` for its pods to
    be gone. `more`: options of the client."""
    place = Place(body["metadata"]["namespace"], body["metadata"]["name"])
    LOGS.mkdir(parents=True, exist_ok=True)
    access.apply([namespace(place.namespace)])
    remove(access, place)
    print(f"\n{place.namespace}/{place.name}", flush=True)
    access.apply([*before, body])
    recorder = Recorder(access, place)
    log: Path = LOGS / f"requests-{place.namespace}-{place.name}.jsonl"
    log.unlink(missing_ok=True)
    served = str(body["spec"]["model"].get("servedName", body["spec"]["model"]["name"]))
    traffic = TrafficProcess(access.gateway_url, place.hostname, served, log, rate, long_streams, more=more)
    stage = Stage(access, place, recorder, Narrator(recorder), traffic)
    recorder.start()
    try:
        yield stage
    finally:
        stage.traffic.stop()
        stage.traffic.wait()
        recorder.stop()
        stage.narrator.tell()
        remove(access, place, wait_at_the_end)


def refusal(access: Access, body: Object) -> str:
    """What the API server says to an object that it refuses; "" when it takes it. Nothing is stored."""
    words = ["apply", "--server-side", "--dry-run=server", "--field-manager=e2e", "-f", "-"]
    done = access.kubectl(*words, stdin=json.dumps(body), check=False)
    return done.stderr if done.returncode != 0 else ""


def hold_prometheus(running: bool) -> None:
    """Stop or start the embedded cluster's Prometheus. Raises RoadError."""
    done = subprocess.run(
        cluster_command("prometheus", "start" if running else "stop"), cwd=ROOT, check=False, capture_output=True
    )
    if done.returncode != 0:
        raise RoadError(f"Prometheus could not be {'started' if running else 'stopped'}: {done.stderr.decode()}")


def resource(access: Access, place: Place) -> Object:
    """The object as it is now. Raises RoadError when it is gone."""
    found = access.get(RESOURCE, place.name, place.namespace)
    if found is None:
        raise RoadError(f"{place.namespace}/{place.name} is gone")
    return found
