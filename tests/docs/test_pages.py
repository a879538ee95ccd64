"""The pages say what is so: links lead somewhere, and words of the API exist."""

import re
from pathlib import Path

import pytest
from specfleet.api.conditions import ConditionType
from specfleet.api.crd import crds
from specfleet.api.status import Phase
from specfleet.api.structural import walk
from specfleet.decide.commands import VERBS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "charts" / "specfleet" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)(?:#[^)]*)?\)", _prose(page))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_named_exists(page: Path) -> None:
    targets = set(re.findall(r"`make ([a-z0-9-]+)", page.read_text()))
    known = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert targets <= known


def test_the_concepts_name_every_phase_condition_and_command() -> None:
    text = (ROOT / "docs" / "concepts.md").read_text()
    words = [*(phase.value for phase in Phase), *(one.value for one in ConditionType), *VERBS]
    assert [word for word in words if word not in text] == []


def test_every_spec_field_that_a_page_names_is_in_the_crd() -> None:
    schemas = [crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for crd in crds().values()]
    known = {path.replace("[]", "").removeprefix(".") for schema in schemas for path, _ in walk(schema)}
    missing = {
        f"{page.name}: {field}"
        for page in PAGES
        for field in re.findall(r"`((?:spec|status)\.[A-Za-z.]+[A-Za-z])", page.read_text())
        if field not in known
    }
    assert missing == set()


def _prose(page: Path) -> str:
    """Without code, where brackets and parentheses are no links."""
    return re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.S)
