"""Confirms the road from API objects, the audit log and the client's own log; never from what the narrator was told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from pathlib import Path

from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import Verdict
from specfleet.decide.evidence import judge, judge_suspicion

from e2e.road import outcomes
from e2e.road.access import Access, Object, RoadError, get_json
from e2e.road.audit import Write, read_writes
from e2e.road.example import RESOURCE, Place
from e2e.road.install import OPERATOR_NAMESPACE, operator_pods, service_account
from e2e.road.recorder import Recorder, Sample, find_decision, seconds_of, switches

LEAST_RATE = 5.0
MATCHED_LOAD_RATIO = 1.33
CHILDREN = (
    "deployments",
    "services",
    "httproutes",
    "podmonitors",
    "jobs",
    "configmaps",
    "controllerrevisions",
    "speculativebenchmarks",
)
PROMOTION = ("ServeBaseline", "StartBenchmark", "Judge", "StartCanary", "NextStep", "NextStep", "Promote")
ROLLBACK = (
    "Investigate",
    "RestartProbe",
    "RestartProbeFailed",
    "StartBenchmark",
    "Judge",
    "RollBack",
    "RolledBack",
)
METRICS_PORT = 8081


@dataclass(frozen=True, slots=True)
class Check:
    """One statement about the road, and whether it is so."""

    name: str
    passed: bool
    said: str


@dataclass(frozen=True)
class Road:
    """Everything that the checks look at."""

    access: Access
    place: Place
    recorder: Recorder
    requests: Path
    began: float
    decay: bool
    generation: int
    """metadata.generation of the object right after it was applied."""
    rollbacks_before: float = 0.0
    """specfleet_rollbacks_total of this deployment at the start: an earlier run may have counted some."""


def verify(road: Road) -> list[Check]:
    """All checks of the road; one that cannot be made is one that failed."""
    checks: list[Callable[[Road], Check]] = [
        _no_request_lost,
        _long_streams,
        _order,
        _matched_weights,
        _matched_load,
        _evidence,
        _writers,
        _spec_untouched,
        _serving,
    ]
    checks += [_event, _condition, _metric, _alert] if road.decay else [_no_rollback]
    return [_safely(check, road) for check in checks]


def _safely(check: Callable[[Road], Check], road: Road) -> Check:
    try:
        return check(road)
    except (RoadError, OSError, ValueError, KeyError, AssertionError) as error:
        name = check.__name__.lstrip("_").replace("_", " ")
        return Check(name, False, f"could not be checked: {type(error).__name__} {error}")


def _no_request_lost(road: Road) -> Check:
    found = outcomes.totals(outcomes.read_log(road.requests))
    said = f"{found.requests} requests at {found.requests_per_second:.1f}/s, {found.failed} failed or cut"
    if found.faults:
        said += f": {'; '.join(found.faults[:3])}"
    return Check("no request lost (client's log)", found.failed == 0 and found.requests_per_second >= LEAST_RATE, said)


def _long_streams(road: Road) -> Check:
    """Every change of weights happened under at least one stream that lasted over a minute and ended whole."""
    moments = switches(road.recorder.samples)
    listed = outcomes.read_log(road.requests)
    whole = [one for one in listed if one.fault is None and one.seconds > outcomes.LONG_SECONDS]
    began = min((one.start for one in listed), default=0.0)
    under = [moment for moment in moments if moment > began]
    bare = [moment for moment in under if not any(one.open_at(moment) for one in whole)]
    said = f"{len(under)} changes of traffic weight, {len(whole)} whole streams of over a minute"
    if bare:
        said += f"; {len(bare)} changes had none open (at {', '.join(f'{m - road.began:.0f} s' for m in bare[:5])})"
    return Check("long streams across every switch", bool(under) and not bare, said)


def _order(road: Road) -> Check:
    """The decisions in status.history, in the order of the design; the first benchmark judged Pass, the second Fail."""
    decisions = road.recorder.decisions
    wanted = (*PROMOTION, *ROLLBACK) if road.decay else PROMOTION
    actions = [one["action"] for one in decisions]
    missing = first_missing(actions, wanted)
    verdicts = [one.get("verdict") for one in decisions if one["action"] == "Judge"]
    expected = [Verdict.PASS.value, Verdict.FAIL.value] if road.decay else [Verdict.PASS.value]
    said = " > ".join(actions)
    if missing is not None:
        said = f"{missing} is missing at its place in: {said}"
    return Check("order of the road", missing is None and verdicts == expected, f"{said}; benchmarks judged {verdicts}")


def first_missing(actions: Sequence[str], wanted: Sequence[str]) -> str | None:
    """The first of `wanted` that does not follow the ones before it in `actions`; None when all are there in order."""
    rest = iter(actions)
    return next((one for one in wanted if one not in rest), None)


def _step_ends(road: Road) -> list[tuple[float, Sample]]:
    """When each canary step was judged, and the last picture before."""
    found = []
    for decision in road.recorder.decisions:
        if decision["action"] in ("NextStep", "Promote"):
            moment = seconds_of(decision["time"])
            assert moment is not None
            before = [one for one in road.recorder.samples if one.time <= moment]
            if before:
                found.append((moment, before[-1]))
    return found


def _matched_weights(road: Road) -> Check:
    ends = _step_ends(road)
    wrong = [sample for _, sample in ends if not _proportional(sample)]
    told = ", ".join(f"{100 * (sample.speculative_share or 0):.0f} %" for _, sample in ends)
    said = f"canary steps at {told} of the weight, each with that share of the pods"
    if wrong:
        said = f"weights {wrong[0].weights} with replicas {wrong[0].replicas}"
    return Check("weight and pods move together", len(ends) >= 2 and not wrong, said)


def _proportional(sample: Sample) -> bool:
    shares = {name: weight for name, weight in sample.weights.items() if weight}
    pods = {name: count for name, count in sample.replicas.items() if count}
    if not shares or set(shares) != set(pods):
        return False
    return all(abs(shares[name] / sum(shares.values()) - pods[name] / sum(pods.values())) < 0.01 for name in shares)


def _matched_load(road: Road) -> Check:
    """Requests per pod in both arms at the end of each step, from the pods' own counters in Prometheus."""
    worst, told, ends = 0.0, [], _step_ends(road)
    for moment, sample in ends:
        seconds = _step_seconds(road, moment)
        per_arm: dict[str, tuple[float, int]] = {}
        for fingerprint, role in sample.roles.items():
            if sample.weights.get(fingerprint, 0):
                per_arm[role] = _requests(road, fingerprint, moment, seconds), sample.replicas[fingerprint]
        (plain, plain_pods), (drafted, drafted_pods) = per_arm["baseline"], per_arm["speculative"]
        ratio = (drafted / drafted_pods) / (plain / plain_pods)
        allowed = log(MATCHED_LOAD_RATIO) + 2 * sqrt(3 * (1 / drafted + 1 / plain))
        worst = max(worst, abs(log(ratio)) / allowed)
        told.append(f"{ratio:.2f} (allowed up to {exp(allowed):.2f})")
    return Check(
        "load per pod matched in the canary", bool(ends) and worst <= 1, f"speculative/plain {', '.join(told)}"
    )


