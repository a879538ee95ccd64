"""The chart rendered offline by the Helm SDK, without a helm binary."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python import Chart

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "specfleet"

Object = dict[str, Any]
Render = Callable[..., list[Object]]


@pytest.fixture
def render() -> Render:
    def rendered(
        values: Object | None = None, *, name: str = "specfleet", namespace: str = "operators"
    ) -> list[Object]:
        chosen = {"image": {"repository": "registry.example.com/specfleet"}, **(values or {})}
        with Chart.load(CHART) as chart:
            texts = chart.render(values=chosen, name=name, namespace=namespace)
        manifests = (text for path, text in sorted(texts.items()) if path.endswith(".yaml"))
        return [document for text in manifests for document in yaml.safe_load_all(text) if document]

    return rendered


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [one for one in objects if one["kind"] == kind]
