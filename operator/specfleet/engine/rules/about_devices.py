"""Rules about accelerators: what is asked for against what the engine needs."""

from collections.abc import Iterator

from specfleet.engine.devices import bytes_of
from specfleet.engine.findings import Severity
from specfleet.engine.rules.case import Case
from specfleet.engine.rules.rule import Hit, Shows, spec_rule

_RESOURCES = "spec.template.resources"
CPU_SHARED_MEMORY_BYTES = 160 * 2**20


@spec_rule(
    Severity.REFUSE,
    Shows.START,
    why="vLLM exits when it sees fewer devices than tensor x pipeline x data parallel size",
    remedy="Ask for more devices, or lower the sizes",
    source="vllm 0.32 source",
)
def too_few_devices(case: Case) -> Iterator[Hit]:
    """Fewer devices than ranks."""
    asked, needed = case.devices.count, case.gpus_per_pod
    if case.devices.asked and asked is not None and needed is not None and asked < needed:
        yield Hit(f"{_RESOURCES}.limits", f"{asked} devices per pod, the engine needs {needed} ({case.sizes})")


@spec_rule(
    Severity.WARN,
    Shows.SILENT,
    why="devices that no rank uses are paid for and idle",
    remedy="Ask for fewer, or raise engine.tensorParallelSize",
    source="specfleet",
)
def idle_devices(case: Case) -> Iterator[Hit]:
    """More devices than ranks."""
    asked, needed = case.devices.count, case.gpus_per_pod
    if asked is not None and needed is not None and case.devices.asked and asked > needed:
        yield Hit(f"{_RESOURCES}.limits", f"{asked} devices per pod, the engine uses {needed} ({case.sizes})")


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
    Severity.WARN,
    Shows.LOAD,
    why="ranks exchange data through /dev/shm, which is 64 MiB by default: NCCL fails or hangs; a CPU engine needs "
    "160 MiB for a single rank, and ends at its start with less",
    remedy="Set template.sharedMemorySize (for example 8Gi, on CPU 1Gi), or hostIPC: true",
    source="vLLM documentation: docker deployment; vllm 0.32 run on CPU",
)
def shared_memory_small(case: Case) -> Iterator[Hit]:
    """Several ranks in a pod, or a CPU engine, without enough shared memory."""
    template, path = case.template, "spec.template.sharedMemorySize"
    mounted = any(isinstance(one, dict) and one.get("mountPath") == "/dev/shm" for one in template.volume_mounts)  # noqa: S108
    if mounted or template.host_ipc:
        return
    ranks = case.gpus_per_pod or case.gpus_needed
    if template.shared_memory_size:
        size = bytes_of(template.shared_memory_size)
        if case.cpu_engine and size is not None and size < CPU_SHARED_MEMORY_BYTES:
            yield Hit(path, f"a CPU engine needs 160 MiB of /dev/shm, {template.shared_memory_size} is less")
    elif ranks > 1:
        yield Hit(path, f"{ranks} ranks share the default 64 MiB of /dev/shm")
    elif case.cpu_engine:
        yield Hit(
            path, "a CPU engine needs 160 MiB of /dev/shm, a container has 64 MiB", "Set it to 1Gi, or hostIPC: true"
        )
