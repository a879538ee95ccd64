"""Fingerprint inputs of the pod: GPUs, nodes and volumes, as far as they can change speed or output."""

import json
from collections.abc import Iterator
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
        "exclusive topology": template.multi_node.exclusive_topology_key if template.multi_node else None,
    }
    inputs = {name: _text(value) for name, value in raw.items() if value not in (None, {}, [])}
    names = {name for _, name, _ in _references(template)}
    contents = {name: content_hash(config_maps[name]) for name in names if name in config_maps}
    return {**inputs, **{f"configMap {name}": text for name, text in sorted(contents.items())}}


def referenced_config_maps(template: TemplateSpec, env: tuple[dict[str, Any], ...] = ()) -> tuple[str, ...]:
    """Names of all ConfigMaps that the engine pod reads, sorted: the caller fetches them for build_arm."""
    return tuple(sorted({name for _, name, _ in _references(template, env)}))


def required_config_maps(template: TemplateSpec, env: tuple[dict[str, Any], ...] = ()) -> dict[str, str]:
    """ConfigMap name -> path of the field that needs it: without it no pod starts. Optional ones are left out."""
    return {name: path for path, name, optional in _references(template, env) if not optional}


def _references(template: TemplateSpec, env: tuple[dict[str, Any], ...] = ()) -> Iterator[tuple[str, str, bool]]:
    """Field path, name, and whether the pod starts without it."""
    for index, volume in enumerate(template.volumes):
        place = f"spec.template.volumes[{index}]"
        parts = (volume.get("projected") or {}).get("sources") or []
        listed = [(f"{place}.projected.sources[{number}]", one) for number, one in enumerate(parts)]
        for path, source in [(place, volume), *listed]:
            reference = source.get("configMap") or {}
            if "name" in reference:
                yield f"{path}.configMap", str(reference["name"]), bool(reference.get("optional"))
    for index, variable in enumerate(env):
        reference = (variable.get("valueFrom") or {}).get("configMapKeyRef") or {}
        if "name" in reference:
            path = f"spec.engine.env[{index}].valueFrom.configMapKeyRef"
            yield path, str(reference["name"]), bool(reference.get("optional"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
