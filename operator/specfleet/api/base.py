"""What every API model shares: camelCase on the wire, frozen in memory, unknown fields refused."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

GROUP = "specfleet.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
FIELD_MANAGER = "specfleet"
"""Who the operator is in metadata.managedFields of what it applies."""

RawObject = dict[str, Any]
"""A Kubernetes object or fragment that is passed through as the ecosystem writes it."""


class ApiModel(BaseModel):
    """Base of all wire models. Python names are snake_case, JSON names camelCase (Kubernetes convention)."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, use_enum_values=False
    )

    def to_wire(self) -> RawObject:
        """The JSON form: camelCase, without absent optional fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class StatusModel(ApiModel):
    """Base of status models: fields written by a newer operator are ignored, so that a downgrade can read them."""

    model_config = ConfigDict(extra="ignore")


def cel(rule: str, message: str, field_path: str | None = None, reason: str | None = None) -> RawObject:
    """One `x-kubernetes-validations` entry (CEL, Kubernetes 1.25+); `message` is what the user reads on refusal."""
    entry: RawObject = {"rule": rule, "message": message}
    if field_path is not None:
        entry["fieldPath"] = field_path
    if reason is not None:
        entry["reason"] = reason
    return entry


def validations(*rules: Mapping[str, Any]) -> RawObject:
    """`json_schema_extra` that carries CEL rules into the generated CRD."""
    return {"x-kubernetes-validations": [dict(rule) for rule in rules]}
