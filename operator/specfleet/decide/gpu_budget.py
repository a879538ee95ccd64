"""What a benchmark may cost in GPU hours."""

from specfleet.api.deployment import DeploymentSpec
from specfleet.engine.devices import devices_asked

HOURS_PER_GPU = 64.0
"""Default budget per accelerator of a pod: the default time budget of 8 h with two pods is 16, a search takes more."""


def gpus_per_pod(spec: DeploymentSpec) -> int:
    """Accelerators that one engine pod holds; where nobody can count them (DRA claims), as many as the engine uses."""
    devices, engine = devices_asked(spec.template), spec.engine
    if devices.count is not None:
        return max(1, devices.count)
    return engine.tensor_parallel_size * engine.pipeline_parallel_size * engine.data_parallel_size


def gpu_hour_budget(spec: DeploymentSpec) -> float:
    """spec.benchmark.gpuHours, or the default: it grows with the pod, so that large models get as many pairs."""
    asked = spec.benchmark.gpu_hours
    return asked if asked is not None else HOURS_PER_GPU * gpus_per_pod(spec)
