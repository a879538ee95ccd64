"""docs/reference/api.md from the models: `python -m specfleet.api.reference write|check FILE`."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from specfleet.api import deployment, evidence
from specfleet.api.base import API_VERSION, RawObject
from specfleet.api.crd import structural_schema

_HEAD = f"""# API reference: {API_VERSION}

Generated from `operator/specfleet/api` by `make docs`; do not edit. Rules that need one object only are checked by the
API server itself; their messages stand under "Rules". A default in brackets is applied by the operator when it reads
the object, and is not written into it.

"""


def reference() -> str:
    """The whole page."""
    text = _HEAD
    for model, kind in (
        (deployment.SpeculativeDeployment, deployment.KIND),
        (evidence.SpeculativeBenchmark, evidence.KIND),
    ):
        schema = structural_schema(model)
        text += f"## {kind}\n\n{schema.get('description', '')}\n\n"
        for part in ("spec", "status"):
            if part in schema["properties"]:
                # Defaults of a status say nothing to a reader: the operator always writes what it knows.
                defaults = _model_in(model.model_fields["spec"].annotation) if part == "spec" else None
                text += "".join(_section(part, schema["properties"][part], defaults))
    return text.rstrip("\n") + "\n"


def _section(path: str, schema: RawObject, model: type[BaseModel] | None) -> Iterator[str]:
    """A heading and a table for one object, then the objects in it."""
    yield f"### `{path}`\n\n"
    if schema.get("description"):
        yield f"{schema['description']}\n\n"
    yield "| field | type | meaning |\n|---|---|---|\n"
    required = set(schema.get("required", []))
    inner: list[tuple[str, RawObject, type[BaseModel] | None]] = []
    for name, field in schema["properties"].items():
        must = " (required)" if name in required else ""
        meaning = _cell(field.get("description", "")) + _default(model, name)
        yield f"| `{name}`{must} | {_type(field)} | {meaning.strip()} |\n"
        nested, suffix = (field.get("items", {}), "[]") if field.get("type") == "array" else (field, "")
        if nested.get("properties"):
            inner.append((f"{path}.{name}{suffix}", nested, _model_of(model, name)))
    yield "\n"
    rules = [one["message"] for one in schema.get("x-kubernetes-validations", [])]
    if rules:
        yield "Rules:\n\n" + "".join(f"- {message}\n" for message in rules) + "\n"
    for nested_path, nested, nested_model in inner:
        yield from _section(nested_path, nested, nested_model)


def _type(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_type(field['items'])}"
    if kind == "object" and isinstance(field.get("additionalProperties"), Mapping):
        return f"map of {_type(field['additionalProperties'])}"
    bounds = _bounds(field)
    if field.get("format") == "date-time":
        kind = "time"
    return f"{kind} {bounds}".strip()


def _bounds(field: Mapping[str, Any]) -> str:
    low, high = field.get("minimum"), field.get("maximum")
    words = []
    if low is not None:
        words.append(f"> {low}" if field.get("exclusiveMinimum") else f">= {low}")
    if high is not None:
        words.append(f"< {high}" if field.get("exclusiveMaximum") else f"<= {high}")
    if "pattern" in field:
        words.append(f"matches `{_cell(field['pattern'])}`")
    return ", ".join(words)


def _default(model: type[BaseModel] | None, name: str) -> str:
    """The model's default where it is a plain value."""
    field = _field(model, name)
    if field is None or field.default is PydanticUndefined or field.default in (None, ""):
        return ""
    value = field.default
    shown = str(value).lower() if isinstance(value, bool) else str(getattr(value, "value", value))
    return f" [`{shown}`]"


def _field(model: type[BaseModel] | None, name: str) -> FieldInfo | None:
    return next((one for one in (model.model_fields if model else {}).values() if one.alias == name), None)


def _model_of(model: type[BaseModel] | None, name: str) -> type[BaseModel] | None:
    field = _field(model, name)
    return _model_in(field.annotation) if field is not None else None


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside `T`, `T | None`, `list[T]` or `Annotated[...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _model_in(inner)
        if found is not None:
            return found
    return None


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: list[str]) -> int:
    """Run `write FILE` or `check FILE`. Exit code 1: the file is not what the models say."""
    if len(arguments) != 2 or arguments[0] not in ("write", "check"):
        print("usage: python -m specfleet.api.reference write|check FILE", file=sys.stderr)
        return 2
    path = Path(arguments[1])
    if arguments[0] == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(reference())
        return 0
    if path.exists() and path.read_text() == reference():
        return 0
    print(f"{path} is not what the models say: run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
