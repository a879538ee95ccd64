"""When a run is repeated, and with which prompts."""

from pathlib import Path
from typing import Any

import pytest
from specfleet.benchmark.driver import runs
from specfleet.benchmark.driver.bench import Bench
from specfleet.benchmark.driver.harness import VllmBenchServe
from specfleet.benchmark.driver.session import Session


@pytest.mark.parametrize("reason", ["BenchFailed: ended with 1", "TimedOut: the run took more than 190 s"])
def test_a_run_that_a_forked_client_spoilt_is_repeated_once_with_prompts_that_no_cache_knows(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def spoilt(_session: Session, _run: dict[str, Any], attempt: int) -> dict[str, Any]:
        attempts.append(attempt)
        return {"invalid_reason": reason}

    forked = iter([True, False])
    bench = Bench(VllmBenchServe())
    monkeypatch.setattr(bench, "give_up_prepared", lambda: next(forked))
    monkeypatch.setattr(runs, "attempt_run", spoilt)
    session = Session(plan={"run_repeats": 2}, source=[], bench=bench, work=Path())
    assert runs.measure(session, {})["invalid_reason"] == reason
    assert attempts == [0, 3]
    attempts.clear()
    runs.measure(session, {})
    assert attempts == [0]
