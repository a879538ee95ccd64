"""Flags in engine.args that the engine does not have."""

import pytest
from specfleet.engine.findings import Severity
from specfleet.engine.rules import check
from specfleet.engine.unseen import not_checked

from tests.engine.specs import spec_of


def unknown(*args: str, **engine: str) -> list[tuple[str, str, str]]:
    changes = {"engine.args": list(args), **{f"engine.{name}": value for name, value in engine.items()}}
    found = [one for one in check(spec_of(None, changes)) if one.rule_id == "ArgumentUnknown"]
    assert all(one.severity is Severity.REFUSE for one in found)
    return [(one.field_path, one.message, one.remedy) for one in found]


@pytest.mark.parametrize(
    "args",
    [
        ["--max-num-seqs", "64"],
        ["--max_num_seqs=64"],
        ["--no-enable-prefix-caching"],
        ["--enable-prefix-caching"],
        ["--enforce-eager"],
        ["--enforce"],
        ["--kv-transfer-config.kv_connector=X"],
        ["-O3"],
        ["-O.mode=3"],
        ["-ep"],
        ["--seed", "-1"],
    ],
)
def test_flags_of_the_release_are_taken_as_argparse_takes_them(args: list[str]) -> None:
    assert unknown(*args) == []


@pytest.mark.parametrize(
    ("flag", "better"),
    [
        ("--max-num-seq-s", "--max-num-seqs"),
        ("--enable-prefix-cachin-g", "--enable-prefix-caching"),
        ("--gpu-memory-utilisation", "--gpu-memory-utilization"),
        ("--no-enforce-eagerly", "--no-enforce-eager"),
        ("--kv-transfr-config.kv_connector", "--kv-transfer-config"),
    ],
)
def test_a_misspelt_flag_is_refused_with_what_was_meant(flag: str, better: str) -> None:
    ((path, message, remedy),) = unknown("--seed=1", flag)
    assert path == "spec.engine.args[1]"
    assert message == f"vLLM 0.32.0 has no flag {flag}"
    assert remedy == f"Did you mean {better}?"


def test_a_flag_that_resembles_nothing_is_refused_with_the_way_out() -> None:
    ((_, _, remedy),) = unknown("--quux")
    assert "engine.version" in remedy
    assert unknown("--quux", version="0.32.0+own") == []
    assert unknown("--quux", version="0.32.0+cpu") != []


@pytest.mark.parametrize(("image", "version"), [("v0.31.0", ""), ("v0.33.0", ""), ("v0.32.0", "0.32.0+own")])
def test_of_other_releases_it_is_said_that_nobody_has_looked(image: str, version: str) -> None:
    changes = {"engine.image": f"vllm/vllm-openai:{image}", "engine.args": ["--max-num-sequences=4", "--seed=1"]}
    spec = spec_of(None, {**changes, **({"engine.version": version} if version else {})})
    assert not [one for one in check(spec) if one.rule_id == "ArgumentUnknown"]
    (note,) = [one for one in not_checked(spec) if "knows" in one]
    assert "--max-num-sequences (did you mean --max-num-seqs?)" in note
    assert "--seed" not in note


def test_a_spec_without_unknown_flags_has_no_such_note() -> None:
    spec = spec_of(None, {"engine.image": "vllm/vllm-openai:v0.30.0", "engine.args": ["--seed=1"]})
    assert not [one for one in not_checked(spec) if "knows" in one]
