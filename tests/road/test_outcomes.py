from pathlib import Path

import pytest

from e2e.road.outcomes import Outcome, fault_of, read_log, to_line, totals


@pytest.mark.parametrize(
    ("status", "error", "streamed", "finish", "done", "said"),
    [
        (200, None, True, "length", True, None),
        (200, None, False, "stop", False, None),
        (200, None, True, "length", False, "[DONE]"),
        (200, None, True, None, True, "cut"),
        (200, None, False, "abort", False, "abort"),
        (503, None, False, None, False, "HTTP 503"),
        (404, None, True, None, False, "HTTP 404"),
        (200, "ClientPayloadError: x", True, None, False, "ClientPayloadError"),
        (None, None, False, None, False, "no answer"),
    ],
)
def test_a_request_counts_as_failed_unless_it_was_served_whole(
    status: int | None, error: str | None, streamed: bool, finish: str | None, done: bool, said: str | None
) -> None:
    fault = fault_of(status, error, streamed, finish, done)
    assert fault is None if said is None else said in (fault or "")


def outcome(number: int, start: float, end: float, fault: str | None = None) -> Outcome:
    return Outcome(number, "stream", "/v1/completions", start, end, start + 0.1, 200, "length", 10, True, fault)


def test_a_log_is_read_back_without_the_line_that_is_still_being_written(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    first, second = outcome(1, 0, 1), outcome(2, 1, 70, "HTTP 503")
    log.write_text(f"{to_line(first)}\n{to_line(second)}\n{to_line(first)[:20]}")
    assert read_log(log) == [first, second]


def test_totals_count_failures_and_whole_streams_of_over_a_minute() -> None:
    found = totals([outcome(1, 0, 61), outcome(2, 5, 66, "cut"), outcome(3, 10, 12)])
    assert (found.requests, found.failed, found.long_streams) == (3, 1, 1)
    assert found.requests_per_second == pytest.approx(0.3)
    assert "cut" in found.faults[0]


def test_the_totals_of_an_empty_log_have_no_rate() -> None:
    assert totals([]).requests_per_second == 0.0
