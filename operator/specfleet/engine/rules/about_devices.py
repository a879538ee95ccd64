"""Rules about accelerators: what is asked for against what the engine needs."""

from collections.abc import Iterator

from specfleet.engine.findings import Severity
from specfleet.engine.rules.case import Case
from specfleet.engine.rules.rule import Hit, Shows, spec_rule

_RESOURCES = "spec.template.resources"


def _sizes(case: Case) -> str:
    engine = case.spec.engine
    return f"{engine.tensor_parallel_size} x {engine.pipeline_parallel_size} x {engine.data_parallel_size}"


def _per_pod(case: Case) -> int | None:
    """Accelerators that each pod needs, None when they do not divide evenly."""
    needed, pods = case.gpus_needed, case.pods_per_engine
    return needed // pods if needed % pods == 0 else None


@spec_rule(
    Severity.REFUSE,
    Shows.START,
    why="vLLM exits when it sees fewer devices than tensor x pipeline x data parallel size",
    remedy="Ask for more devices, or lower the sizes",
    source="vllm 0.32 source",
)
def too_few_devices(case: Case) -> Iterator[Hit]:
    """Fewer devices than ranks."""
    asked, needed = case.devices.count, _per_pod(case)
    if case.devices.asked and asked is not None and needed is not None and asked < needed:
        yield Hit(f"{_RESOURCES}.limits", f"{asked} devices per pod, the engine needs {needed} ({_sizes(case)})")


@spec_rule(
    Severity.WARN,
    Shows.SILENT,
    why="devices that no rank uses are paid for and idle",
    remedy="Ask for fewer, or raise engine.tensorParallelSize",
    source="specfleet",
)
def idle_devices(case: Case) -> Iterator[Hit]:
    """More devices than ranks."""
    asked, needed = case.devices.count, _per_pod(case)
    if asked is not None and needed is not None and case.devices.asked and asked > needed:
        yield Hit(f"{_RESOURCES}.limits", f"{asked} devices per pod, the engine uses {needed} ({_sizes(case)})")


@spec_rule(
    Severity.WARN,
    Shows.START,
    why="without a device in its resources the pod may land on a node without one",
    remedy="Set template.resources.limits (for example nvidia.com/gpu) or template.resourceClaims",
    source="specfleet",
)
def no_device_asked(case: Case) -> Iterator[Hit]:
    """A GPU image without any device."""
    if not case.devices.asked and not case.cpu_engine:
        yield Hit(_RESOURCES, "no accelerator is asked for")


@spec_rule(
    Severity.REFUSE,
    Shows.ADMISSION,
    why="Kubernetes takes extended resources in whole numbers, with requests equal to limits",
    remedy="Write whole devices under limits only",
    source="kubernetes: extended resources",
)
def device_quantity_invalid(case: Case) -> Iterator[Hit]:
    """Fractions, or requests that differ from limits."""
    limits, requests = case.devices.limits, case.devices.requests
    for name, quantity in {**requests, **limits}.items():
        if not quantity.isdigit():
            yield Hit(f"{_RESOURCES}.limits", f"{name}: {quantity} is not a whole number")
    for name, quantity in requests.items():
        if limits.get(name) != quantity:
            limit = limits.get(name, "no limit")
            yield Hit(f"{_RESOURCES}.requests", f"{name}: {quantity} is asked for, but limits has {limit}")


@spec_rule(
    Severity.REFUSE,
    Shows.ADMISSION,
    why="the API server refuses a container that uses a claim which the pod does not have",
    remedy="Add it to template.resourceClaims, or correct the name",
    source="kubernetes: dynamic resource allocation",
)
def claim_unknown(case: Case) -> Iterator[Hit]:
    """resources.claims names a claim that is not in resourceClaims."""
    known = {str(claim.get("name")) for claim in case.template.resource_claims if isinstance(claim, dict)}
    for used in case.template.resources.get("claims") or []:
        if str(used.get("name")) not in known:
            yield Hit(f"{_RESOURCES}.claims", f"claim {used.get('name')!r} is not in template.resourceClaims")


@spec_rule(
    Severity.REFUSE,
    Shows.START,
    why="a claim that no container uses gives the engine no device",
    remedy="List it under template.resources.claims, or leave claims out (then the engine uses all)",
    source="kubernetes: dynamic resource allocation",
)
def claim_unused(case: Case) -> Iterator[Hit]:
    """resources.claims is written and leaves a claim out."""
    used = case.template.resources.get("claims")
    if not used:
        return
    names = {str(one.get("name")) for one in used}
    for claim in case.template.resource_claims:
        if isinstance(claim, dict) and str(claim.get("name")) not in names:
            yield Hit(f"{_RESOURCES}.claims", f"claim {claim.get('name')!r} is not used by the engine")


@spec_rule(
    Severity.REFUSE,
    Shows.START,
    why="every pod of a multi-node engine holds the same number of ranks",
    remedy="Choose sizes whose product is a multiple of template.multiNode.size",
    source="vllm 0.32 source; vllm#23691",
)
def nodes_do_not_divide(case: Case) -> Iterator[Hit]:
    """Ranks that do not divide over the pods."""
    if _per_pod(case) is None:
        message = f"{case.gpus_needed} ranks ({_sizes(case)}) do not divide over {case.pods_per_engine} pods"
        yield Hit("spec.template.multiNode.size", message)


@spec_rule(
    Severity.REFUSE,
    Shows.OPERATION,
    why="this version of specfleet does not run engines that span nodes",
    remedy="Use an engine that fits one node, or run this model without specfleet",
    source="specfleet",
)
def multi_node_unsupported(case: Case) -> Iterator[Hit]:
    """Any engine on several nodes."""
    if case.template.multi_node is not None:
        yield Hit("spec.template.multiNode", f"one engine on {case.pods_per_engine} pods")


@spec_rule(
    Severity.WARN,
    Shows.LOAD,
    why="ranks exchange data through /dev/shm, which is 64 MiB by default: NCCL fails or hangs",
    remedy="Set template.sharedMemorySize (for example 8Gi), or hostIPC: true",
    source="vLLM documentation: docker deployment",
)
def shared_memory_small(case: Case) -> Iterator[Hit]:
    """Several ranks in a pod without shared memory."""
    template = case.template
    mounted = any(isinstance(one, dict) and one.get("mountPath") == "/dev/shm" for one in template.volume_mounts)  # noqa: S108
    ranks = _per_pod(case) or case.gpus_needed
    if ranks > 1 and not mounted and not template.shared_memory_size and not template.host_ipc:
        yield Hit("spec.template.sharedMemorySize", f"{ranks} ranks share the default 64 MiB of /dev/shm")
