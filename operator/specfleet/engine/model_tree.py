"""The API models as a tree: which fields of a model hold models again."""

from functools import cache
from typing import Any, get_args

from pydantic import BaseModel


@cache
def children_of(model: type[BaseModel]) -> tuple[tuple[str, type[BaseModel], bool], ...]:
    """Fields that hold models: (JSON name, model, whether it is a list)."""
    found = []
    for name, field in model.model_fields.items():
        inner = _models(field.annotation)
        if inner is not None:
            found.append((field.alias or name, *inner))
    return tuple(found)


def _models(annotation: Any, many: bool = False) -> tuple[type[BaseModel], bool] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, many
    origin_is_list = getattr(annotation, "__origin__", None) is list
    inner = (_models(argument, many or origin_is_list) for argument in get_args(annotation))
    return next((one for one in inner if one is not None), None)
