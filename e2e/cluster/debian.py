"""Debian packages that the cluster needs and doesn't build."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster.build import say
from e2e.cluster.settings import ClusterError

# Every package with a file that tells that it is there.
PACKAGES = {
    "iproute2": "/sbin/ip",
    "iptables": "/usr/sbin/iptables",
    "nftables": "/usr/sbin/nft",
    "procps": "/sbin/sysctl",
    "libseccomp-dev": "/usr/include/seccomp.h",
    "pkg-config": "/usr/bin/pkg-config",
    "openssl": "/usr/bin/openssl",
    "mmdebstrap": "/usr/bin/mmdebstrap",
    "buildah": "/usr/bin/buildah",
}


def missing_packages(names: Sequence[str]) -> list[str]:
    """Those of the packages whose file isn't there."""
    return [name for name in names if not Path(PACKAGES[name]).exists()]


def install_packages(names: Sequence[str] = tuple(PACKAGES)) -> None:
    """Install what is missing with apt-get, and say what.

    Raises ClusterError when something is missing and can't be installed here.
    """
    missing = missing_packages(names)
    if not missing:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise ClusterError(f"install these packages first (apt-get and root would do it here): {' '.join(missing)}")
    say(f"installing Debian packages: {' '.join(missing)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    for command in (install, ["apt-get", "update"], install):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if command is install and done.returncode == 0:
            return
    raise ClusterError(f"`{' '.join(install)}` failed:\n{done.stderr[-2000:]}")
