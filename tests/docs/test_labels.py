"""docs/reference/labels.md names every label and annotation that there is, and no other."""

import re
from pathlib import Path

from specfleet.api import labels
from specfleet.api.base import GROUP
from specfleet.resources import benchmark_job, route, workloads

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "labels.md"


def test_every_label_and_annotation_is_on_the_page() -> None:
    known = {
        value.removeprefix(f"{GROUP}/")
        for module in (labels, benchmark_job, route, workloads)
        for value in vars(module).values()
        if isinstance(value, str) and value.startswith(f"{GROUP}/")
    }
    named = set(re.findall(r"^\| [^|]+ \| `([a-z-]+)` \|", PAGE.read_text(), re.M))
    assert named == known - {"v1alpha1"}
    roles = {value for name, value in vars(labels).items() if name.startswith("ROLE_")}
    assert [role for role in roles if role not in PAGE.read_text()] == []
