"""Environment of the engine container, and which part of it makes a variant."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from specfleet.api.base import RawObject
from specfleet.api.deployment import DeploymentSpec

TOKEN_VARIABLE = "HF_TOKEN"  # noqa: S105 - the name of a variable, not a secret
TOKEN_KEY = "token"  # noqa: S105

_IRRELEVANT = re.compile(
    r"^(HF_TOKEN|HUGGING_FACE_HUB_TOKEN|VLLM_API_KEY|VLLM_LOGGING_\w+|VLLM_NO_USAGE_STATS|VLLM_DO_NOT_TRACK|"
    r"DO_NOT_TRACK|OTEL_\w+|TZ|(HTTP|HTTPS|NO|http|https|no)_(PROXY|proxy))$"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|_KEY(_|$)", re.IGNORECASE)

ConfigMaps = Mapping[str, Mapping[str, str]]
"""Content of referenced ConfigMaps by name, as far as it has been read."""


def engine_environment(spec: DeploymentSpec) -> tuple[RawObject, ...]:
    """core/v1 EnvVar list, the same for both arms: engine.env, the Hugging Face token by reference.

    Of a name written twice the last one counts, as in Kubernetes.
    """
    variables: dict[str, RawObject] = {}
    secret = spec.template.hugging_face_token_secret
    if secret is not None:
        reference = {"secretKeyRef": {"name": secret, "key": TOKEN_KEY}}
        variables[TOKEN_VARIABLE] = {"name": TOKEN_VARIABLE, "valueFrom": reference}
    for variable in spec.engine.env:
        if isinstance(variable, dict) and "name" in variable:
            variables.pop(str(variable["name"]), None)
            variables[str(variable["name"])] = variable
    return tuple(variables.values())


def matters(name: str) -> bool:
    """Whether a variable may change speed or output. Tokens, proxies, logging and usage reports do not."""
    return _IRRELEVANT.match(name) is None


def environment_inputs(variables: tuple[RawObject, ...], config_maps: ConfigMaps) -> dict[str, str]:
    """Fingerprint inputs of the variables that matter: `env NAME` -> value in words."""
    kept = [variable for variable in variables if matters(str(variable["name"]))]
    inputs = {f"env {variable['name']}": _value(variable, config_maps) for variable in kept}
    if any("$(" in str(variable.get("value", "")) for variable in kept):
        inputs["env order"] = " ".join(str(variable["name"]) for variable in kept)
    return inputs


def content_hash(data: Any) -> str:
    """16 hexadecimal digits over a ConfigMap's data or one of its values."""
    return hashlib.sha256(repr(sorted(data.items()) if isinstance(data, Mapping) else data).encode()).hexdigest()[:16]


def _value(variable: RawObject, config_maps: ConfigMaps) -> str:
    source = variable.get("valueFrom") or {}
    if "configMapKeyRef" in source:
        name, key = source["configMapKeyRef"].get("name"), source["configMapKeyRef"].get("key")
        content = config_maps.get(str(name), {}).get(str(key))
        return f"configMap {name}/{key}" + (f" {content_hash(content)}" if content is not None else "")
    if "secretKeyRef" in source:
        return f"secret {source['secretKeyRef'].get('name')}/{source['secretKeyRef'].get('key')}"
    if source:
        return repr(source)
    value = str(variable.get("value", ""))
    return f"sha256:{hashlib.sha256(value.encode()).hexdigest()}" if _SECRET.search(str(variable["name"])) else value
