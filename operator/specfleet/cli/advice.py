"""What a person can do about a condition, a gate or a held phase: one sentence and, where there is one, the command."""

import shlex
from collections.abc import Mapping

from specfleet.api import labels
from specfleet.api.conditions import Condition, ConditionStatus, ConditionType
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.status import Phase
from specfleet.decide.gates import Gate, GateName
from specfleet.decide.outlook import Option

ABNORMAL_TRUE = (ConditionType.RECONCILING, ConditionType.STALLED, ConditionType.DRIFT_DETECTED)
_PODS = "-n {namespace} -l specfleet.dev/deployment={name}"
ADVICE: Mapping[str, str] = {
    "Starting": f"wait; if it lasts: kubectl logs {_PODS}",
    "StartTimeout": f"kubectl logs {_PODS}; or raise spec.engine.startupTimeoutSeconds",
    "EngineContradictsSpec": "set spec.engine.image (by digest) and spec.engine.version to what runs",
    "EngineMoved": "pin spec.engine.image by digest",
    "GpusDiffer": "choose one kind of GPU in spec.template.nodeSelector",
    "CrashLoop": f"kubectl logs {_PODS} --previous",
    "OutOfMemory": "give the engine less to hold (maxModelLen, gpu-memory-utilization, a smaller draft) or more memory",
    "InsufficientCapacity": "free a GPU, or set spec.capacity.maxExtraReplicas to 1 or more",
    "BenchmarkPodPending": "give the benchmark's own pod (no GPU) a place: kubectl get events -n {namespace}",
    "InsufficientTraffic": "send traffic, lower rollout.steps[].minRequests, or promote by command",
    "CanaryInconclusive": "give it more traffic or time (rollout.noTrafficTimeoutSeconds), or promote by command",
    "MetricsMissing": "have Prometheus scrape the pods, and check spec.monitoring.labels",
    "PromptsUnusable": "correct the ConfigMap of spec.benchmark.prompts; it is read again within five minutes",
    "ConfigMapMissing": "create the ConfigMap in the deployment's namespace, or let the operator read it",
    "RouteNotAccepted": "kubectl describe httproute {name} -n {namespace}, and check spec.traffic.parentRefs",
    "RollBackBlocked": "free a GPU: the plain pods that take the traffic back have no place",
    "IncompatibleRequests": "send those clients with the header {plain_header}: true, or set "
    "spec.speculation.incompatibleRequests: Accept",
    "NothingServes": f"kubectl describe pods {_PODS}",
    "BothArmsFail": f"kubectl describe pods {_PODS}",
    "ChangeHeld": "set spec.remedies.onChange: Rebenchmark to try the changed engine",
    "RevisionRolledBack": "change the spec, or say retry",
    "TooFewPods": f"kubectl get pods {_PODS}",
    "NoSpeculativePod": f"kubectl get pods {_PODS},specfleet.dev/arm=speculative",
    "Unavailable": "set spec.monitoring.prometheus.url to a server that answers",
    "TargetDown": "have Prometheus scrape the pods, and check spec.monitoring.labels",
    "SchemaMissing": "scrape /metrics of the engine itself, unfiltered",
    "Stale": "have Prometheus scrape at least every 60 s",
    "NoSpeculation": "set spec.speculation to try a proposer",
    "SharedCause": "look at the node, the load and the model: plain decoding is slower too",
    "OperatorError": "read the operator's log",
    "Unreadable": "correct the field that the message names; a spec of a newer version needs the operator of that one",
    "BenchmarkError": "kubectl specfleet report {name} -n {namespace} -o report.html: it lists invalid runs and why",
}
_GATES: Mapping[GateName, str] = {
    GateName.NOT_PAUSED: 'kubectl patch sd {name} -n {namespace} --type merge -p \'{{"spec":{{"paused":false}}}}\'',
    GateName.ROOM: "kubectl patch sd {name} -n {namespace} --type merge -p "
    '\'{{"spec":{{"capacity":{{"maxExtraReplicas":1}}}}}}\'',
    GateName.HOLD: "kubectl patch sd {name} -n {namespace} --type merge -p "
    '\'{{"spec":{{"capacity":{{"maxExtraReplicas":1}}}}}}\'',
    GateName.ON_CHANGE: "kubectl patch sd {name} -n {namespace} --type merge -p "
    '\'{{"spec":{{"remedies":{{"onChange":"Rebenchmark"}}}}}}\'',
}
_VERBS: Mapping[str, str] = {
    "retry": "forgets attempts, verdicts and holds, and tries again",
    "promote": "promotes now, without the remaining steps",
    "abort": "ends what is in flight; plain decoding serves",
    "rebenchmark": "measures the proposer again",
}


def needs_a_look(condition: Condition) -> bool:
    """Whether a condition is not as a healthy, speculating deployment has it."""
    if condition.type in ABNORMAL_TRUE:
        return condition.status is ConditionStatus.TRUE
    return condition.status is not ConditionStatus.TRUE


def for_condition(owner: SpeculativeDeployment, condition: Condition) -> str:
    """What can be done; "" where waiting is all."""
    return _fill(owner, ADVICE.get(condition.reason, ""))


def for_phase(owner: SpeculativeDeployment, phase: Phase, reason: str | None) -> str:
    """What can be done about a phase that waits for something outside."""
    return _fill(owner, ADVICE.get(reason or "", "")) if phase in (Phase.HELD, Phase.DEPLOYING) else ""


def for_gate(owner: SpeculativeDeployment, gate: Gate) -> str:
    """The change of the spec that opens a closed gate; "" where the spec does not close it."""
    if gate.met or (gate.name is GateName.HOLD and gate.left_seconds is not None):
        return ""
    return _fill(owner, _GATES.get(gate.name, ""))


def command_line(owner: SpeculativeDeployment, option: Option) -> str:
    """The exact command of an option."""
    which = f"{shlex.quote(owner.name)} -n {shlex.quote(owner.namespace)}"
    return f'kubectl annotate sd {which} --overwrite {labels.COMMAND}="{option.verb} $(date +%s)"'


def what_it_does(option: Option) -> str:
    """What a command does, and the phase that follows."""
    return f"{_VERBS.get(option.verb, option.message)} (then {option.leads_to.value})"


def _fill(owner: SpeculativeDeployment, text: str) -> str:
    return text.format(name=owner.name, namespace=owner.namespace, plain_header=owner.spec.traffic.plain_header)
