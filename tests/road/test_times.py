"""Transcript and report of one run show one clock."""

import re
from pathlib import Path

import pytest

from e2e.road.access import Access
from e2e.road.example import Place
from e2e.road.narrator import Narrator
from e2e.road.recorder import Recorder, elapsed, utc
from e2e.road.report import write_report
from e2e.road.verify import Road

APPLIED = 1_800_000_000.4
DECISION = {"time": "2027-01-15T08:02:07Z", "action": "ServeBaseline", "reason": "Answered", "message": "4 pods"}


def test_times_are_minutes_and_seconds_and_never_negative() -> None:
    assert [elapsed(seconds) for seconds in (-0.4, 0, 59.9, 60, 3661)] == ["0:00", "0:00", "0:59", "1:00", "61:01"]
    assert utc(APPLIED) == "2027-01-15 08:00:00 UTC"


def test_transcript_and_report_show_the_same_time_of_a_decision(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = "http://127.0.0.1:1"
    access, place = Access("kubectl", "none", nowhere, nowhere, None, None), Place("demo", "quickstart")
    recorder = Recorder(access, place, decisions=[DECISION])
    Narrator(recorder, APPLIED, colour=False).tell()
    told = capsys.readouterr().out.split()[0]
    page = tmp_path / "report.html"
    road = Road(access, place, recorder, tmp_path / "none.jsonl", APPLIED, False, 1)
    write_report(road, [], APPLIED + 200, None, page)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page.read_text())
    assert cells[1:4] == [told, "08:02:07", "ServeBaseline"]
    assert told == "2:06"
    assert "since the apply at 2027-01-15 08:00:00 UTC" in page.read_text()
    assert "shaded" not in page.read_text()
