"""The real API server of the integration tests."""

from tests.integration.conftest import control_plane

__all__ = ["control_plane"]
