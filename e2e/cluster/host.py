"""What the cluster's programs write on this machine outside the run folder: remembered before, put back after."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from e2e.cluster.process import run
from e2e.cluster.settings import run_dir

# The kubelet overwrites these.
_SYSCTLS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
_NAMESPACES = Path("/run/netns")
_CNI_RESULTS = Path("/var/lib/cni/results")
_POD_LOG_LINKS = Path("/var/log/containers")
# Paths that the kubelet, containerd's shims and CNI have compiled in; a folder only goes if this run had it made.
_FOLDERS = (
    _NAMESPACES,
    _CNI_RESULTS,
    Path("/var/lib/cni"),
    _POD_LOG_LINKS,
    Path("/run/containerd/s"),
    Path("/run/containerd"),
    Path("/var/lib/kubelet/device-plugins"),
    Path("/var/lib/kubelet"),
)


def _record() -> Path:
    return run_dir() / "host.json"


def remember() -> None:
    """Record how the machine is, once per run and before anything is started."""
    if not _record().exists():
        settings = {name: Path("/proc/sys", name).read_text().strip() for name in _SYSCTLS}
        absent = [str(folder) for folder in _FOLDERS if not folder.exists()]
        _record().write_text(json.dumps({"settings": settings, "absent": absent}))


def put_back(containers: Iterable[str]) -> None:
    """Restore the kernel settings and remove what the run left outside its folder.

    `containers` are the ids of the run's pod sandboxes, by which CNI's results are told from somebody else's.
    """
    for identity in containers:
        for result in _CNI_RESULTS.glob(f"*-{identity}-*"):
            result.unlink(missing_ok=True)
    _remove_log_links()
    if not _record().exists():
        return
    record = json.loads(_record().read_text())
    for name, value in record["settings"].items():
        path = Path("/proc/sys", name)
        if path.read_text().strip() != value:
            path.write_text(value)
    for folder in _FOLDERS:
        if str(folder) in record["absent"] and folder.is_dir():
            _remove_folder(folder)


def mounts_below(folder: Path) -> list[Path]:
    """Mount points at or below a folder, the innermost first; bind mounts included, which Path.is_mount misses."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = (Path(line.split()[1].replace("\\040", " ")) for line in lines)
    return sorted((point for point in points if point.is_relative_to(folder)), reverse=True)


def _remove_folder(folder: Path) -> None:
    if folder == _NAMESPACES and any(folder.iterdir()):
        return
    if folder in mounts_below(folder):
        run(["umount", folder], check=False)
    if folder.is_relative_to("/run/containerd") or folder.is_relative_to("/var/lib/kubelet"):
        # Only sockets whose programs have ended.
        shutil.rmtree(folder, ignore_errors=True)
    elif not any(folder.iterdir()):
        with suppress(OSError):
            folder.rmdir()


def _remove_log_links() -> None:
    """The kubelet links its pods' logs here whatever its own folder is."""
    if _POD_LOG_LINKS.is_dir():
        for link in _POD_LOG_LINKS.iterdir():
            if link.is_symlink() and link.readlink().is_relative_to(run_dir()):
                link.unlink()
