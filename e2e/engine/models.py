"""The models of the engine tests, made once per content of what makes them and kept beside the engine."""

import hashlib
import subprocess
from pathlib import Path

from e2e.engine.set_up import environment, folder, python

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


class EngineMissingError(Exception):
    """The engine is not installed; says how to do it."""


def tiny_models() -> Path:
    """Folder with models that start fast and prove nothing about speed. Raises EngineMissingError."""
    return _made("models", "make_models")


def deep_models() -> Path:
    """Folder with models with which drafting wins (800 MB). Raises EngineMissingError."""
    return _made("deep-models", "make_deep_models", "make_models")


def _made(name: str, maker: str, *sources: str) -> Path:
    if not (folder() / ".installed").exists():
        raise EngineMissingError(f"no engine in {folder()}: run `make engine` first (about 5 GB)")
    content = b"".join((HERE / f"{one}.py").read_bytes() for one in (maker, *sources))
    place = folder() / f"{name}-{hashlib.sha256(content).hexdigest()[:8]}"
    if not (place / ".made").exists():
        command: list[str | Path] = [python(), "-m", f"e2e.engine.{maker}", place]
        subprocess.run(command, check=True, cwd=ROOT, env={**environment(), "PYTHONPATH": str(ROOT)})
        (place / ".made").touch()
    return place
