"""The engine's models, made once."""

from pathlib import Path

import pytest

from e2e.engine.models import EngineMissingError, tiny_models


@pytest.fixture(scope="session")
def models() -> Path:
    """Folder with the tiny models. Fails, with the remedy, where the engine is not installed."""
    try:
        return tiny_models()
    except EngineMissingError as error:
        pytest.fail(str(error))
