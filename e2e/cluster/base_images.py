"""The images that no Dockerfile makes: the pause image, the Python base and the monitoring programs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from e2e.cluster.build import binary, say
from e2e.cluster.oci import write_archive, write_layer
from e2e.cluster.parts import ALERTMANAGER, PROMETHEUS, PROMETHEUS_OPERATOR, content_key
from e2e.cluster.process import run
from e2e.cluster.settings import PARTS, cache_dir

PAUSE = "localhost/pause:1"
PYTHON = "localhost/python:3.11-bookworm"
PROMETHEUS_IMAGE = "localhost/prometheus:v3.16.0"
RELOADER_IMAGE = "localhost/prometheus-config-reloader:v0.85.0"
ALERTMANAGER_IMAGE = "localhost/alertmanager:v0.35.0"

_NOBODY = "65534"
_PYTHON_PACKAGES = "python3,python3-pip,python3-venv,ca-certificates"
_UNREAD = ("man", "doc", "locale", "info")
# What differs between Debian's python3 and docker.io/library/python, as far as a Dockerfile can tell.
_LIKE_DOCKERS = (
    'ln -s /usr/bin/python3 "$1"/usr/local/bin/python; ln -s /usr/bin/python3 "$1"/usr/local/bin/python3; '
    'rm -f "$1"/usr/lib/python3.11/EXTERNALLY-MANAGED; '
    'rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*'
)


def _archive(name: str, key: str) -> Path:
    return cache_dir() / "parts" / f"{name}-image-{key}.oci.tar"


def _once(name: str, key: str, make: Callable[[Path, Path], None]) -> Path:
    """Make an archive unless it is there; `make` gets a work folder and the path to write to."""
    target = _archive(name, key)
    if target.exists():
        return target
    say(f"making the {name} image")
    work = target.with_name(f".{name}-image.{os.getpid()}")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    make(work, work / "image.oci.tar")
    for stale in target.parent.glob(f"{name}-image-" + "?" * 16 + ".oci.tar"):
        stale.unlink()
    (work / "image.oci.tar").rename(target)
    shutil.rmtree(work)
    return target


def pause_image() -> Path:
    """The archive of the image that holds a pod's namespaces."""
    source = PARTS / "pause" / "pause.c"

    def make(work: Path, target: Path) -> None:
        run(["gcc", "-Os", "-static", "-s", "-o", work / "pause", source])
        write_layer(work / "layer.tar", {"/pause": work / "pause"})
        write_archive(PAUSE, work / "layer.tar", target, entrypoint=["/pause"])

    return _once("pause", content_key([source], [PAUSE]), make)


def python_image() -> Path:
    """The archive of a Debian bookworm with its Python, which stands in for docker.io/library/python:3.11."""

    def make(work: Path, target: Path) -> None:
        log = cache_dir() / "log" / "python-image.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _UNREAD]
        run(
            [
                "mmdebstrap",
                "--variant=minbase",
                f"--include={_PYTHON_PACKAGES}",
                *excluded,
                f"--customize-hook={_LIKE_DOCKERS}",
                "bookworm",
                work / "layer.tar",
            ],
            log=log,
        )
        write_archive(PYTHON, work / "layer.tar", target, command=["python3"])

    return _once("python", content_key([], [_PYTHON_PACKAGES, _LIKE_DOCKERS, *_UNREAD]), make)


def monitoring_images() -> list[Path]:
    """The archives of Prometheus, its configuration reloader and Alertmanager, around our own binaries."""
    programs = (
        (PROMETHEUS_IMAGE, binary(PROMETHEUS), ("/prometheus", "/etc/prometheus")),
        (RELOADER_IMAGE, binary(PROMETHEUS_OPERATOR, "prometheus-config-reloader"), ()),
        (ALERTMANAGER_IMAGE, binary(ALERTMANAGER), ("/alertmanager", "/etc/alertmanager")),
    )
    return [_program_image(image, program, folders) for image, program, folders in programs]


def _program_image(image: str, program: Path, folders: tuple[str, ...]) -> Path:
    def make(work: Path, target: Path) -> None:
        inside = f"/bin/{program.name}"
        write_layer(work / "layer.tar", {inside: program}, ("/tmp", *folders))
        write_archive(image, work / "layer.tar", target, entrypoint=[inside], user=_NOBODY)

    # The part's folder carries the key of its sources.
    return _once(program.name, content_key([], [image, program.parent.name, *folders]), make)


def node_images() -> list[Path]:
    """The archives that every node needs before its first pod, made when missing."""
    return [pause_image(), *monitoring_images()]