def _step_seconds(road: Road, moment: float) -> int:
    """How long the weights had been as they were at a moment."""
    before = [one for one in switches(road.recorder.samples) if one < moment]
    return max(5, int(moment - before[-1])) if before else 30


def _requests(road: Road, fingerprint: str, moment: float, seconds: int) -> float:
    pods = f"{road.place.name}-{fingerprint}-.*"
    chosen = f'namespace="{road.place.namespace}",pod=~"{pods}"'
    query = f"sum(increase(vllm:request_success_total{{{chosen}}}[{seconds}s]))"
    answer = road.access.prometheus("query", query=query, time=f"{moment:.3f}")["result"]
    if not answer:
        raise RoadError(f"Prometheus has no requests of {pods}")
    return max(0.5, float(answer[0]["value"][1]))


def _evidence(road: Road) -> Check:
    """Every benchmark's verdict, derived again from its stored evidence, is the one that was acted on."""
    assert road.recorder.body is not None
    deployment = SpeculativeDeployment.model_validate(road.recorder.body)
    said, wrong = [], []
    found = benchmarks(road.access, road.place)
    judged = [one for one in road.recorder.decisions if one["action"] == "Judge"]
    for group, decision in zip(found, judged, strict=True):
        rule = judge_suspicion if group[0].purpose == "Suspicion" else judge
        again = rule(deployment.spec, group)
        same = (again.verdict.value, again.reason) == (decision["verdict"], decision["reason"])
        text = f"{group[0].purpose}: {len(group)} objects, {again.verdict.value} {again.reason}"
        if again.gain_ratio is not None:
            text += f", gain {again.gain_ratio:+.1%}"
        said.append(text)
        if not same:
            wrong.append(f"{text}, but {decision['verdict']} {decision['reason']} was acted on")
    return Check("evidence gives the same verdicts", bool(said) and not wrong, "; ".join(wrong or said))


