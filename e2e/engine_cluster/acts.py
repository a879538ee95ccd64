"""What the scenarios do to a real deployment, and how they look at it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.decide.evidence import judge

from e2e.engine_cluster.deployments import CLIENT, SPACE
from e2e.road import outcomes
from e2e.road.access import Access, Object, RoadError, wait_until
from e2e.road.traffic_process import TrafficProcess
from e2e.road.verify import benchmarks, operator_metrics
from e2e.scenarios.stage import LOGS, Stage, performed

SERVE_SECONDS = 600.0
BENCHMARK_SECONDS = 1500.0
CANARY_SECONDS = 600.0
PROMOTED_SECONDS = 5.0
RATE = 1.0
FEW = 0.3
"""Users' requests a second while arms are measured on the same two cores."""
LONG_STREAMS = 1
_rounds = count(1)


@contextmanager
def on_real_stage(access: Access, body: Object) -> Iterator[Stage]:
    """Apply a deployment and wait until its plain arm serves; removed at the end."""
    # Its pods drain while the next scenario's engine starts.
    with performed(access, body, [], RATE, LONG_STREAMS, CLIENT, wait_at_the_end=False) as stage:
        stage.follow("the plain arm serves", lambda: stage.phase not in ("", "Deploying"), SERVE_SECONDS)
        yield stage


def send_traffic(stage: Stage, rate: float = RATE, long_streams: int = LONG_STREAMS) -> None:
    """Users from now on, with a log of their own."""
    log: Path = LOGS / f"requests-{SPACE}-{stage.place.name}-{next(_rounds)}.jsonl"
    before = stage.traffic
    stage.traffic = TrafficProcess(before.url, before.host, before.model, log, rate, long_streams, more=before.more)
    wait_until("the gateway answers", stage.traffic.answers, 60)
    stage.traffic.start()
    stage.narrator.say("traffic", f"{rate:g} requests/s and {long_streams} long stream(s) through the gateway")


def end_traffic(stage: Stage) -> list[outcomes.Outcome]:
    """Stop the users, wait for their open requests, say what became of all of them, and return that."""
    stage.traffic.stop()
    assert stage.traffic.wait(), "the client had to be killed: its log is not whole"
    found = outcomes.read_log(stage.traffic.log)
    totals = outcomes.totals(found)
    stage.narrator.say("traffic", f"{totals.requests} requests, {totals.failed} failed or cut {totals.faults[:3]}")
    return found


def faults(found: list[outcomes.Outcome]) -> list[str]:
    """What went wrong for users, in words."""
    return list(outcomes.totals(found).faults)


def judged(stage: Stage) -> Object | None:
    """The latest verdict of a benchmark."""
    listed = [one for one in stage.recorder.decisions if one["action"] in ("Judge", "RefuseCandidate")]
    return listed[-1] if listed else None


def until_judged(stage: Stage, after: int = 0) -> Object:
    """Tell until one more verdict than `after` is there; returns it. Raises RoadError where the road ends before."""

    def there() -> bool:
        if stage.phase in ("Held", "Exhausted"):
            last = stage.status.get("lastDecision", {})
            raise RoadError(f"phase {stage.phase}: {last.get('reason')}: {last.get('message')}")
        return verdicts(stage) > after

    stage.follow("a verdict", there, BENCHMARK_SECONDS)
    found = judged(stage)
    assert found is not None
    return found


def verdicts(stage: Stage) -> int:
    """How many benchmarks have been judged."""
    return sum(one["action"] in ("Judge", "RefuseCandidate") for one in stage.recorder.decisions)


def until_promoted(stage: Stage) -> list[outcomes.Outcome]:
    """Tell until the benchmark has proven the gain and users' requests have confirmed it; returns those requests."""
    verdict = until_judged(stage)
    assert (verdict["verdict"], verdict["reason"]) == ("Pass", "GainProven"), verdict["message"]
    assert evidence_agrees(stage)
    stage.until_phase("Canary", seconds=120)
    # No long stream: it would load one arm only, while both are compared.
    send_traffic(stage, long_streams=0)
    stage.until_promoted(CANARY_SECONDS)
    stage.stay(PROMOTED_SECONDS)
    found = end_traffic(stage)
    assert not faults(found)
    return found


def needs_speculation(stage: Stage) -> Stage:
    """The stage, where speculation serves; else the scenario before has failed, and so does this one."""
    if stage.phase != "Speculative":
        pytest.fail(f"the deployment is in phase {stage.phase or 'none'}: an earlier scenario of this file failed")
    return stage


def until_pairs(stage: Stage, purpose: str, wanted: int) -> None:
    """Tell until the latest benchmark of that purpose has measured so many pairs."""

    def measured() -> bool:
        groups = [group for group in benchmarks(stage.access, stage.place) if group[0].purpose == purpose]
        return bool(groups) and len(groups[-1]) >= wanted

    stage.follow(f"{wanted} pairs are measured", measured, BENCHMARK_SECONDS)


