"""The engine and its models, made once."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from e2e.engine.set_up import environment, folder, python

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def models() -> Path:
    """Folder with the tiny models. Fails, with the remedy, where the engine is not installed."""
    if not (folder() / ".installed").exists():
        pytest.fail(f"no engine in {folder()}: run `make engine` first (about 5 GB)")
    maker = HERE / "make_models.py"
    place = folder() / f"models-{hashlib.sha256(maker.read_bytes()).hexdigest()[:8]}"
    if not (place / ".made").exists():
        subprocess.run([python(), maker, place], check=True, env=environment())
        (place / ".made").touch()
    return place
