"""Builds images from Dockerfiles with buildah, without a registry, and hands them to the running nodes."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from e2e.cluster.base_images import PYTHON, python_image
from e2e.cluster.build import say
from e2e.cluster.debian import install_packages
from e2e.cluster.dockerfile import base_images, files_of, sources
from e2e.cluster.node import import_image
from e2e.cluster.process import only_one, run
from e2e.cluster.settings import MAX_NODES, ClusterError, Node, cache_dir

# FROM lines that the offline Python base stands in for.
_PYTHON_BASES = re.compile(r"docker\.io/library/(python:3(\.11)?(-slim)?(-bookworm)?|debian:(bookworm|12)(-slim)?)$")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True)
class ImageBuild:
    """One image to build: its tag, its context and what else decides what comes out."""

    tag: str
    context: Path
    file: Path
    contexts: Mapping[str, Path] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)

    def key(self) -> str:
        """Content key: the Dockerfile, its arguments and every file that it takes in."""
        text = self.file.read_text()
        digest = hashlib.sha256(f"{text}\0{sorted(self.arguments.items())}\0{python_image().name}".encode())
        for source in sources(text):
            context = self.context if source.context is None else self.contexts.get(source.context)
            for path in files_of(context, source.pattern) if context is not None else ():
                data = path.read_bytes()
                mode = path.stat().st_mode & 0o111
                digest.update(f"{path.relative_to(context)} {mode} {len(data)}\n".encode())  # type: ignore[arg-type]
                digest.update(data)
        return digest.hexdigest()[:16]


def full_name(tag: str) -> str:
    """An image name as Kubernetes reads it: docker.io unless a registry is named, :latest unless a tag is."""
    first, slash, _ = tag.partition("/")
    if not slash:
        tag = f"docker.io/library/{tag}"
    elif "." not in first and ":" not in first and first != "localhost":
        tag = f"docker.io/{tag}"
    return tag if ":" in tag.rpartition("/")[2] else f"{tag}:latest"


def images_dir() -> Path:
    """The folder of the archives that `image` made; a node that starts imports them all."""
    return cache_dir() / "images"


def build_image(build: ImageBuild) -> Path:
    """Build an image unless its content is cached, import it into every running node and return its archive.

    Raises ClusterError with what buildah said, or when a FROM line has no offline base.
    """
    if not build.file.is_file():
        raise ClusterError(f"there is no Dockerfile at {build.file}: give its path with --file")
    with only_one(cache_dir() / "images.lock", "waiting for another image to be built"):
        archive = _archive_of(build)
        for node in running_nodes():
            import_once(node, archive)
    return archive


def _archive_of(build: ImageBuild) -> Path:
    name = full_name(build.tag)
    stem = re.sub(r"[^A-Za-z0-9.-]", "_", name)
    archive = images_dir() / f"{stem}-{build.key()}.oci.tar"
    if archive.exists():
        say(f"{name}: unchanged")
        return archive
    say(f"{name}: building from {build.file}")
    _buildah_bud(build, name, archive)
    for stale in images_dir().glob(f"{stem}-" + "?" * 16 + ".oci.tar"):
        if stale != archive:
            stale.unlink()
    return archive


def running_nodes() -> list[Node]:
    """The nodes whose containerd has a socket."""
    nodes = (Node(number) for number in range(1, MAX_NODES + 1))
    return [node for node in nodes if node.containerd_socket.exists()]


def import_once(node: Node, archive: Path) -> None:
    """Import an archive into a node unless it is the one that the node had last under this tag."""
    # One record per tag: an archive that was there before another of its tag has to be imported again.
    last = node.directory / "imported" / archive.name.rpartition("-")[0]
    if not last.exists() or last.read_text() != archive.name:
        import_image(node, archive, cache_dir() / "log" / "import.log")
        last.parent.mkdir(exist_ok=True)
        last.write_text(archive.name)
        say(f"{archive.name}: on {node.name}")


def _buildah(*arguments: str | Path, check: bool = True) -> str:
    folder = cache_dir() / "buildah"
    folder.mkdir(parents=True, exist_ok=True)
    store: list[str | Path] = ["--root", folder / "store", "--runroot", folder / "run", "--storage-driver", "overlay"]
    # Else it makes /etc/cni/net.d.
    config = folder / "containers.conf"
    config.write_text(f'[network]\nnetwork_config_dir = "{folder / "network"}"\n')
    log = cache_dir() / "log" / "buildah.log"
    environment = {"CONTAINERS_CONF": str(config)}
    return run(["buildah", *store, *arguments], check=check, log=log, environment=environment).stdout


def _policy() -> Sequence[str | Path]:
    policy = cache_dir() / "buildah" / "policy.json"
    policy.parent.mkdir(parents=True, exist_ok=True)
    policy.write_text('{"default":[{"type":"insecureAcceptAnything"}]}')
    return ["--signature-policy", policy]


def _provide_bases(build: ImageBuild) -> None:
    """Give the names of the FROM lines to local images."""
    for image in base_images(build.file.read_text(), build.arguments):
        name = full_name(image)
        if _PYTHON_BASES.match(name):
            loaded = _archive_loaded(PYTHON, python_image())
            _buildah("tag", loaded, name)
        elif not _buildah("images", "-q", name, check=False).strip():
            raise ClusterError(
                f"{build.file}: FROM {image} has no offline base; there are python:3.11[-slim][-bookworm] and "
                "debian:bookworm[-slim], and images built before with `python3 -m e2e.cluster image`"
            )


def _archive_loaded(name: str, archive: Path) -> str:
    marker = cache_dir() / "buildah" / f"loaded-{archive.name}"
    if not marker.exists() or not _buildah("images", "-q", name, check=False).strip():
        identity = _buildah("pull", *_policy(), f"oci-archive:{archive}").split()[-1]
        _buildah("tag", identity, name)
        marker.touch()
    return name


def _buildah_bud(build: ImageBuild, name: str, archive: Path) -> None:
    install_packages(["buildah", "mmdebstrap"])
    images_dir().mkdir(parents=True, exist_ok=True)
    (cache_dir() / "log").mkdir(exist_ok=True)
    _provide_bases(build)
    options: list[str | Path] = ["--isolation", "chroot", "--pull-never", "-t", name, "-f", build.file]
    # buildah 1.28 takes the cached layer of an ENV line, whatever the arguments are that it is made of.
    options.append(f"--layers={'false' if build.arguments else 'true'}")
    for context, path in build.contexts.items():
        options += ["--build-context", f"{context}={path}"]
    for argument, value in build.arguments.items():
        options += ["--build-arg", f"{argument}={value}"]
    if _CERTIFICATES.exists():
        # So that pip in a RUN line trusts what this machine trusts.
        options += ["--volume", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"]
    _buildah("bud", *_policy(), *options, build.context)
    work = archive.with_suffix(".new")
    work.unlink(missing_ok=True)
    _buildah("push", *_policy(), name, f"oci-archive:{work}:{name}")
    shutil.move(work, archive)
