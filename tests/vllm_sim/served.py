"""Fixtures: engines that have served 40 requests like the recorded ones."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.vllm_sim.launch import DRAFT_CONFIG, REAL_ENGINE, Page, RunningEngine, parse_page, running


@pytest.fixture
def simulated_only() -> None:
    if REAL_ENGINE:
        pytest.skip("about the simulation itself")


@dataclass
class Served:
    """An engine, its page when it was fresh and its page after 40 requests like the recorded ones."""

    engine: RunningEngine
    before: Page
    after: Page
    completion_tokens: int


def _serve_forty(engine: RunningEngine) -> Served:
    engine.get("/v1/models")
    before = parse_page(engine.metrics())

    def ask(number: int) -> int:
        prompt = f"request {number}: the quick brown fox jumps over the lazy dog " * (1 + number % 3)
        answer = engine.complete(prompt, max_tokens=64)
        assert answer.status == 200
        return int(answer.json()["usage"]["completion_tokens"])

    with ThreadPoolExecutor(8) as pool:
        tokens = sum(pool.map(ask, range(40)))
    return Served(engine, before, parse_page(engine.metrics()), tokens)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(tmp_path_factory.mktemp("plain")) as engine:
        yield _serve_forty(engine)


@pytest.fixture(scope="session")
def speculative(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    # Drafts of one profile, the recorded engine's acceptance: about 25 %.
    profile = {"proposers": {"draft_model": {"acceptance": [0.45, 0.46, 0.38]}}}
    with running(tmp_path_factory.mktemp("speculative"), speculative=DRAFT_CONFIG, profile=profile) as engine:
        yield _serve_forty(engine)


@pytest.fixture(scope="session")
def ngram(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    config = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
    with running(tmp_path_factory.mktemp("ngram"), speculative=config) as engine:
        yield _serve_forty(engine)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
