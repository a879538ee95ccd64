"""The termination message: what the driver writes is what the operator reads, within 4096 bytes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from specfleet.api.evidence import RunSummary
from specfleet.api.status import ArmRole
from specfleet.benchmark import encoding
from specfleet.benchmark.driver import message
from specfleet.benchmark.driver.bench import Bench
from specfleet.benchmark.driver.failures import CannotMeasureError
from specfleet.benchmark.driver.harness import VllmBenchServe
from specfleet.benchmark.driver.session import Session
from specfleet.benchmark.result import (
    DriverReport,
    MessageError,
    MessageFault,
    agreement,
    parse_report,
    parse_termination_message,
)


def a_run(order: int, arm: str, reason: str | None = None, **fields: Any) -> dict[str, Any]:
    run = {
        "arm": arm,
        "tier": "low",
        "slice": "chat",
        "order": order,
        "invalid_reason": reason,
        "started": 1795956463,
        "duration_seconds": 300.123,
        "planned_requests": 1234,
        "completed_requests": 1234,
        "failed_requests": 0,
        "requests_per_second": 4.113,
        "concurrency": None,
        "completed_requests_per_second": 4.109,
        "prompt_tokens": 317401,
        "output_tokens": 158002,
        "output_tokens_per_second": 526.4,
        "tpot_mean_seconds": 0.012345,
        "tpot_p95_seconds": 0.018,
        "ttft_mean_seconds": 0.123456,
        "ttft_p95_seconds": 0.3,
        "e2e_mean_seconds": 3.25,
        "stall_p95_seconds": 0.045,
        "ttft_over_slo_share": None,
        "tpot_over_slo_share": 0.0125,
        "client_lag_p99_seconds": 0.0021,
        "drafts": 40123,
        "draft_tokens": 120369,
        "accepted_tokens": 56012,
        "accepted_per_position": [27001, 17800, 11211],
        "engine_tpot_seconds": 0.0122,
        "preemptions": 3,
        "kv_cache_peak_ratio": 0.4321,
        "queue_time_mean_seconds": 0.0004,
        "client_errors": 0,
        "server_errors": 0,
    }
    return {**run, **fields}


def session(runs: list[dict[str, Any]], **fields: Any) -> Session:
    plan = {"arms": {"baseline": {"pod": "llm-base-6f9c-abcde"}, "speculative": {"pod": "llm-spec-7d8e-fghij"}}}
    return Session(plan=plan, source=[], bench=Bench(VllmBenchServe()), work=Path("."), runs=runs, **fields)


def test_both_sides_name_the_arms_in_the_same_order() -> None:
    assert list(message.ARMS) == [arm.value for arm in encoding.ARMS]


def test_every_field_of_a_run_summary_is_transported_or_derived() -> None:
    assert set(RunSummary.model_fields) - {name for name, _ in message.FIELDS} == {"valid", "pod", "agreement_ratio"}


def test_a_run_comes_back_as_it_was_measured() -> None:
    report = parse_report(
        message.encode_message(session([a_run(0, "baseline"), a_run(1, "speculative", "ClientLag: 9")]))
    )
    assert isinstance(report, DriverReport)
    plain, drafted = report.runs
    assert plain.arm is ArmRole.BASELINE
    assert plain.valid
    assert plain.pod == "llm-base-6f9c-abcde"
    assert plain.tpot_mean_seconds == pytest.approx(0.012345)
    assert plain.concurrency is None
    assert plain.ttft_over_slo_share is None
    assert plain.accepted_per_position == [27001, 17800, 11211]
    assert plain.duration_seconds == pytest.approx(300.123)
    assert not drafted.valid
    assert drafted.invalid_reason == "ClientLag: 9"


optional = st.none() | st.floats(0, 1e5)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=50, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                name: (
                    st.just("low")
                    if kind == "tier"
                    else st.just("chat")
                    if kind == "slice"
                    else st.sampled_from(message.ARMS)
                    if kind == "arm"
                    else st.none() | st.text(max_size=150)
                    if kind == "text"
                    else st.lists(st.integers(0, 10**7), max_size=8)
                    if kind == "list"
                    else st.integers(0, 10**9)
                    if kind == "int"
                    else optional
                )
                for name, kind in message.FIELDS
                if name not in ("requests_per_second",)
            }
        ),
        max_size=5,
    )
)
def test_runs_of_any_content_fit_or_say_that_they_do_not(runs: list[dict[str, Any]]) -> None:
    try:
        text = message.encode_message(session(runs))
    except CannotMeasureError:
        return
    assert len(text.encode()) <= 4096
    report = parse_report(text)
    if isinstance(report, DriverReport):
        assert len(report.runs) == len(runs)
    else:
        # A required quantity was None: refused as a whole, never read as zero.
        assert report.fault is MessageFault.OTHER_VERSION


@pytest.mark.parametrize("count", [2, 8, 16, 32])
def test_a_pair_of_a_realistic_size_fits_with_its_probes(count: int) -> None:
    arms = ("baseline", "speculative")
    runs = [
        a_run(
            i,
            arms[i % 2],
            tier="mid" if i % 3 else "low",
            drafts=40123 + 977 * i,
            output_tokens=158002 - 31 * i,
            tpot_mean_seconds=0.0123 + 0.00013 * i,
            ttft_mean_seconds=0.2 / (i + 1),
        )
        for i in range(count)
    ]
    texts = {name: ["abcd"] * 16 for name in ("baseline", "baseline-again", "speculative")}
    text = message.encode_message(session(runs, texts=texts, requests={"min_p": [200, 400]}))
    assert len(text.encode()) <= 4096
    report = parse_report(text)
    assert isinstance(report, DriverReport)
    assert len(report.runs) == count
    assert report.request_probes[0].broken
    if count <= 16:
        assert report.runs[0].accepted_per_position


GOOD = message.encode_message(session([a_run(0, "baseline")]))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, MessageFault.EMPTY),
        ("", MessageFault.EMPTY),
        ("  \n", MessageFault.EMPTY),
        (GOOD[:200], MessageFault.TRUNCATED),
        ("z1:abc", MessageFault.TRUNCATED),
        ("Traceback (most recent call last):", MessageFault.NOT_JSON),
        ("[1, 2]", MessageFault.OTHER_VERSION),
        ('{"v": 99}', MessageFault.OTHER_VERSION),
        ('{"v": 1, "tiers": [], "slices": [], "runs": [[1, 2]]}', MessageFault.OTHER_VERSION),
        ('{"v": 1, "runs": []}', MessageFault.OTHER_VERSION),
    ],
)
def test_a_message_that_is_no_report_is_a_typed_error(text: str | None, fault: MessageFault) -> None:
    error = parse_termination_message(text)
    assert isinstance(error, MessageError)
    assert error.fault is fault


@settings(deadline=None)
@given(st.integers(0, len(GOOD) - 1))
def test_no_prefix_of_a_message_is_taken_for_a_report(length: int) -> None:
    assert isinstance(parse_report(GOOD[:length]), MessageError)


@settings(deadline=None)
@given(st.text(max_size=200) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_text_at_all_is_answered_without_an_exception(text: str) -> None:
    assert isinstance(parse_report(text), MessageError)


def test_agreement_is_relative_to_the_plain_arm_with_itself_and_ignores_unanswered_prompts() -> None:
    texts = {
        "baseline": ["a" * 4, "b" * 4, "----"],
        "baseline-again": ["a" * 4, "x" * 4, "c" * 4],
        "speculative": ["a" * 4, "b" * 4, "c" * 4],
    }
    assert agreement(texts) == (1.0, 0.5, 2)
    assert agreement({"baseline": ["aaaa"]}) is None
