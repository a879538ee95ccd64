"""What a benchmark may cost in GPU hours."""

from specfleet.api.deployment import DeploymentSpec
from specfleet.engine.devices import devices_asked

HOURS_PER_GPU = 64.0
"""Default budget per accelerator of an engine: the default time of 8 h with two engines is 16, a search takes more."""


def gpus_per_engine(spec: DeploymentSpec) -> int:
    """Accelerators that one engine holds, in all its pods; where nobody can count them (DRA claims), those it uses."""
    devices, engine = devices_asked(spec.template), spec.engine
    nodes = spec.template.multi_node
    if devices.count is not None:
        return max(1, devices.count) * (nodes.size if nodes is not None else 1)
    return engine.tensor_parallel_size * engine.pipeline_parallel_size * engine.data_parallel_size


def gpu_hour_budget(spec: DeploymentSpec) -> float:
    """spec.benchmark.gpuHours, or the default: it grows with the engine, so that large models get as many pairs."""
    asked = spec.benchmark.gpu_hours
    return asked if asked is not None else HOURS_PER_GPU * gpus_per_engine(spec)
