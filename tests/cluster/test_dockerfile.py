from pathlib import Path

import pytest

from e2e.cluster.dockerfile import Source, base_images, files_of, sources

STAGES = """\
# syntax comment
ARG BASE=python:3.11-slim
FROM ${BASE} AS build
COPY --from=wheels / /wheels
RUN --mount=type=bind,source=uv.lock,target=/uv.lock \\
    --mount=type=cache,target=/root/.cache \\
    pip install x
FROM --platform=linux/amd64 $BASE
COPY --from=build /deps /deps
COPY operator/specfleet pyproject.toml \\
     /app/
ADD https://example.org/file /file
FROM scratch
FROM build
"""


def test_every_image_that_is_not_a_stage_is_needed_once_with_arguments_filled_in() -> None:
    assert base_images(STAGES, {}) == ["python:3.11-slim"]
    assert base_images(STAGES, {"BASE": "debian:bookworm"}) == ["debian:bookworm"]


def test_sources_are_what_copy_add_and_bind_mounts_take_in() -> None:
    assert sources(STAGES) == [
        Source("/", "wheels"),
        Source("uv.lock"),
        Source("/deps", "build"),
        Source("operator/specfleet"),
        Source("pyproject.toml"),
    ]


@pytest.fixture
def context(tmp_path: Path) -> Path:
    for name in ("a.py", "pkg/b.py", "pkg/__pycache__/b.pyc", ".git/HEAD", ".venv/x.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (".", ["a.py", "pkg/b.py"]),
        ("./", ["a.py", "pkg/b.py"]),
        ("pkg", ["pkg/b.py"]),
        ("/pkg/", ["pkg/b.py"]),
        ("*.py", ["a.py"]),
        ("absent", []),
    ],
)
def test_a_pattern_takes_in_files_but_no_caches(context: Path, pattern: str, names: list[str]) -> None:
    assert [str(p.relative_to(context)) for p in files_of(context, pattern)] == names
