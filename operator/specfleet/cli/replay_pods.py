"""Pods of the past, from their series: a pod's name holds the fingerprint of its arm.

They count as serving while they were scraped, and as started at their first sample: what Kubernetes showed then is not
kept anywhere.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from specfleet.api import names
from specfleet.api.status import ArmRole, DecisionContext, Phase
from specfleet.decide.observation import ArmView, Observation, PodView, Proof
from specfleet.telemetry.prometheus import Prometheus, PrometheusError
from specfleet.telemetry.queries import START_TIME
from specfleet.telemetry.servers import MetricsServer

MISSING_SECONDS = 90.0
"""Samples must begin and end this near to the span of a decision: a scrape of the longest interval, and the delay."""
NEW_SCRAPES = 3
"""A pod whose first sample comes later than this many scrapes after the begin of the query has started then."""


class DataGoneError(Exception):
    """Prometheus does not have what the decision rested on; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class SeenPod:
    """A pod as its samples show it. Epoch seconds."""

    name: str
    fingerprint: str
    first: float
    last: float
    step: float
    """Seconds between its scrapes."""
    process_start: float
    started: float
    """Answering since: its first sample, or the start of its process when it is older than what was asked for."""

    def during(self, begin: float, end: float) -> bool:
        """Whether it was scraped within a span."""
        return self.first <= end and self.last >= begin


def arm_pattern(deployment: str, like: str) -> str:
    """Regular expression of the names of all serving pods; group 1 is the fingerprint (as long as `like`)."""
    blank = "0" * len(like)
    prefixes = (name(deployment, blank).removesuffix(blank) for name in (names.arm, names.group_set))
    return f"(?:{'|'.join(prefixes)})([0-9a-f]{{{len(like)}}})-.+"


def serving_pods(server: MetricsServer, obs: Observation, begin: float, end: float) -> list[SeenPod]:
    """Serving pods of the deployment that were scraped in a span. Raises DataGoneError when nobody answers."""
    owner, monitoring = obs.deployment, obs.spec.monitoring.labels
    earliest = begin - MISSING_SECONDS - obs.spec.remedies.warmup_seconds
    pattern = arm_pattern(owner.name, obs.baseline.fingerprint)
    query = (
        f'{{__name__=~"{START_TIME}",{monitoring.namespace}=~"{owner.namespace}",{monitoring.pod}=~"{pattern}"}}'
        f"[{max(1, round((end - earliest) * 1000))}ms]"
    )
    client = Prometheus(server)
    try:
        series = asyncio.run(client.range_vector(query, end))
    except PrometheusError as error:
        raise DataGoneError(str(error)) from error
    finally:
        client.close()
    found: dict[str, SeenPod] = {}
    for one in series:
        name = one.labels.get(monitoring.pod, "")
        fingerprint = re.fullmatch(pattern, name)
        finite = np.isfinite(one.values)
        if fingerprint is None or not finite.any():
            continue
        step = float(np.median(np.diff(one.times))) if one.times.size > 1 else MISSING_SECONDS
        first, start = float(one.times[0]), float(one.values[finite].max())
        young = first > earliest + NEW_SCRAPES * step
        last, started = float(one.times[-1]), max(first, start) if young else start
        pod = SeenPod(name, fingerprint[1], first, last, step, start, started)
        known = found.get(name)
        if known is None or pod.last - pod.first > known.last - known.first:
            found[name] = pod
    return sorted(found.values(), key=lambda pod: pod.name)


def alive_at(pods: Sequence[SeenPod], at: float) -> list[list[SeenPod]]:
    """Pods that served at a moment; two answers where one was scraped last just before it."""
    perhaps = [pod for pod in pods if pod.first <= at and pod.last >= at - 2 * pod.step]
    surely = [pod for pod in perhaps if pod.last >= at]
    return [perhaps] if surely in (perhaps, []) else [surely, perhaps]


def watched_arms(server: MetricsServer, obs: Observation) -> Observation:
    """The observation with the pods that are scraped now, by the roles of the arms it has. Raises DataGoneError."""
    roles = {arm.fingerprint: arm.role for arm in obs.arms}
    now = obs.now.timestamp()
    pods = [pod for pod in serving_pods(server, obs, now - MISSING_SECONDS, now) if pod.fingerprint in roles]
    return replace(obs, arms=arm_views(obs.deployment.name, pods, lambda one: roles[one]))


def arm_views(deployment: str, pods: Sequence[SeenPod], role: Callable[[str], ArmRole]) -> tuple[ArmView, ...]:
    """Serving arms with these pods; `role` of a fingerprint."""
    arms: dict[str, list[SeenPod]] = {}
    for pod in pods:
        arms.setdefault(pod.fingerprint, []).append(pod)
    return tuple(
        ArmView(
            name=names.arm(deployment, fingerprint),
            role=role(fingerprint),
            fingerprint=fingerprint,
            replicas=len(members),
            pods=tuple(_view(pod) for pod in members),
        )
        for fingerprint, members in sorted(arms.items())
    )


def _view(pod: SeenPod) -> PodView:
    created, started = (datetime.fromtimestamp(one, UTC) for one in (pod.process_start, pod.started))
    return PodView(name=pod.name, uid=pod.name, ip=None, created=created, ready_since=started, proof=Proof.PROVEN)


def check_coverage(pods: Sequence[SeenPod], context: DecisionContext, since: float, at: float) -> None:
    """Whether samples of both sides cover the span of a decision, from its begin to its end."""
    near = [pod for pod in pods if pod.during(since, at)]
    judged = [pod for pod in near if pod.fingerprint == context.arm]
    others = [pod for pod in near if pod.fingerprint != context.arm]
    needed = {f"arm {context.arm}": judged}
    if context.phase is Phase.CANARY:
        needed["the arm that it was compared with"] = others
    for who, members in needed.items():
        if not members:
            raise DataGoneError(f"Prometheus has no samples of {who} then")
        first, last = min(pod.first for pod in members), max(pod.last for pod in members)
        if first > since + MISSING_SECONDS or last < at - MISSING_SECONDS:
            begin, end = (datetime.fromtimestamp(one, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for one in (first, last))
            raise DataGoneError(f"Prometheus has samples of {who} only from {begin} to {end}")
