"""When a run is repeated, with which prompts, when it is given up, and what is said of one that never began."""

import email.message
import http.client
import itertools
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from specfleet.benchmark.driver import limits, pair, returning, runs
from specfleet.benchmark.driver.bench import Bench
from specfleet.benchmark.driver.counters import Counters
from specfleet.benchmark.driver.failures import CannotMeasureError, StoppedError
from specfleet.benchmark.driver.harness import VllmBenchServe
from specfleet.benchmark.driver.message import encode_message
from specfleet.benchmark.driver.session import Session
from specfleet.benchmark.result import DriverReport, parse_report


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


NEW = Counters(started=2.0, values={}, per_position={}, http={})
OLD = Counters(started=1.0, values={}, per_position={}, http={})


def session_of(purpose: str, count: int, **plan: Any) -> Session:
    cell = {"arm": "baseline", "slice": "chat", "requests": 8, "requests_per_second": None, "concurrency": 1}
    planned = [{**cell, "tier": f"t{number}", "order": number} for number in range(count)]
    arms = {"baseline": {"url": "http://10.0.0.1:8000", "model": "m", "pod": "plain-0"}}
    whole = {"purpose": purpose, "pair": 1, "runs": planned, "arms": arms, "deadline_seconds": 100, **plan}
    return Session(plan=whole, source=[], bench=Bench(VllmBenchServe()), work=Path())


@pytest.fixture
def without_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair, "scrape", lambda url: NEW)
    monkeypatch.setattr(pair, "characters_per_token", lambda *_: 4.0)
    monkeypatch.setattr(pair, "probe_requests", lambda session: None)
    monkeypatch.setattr(pair, "probe_agreement", lambda session: None)


def measured_until(monkeypatch: pytest.MonkeyPatch, last: int, then: Callable[[], None]) -> None:
    """Runs are valid; after `last` of them something happens."""
    done: list[int] = []

    def measure(_session: Session, run: dict[str, Any]) -> dict[str, Any]:
        done.append(run["order"])
        if len(done) == last:
            then()
        return {**runs.not_measured(run, ""), "invalid_reason": "ClientLag: as good as any"}

    monkeypatch.setattr(pair, "measure", measure)


def reasons(session: Session) -> list[str]:
    return [str(run["invalid_reason"]).split(":")[0] for run in session.runs]


def test_a_cell_that_was_not_reached_is_in_the_message_and_so_no_pair_is_whole_without_it(
    monkeypatch: pytest.MonkeyPatch, without_probes: None
) -> None:
    session = session_of("Qualify", 4)
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    measured_until(monkeypatch, 2, lambda: now.__setitem__(0, 101.0))
    pair.run_pair(session)
    assert reasons(session) == ["ClientLag", "ClientLag", "NotMeasured", "NotMeasured"]
    assert [run["tier"] for run in session.runs] == ["t0", "t1", "t2", "t3"]
    report = parse_report(encode_message(session))
    assert isinstance(report, DriverReport)
    assert [run.valid for run in report.runs] == [False] * 4
    assert "time budget" in str(report.error)


@pytest.mark.parametrize("error", [StoppedError(), RuntimeError("a fault of ours")])
def test_a_job_that_ends_early_says_which_cells_it_has_not_measured(
    error: Exception, monkeypatch: pytest.MonkeyPatch, without_probes: None
) -> None:
    session = session_of("Qualify", 3)

    def end() -> None:
        raise error

    measured_until(monkeypatch, 2, end)
    with pytest.raises(type(error)):
        pair.run_pair(session)
    assert reasons(session) == ["ClientLag", "NotMeasured", "NotMeasured"]
    assert str(error) in session.runs[-1]["invalid_reason"]


def test_a_job_that_ends_before_its_first_run_has_no_row_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, without_probes: None
) -> None:
    session = session_of("Qualify", 3)
    session.bench.stop = True
    with pytest.raises(StoppedError):
        pair.run_pair(session)
    assert not session.runs


def test_half_a_capacity_is_none(monkeypatch: pytest.MonkeyPatch, without_probes: None) -> None:
    session = session_of("Capacity", 3)
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    measured_until(monkeypatch, 2, lambda: now.__setitem__(0, 101.0))
    with pytest.raises(CannotMeasureError, match="time budget"):
        pair.run_pair(session)
    assert not session.runs
    assert session.capacity_requests_per_second is None


