"""Accelerators that an engine pod asks for: extended resources and DRA claims."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specfleet.api.model import TemplateSpec

_DEVICE = re.compile(
    r"^(nvidia\.com/(gpu|mig-.+)(\.shared)?|amd\.com/gpu|gpu\.intel\.com/(i915|xe)|habana\.ai/gaudi\d*|google\.com/tpu|"
    r"aws\.amazon\.com/neuron(core|device)?|huawei\.com/Ascend.+|.+/[vx]?gpu)$"
)


@dataclass(frozen=True, slots=True)
class Devices:
    """What one pod asks for."""

    limits: Mapping[str, str]
    """Extended resources with their quantities as written under resources.limits."""
    requests: Mapping[str, str]
    """The same under resources.requests."""
    claims: int
    """DRA claims; how many devices each one holds is not visible in the pod."""

    @property
    def asked(self) -> bool:
        """Whether any accelerator is asked for."""
        return bool(self.limits or self.requests or self.claims)

    @property
    def count(self) -> int | None:
        """Whole accelerators; None when claims hide the number or a quantity is not a whole number."""
        quantities = list((self.limits or self.requests).values())
        if self.claims or not all(text.isdigit() for text in quantities):
            return None
        return sum(int(text) for text in quantities)


def bytes_of(quantity: str) -> int | None:
    """A Kubernetes quantity of memory (`8Gi`, `500M`, `1.5Gi`) in whole bytes, None when it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTPE]i|[kMGTPE])?", quantity)
    if found is None:
        return None
    unit = found[2] or ""
    power = " kMGTPE".index(unit[0].replace("K", "k")) if unit else 0
    return int(float(found[1]) * (1024 if unit.endswith("i") else 1000) ** power)


def devices_asked(template: TemplateSpec) -> Devices:
    """Accelerators under template.resources and template.resourceClaims."""
    return Devices(
        limits=_devices(template.resources.get("limits")),
        requests=_devices(template.resources.get("requests")),
        claims=len(template.resource_claims),
    )


def _devices(quantities: Any) -> dict[str, str]:
    if not isinstance(quantities, Mapping):
        return {}
    return {str(name): str(quantity) for name, quantity in quantities.items() if _DEVICE.match(str(name))}
