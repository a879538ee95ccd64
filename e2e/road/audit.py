"""The API server's audit log: who wrote what. Metadata level is enough."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from specfleet.decide.checkpoint_schedule import CALM_SECONDS

from e2e.road.recorder import seconds_of

WRITES = ("create", "update", "patch", "delete", "deletecollection")
KUBERNETES = ("system:kube-", "system:node:", "system:serviceaccount:kube-system:", "system:apiserver")
"""Kubernetes's own controllers: they make ReplicaSets and pods, keep revisions on Deployments and collect garbage."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write that the API server answered with success."""

    time: float
    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str

    @property
    def by_kubernetes(self) -> bool:
        """Whether one of Kubernetes's own controllers made it."""
        return self.user.startswith(KUBERNETES)

    def __str__(self) -> str:
        part = f"/{self.subresource}" if self.subresource else ""
        return f"{self.user}: {self.verb} {self.resource}{part} {self.namespace}/{self.name}"


def writes_in(lines: Iterable[str], since: float = 0.0, until: float = float("inf")) -> Iterator[Write]:
    """Successful writes between two moments (Unix seconds); lines that are not whole yet are left out."""
    for line in lines:
        if '"verb":"get"' in line or '"verb":"watch"' in line or '"verb":"list"' in line:
            continue
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        found = _write(entry)
        if found is not None and since <= found.time <= until:
            yield found


def _write(entry: dict[str, object]) -> Write | None:
    about, answer, user = entry.get("objectRef"), entry.get("responseStatus"), entry.get("user")
    if entry.get("verb") not in WRITES or not isinstance(about, dict) or not isinstance(user, dict):
        return None
    if entry.get("stage") != "ResponseComplete" or not isinstance(answer, dict) or answer.get("code", 0) >= 300:
        return None
    return Write(
        time=seconds_of(str(entry["stageTimestamp"])) or 0.0,
        user=str(user.get("username", "")),
        verb=str(entry["verb"]),
        resource=str(about.get("resource", "")),
        subresource=str(about.get("subresource", "")),
        namespace=str(about.get("namespace", "")),
        name=str(about.get("name", "")),
    )


def read_writes(log: Path, since: float = 0.0, until: float = float("inf")) -> list[Write]:
    """Writes of a whole audit log."""
    with log.open(encoding="utf-8", errors="replace") as lines:
        return list(writes_in(lines, since, until))


def steady_state_writes(writes: Iterable[Write], operator: str) -> list[Write]:
    """Writes by the operator that a steady state has not: all but Lease renewals and the watch's checkpoints.

    Of those each may be written once in `CALM_SECONDS`; what is more is found here.
    """
    found: list[Write] = []
    last: dict[str, float] = {}
    for one in writes:
        if one.user != operator or one.resource == "leases":
            continue
        if is_checkpoint(one):
            often = one.time - last.get(one.name, float("-inf")) < CALM_SECONDS
            last[one.name] = one.time
            if not often:
                continue
        found.append(one)
    return found


def is_checkpoint(write: Write) -> bool:
    """Whether one shard of the watch's checkpoints was written."""
    return write.resource == "configmaps" and re.fullmatch(r"specfleet(-.+)?-watch-\d+", write.name) is not None