@pytest.mark.parametrize(
    ("run", "seen", "seconds"),
    [
        ({"run_seconds": 300, "requests": 600, "requests_per_second": 2.0}, None, 1080),
        ({"run_seconds": 300, "requests": 300, "requests_per_second": 0.25}, None, 2580),
        ({"run_seconds": 300, "requests": 300, "requests_per_second": None}, 0.1, 6180),
        ({"run_seconds": 300, "requests": 300, "requests_per_second": None}, None, 1080),
        ({"run_seconds": 300, "requests": None, "requests_per_second": None}, None, 1080),
    ],
    ids=["as planned", "few requests a second", "a slow closed loop", "without warm-up", "capacity"],
)
def test_a_run_is_given_up_only_far_beyond_what_its_requests_take(
    run: dict[str, Any], seen: float | None, seconds: float
) -> None:
    assert limits.time_limit_seconds(run, seen) == seconds


def test_a_job_that_is_made_again_asks_with_prompts_that_no_cache_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def measured(_session: Session, run: dict[str, Any], *_: Any) -> dict[str, Any]:
        seen.append(run["attempt"])
        return {"invalid_reason": None}

    monkeypatch.setattr(runs, "_measured", measured)
    for repeat in (0, 1, 2):
        session = session_of("Qualify", 1, first_attempt=repeat * 4, run_repeats=2)
        runs.measure(session, session.plan["runs"][0])
    assert seen == [0, 4, 8]


REFUSED = urllib.error.URLError(ConnectionRefusedError(111, "Connection refused"))
NO_ROUTE = urllib.error.URLError(OSError(113, "No route to host"))


def session_whose_engine(monkeypatch: pytest.MonkeyPatch, error: Exception, *then: Counters | Exception) -> Session:
    """A run ends with `error`; what is scraped after that is `then`, one after the other."""

    def measured(*_: Any) -> dict[str, Any]:
        raise error

    answers = iter(then)

    def scrape(_url: str) -> Counters:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(runs, "_measured", measured)
    monkeypatch.setattr(returning, "scrape", scrape)
    monkeypatch.setattr("time.sleep", lambda _: None)
    session = session_of("Qualify", 1, first_attempt=0, run_repeats=0, return_seconds=600)
    session.seen["baseline"] = OLD
    return session


@pytest.mark.parametrize(
    ("error", "then", "reason"),
    [
        (REFUSED, [REFUSED, ConnectionResetError("reset"), NEW], "PodRestarted"),
        (http.client.RemoteDisconnected("gone"), [NEW], "PodRestarted"),
        (REFUSED, [OLD], "MetricsUnreadable"),
        (REFUSED, [REFUSED, NO_ROUTE], "MetricsUnreadable"),
        (REFUSED, [TimeoutError("timed out")], "MetricsUnreadable"),
        (TimeoutError("timed out"), [], "MetricsUnreadable"),
        (NO_ROUTE, [], "MetricsUnreadable"),
        (urllib.error.HTTPError("http://10.0.0.1", 503, "no", email.message.Message(), None), [], "MetricsUnreadable"),
    ],
    ids=[
        "another process is there",
        "it hung up and is another one",
        "the same process is there",
        "the pod is gone too",
        "it does not answer any more",
        "a slow answer",
        "no route",
        "a proxy's answer",
    ],
)
def test_only_another_process_at_the_same_address_says_that_the_engine_died(
    error: Exception, then: list[Counters | Exception], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_whose_engine(monkeypatch, error, *then)
    said = runs.measure(session, session.plan["runs"][0])["invalid_reason"]
    assert said.split(":")[0] == reason


def test_an_engine_that_does_not_come_back_ends_the_job_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_whose_engine(monkeypatch, REFUSED, *[REFUSED] * 1000)
    now = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(now)))
    with pytest.raises(CannotMeasureError, match=r"plain-0 ended and did not come back within 600 s"):
        runs.measure(session, session.plan["runs"][0])


def test_a_full_disk_of_the_client_is_not_the_engines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runs, "warm_up", lambda *_: None)
    session = session_of("Qualify", 1, first_attempt=0, run_repeats=0)
    session.work = tmp_path / "not there"
    session.source = [{"prompt": "words", "slice": None}]
    run = {**session.plan["runs"][0], "prompt_tokens": 8, "prompt_seed": "a"}
    with pytest.raises(CannotMeasureError, match=r"cannot be run in the client's pod: .*No such file"):
        runs.measure(session, run)
