import dataclasses
from pathlib import Path

import pytest

from e2e.cluster.parts import GO_PARTS, GoPart, content_key


def test_the_key_follows_names_contents_and_words(tmp_path: Path) -> None:
    file = tmp_path / "go.mod"
    file.write_text("module a")
    first = content_key([file], ["-s"])
    assert content_key([file], ["-s"]) == first
    assert content_key([file], ["-w"]) != first
    assert content_key([file], ["-", "s"]) != first
    assert content_key([], ["-s"]) != first
    file.write_text("module b")
    assert content_key([file], ["-s"]) != first


@pytest.mark.parametrize("part", GO_PARTS, ids=lambda part: part.name)
def test_every_part_pins_its_modules_and_its_key_follows_its_flags(part: GoPart) -> None:
    assert (part.source / "go.mod").is_file()
    assert (part.source / "go.sum").is_file()
    keys = {
        part.key(),
        dataclasses.replace(part, tags="other").key(),
        dataclasses.replace(part, ldflags="-X a=b").key(),
        dataclasses.replace(part, cgo=not part.cgo).key(),
    }
    assert len(keys) == 4