def benchmarks(access: Access, place: Place) -> list[list[BenchmarkEvidenceSpec]]:
    """The evidence of each benchmark of a deployment, oldest first; capacity measurements left out."""
    groups: dict[str, list[BenchmarkEvidenceSpec]] = {}
    for body in access.list("speculativebenchmarks.specfleet.dev", place.namespace):
        one = BenchmarkEvidenceSpec.model_validate(body["spec"])
        if one.deployment == place.name and one.purpose != "Capacity":
            groups.setdefault(one.benchmark, []).append(one)
    ordered = sorted(groups.values(), key=lambda group: min(one.started for one in group))
    return [sorted(group, key=lambda one: (one.pair, one.unit)) for group in ordered]


def _writers(road: Road) -> Check:
    """Nobody but the operator (and Kubernetes itself) wrote to a child of the deployment."""
    operator = service_account(road.access)
    if road.access.audit_log is None:
        return _field_managers(road)
    writes = [
        one
        for one in read_writes(road.access.audit_log, since=road.began)
        if one.namespace == road.place.namespace and one.resource in CHILDREN and one.subresource in ("", "scale")
    ]
    strangers = _strangers(writes, operator)
    mine = sum(one.user == operator for one in writes)
    said = f"{mine} writes to children by the operator, none by anybody else (audit log)"
    if strangers:
        said = f"{len(strangers)} by others, for example {strangers[0]}"
    return Check("only the operator writes to children", mine > 0 and not strangers, said)


def _strangers(writes: Iterable[Write], operator: str) -> list[Write]:
    return [one for one in writes if one.user != operator and not one.by_kubernetes and one.name != "kube-root-ca.crt"]


def _field_managers(road: Road) -> Check:
    """Without an audit log the children themselves say who manages their fields."""
    managers = set()
    for kind in ("deployments.apps", "services", "httproutes.gateway.networking.k8s.io"):
        for body in road.access.list(kind, road.place.namespace, f"specfleet.dev/deployment={road.place.name}"):
            full = road.access.kubectl(
                "get", kind, body["metadata"]["name"], "-n", road.place.namespace, "--show-managed-fields",
                "-o", "jsonpath={range .metadata.managedFields[?(@.subresource!='status')]}{.manager} {end}",
            )  # fmt: skip
            managers |= set(full.stdout.split())
    strangers = managers - {"specfleet", "kube-controller-manager"}
    said = f"field managers of the children: {', '.join(sorted(managers))} (no AUDIT_LOG was given)"
    return Check("only the operator writes to children", "specfleet" in managers and not strangers, said)


def _spec_untouched(road: Road) -> Check:
    body = road.access.get(RESOURCE, road.place.name, road.place.namespace)
    assert body is not None
    generation = int(body["metadata"]["generation"])
    finalizers = body["metadata"].get("finalizers", [])
    said = f"metadata.generation is still {generation}, finalizers {finalizers or 'none'}"
    return Check("the user's object is the user's", generation == road.generation and not finalizers, said)


