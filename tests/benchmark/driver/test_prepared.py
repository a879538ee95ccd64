"""A command whose imports are done once: the same code, arguments, output and exit codes as when it is started anew."""

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from specfleet.benchmark.driver.prepared import Prepared, PreparedError, interpreter

SECONDS = 30.0
SCRIPT = '''#!{python}
"""Imports `slow`, which notes every import; does what its words say."""
import os, sys, time
import slow

words = sys.argv[1:]
if "--help" in words:
    sys.exit({help_code})
print("said", *words, os.environ.get("COLOUR"), flush=True)
print("loud", file=sys.stderr)
if "sleep" in words:
    open({pid!r}, "w").write(str(os.getpid()))
    time.sleep(600)
if "raise" in words:
    raise ValueError("no such thing")
sys.exit(int(words[-1]) if words[-1].isdigit() else None)
'''


def never() -> None:
    pass


@contextmanager
def prepared(folder: Path, help_code: int = 0) -> Iterator[tuple[Prepared, list[str]]]:
    """The script, made in `folder`, with its imports under way."""
    script = folder / "command"
    script.write_text(SCRIPT.format(python=sys.executable, help_code=help_code, pid=str(folder / "pid")))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    (folder / "slow.py").write_text(f"open({str(folder / 'imports')!r}, 'a').write('once ')\n")
    command = [str(script), "bench", "serve"]
    made = Prepared(command, {**os.environ, "COLOUR": "green"})
    try:
        yield made, command
    finally:
        made.end()


def test_two_runs_share_the_imports_and_each_has_its_own_arguments_output_and_exit_code(tmp_path: Path) -> None:
    with prepared(tmp_path) as (made, command):
        first = made.run([*command, "a", "3"], tmp_path / "first", SECONDS, never)
        second = made.run([*command, "b"], tmp_path / "second", SECONDS, never)
    assert (first, second) == (3, 0)
    assert (tmp_path / "first").read_text() == "said bench serve a 3 green\nloud\n"
    assert (tmp_path / "second").read_text() == "said bench serve b green\nloud\n"
    assert (tmp_path / "imports").read_text() == "once "


def test_a_run_that_raises_ends_with_1_and_its_traceback_and_the_next_one_works(tmp_path: Path) -> None:
    with prepared(tmp_path) as (made, command):
        assert made.run([*command, "raise"], tmp_path / "log", SECONDS, never) == 1
        assert "ValueError: no such thing" in (tmp_path / "log").read_text()
        assert made.run([*command, "4"], tmp_path / "log", SECONDS, never) == 4


def gone(pid: int) -> bool:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def test_a_run_that_takes_too_long_is_ended_and_has_no_exit_code(tmp_path: Path) -> None:
    with prepared(tmp_path) as (made, command):
        assert made.run([*command, "0"], tmp_path / "log", SECONDS, never) == 0
        assert made.run([*command, "sleep"], tmp_path / "log", 2.0, never) is None
        assert gone(int((tmp_path / "pid").read_text()))
        assert made.run([*command, "5"], tmp_path / "log", SECONDS, never) == 5


def test_a_run_ends_when_its_driver_is_told_to_stop(tmp_path: Path) -> None:
    def stop_once_it_runs() -> None:
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            raise KeyboardInterrupt

    with prepared(tmp_path) as (made, command):
        with pytest.raises(KeyboardInterrupt):
            made.run([*command, "sleep"], tmp_path / "log", SECONDS, stop_once_it_runs)
        assert gone(int((tmp_path / "pid").read_text()))


def test_a_run_that_is_stopped_as_it_begins_leaves_nothing_behind_for_the_next_one(tmp_path: Path) -> None:
    def stop_at_once() -> None:
        raise KeyboardInterrupt

    with prepared(tmp_path) as (made, command):
        assert made.run([*command, "0"], tmp_path / "log", SECONDS, never) == 0
        with pytest.raises(KeyboardInterrupt):
            made.run([*command, "sleep"], tmp_path / "log", SECONDS, stop_at_once)
        assert made.run([*command, "6"], tmp_path / "log", SECONDS, never) == 6


def no_help(folder: Path) -> None:
    with prepared(folder, help_code=2) as (made, command):
        made.run([*command, "0"], folder / "log", SECONDS, never)


def killed(folder: Path) -> None:
    with prepared(folder) as (made, command):
        made.end()
        made.run([*command, "0"], folder / "log", SECONDS, never)


def no_script(_: Path) -> None:
    Prepared([sys.executable, "-c"], os.environ)


def absent(folder: Path) -> None:
    Prepared([str(folder / "none")], os.environ)


@pytest.mark.parametrize("case", [no_help, killed, no_script, absent])
def test_where_it_cannot_work_that_is_an_error_of_its_own(case: Callable[[Path], None], tmp_path: Path) -> None:
    with pytest.raises(PreparedError):
        case(tmp_path)


def test_the_interpreter_is_the_one_of_the_scripts_first_line(tmp_path: Path) -> None:
    script = tmp_path / "vllm"
    script.touch(mode=0o755)
    for line, words in (
        ("#!/usr/bin/env python3", ["/usr/bin/env", "python3"]),
        ("#!/opt/venv/bin/python3.12", ["/opt/venv/bin/python3.12"]),
        ("#!/bin/sh", None),
        ("", None),
    ):
        script.write_text(f"{line}\n")
        assert interpreter(str(script)) == words
