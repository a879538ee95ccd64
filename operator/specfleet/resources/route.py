"""HTTPRoute of our own: weights per arm, and the header that always chooses the plain one."""

from collections.abc import Mapping
from datetime import datetime

from specfleet.api import names
from specfleet.api.base import GROUP, RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.resources.metadata import child

KIND = "HTTPRoute"
API_VERSION = "gateway.networking.k8s.io/v1"
WEIGHTS_SINCE = f"{GROUP}/weights-since"
FINGERPRINTS = f"{GROUP}/weights"
NO_TIMEOUT = "0s"
"""Always written: without it Envoy cuts a completion after 15 s."""


def http_route(
    owner: SpeculativeDeployment,
    weights: Mapping[str, int],
    plain: str | None,
    live: RawObject | None,
    now: datetime,
) -> RawObject:
    """gateway.networking.k8s.io/v1 HTTPRoute. `plain`: fingerprint of the plain arm if it serves.

    Defaults of the API are written out, so that a GitOps tool or a second apply sees no difference.
    """
    traffic = owner.spec.traffic
    said = ",".join(f"{name}={weight}" for name, weight in sorted(weights.items()))
    annotations = {FINGERPRINTS: said, WEIGHTS_SINCE: _since(live, said, now)}
    rule: RawObject = {
        "matches": traffic.route_template.get("matches", [{"path": {"type": "PathPrefix", "value": "/"}}]),
        "backendRefs": [_backend(owner, name, weight) for name, weight in sorted(weights.items())],
        "timeouts": {"request": NO_TIMEOUT, **traffic.route_template.get("timeouts", {})},
    }
    if "filters" in traffic.route_template:
        rule["filters"] = traffic.route_template["filters"]
    rules = [rule]
    if plain is not None and len(weights) > 1:
        rules.insert(0, _plain_rule(owner, rule, plain))
    spec: RawObject = {"parentRefs": [_parent(ref) for ref in traffic.parent_refs], "rules": rules}
    if traffic.hostnames:
        spec["hostnames"] = list(traffic.hostnames)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": child(owner, owner.name, annotations=annotations),
        "spec": spec,
    }


def read_weights(route: RawObject) -> dict[str, int]:
    """Weights per fingerprint, from our own annotation; {} when there is none."""
    said = route["metadata"].get("annotations", {}).get(FINGERPRINTS, "")
    pairs = (part.partition("=") for part in said.split(",") if part)
    return {name: int(weight) for name, _, weight in pairs if weight.isascii() and weight.isdigit()}


def read_since(route: RawObject) -> datetime | None:
    """When the weights were written, from our own annotation; None when there is none, or one that is no time."""
    try:
        since = datetime.fromisoformat(route["metadata"].get("annotations", {}).get(WEIGHTS_SINCE, ""))
    except ValueError:
        return None
    return since if since.tzinfo is not None else None


def accepted(route: RawObject) -> tuple[bool, str]:
    """Whether every gateway has taken this generation of the route, and what it says if not."""
    parents = route.get("status", {}).get("parents", [])
    if not parents:
        return False, "no gateway has answered for the route yet"
    generation = route["metadata"].get("generation")
    for parent in parents:
        for condition in parent.get("conditions", []):
            if condition["type"] not in ("Accepted", "ResolvedRefs"):
                continue
            if condition.get("observedGeneration", generation) != generation:
                return False, "the gateway has not seen the latest weights yet"
            if condition["status"] != "True":
                return False, f"{condition['type']}={condition['status']}: {condition.get('message', '')}"
    return True, ""


def _since(live: RawObject | None, said: str, now: datetime) -> str:
    before = live["metadata"].get("annotations", {}) if live else {}
    since = read_since(live) if live else None
    if before.get(FINGERPRINTS) == said and since is not None and since <= now:
        return str(before[WEIGHTS_SINCE])
    return now.isoformat()


def _backend(owner: SpeculativeDeployment, fingerprint: str, weight: int) -> RawObject:
    return {
        "group": "",
        "kind": "Service",
        "name": names.arm(owner.name, fingerprint),
        "port": owner.spec.engine.port,
        "weight": weight,
    }


def _plain_rule(owner: SpeculativeDeployment, rule: RawObject, plain: str) -> RawObject:
    header = {"type": "Exact", "name": owner.spec.traffic.plain_header, "value": "true"}
    matches = [{**match, "headers": [*match.get("headers", []), header]} for match in rule["matches"]]
    return {**rule, "matches": matches, "backendRefs": [_backend(owner, plain, 1)]}


def _parent(reference: RawObject) -> RawObject:
    return {"group": "gateway.networking.k8s.io", "kind": "Gateway", **reference}
