"""What the cluster is made of: each Go part, its flags and the files it gives, and its content key."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.settings import KUBERNETES_VERSION, PARTS

_COMPONENT_VERSION = "k8s.io/component-base/version"
_PROMETHEUS_VERSION = "github.com/prometheus/common/version.Version"
_CONTAINERD = "github.com/containerd/containerd/v2"
_CNI = "github.com/containernetworking/plugins/plugins"
_OPERATOR = "github.com/prometheus-operator/prometheus-operator"


@dataclass(frozen=True)
class GoPart:
    """Go programs built from one go.mod; `packages` of one module give binaries named after the packages."""

    name: str
    packages: tuple[str, ...]
    tags: str = ""
    ldflags: str = ""
    cgo: bool = False
    # One program under several names, as the program asks for its own name.
    links: tuple[str, ...] = ()
    # Files taken out of the part's modules: (module, path inside it, name in the part's folder).
    files: tuple[tuple[str, str, str], ...] = ()
    # Files that the module's own release build generates and the module lacks: built in a copy of that module.
    generated: tuple[tuple[str, str], ...] = ()

    @property
    def module(self) -> str:
        """The module that `generated` belongs to."""
        return self.packages[0].split("/cmd/")[0]

    @property
    def source(self) -> Path:
        """The folder with the part's go.mod."""
        return PARTS / self.name

    def arguments(self) -> list[str]:
        """The arguments of `go build` that decide what comes out, without -o."""
        return ["-trimpath", "-tags", self.tags, "-ldflags", f"-s -w {self.ldflags}".strip(), *self.packages]

    def key(self) -> str:
        """Content key of the part's sources and flags."""
        flags = [
            *self.arguments(),
            f"cgo={self.cgo}",
            *self.links,
            *map(repr, self.files),
            *map(repr, self.generated),
            platform.machine(),
        ]
        return content_key(sorted(p for p in self.source.iterdir() if p.is_file()), flags)


def content_key(files: Iterable[Path], words: Iterable[str]) -> str:
    """Return 16 hex digits that change when a file's name or content, or a word, changes."""
    digest = hashlib.sha256()
    for file in files:
        data = file.read_bytes()
        digest.update(f"file {file.name} {len(data)}\n".encode())
        digest.update(data)
    for word in words:
        digest.update(f"word {len(word)} {word}\n".encode())
    return digest.hexdigest()[:16]


ETCD = GoPart("etcd", (".",))
KUBE = GoPart(
    "kube",
    (".",),
    ldflags=(
        f"-X {_COMPONENT_VERSION}.gitVersion=v{KUBERNETES_VERSION} "
        f"-X {_COMPONENT_VERSION}.gitMajor=1 -X {_COMPONENT_VERSION}.gitMinor=36"
    ),
    links=("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"),
)
CONTAINERD = GoPart(
    "containerd",
    (
        f"{_CONTAINERD}/cmd/containerd",
        f"{_CONTAINERD}/cmd/containerd-shim-runc-v2",
        f"{_CONTAINERD}/cmd/ctr",
        f"{_CNI}/main/bridge",
        f"{_CNI}/main/loopback",
        f"{_CNI}/ipam/host-local",
        f"{_CNI}/meta/portmap",
    ),
    tags="no_btrfs no_zfs no_devmapper",
    ldflags=f"-X {_CONTAINERD}/version.Version=v2.3.7",
)
RUNC = GoPart("runc", ("github.com/opencontainers/runc",), tags="seccomp", ldflags="-X main.version=1.5.3", cgo=True)
COREDNS = GoPart("coredns", (".",))
CONTOUR = GoPart(
    "contour",
    ("github.com/projectcontour/contour/cmd/contour",),
    files=(
        ("sigs.k8s.io/gateway-api", "config/crd/standard", "crds/gateway-api"),
        ("github.com/projectcontour/contour", "examples/contour/01-crds.yaml", "crds/contour.yaml"),
    ),
)
PROMETHEUS = GoPart(
    "prometheus",
    ("github.com/prometheus/prometheus/cmd/prometheus",),
    tags="remove_all_sd enable_kubernetes_sd",
    ldflags=f"-X {_PROMETHEUS_VERSION}=3.16.0",
)
PROMETHEUS_OPERATOR = GoPart(
    "prometheus-operator",
    (f"{_OPERATOR}/cmd/operator", f"{_OPERATOR}/cmd/prometheus-config-reloader"),
    ldflags=f"-X {_PROMETHEUS_VERSION}=0.85.0",
    files=((_OPERATOR, "example/prometheus-operator-crd", "crds"),),
)
ALERTMANAGER = GoPart(
    "alertmanager",
    ("github.com/prometheus/alertmanager/cmd/alertmanager",),
    ldflags=f"-X {_PROMETHEUS_VERSION}=0.35.0",
    generated=(("ui/app/dist/index.html", "The API is at /api/v2; the web UI is not part of the Go module."),),
)

CONTROL_PLANE_PARTS = (ETCD, KUBE)
GO_PARTS = (
    KUBE,
    ETCD,
    CONTAINERD,
    RUNC,
    COREDNS,
    CONTOUR,
    PROMETHEUS,
    PROMETHEUS_OPERATOR,
    ALERTMANAGER,
)
