"""SpeculativeDeployments in YAML or JSON files, with the line of every field."""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from specfleet.api.base import API_VERSION
from specfleet.api.deployment import KIND

try:
    from yaml import CSafeLoader as Loader
except ImportError:  # libyaml is missing: the same result, about ten times slower
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

STDIN = "-"
_SUFFIXES = (".yaml", ".yml", ".json")
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[-a-z0-9])?")
"""RFC 1123 subdomain; generateName may end in a hyphen."""
_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class UnusableInputError(Exception):
    """A file that cannot be read as manifests; the message names file and place."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One SpeculativeDeployment as written."""

    file: str
    raw: dict[str, Any]
    node: yaml.Node
    problems: tuple[tuple[str, str], ...] = ()
    """(path, what is wrong) found while reading: keys written twice."""

    @property
    def name(self) -> str:
        """namespace/name, as far as they are written."""
        metadata = self.raw.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        name = str(metadata.get("name", metadata.get("generateName", "")))
        return f"{metadata['namespace']}/{name}" if "namespace" in metadata else name

    def line(self, path: str) -> int:
        """Line (from 1) of a field such as `spec.engine.args[2]`, or of its nearest parent that is written."""
        return _line(self.node, path)


def read_manifests(names: Iterable[str]) -> Iterator[Manifest]:
    """All SpeculativeDeployments in files, folders (every YAML and JSON file below) and `-` (standard input).

    Other kinds are skipped. Raises UnusableInputError for what cannot be read.
    """
    for name in names:
        if name == STDIN:
            yield from _documents(STDIN, sys.stdin.read())
            continue
        for file in _files(Path(name)):
            try:
                text = file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or error
                raise UnusableInputError(f"{file}: cannot be read: {reason}") from error
            yield from _documents(str(file), text)


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    yield from sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())


def _documents(file: str, text: str) -> Iterator[Manifest]:
    loader = Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is None:
                continue
            yield from _objects(file, node, loader.construct_document(node))
    except yaml.YAMLError as error:
        raise UnusableInputError(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    except (ValueError, RecursionError) as error:
        raise UnusableInputError(f"{file}: not usable: {error}") from error
    finally:
        loader.dispose()


def _objects(file: str, node: yaml.Node, raw: Any) -> Iterator[Manifest]:
    if not isinstance(raw, dict):
        return
    if raw.get("kind") == KIND:
        yield Manifest(file, raw, node, tuple(_repeated_keys(node, "")))
    elif str(raw.get("kind", "")).endswith("List") and isinstance(raw.get("items"), list):
        items = _child(node, "items")
        for index, item in enumerate(raw["items"]):
            inner = _child(items, index) if items is not None else None
            yield from _objects(file, inner or node, item)


def object_problems(manifest: Manifest) -> tuple[tuple[str, str], ...]:
    """(path, what is wrong) of the object around `spec`: version, name, keys written twice, unknown keys."""
    raw, found = manifest.raw, list(manifest.problems)
    if raw.get("apiVersion") != API_VERSION:
        found.append(("apiVersion", f"is {raw.get('apiVersion')!r}, not {API_VERSION}"))
    written = manifest.name.rpartition("/")[2]
    if not written:
        found.append(("metadata.name", "is missing"))
    elif not _OBJECT_NAME.fullmatch(written):
        found.append(("metadata.name", f"{written!r} is no object name: use a-z, 0-9, - and dots"))
    if "spec" not in raw:
        found.append(("spec", "is missing"))
    known = {"apiVersion", "kind", "metadata", "spec", "status"}
    found.extend((str(key), "unknown field") for key in raw if key not in known)
    return tuple(found)


def _repeated_keys(node: yaml.Node, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            below = f"{path}.{key.value}".lstrip(".")
            if key.value in seen:
                yield below, "is written twice"
            seen.add(key.value)
            yield from _repeated_keys(value, below)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _repeated_keys(value, f"{path}[{index}]")


def _line(node: yaml.Node, path: str) -> int:
    place, line = node, node.start_mark.line
    for found in _PART.finditer(path):
        part: str | int = int(found[1]) if found[1] else found[2]
        below = _child(place, part)
        if below is None:
            break
        line = _key_line(place, part) or below.start_mark.line
        place = below
    return line + 1


def _key_line(node: yaml.Node, part: str | int) -> int | None:
    """Line of the key itself: a block value may begin one line below it."""
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((key.start_mark.line for key, _ in node.value if key.value == part), None)


def _child(node: yaml.Node, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        found = [value for key, value in node.value if key.value == part]
        return found[-1] if found else None
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        below: yaml.Node = node.value[part]
        return below
    return None
