"""What somebody meant who wrote a field name that the API does not have."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache

from pydantic import BaseModel

from specfleet.api.deployment import DeploymentSpec
from specfleet.engine.model_tree import children_of

CLOSE_RATIO = 0.7
"""difflib's ratio from which a name is offered: `replcias` is, `gpu` for `gpuHours` is not."""
PLACES_SHOWN = 2


def nearest(written: str, known: Iterable[str]) -> str | None:
    """The known name that `written` most likely stands for, spelling of case and separators aside; None: no idea."""
    plain = {_plain(name): name for name in known}
    found = get_close_matches(_plain(written), plain, n=1, cutoff=CLOSE_RATIO)
    return plain[found[0]] if found else None


def remedy_for_unknown(location: tuple[int | str, ...]) -> str:
    """What to do about an unknown field at a place below `spec`: where that name belongs, or a sibling's name."""
    written, parent = str(location[-1]), _model_at(location[:-1])
    siblings = _names(parent) if parent is not None else ()
    misplaced = _places_of(written, location[:-1])
    if misplaced and _plain(written) not in map(_plain, siblings):
        return f"Did you mean {' or '.join(misplaced)}?"
    meant = nearest(written, siblings)
    if meant is not None:
        return f"Did you mean {meant!r}?"
    return f"Remove it; the fields here are {', '.join(siblings)}" if siblings else "Remove it, or correct its name"


def _places_of(written: str, parent: tuple[int | str, ...]) -> list[str]:
    """Where a field of that name exists, if in few places; those below the parent go first."""
    above = ".".join(["spec", *(part for part in parent if isinstance(part, str))]) + "."
    found = [path for path in _paths() if _plain(path.rpartition(".")[2]) == _plain(written)]
    below = [path for path in found if path.startswith(above) and "[]" not in path]
    places = below or found
    return places if len(places) <= PLACES_SHOWN else []


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _names(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _model_at(location: tuple[int | str, ...]) -> type[BaseModel] | None:
    model: type[BaseModel] | None = DeploymentSpec
    for part in location:
        if isinstance(part, str) and model is not None:
            model = next((inner for name, inner, _ in children_of(model) if name == part), None)
    return model


@cache
def _paths() -> tuple[str, ...]:
    return tuple(_below(DeploymentSpec, "spec"))


def _below(model: type[BaseModel], path: str) -> Iterator[str]:
    yield from (f"{path}.{name}" for name in _names(model))
    for name, inner, many in children_of(model):
        yield from _below(inner, f"{path}.{name}" + ("[]" if many else ""))
