from pathlib import Path

import pytest

from e2e.cluster.images import ImageBuild, full_name


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("python:3.11-slim", "docker.io/library/python:3.11-slim"),
        ("specfleet/operator:dev", "docker.io/specfleet/operator:dev"),
        ("localhost/vllm-sim:dev", "localhost/vllm-sim:dev"),
        ("example.org:5000/a/b", "example.org:5000/a/b:latest"),
    ],
)
def test_an_image_name_is_completed_as_kubernetes_completes_it(tag: str, name: str) -> None:
    assert full_name(tag) == name


def build_in(context: Path, **arguments: str) -> ImageBuild:
    return ImageBuild("t", context, context / "Dockerfile", arguments=arguments)


def test_the_key_follows_what_the_dockerfile_takes_in_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python:3.11\nCOPY app /app\n")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "main.py").write_text("1")
    first = build_in(tmp_path).key()
    (tmp_path / "README").write_text("not taken in")
    assert build_in(tmp_path).key() == first
    assert build_in(tmp_path, VERSION="2").key() != first
    (tmp_path / "app" / "main.py").write_text("2")
    changed = build_in(tmp_path).key()
    assert changed != first
    (tmp_path / "app" / "main.py").chmod(0o755)
    assert build_in(tmp_path).key() != changed


def test_the_key_follows_an_additional_context(tmp_path: Path) -> None:
    context, wheels = tmp_path / "context", tmp_path / "wheels"
    context.mkdir()
    wheels.mkdir()
    (context / "Dockerfile").write_text("FROM python:3.11\nCOPY --from=wheels / /wheels\n")
    build = ImageBuild("t", context, context / "Dockerfile", contexts={"wheels": wheels})
    first = build.key()
    (wheels / "a.whl").write_text("a")
    assert build.key() != first
