"""Whether the user's prompts can be measured with. Other prompts than those asked for would make a verdict about
something else, so that a wrong ConfigMap is refused before a pod is made, and never replaced by the built-in ones."""

from collections.abc import Mapping

from specfleet.api.deployment import DeploymentSpec
from specfleet.benchmark.driver.failures import CannotMeasureError
from specfleet.benchmark.driver.prompt_file import parse_prompts
from specfleet.benchmark.plan import PROMPTS_FILE, driver_sources
from specfleet.engine.environment import ConfigMaps
from specfleet.engine.findings import Finding, Severity

FIELD = "spec.benchmark.prompts.configMap"
CONFIG_MAP_BYTES = 1024 * 1024
"""What the API server takes as the data of one ConfigMap (core/v1, MaxSecretSize)."""
PLAN_BYTES = 64 * 1024
"""Room for the plan of a Job: 32 runs take a quarter of it."""


def prompt_findings(spec: DeploymentSpec, config_maps: ConfigMaps, absent: Mapping[str, str]) -> list[Finding]:
    """At most one, and none where nobody has looked for the ConfigMap (offline)."""
    name = spec.benchmark.prompts.config_map
    if not name:
        return []
    if name in absent:
        return [missing_config_map(FIELD, name, absent[name])]
    why = _unusable(name, config_maps[name]) if name in config_maps else None
    return [] if why is None else [_finding("PromptsUnusable", FIELD, *why)]


def missing_config_map(field: str, name: str, why: str) -> Finding:
    """A ConfigMap that the spec names and that is not there."""
    remedy = "Create it, or let the operator read it; what serves goes on serving meanwhile"
    return _finding("ConfigMapMissing", field, f"ConfigMap {name} cannot be read: {why}", remedy)


def _unusable(name: str, data: Mapping[str, str]) -> tuple[str, str] | None:
    """Message and remedy."""
    text = data.get(PROMPTS_FILE)
    if text is None:
        there = ", ".join(sorted(data)) or "no key at all"
        return f"ConfigMap {name} has no key {PROMPTS_FILE}; it has {there}", f"Name the key {PROMPTS_FILE}"
    limit = CONFIG_MAP_BYTES - PLAN_BYTES - sum(len(source.encode()) for source in driver_sources().values())
    size = len(text.encode())
    if size > limit:
        said = f"{PROMPTS_FILE} of ConfigMap {name} has {size} bytes; beside the client's own files {limit} fit"
        return said, "Keep fewer prompts (kubectl specfleet prompts draws a sample), or use prompts.volume"
    try:
        parse_prompts(text, f"{PROMPTS_FILE} of ConfigMap {name}")
    except CannotMeasureError as error:
        return str(error), "Write one JSON object with a prompt per line"
    return None


def _finding(reason: str, field: str, message: str, remedy: str) -> Finding:
    return Finding(reason, Severity.REFUSE, field, reason, message, remedy, "specfleet")
