"""Fingerprint inputs of the pod: GPUs, nodes and volumes, as far as they can change speed or output."""

import json
from typing import Any

from specfleet.api.model import TemplateSpec
from specfleet.engine.environment import ConfigMaps, content_hash


def pod_inputs(template: TemplateSpec, config_maps: ConfigMaps) -> dict[str, str]:
    """Name -> value in words. Labels, priorities, queues, pull settings and spread do not make a variant."""
    raw: dict[str, Any] = {
        "resources": template.resources,
        "resource claims": template.resource_claims,
        "node selector": template.node_selector,
        "affinity": template.affinity,
        "runtime class": template.runtime_class_name,
        "host IPC": template.host_ipc,
        "shared memory": template.shared_memory_size,
        "security context": template.security_context,
        "pod security context": template.pod_security_context,
        "init containers": template.init_containers,
        "volume mounts": template.volume_mounts,
        "volumes": template.volumes,
        "pods per engine": template.multi_node.size if template.multi_node else None,
    }
    inputs = {name: _text(value) for name, value in raw.items() if value not in (None, {}, [])}
    contents = {name: content_hash(config_maps[name]) for name in _config_maps(template) if name in config_maps}
    return {**inputs, **{f"configMap {name}": text for name, text in sorted(contents.items())}}


def referenced_config_maps(template: TemplateSpec, env: tuple[dict[str, Any], ...] = ()) -> tuple[str, ...]:
    """Names of all ConfigMaps that the engine pod reads, sorted: the caller fetches them for build_arm."""
    names = set(_config_maps(template))
    for variable in env:
        reference = (variable.get("valueFrom") or {}).get("configMapKeyRef") or {}
        names |= {str(reference["name"])} if "name" in reference else set()
    return tuple(sorted(names))


def _config_maps(template: TemplateSpec) -> set[str]:
    names = set()
    for volume in template.volumes:
        sources = [volume, *((volume.get("projected") or {}).get("sources") or [])]
        names |= {str(one["configMap"]["name"]) for one in sources if "name" in (one.get("configMap") or {})}
    return names


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