def evidence_agrees(stage: Stage) -> bool:
    """Whether the stored evidence, judged again here, gives the verdicts that were acted on."""
    assert stage.recorder.body is not None
    spec = SpeculativeDeployment.model_validate(stage.recorder.body).spec
    groups = [group for group in benchmarks(stage.access, stage.place) if group[0].purpose in ("Qualify", "Confirm")]
    acted = [one for one in stage.recorder.decisions if one["action"] == "Judge"]
    pairs = list(zip(groups, acted, strict=False))
    for group, decision in pairs:
        again = judge(spec, group)
        stage.narrator.say("evidence", f"{len(group)} objects: {again.verdict.value} {again.reason}: {again.message}")
        if (again.verdict.value, again.reason) != (decision["verdict"], decision["reason"]):
            return False
    return bool(pairs)


def speculative_fingerprint(stage: Stage) -> str:
    """Fingerprint of the promoted arm; "" while none is."""
    return str((stage.status.get("stable") or {}).get("speculative") or "")


def ask(stage: Stage, prompt: str | list[int], max_tokens: int, seconds: float = 120.0) -> tuple[int, dict[str, Any]]:
    """One completion through the gateway, of a text or of token ids: HTTP status and answer."""
    body = {"model": "target", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(
        f"{stage.access.gateway_url}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Host": stage.place.hostname},
    )
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, {}


def arm_pods(stage: Stage, arm: str) -> list[Object]:
    """Serving pods of an arm (baseline or speculative)."""
    return stage.pods(f"specfleet.dev/arm={arm},specfleet.dev/role=serving")


def restart_container(stage: Stage, pod: Object) -> None:
    """End the engine in its pod by SIGTERM: the same pod comes back with counters at zero. Returns when it serves."""
    name, before = pod["metadata"]["name"], restarts(pod)
    words = ["exec", "-n", stage.place.namespace, name, "-c", "engine", "--"]
    stage.access.kubectl(*words, "python3", "-c", "import os; os.kill(1, 15)", check=False)
    stage.narrator.say("RESTART", f"the engine of pod {name} ends; its pod stays")

    def back() -> bool:
        found = stage.access.get("pod", name, stage.place.namespace)
        return found is not None and restarts(found) > before and is_ready(found)

    stage.follow(f"pod {name} serves again", back, SERVE_SECONDS)


def restarts(pod: Object) -> int:
    """Restarts of a pod's engine."""
    return int((pod["status"].get("containerStatuses") or [{}])[0].get("restartCount", 0))


def is_ready(pod: Object) -> bool:
    """Whether a pod is ready."""
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def replace_pods(stage: Stage, pods: list[Object]) -> None:
    """Delete pods, as a person would; returns when as many others serve."""
    names = [pod["metadata"]["name"] for pod in pods]
    stage.narrator.say("RESTART", f"pods {', '.join(names)} are deleted")
    stage.access.kubectl("delete", "pod", *names, "-n", stage.place.namespace, "--wait=false")
    arm = pods[0]["metadata"]["labels"]["specfleet.dev/arm"]

    def others() -> bool:
        found = [pod for pod in arm_pods(stage, arm) if pod["metadata"]["name"] not in names and is_ready(pod)]
        return len(found) >= len(names)

    stage.follow("other pods serve", others, SERVE_SECONDS)


def alarms(stage: Stage, since: int) -> list[str]:
    """Decisions after the first `since` that only a finding of the watch makes."""
    actions = ("Investigate", "RollBack", "RestartProbe", "RestartPod", "Hold")
    return [one["action"] for one in stage.recorder.decisions[since:] if one["action"] in actions]


def watched_acceptance(access: Access, stage: Stage) -> list[float]:
    """What the operator exports as the deployment's acceptance rate, one value per arm that has one."""
    name = f'name="{stage.place.name}"'
    return [
        float(line.rpartition(" ")[2])
        for line in operator_metrics(access).splitlines()
        if line.startswith("specfleet_acceptance_rate{") and name in line
    ]


def raw_acceptance(access: Access, stage: Stage, seconds: int) -> float:
    """Accepted over drafted tokens of late, as the engine's counters have it: phantom drafts included."""
    chosen = f'namespace="{stage.place.namespace}",pod=~"{stage.place.name}-.*"'
    sums = [
        f"sum(increase(vllm:spec_decode_num_{what}_tokens_total{{{chosen}}}[{seconds}s]))"
        for what in ("accepted", "draft")
    ]
    answer = access.prometheus("query", query=" / ".join(sums), time=f"{time.time():.3f}")["result"]
    if not answer:
        raise RoadError("Prometheus has no speculative counters of the deployment")
    return float(answer[0]["value"][1])
