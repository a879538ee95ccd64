"""The engine and its models, made once."""

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
    place = folder() / "models"
    if not (place / ".made").exists():
        subprocess.run([python(), HERE / "make_models.py", place], check=True, env=environment())
        (place / ".made").touch()
    return place
