"""Reads of a Dockerfile what its result depends on: the images it starts from and the files it takes in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_CACHES = frozenset({"__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"})


@dataclass(frozen=True)
class Source:
    """Files that a Dockerfile takes in: a pattern in the build context, or in the additional context named."""

    pattern: str
    context: str | None = None


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    joined = re.sub(r"\\\s*\n(?:\s*#[^\n]*\n)*", " ", text)
    for line in joined.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word and not word.startswith("#"):
            yield word.upper(), rest.strip()


def base_images(text: str, arguments: Mapping[str, str]) -> list[str]:
    """The images of the FROM lines, stages and scratch left out, ARGs before the first FROM filled in."""
    values: dict[str, str] = {}
    stages: set[str] = set()
    images: list[str] = []
    for word, rest in _instructions(text):
        if word == "ARG" and not images:
            name, _, default = rest.partition("=")
            values[name] = arguments.get(name, default.strip("\"'"))
        if word == "FROM":
            words = [w for w in rest.split() if not w.startswith("--")]
            image = re.sub(r"\$\{?(\w+)\}?", lambda match: values.get(match[1], match[0]), words[0])
            if image not in stages and image != "scratch" and image not in images:
                images.append(image)
            if len(words) == 3:
                stages.add(words[2])
    return images


def sources(text: str) -> list[Source]:
    """The patterns of COPY, ADD and bind mounts, each with its additional context (or stage) if it names one."""
    found: list[Source] = []
    for word, rest in _instructions(text):
        if word in {"COPY", "ADD"}:
            words = rest.split()
            origin = next((w.removeprefix("--from=") for w in words if w.startswith("--from=")), None)
            patterns = [w for w in words if not w.startswith("--")][:-1]
            found += [Source(pattern, origin) for pattern in patterns if "://" not in pattern]
        if word == "RUN":
            for mount in re.findall(r"--mount=(\S+)", rest):
                options = dict(option.partition("=")[::2] for option in mount.split(","))
                if options.get("type", "bind") == "bind":
                    pattern = options.get("source") or options.get("src") or "."
                    found.append(Source(pattern, options.get("from")))
    return found


def files_of(context: Path, pattern: str) -> list[Path]:
    """The files under context that a pattern of COPY takes in, without version control and Python's caches."""
    relative = pattern.strip("/").removeprefix("./")
    matches = [context] if relative in {"", "."} else sorted(context.glob(relative))
    files = [f for match in matches for f in (match.rglob("*") if match.is_dir() else [match])]
    kept = (f for f in files if f.is_file() and not _CACHES.intersection(f.relative_to(context).parts))
    return sorted(f for f in kept if f.suffix != ".pyc")
