"""SpeculativeDeployments in YAML or JSON files, with the line of every field."""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from specfleet.api import evidence
from specfleet.api.base import API_VERSION, GROUP
from specfleet.api.deployment import KIND
from specfleet.engine.field_names import nearest

try:
    from yaml import CSafeLoader as Loader
except ImportError:  # libyaml is missing: the same result, about ten times slower
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

STDIN = "-"
_SUFFIXES = (".yaml", ".yml", ".json")
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[-a-z0-9])?")
"""RFC 1123 subdomain; generateName may end in a hyphen."""
_KEYS = ("apiVersion", "kind", "metadata", "spec", "status")
_METADATA_KEYS = (
    *("name", "generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences"),
    *("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
"""metav1.ObjectMeta: kubectl refuses other names, so lint does."""
TEMPLATE_HINT = " (a template? Lint what `helm template` prints: helm template CHART | kubectl specfleet lint -)"
_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with the object around `spec`."""

    path: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One SpeculativeDeployment as written."""

    file: str
    raw: dict[str, Any]
    node: yaml.Node

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


@dataclass(slots=True)
class Reading:
    """What files hold."""

    manifests: list[Manifest] = field(default_factory=list)
    other_kinds: Counter[str] = field(default_factory=Counter)
    unusable: list[str] = field(default_factory=list)
    """One message per file that cannot be read as manifests; it names file and place."""

    def nothing(self, names: Sequence[str]) -> str:
        """Says that no SpeculativeDeployment was found, and what was."""
        seen = ", ".join(f"{count} {kind}" for kind, count in sorted(self.other_kinds.items()))
        looked = f"found: {seen}" if seen else "no object was found at all"
        return f"no SpeculativeDeployment in {', '.join(names)} ({looked})"


def read_manifests(names: Iterable[str]) -> Reading:
    """All SpeculativeDeployments in files, folders (every YAML and JSON file below) and `-` (standard input).

    Files and folders whose names begin with a dot are left out below a folder. Other kinds are counted, not returned.
    """
    found = Reading()
    for name in names:
        if name == STDIN:
            _read_into(found, STDIN, sys.stdin.read())
            continue
        for file in _files(Path(name)):
            try:
                text = file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or error
                found.unusable.append(f"{file}: cannot be read: {reason}")
                continue
            _read_into(found, str(file), text)
    return found


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for file in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if file.suffix in _SUFFIXES and not hidden and file.is_file():
            yield file


def _read_into(found: Reading, file: str, text: str) -> None:
    loader = Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is None:
                continue
            for manifest in _objects(file, node, loader.construct_document(node)):
                if _means_our_kind(manifest.raw):
                    found.manifests.append(manifest)
                else:
                    found.other_kinds[str(manifest.raw.get("kind") or "no kind")] += 1
    except yaml.YAMLError as error:
        hint = TEMPLATE_HINT if "{{" in text else ""
        found.unusable.append(f"{file}: not YAML: {' '.join(str(error).split())}{hint}")
    except (ValueError, RecursionError) as error:
        found.unusable.append(f"{file}: not usable: {error}")
    finally:
        loader.dispose()


def _objects(file: str, node: yaml.Node, raw: Any) -> Iterator[Manifest]:
    if not isinstance(raw, dict):
        return
    if str(raw.get("kind", "")).endswith("List") and isinstance(raw.get("items"), list):
        items = _child(node, "items")
        for index, item in enumerate(raw["items"]):
            inner = _child(items, index) if items is not None else None
            yield from _objects(file, inner or node, item)
    else:
        yield Manifest(file, raw, node)


def _means_our_kind(raw: dict[str, Any]) -> bool:
    """Whether this is a SpeculativeDeployment, or was meant to be one: a typo must not make lint pass over it."""
    kind = raw.get("kind")
    ours = str(raw.get("apiVersion", "")).partition("/")[0] == GROUP
    return kind == KIND or (ours and kind != evidence.KIND) or (isinstance(kind, str) and nearest(kind, [KIND]) == KIND)


def object_problems(manifest: Manifest) -> tuple[Problem, ...]:
    """What is wrong with the object around `spec`: version, kind, name, keys written twice, unknown keys."""
    raw, found = manifest.raw, list(_repeated_keys(manifest.node, ""))
    if raw.get("apiVersion") != API_VERSION:
        found.append(Problem("apiVersion", f"is {raw.get('apiVersion')!r}, not {API_VERSION}", f"Write {API_VERSION}"))
    if raw.get("kind") != KIND:
        found.append(Problem("kind", f"is {raw.get('kind')!r}; kinds are spelled exactly", f"Write {KIND}"))
    written = manifest.name.rpartition("/")[2]
    if not written:
        found.append(Problem("metadata.name", "is missing", "Set it"))
    elif not _OBJECT_NAME.fullmatch(written):
        found.append(Problem("metadata.name", f"{written!r} is no object name", "Use a-z, 0-9, - and dots"))
    if "spec" not in raw:
        found.append(Problem("spec", "is missing", "Write what is to be served below it"))
    found.extend(_unknown("", raw, _KEYS))
    if isinstance(raw.get("metadata"), dict):
        found.extend(_unknown("metadata.", raw["metadata"], _METADATA_KEYS))
    return tuple(found)


def _unknown(below: str, written: dict[str, Any], known: Sequence[str]) -> Iterator[Problem]:
    for key in written:
        if key not in known:
            meant = nearest(str(key), known)
            yield Problem(f"{below}{key}", "unknown field", f"Did you mean {meant!r}?" if meant else "Remove it")


def _repeated_keys(node: yaml.Node, path: str) -> Iterator[Problem]:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            below = f"{path}.{key.value}".lstrip(".")
            if key.value in seen:
                yield Problem(below, "is written twice", "Remove one of them")
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
