"""Prompts of production without what identifies people."""

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specfleet.benchmark.capture import MASKS, capture, masked, prompt_of
from specfleet.benchmark.driver.texts import load_prompts
from specfleet.cli.main import main


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("write to jane.doe+x@mail.example.org today", "write to xxxx.xxx+x@xxxx.xxxxxxx.xxx today"),
        ("call +49 (30) 901820-77 now", "call +00 (00) 000000-00 now"),
        ("card 4111 1111 1111 1111.", "card 0000 0000 0000 0000."),
        ("see https://intra.example/users/17?t=abc end", "see xxxxx://xxxxx.xxxxxxx/xxxxx/00?x=xxx end"),
        ("key sk-proj-9aKd72jsKq0dkWm3x used", "key xx-xxxx-0xxx00xxxx0xxxx0x used"),
        ("host 10.20.30.40 down", "host 00.00.00.00 down"),
        ("IBAN DE89 3704 0044 0532 0130 00 thanks", "IBAN xx00 0000 0000 0000 0000 00 thanks"),
        ("-----BEGIN KEY-----\nAb1\n-----END KEY-----", "-----xxxxx xxx-----\nxx0\n-----xxx xxx-----"),
        ("ask @someone_1 about it", "ask @xxxxxxx_0 about it"),
        ("In 2026 we sold 1,250 units at 3.14", "In 2026 we sold 1,250 units at 3.14"),
        ("for i in range(100000): total += i", "for i in range(100000): total += i"),
        ("a hyphenated-word-that-is-long stays", "a hyphenated-word-that-is-long stays"),
    ],
    ids=["e-mail", "phone", "card", "page", "token", "host", "account", "key", "handle", "figures", "code", "words"],
)
def test_what_identifies_or_opens_doors_keeps_its_shape_only(text: str, left: str) -> None:
    assert masked(text)[0] == left


@given(st.text(max_size=300))
def test_a_masked_text_is_as_long_as_before_and_masking_again_changes_nothing(text: str) -> None:
    once = masked(text)[0]
    assert len(once) == len(text)
    assert masked(once)[0] == once


PLAIN_MASKS = (
    re.compile(r"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----", re.DOTALL),
    re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+"),
    re.compile(r"\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE),
    re.compile(r"\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{20,}"),
)
"""What the masks of these kinds mean, written plainly: quadratic in the length of a run of characters."""
KINDS = ("key", "e-mail", "address of a page", "token")
PIECES = ["-----BEGIN A-----", "-----END A-----", "a", "B", "7", "é", "_", ".", "+", "-", "@", "://", " ", "x" * 20]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=24).map("".join))
def test_what_is_masked_is_what_the_plain_patterns_mean(text: str) -> None:
    for kind, plain in zip(KINDS, PLAIN_MASKS, strict=True):
        (pattern,) = (one for name, one in MASKS if name == kind)
        found = [match["found"] for match in pattern.finditer(text) if match["found"] is not None]
        assert found == [one[0] for one in plain.finditer(text)]


@pytest.mark.parametrize(
    "piece",
    ["a", "1", "a.", "a-", "a+", "a@", "@", "-", "_", "1 ", "a://", "://", "a1", ".", "-----BEGIN A-----", "AB12 "],
)
def test_a_megabyte_of_anything_is_masked_within_a_test(piece: str) -> None:
    """In quadratic time each of these takes hours."""
    text = piece * (1_000_000 // len(piece)) + "@"
    assert len(masked(text)[0]) == len(text)


@pytest.mark.parametrize(
    ("body", "prompt"),
    [
        ({"prompt": " Say hi "}, "Say hi"),
        ({"messages": [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "Hi"}]},
         "system: Be kind\n\nuser: Hi"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"type": "image_url"}]}]},
         "user: What is it?"),
        ({"prompt": [1, 2, 3]}, None),
        ({"messages": "none"}, None),
        ([], None),
    ],
    ids=["completion", "chat", "parts", "token ids", "no list", "no object"],
)  # fmt: skip
def test_the_words_of_a_request_are_found_whatever_its_kind(body: Any, prompt: str | None) -> None:
    assert prompt_of(body) == prompt


def test_a_sample_has_no_prompt_twice_and_another_seed_chooses_others() -> None:
    lines = [json.dumps({"prompt": f"question {number % 500}"}) for number in range(1000)]
    first, again, other = capture(lines, 50, 1), capture(lines, 50, 1), capture(lines, 50, 2)
    assert len(set(first.prompts)) == 50
    assert first == again
    assert set(first.prompts) != set(other.prompts)
    assert any(int(one.split()[1]) >= 400 for one in first.prompts), "late requests have their chance"


def test_the_command_writes_what_the_driver_reads_for_the_owner_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "requests.jsonl", tmp_path / "prompts.jsonl"
    source.write_text('{"prompt": "mail me at a@b.example"}\n\nnot JSON\n{"prompt": "hello"}\n')
    target.write_text("old")
    target.chmod(0o644)
    assert main(["prompts", "-f", str(source), "-o", str(target), "--slice", "chat"]) == 0
    assert load_prompts(str(target)) == [
        {"prompt": "mail me at x@x.xxxxxxx", "slice": "chat"},
        {"prompt": "hello", "slice": "chat"},
    ]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    told = capsys.readouterr().err
    assert "2 prompts from 3 requests (1 unusable)" in told
    assert "1 x e-mail" in told
    assert "read the file before you use it" in told


def test_a_file_without_prompts_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r.jsonl").write_text('{"input": "x"}\n')
    assert main(["prompts", "-f", str(tmp_path / "r.jsonl"), "-o", str(tmp_path / "p.jsonl")]) == 2
    assert "none of 1 lines is a request" in capsys.readouterr().err
    assert not (tmp_path / "p.jsonl").exists()
    assert main(["prompts", "-f", str(tmp_path / "absent.jsonl"), "-o", str(tmp_path / "p.jsonl")]) == 2
