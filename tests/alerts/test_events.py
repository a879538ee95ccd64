import kubernetes_validate
from hypothesis import given
from hypothesis import strategies as st
from specfleet.alerts.events import MESSAGE_LIMIT, NAME_LIMIT, build_event
from specfleet.api.status import Verdict

from tests.alerts.made import NOON, decision, deployment


def test_an_event_fits_the_api_and_names_its_object() -> None:
    event = build_event(deployment(), decision())
    kubernetes_validate.validate(event, "1.36", strict=True)
    assert event["involvedObject"]["uid"] == "uid-of-llama"
    assert event["type"] == "Warning"
    assert event["reason"] == "AcceptanceDrift"
    assert "llama-b2-p0" in event["message"]
    assert event["firstTimestamp"] == "2026-11-29T12:00:00Z"


def test_good_news_is_normal() -> None:
    promoted = decision("Promote", "CanaryPassed", verdict=Verdict.PASS)
    assert build_event(deployment(), promoted)["type"] == "Normal"


def test_the_same_decision_always_has_the_same_name_so_that_a_crash_tells_nothing_twice() -> None:
    assert build_event(deployment(), decision()) == build_event(deployment(), decision())


def test_different_decisions_have_different_names() -> None:
    events = [
        build_event(deployment(), decision()),
        build_event(deployment(), decision("Investigate")),
        build_event(deployment(), decision(reason="LostGain")),
        build_event(deployment(), decision(time=NOON.replace(hour=13))),
        build_event(deployment(name="other"), decision()),
        build_event(deployment().model_copy(update={"metadata": {**deployment().metadata, "uid": "2"}}), decision()),
    ]
    assert len({event["metadata"]["name"] for event in events}) == len(events)


@given(st.text(max_size=2000), st.lists(st.text(max_size=80), max_size=30))
def test_a_message_of_any_length_and_script_fits(message: str, evidence: list[str]) -> None:
    event = build_event(deployment(), decision(message=message, evidence=evidence))
    assert len(event["message"].encode()) <= MESSAGE_LIMIT


@given(st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", fullmatch=True))
def test_the_name_of_an_event_is_short_enough_for_any_deployment(name: str) -> None:
    event = build_event(deployment(name=name), decision())
    assert len(event["metadata"]["name"]) <= NAME_LIMIT
