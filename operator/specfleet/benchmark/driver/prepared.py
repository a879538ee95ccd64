"""Runs a Python command again and again with its imports done once.

`vllm bench serve` imports torch and transformers for 10 to 20 s before it sends its first request (0.32, a core of its
own). A pair starts it once per run, and both arms' GPUs stand idle meanwhile: minutes of a matrix of twelve runs. A
prepared command imports while the driver probes, then forks for every run: what runs is the same code with the same
arguments. Where that cannot work (the command is no Python script, its help cannot be had) there is none, and the
driver starts the command itself.

    INTERPRETER prepared.py SCRIPT WORD...      the process with the imports; Prepared starts it
"""

import gc
import json
import os
import queue
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

READY_SECONDS = 300.0
"""An import that takes longer hangs; the cold page cache of a large image was seen to take 40 s."""
ANSWER_SECONDS = 30.0
LOOK_SECONDS = 0.1

Json = dict[str, Any]


class PreparedError(Exception):
    """The prepared command is of no use; start it the ordinary way."""


def interpreter(command: str) -> list[str] | None:
    """Words that start the script's own interpreter, by its first line; None where the command is no Python script."""
    place = shutil.which(command)
    if place is None:
        return None
    try:
        with Path(place).open("rb") as script:
            first = script.readline(512)
    except OSError:
        return None
    if not first.startswith(b"#!") or b"python" not in first:
        return None
    return shlex.split(first[2:].decode("utf-8", "replace"))


class Prepared:
    """The driver's side: one process with the imports done, one fork of it per run."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start to import. Raises PreparedError when `command` is no Python script."""
        words = interpreter(command[0])
        if words is None:
            raise PreparedError(f"{command[0]} is no Python script")
        self._command = list(command)
        script = str(shutil.which(command[0]))
        try:
            self._process = subprocess.Popen(
                [*words, __file__, script, *command[1:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=dict(environment),
            )
        except OSError as error:
            raise PreparedError(str(error)) from error
        self._answers: queue.Queue[Json | None] = queue.Queue()
        self._ready = False
        threading.Thread(target=self._read, daemon=True).start()

    def fits(self, command: Sequence[str]) -> bool:
        """Whether it is this command that is asked for, with whatever follows."""
        return list(command[: len(self._command)]) == self._command

    def run(self, command: Sequence[str], log: Path, timeout_seconds: float, check: Callable[[], None]) -> int | None:
        """Exit code of one run, its output in `log`; None on time-out. `check` may raise, which ends the run.

        Raises PreparedError when the process with the imports is gone or was never ready.
        """
        if not self._ready:
            self._answer(time.monotonic() + READY_SECONDS, check)
            self._ready = True
        order = {"arguments": list(command[len(self._command) :]), "log": str(log)}
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise PreparedError(f"the prepared command is gone: {error}") from error
        ends = time.monotonic() + timeout_seconds
        try:
            # Not interrupted: a fork that nobody knows would go on for ever.
            child = int(self._answer(time.monotonic() + ANSWER_SECONDS, lambda: None)["pid"])
        except TimeoutError:
            raise PreparedError(f"it has not forked in {ANSWER_SECONDS:.0f} s") from None
        code: int | None = None
        try:
            code = int(self._answer(ends, check)["code"])
        except TimeoutError:
            pass
        finally:
            # Nothing of it is left, whatever ended it: a group that is gone already is no error.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
            if code is None:
                self._bury(child)
        return code

    def _bury(self, child: int) -> None:
        """End a fork that may not lead its group yet, and take its end out of the answers."""
        with suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)
        with suppress(TimeoutError, PreparedError):
            self._answer(time.monotonic() + ANSWER_SECONDS, lambda: None)

    def end(self) -> None:
        """End the process with the imports; its forks have groups of their own."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self._answers.put(json.loads(line))
            except ValueError:
                break
        self._answers.put(None)

    def _answer(self, ends: float, check: Callable[[], None]) -> Json:
        while True:
            check()
            try:
                found = self._answers.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                if time.monotonic() > ends:
                    if not self._ready:
                        raise PreparedError(f"its imports took more than {READY_SECONDS:.0f} s") from None
                    raise TimeoutError from None
                continue
            if found is None:
                raise PreparedError("the process with the imports has ended")
            return found


# ------------------------------------------------------------------------------------- the process with the imports


def run_script(script: str, words: Sequence[str]) -> int:
    """Run a script as its interpreter would, in this process. Returns its exit code."""
    sys.argv = [script, *words]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code is None:
            return 0
        if isinstance(end.code, int):
            return end.code
        print(end.code, file=sys.stderr)
        return 1
    return 0


def serve(script: str, words: Sequence[str]) -> int:
    """Import by asking for the command's help, then run what is asked on stdin, one order per line, until it ends.

    The help is what makes a command import all it needs without doing anything; other ways hang on names inside vLLM
    that change from version to version.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    gc.disable()  # Nothing that an import makes is garbage; the collector would look at all of it again and again.
    if run_script(script, [*words, "--help"]) != 0:
        return 1
    # What is there now stays for good: a collection in a fork would only copy it.
    gc.collect()
    gc.freeze()
    gc.enable()
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(script, [*words, *order["arguments"]], order["log"])
        print(json.dumps({"pid": child}), file=answers)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), file=answers)
    return 0


def _become(script: str, words: Sequence[str], log: str) -> NoReturn:
    code = 1
    try:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        code = run_script(script, words)
    except BaseException:  # A fork must never come back into the loop of its parent.
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    # This file's folder holds the driver's modules; a script that is run has its own folder in front.
    sys.path[0] = str(Path(sys.argv[1]).parent)
    sys.exit(serve(sys.argv[1], sys.argv[2:]))
