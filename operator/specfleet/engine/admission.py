"""What the API server would say about an object: the schema, then the CEL rules of every model. Offline."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.engine.cel import CelError, holds
from specfleet.engine.field_names import remedy_for_unknown
from specfleet.engine.findings import Finding, Severity
from specfleet.engine.methods import METHODS, refused_method
from specfleet.engine.model_tree import children_of

SCHEMA_RULE = "SchemaInvalid"
ADMISSION_RULE = "AdmissionRefused"
METHOD_RULE = "MethodRefused"
_SOURCE = "the schema of SpeculativeDeployment"


def read_spec(raw: Any) -> tuple[DeploymentSpec | None, tuple[Finding, ...]]:
    """The spec of an object as users write it, and what admission says; None when the schema already refuses it.

    Strict, as the API server is: no numbers in quotes, no Python names of fields.
    """
    try:
        text = json.dumps(raw, default=str)
        spec = DeploymentSpec.model_validate_json(text, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        return None, tuple(dict.fromkeys(_schema_finding(one) for one in error.errors(include_url=False)))
    return spec, tuple(admission(DeploymentSpec, spec.to_wire(), "spec"))


def object_admission(raw: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Violations of the CEL rules of the object itself, which see nothing of the metadata but the name."""
    return tuple(one for rule in rules_of(SpeculativeDeployment) for one in _violations(rule, raw, "metadata"))


def admission(model: type[BaseModel], value: Any, path: str) -> Iterator[Finding]:
    """Violations of the CEL rules of a model and of everything below it; `value` is the wire form with defaults."""
    for rule in rules_of(model):
        yield from _violations(rule, value, path)
    for name, inner, many in children_of(model):
        below = value.get(name)
        if below is None:
            continue
        for index, one in enumerate(below) if many else ((None, below),):
            yield from admission(inner, one, f"{path}.{name}" + (f"[{index}]" if many else ""))


@cache
def rules_of(model: type[BaseModel]) -> tuple[Mapping[str, Any], ...]:
    """The `x-kubernetes-validations` of a model."""
    extra = model.model_config.get("json_schema_extra")
    return tuple(extra.get("x-kubernetes-validations", ())) if isinstance(extra, dict) else ()  # type: ignore[arg-type]


def _violations(rule: Mapping[str, Any], value: Any, path: str) -> Iterator[Finding]:
    where = path + rule.get("fieldPath", "")
    try:
        if holds(rule["rule"], value):
            return
    except CelError as error:
        yield Finding(ADMISSION_RULE, Severity.REFUSE, where, ADMISSION_RULE, str(error), "Correct the value", _SOURCE)
        return
    what, _, remedy = str(rule["message"]).partition(": ")
    remedy = remedy[:1].upper() + remedy[1:] if remedy else "Correct it"
    yield Finding(ADMISSION_RULE, Severity.REFUSE, where, ADMISSION_RULE, what, remedy, _SOURCE)


def _schema_finding(error: ErrorDetails) -> Finding:
    path = _path(error["loc"])
    if error["type"] == "enum" and path.endswith(".method"):
        return _method_finding(path, str(error["input"]))
    if error["type"] == "extra_forbidden":
        message, remedy = f"unknown field {error['loc'][-1]!r}", remedy_for_unknown(error["loc"])
    elif error["type"] == "missing":
        message, remedy = f"{error['loc'][-1]} is missing", "Set it"
    elif error["type"] == "model_type":
        message, remedy = f"should be an object (found {error['input']!r})", "Write its fields below it"
    else:
        message = f"{error['msg'][:1].lower()}{error['msg'][1:]} (found {error['input']!r})"
        remedy = "Correct the value"
    return Finding(SCHEMA_RULE, Severity.REFUSE, path, SCHEMA_RULE, message, remedy, _SOURCE)


def _method_finding(path: str, name: str) -> Finding:
    known = refused_method(name)
    if known is not None:
        return Finding(METHOD_RULE, Severity.REFUSE, path, METHOD_RULE, known.reason, known.remedy, known.source)
    methods = ", ".join(METHODS)
    message = f"no vLLM method is called {name!r}"
    return Finding(METHOD_RULE, Severity.REFUSE, path, METHOD_RULE, message, f"Use one of {methods}", _SOURCE)


def _path(location: tuple[int | str, ...]) -> str:
    return "spec" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
