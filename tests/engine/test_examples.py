"""The example manifests for real models pass lint without any finding."""

from pathlib import Path

import pytest
import yaml
from specfleet.engine.admission import read_spec
from specfleet.engine.rules import check

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "models").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_for_a_real_model_has_no_finding(path: Path) -> None:
    body = yaml.safe_load(path.read_text(encoding="utf-8"))
    spec, findings = read_spec(body["spec"])
    assert spec is not None, findings
    assert [one.sentence() for one in (*findings, *check(spec))] == []


def test_the_gpu_page_names_every_example() -> None:
    page = (Path(__file__).parents[2] / "docs" / "gpus.md").read_text(encoding="utf-8")
    assert [path.stem for path in EXAMPLES if f"({path.name})" not in page.replace("../examples/models/", "")] == []
