"""Versions, metric names and the identity of running engines."""

from typing import Any

import pytest
from specfleet.api.model import EngineSpec
from specfleet.engine.identity import contradiction
from specfleet.engine.metrics import METRICS, Quantity, metric_name, metric_names
from specfleet.engine.versions import EngineVersion, version_in_tag, version_of


def parsed(text: str) -> EngineVersion:
    version = EngineVersion.parse(text)
    assert version is not None
    return version


def test_versions_are_ordered_pre_releases_before_their_release() -> None:
    ordered = [
        "0.8.5",
        "0.9.0.1",
        "0.11.0",
        "0.11.2",
        "0.32.0.dev3",
        "0.32.0rc1",
        "v0.32.0rc2",
        "0.32.0",
        "0.32.1",
        "1.0",
    ]
    assert sorted(ordered, key=parsed) == ordered


@pytest.mark.parametrize("text", ["0.32.0", "v0.32.0", "0.32", "0.32.0+cpu", "v0.32.0-cu129", "0.32.0.post1"])
def test_spellings_of_one_release_are_equal(text: str) -> None:
    assert parsed(text) == parsed("0.32.0")


@pytest.mark.parametrize("text", ["", "latest", "x0.1", "nightly-0.32"])
def test_what_is_no_version_is_none(text: str) -> None:
    assert EngineVersion.parse(text) is None


def test_a_release_candidate_has_the_features_of_its_release() -> None:
    assert parsed("0.32.0rc1").has("0.32")
    assert not parsed("0.31.9").has("0.32")


@pytest.mark.parametrize(
    ("version", "since", "last", "expected"),
    [
        ("0.17.1", "0.17", "0.17", True),
        ("0.18.0", "0.17", "0.17", False),
        ("0.11.1", "0.11.2", None, False),
        ("0.16.9", None, "0.16", True),
        ("0.17.0", None, "0.16", False),
        ("0.9.2", None, "0.9.1", False),
    ],
)
def test_spans_of_releases_are_inclusive(version: str, since: str | None, last: str | None, expected: bool) -> None:
    assert parsed(version).has(since, last) is expected


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("vllm/vllm-openai:v0.32.0", "0.32.0"),
        ("vllm/vllm-openai:v0.32.0-cu129", "0.32.0"),
        ("vllm/vllm-openai:0.32.0rc1", "0.32.0rc1"),
        ("host:5000/vllm:v0.21.3", "0.21.3"),
        ("rocm/vllm:rocm6.4.1_vllm_0.29.1_20260301", "0.29.1"),
        ("vllm-sim:v0.32.0@sha256:" + "a" * 64, "0.32.0"),
        ("host:5000/vllm", None),
        ("vllm@sha256:" + "a" * 64, None),
        ("nvcr.io/nvidia/vllm:25.09-py3", None),
        ("registry.redhat.io/rhaiis/vllm-cuda-rhel9:3.2.1", None),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai:nightly-0a1b2c", None),
    ],
)
def test_the_version_is_read_from_tags_that_spell_a_vllm_version_only(image: str, expected: str | None) -> None:
    found = version_in_tag(image)
    assert (str(found) if found else None) == expected


def test_a_declared_version_goes_before_the_tag() -> None:
    assert version_of(EngineSpec(image="x:v0.31.0", version="0.32.0")) == parsed("0.32.0")


@pytest.mark.parametrize(
    ("image", "version", "answer", "fits"),
    [
        ("x:v0.32.0", None, {"version": "0.32.0"}, True),
        ("x:v0.32.0", None, {"version": "0.32.0+cpu"}, True),
        ("x:v0.32.0", None, {"version": "0.32.1"}, False),
        ("x:v0.32.0", None, {"version": "0.31.0"}, False),
        ("x:prod", "0.32", {"version": "0.32.7"}, True),
        ("x:prod", "0.32", {"version": "0.33.0"}, False),
        ("x:prod", "0.32.0", {"version": "0.32.0rc1"}, False),
        ("x:prod", "0.32.0", {}, False),
        ("x:prod", "0.32.0", "not json", False),
        ("x:prod", None, {"version": "0.32.0"}, True),
    ],
)
def test_a_running_engine_that_contradicts_the_spec_is_refused(
    image: str, version: str | None, answer: Any, fits: bool
) -> None:
    found = contradiction(EngineSpec(image=image, version=version), answer)
    assert (found is None) is fits
    if found is not None:
        assert "the spec says vLLM" in found.message
        assert found.field_path == ("spec.engine.version" if version else "spec.engine.image")


@pytest.mark.parametrize(
    ("quantity", "version", "name"),
    [
        (Quantity.STEP_TIME, "0.9.2", "vllm:time_per_output_token_seconds"),
        (Quantity.STEP_TIME, "0.10.2", "vllm:inter_token_latency_seconds"),
        (Quantity.STEP_TIME, "0.33.0", "vllm:inter_token_latency_seconds"),
        (Quantity.REQUEST_TPOT, "0.10.2", None),
        (Quantity.REQUEST_TPOT, "0.11.0", "vllm:request_time_per_output_token_seconds"),
        (Quantity.KV_CACHE_USE, "0.9.1", "vllm:gpu_cache_usage_perc"),
        (Quantity.KV_CACHE_USE, "0.12.0", "vllm:kv_cache_usage_perc"),
        (Quantity.ADMISSION_REJECTIONS, "0.31.0", None),
        (Quantity.ADMISSION_REJECTIONS, "0.32.0", "vllm:admission_rejections_total"),
        (Quantity.DRAFTS, "0.8.5", "vllm:spec_decode_num_drafts_total"),
    ],
)
def test_a_quantity_has_the_name_of_its_release(quantity: Quantity, version: str, name: str | None) -> None:
    assert metric_name(quantity, parsed(version)) == name


def test_every_operated_release_exposes_every_quantity_that_telemetry_needs() -> None:
    optional = {Quantity.ADMISSION_REJECTIONS}
    for minor in range(21, 34):
        assert set(Quantity) - set(metric_names(parsed(f"0.{minor}.0"))) <= optional


def test_no_metric_is_listed_without_a_quantity_of_its_own_span() -> None:
    assert {one.quantity for one in METRICS} == set(Quantity)
