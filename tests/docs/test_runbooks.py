"""Every alert has a page that says what to do, and no page is about an alert that nobody sends."""

import inspect
import re
from pathlib import Path

import pytest
import yaml
from specfleet.alerts import derive
from specfleet.alerts.derive import alerts_for
from specfleet.controller import failures
from specfleet.decide import conditions, faults
from specfleet.decide.phases import benchmarking, canary, resting
from specfleet.decide.watch_report import Answer, Signal

from tests.alerts.made import decision, deployment

ROOT = Path(__file__).parents[2]
RUNBOOKS = ROOT / "docs" / "runbooks"
GROUPS = yaml.safe_load((ROOT / "charts" / "specfleet" / "files" / "alert-rules.yaml").read_text())
RULES = {rule["alert"]: rule["labels"]["severity"] for group in GROUPS for rule in group["rules"]}
SENT = {value for name, value in vars(derive).items() if name.isupper() and str(value).startswith("Specfleet")}
ALERTS = sorted({*RULES, *SENT})


def test_there_is_a_page_for_each_alert_and_for_nothing_else() -> None:
    assert len(ALERTS) >= 9
    assert sorted(page.stem for page in RUNBOOKS.glob("Specfleet*.md")) == ALERTS


@pytest.mark.parametrize("alert", ALERTS)
def test_a_page_says_how_bad_it_is_what_to_do_and_when_it_ends(alert: str) -> None:
    text = (RUNBOOKS / f"{alert}.md").read_text()
    assert text.startswith(f"# {alert} ({RULES.get(alert, 'info')})\n")
    assert {"## Do", "## Ends"} <= set(re.findall(r"^## .*", text, re.M))
    assert f"[{alert}]({alert}.md) | {RULES.get(alert, 'info')} |" in (RUNBOOKS / "README.md").read_text()


def test_reasons_that_need_a_person_are_explained() -> None:
    metrics = (RUNBOOKS / "SpecfleetMetricsUnavailable.md").read_text()
    for answer in (Answer.UNAVAILABLE, Answer.TARGET_DOWN, Answer.STALE, Answer.SCHEMA_MISSING):
        assert f"| {answer.value} |" in metrics
    rolled_back = (RUNBOOKS / "SpecfleetRolledBack.md").read_text()
    assert [one.value for one in Signal if one.value not in rolled_back] == []


def test_every_reason_of_stalled_and_held_is_on_its_page() -> None:
    """By the reasons that stand in the code: a new one without a word for whom it wakes is found here."""
    stalled = inspect.getsource(conditions._stalled) + inspect.getsource(faults.crash_fault)
    stalled += "".join(
        map(inspect.getsource, (faults.start_fault, faults.no_room, faults.route_fault, faults.stuck_rollout))
    )
    reasons = {*re.findall(r'(?:_true|Fault)\(\s*"(\w+)"', stalled), *failures.REASONS} - {"NothingServes"}
    assert {"CrashLoop", "RevisionRolledBack", "RouteNotAccepted"} <= reasons
    page = (RUNBOOKS / "SpecfleetStalled.md").read_text()
    assert [one for one in sorted(reasons) if one not in page] == []
    phases = "".join(inspect.getsource(one) for one in (benchmarking, canary, resting))
    held = {
        *re.findall(r'hold\(turn, "(\w+)"', phases),
        *re.findall(r'Fault\("(\w+)"', inspect.getsource(faults.driver_fault)),
        "BaselineUnstable",
        "EngineMoved",
        "GpusDiffer",
        canary.INCOMPATIBLE,
    }
    assert {"InsufficientTraffic", "BenchmarkError", "BenchmarkPodPending"} <= held
    page = (RUNBOOKS / "SpecfleetHeld.md").read_text()
    assert [one for one in sorted(held) if one not in page] == []


def test_an_alert_links_its_page_where_pages_are_published() -> None:
    owner = deployment(phase="RolledBack", phase_reason="AcceptanceDrift", history=[decision()])
    (silent,) = alerts_for(owner)
    (linked,) = alerts_for(owner, "https://docs.example.com/{alert}.html")
    assert "runbook_url" not in silent.annotations()
    assert linked.annotations()["runbook_url"] == "https://docs.example.com/SpecfleetRolledBack.html"
    assert linked.identity == silent.identity