def _serving(road: Road) -> Check:
    """At the end what should serve does, with nothing left over from the trial."""
    body = road.access.get(RESOURCE, road.place.name, road.place.namespace)
    assert body is not None
    status, replicas = body["status"], int(body["spec"]["replicas"])
    wanted = "baseline" if road.decay else "speculative"
    conditions = {one["type"]: one for one in status["conditions"]}
    ready = conditions["Ready"]["status"] == "True"
    jobs = road.access.list("jobs.batch", road.place.namespace)
    weight = status.get("weightPercent", 0)
    said = (
        f"phase {status['phase']}, {status.get('servingArm')} serves with {status.get('replicas')} pods, "
        f"{weight} % of the weight speculative, Ready={conditions['Ready']['status']}, {len(jobs)} Jobs left"
    )
    right = status.get("servingArm") == wanted and (weight == 0) == road.decay
    return Check("the end state serves", right and ready and status.get("replicas") == replicas and not jobs, said)


def _rollback_reason(road: Road) -> str:
    decision = find_decision(road.recorder.decisions, "RollBack")
    if decision is None:
        raise RoadError("there is no RollBack in status.history")
    return str(decision["reason"])


def _event(road: Road) -> Check:
    reason = _rollback_reason(road)
    found = [one for one in _events(road) if one["reason"] == reason and one.get("action") == "RollBack"]
    said = found[0]["message"] if found else f"no Event with reason {reason} and action RollBack"
    return Check("Event", bool(found), f"{reason}: {said}")


def _events(road: Road) -> list[Object]:
    listed = road.access.list("events", road.place.namespace)
    assert road.recorder.body is not None
    return [one for one in listed if one["involvedObject"].get("uid") == road.recorder.body["metadata"]["uid"]]


def _condition(road: Road) -> Check:
    reason = _rollback_reason(road)
    body = road.access.get(RESOURCE, road.place.name, road.place.namespace)
    assert body is not None
    found = next(one for one in body["status"]["conditions"] if one["type"] == "SpeculationActive")
    right = found["status"] == "False" and found["reason"] == reason
    return Check("condition", right, f"SpeculationActive={found['status']}, reason {found['reason']}")


def operator_metrics(access: Access) -> str:
    """The operator's own /metrics, through the API server."""
    pod = operator_pods(access)[0]["metadata"]["name"]
    path = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{pod}:{METRICS_PORT}/proxy/metrics"
    return access.kubectl("get", "--raw", path).stdout


def rollbacks_counted(access: Access, place: Place) -> float:
    """specfleet_rollbacks_total of a deployment, over all reasons."""
    wanted = (f'namespace="{place.namespace}"', f'name="{place.name}"')
    return sum(
        float(line.rpartition(" ")[2])
        for line in operator_metrics(access).splitlines()
        if line.startswith("specfleet_rollbacks_total{") and all(part in line for part in wanted)
    )


def _metric(road: Road) -> Check:
    counted = rollbacks_counted(road.access, road.place) - road.rollbacks_before
    return Check("operator metric", counted == 1, f"specfleet_rollbacks_total rose by {counted:g}")


def alerts(access: Access, place: Place, since: float) -> list[Object]:
    """Firing alerts of a deployment in Alertmanager that began after `since`. Raises RoadError."""
    if access.alertmanager_url is None:
        raise RoadError("ALERTMANAGER_URL is not set")
    listed = get_json(f"{access.alertmanager_url}/api/v2/alerts?active=true")
    mine = {"namespace": place.namespace, "name": place.name}
    found = [one for one in listed if all(one["labels"].get(key) == value for key, value in mine.items())]
    return [one for one in found if (seconds_of(one["startsAt"]) or 0.0) >= since]


def _alert(road: Road) -> Check:
    reason = _rollback_reason(road)
    names = {
        one["labels"]["alertname"]: one["labels"].get("reason") for one in alerts(road.access, road.place, road.began)
    }
    right = names.get("SpecfleetRolledBack") == reason
    return Check("alert in Alertmanager", right, f"firing: {names or 'none'}")


def _no_rollback(road: Road) -> Check:
    rolled = [one["action"] for one in road.recorder.decisions if one["action"] in ("RollBack", "Investigate", "Hold")]
    events = [one for one in _events(road) if one.get("action") == "RollBack"]
    body = road.access.get(RESOURCE, road.place.name, road.place.namespace)
    assert body is not None
    phase = body["status"]["phase"]
    said = f"phase {phase}, decisions after promotion: {rolled or 'none'}"
    return Check("no roll-back without a decay", phase == "Speculative" and not rolled and not events, said)
