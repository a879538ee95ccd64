"""Starts the cluster's programs so that each can be found, watched and ended later, whoever started it."""

from __future__ import annotations

import fcntl
import http.client
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.settings import ClusterError

# Inherited by everything a run starts, so `down` finds processes that no pid file tells of.
MARK = "SPECFLEET_CLUSTER_RUN"


def run(
    argv: Iterable[str | Path],
    *,
    stdin: str | None = None,
    check: bool = True,
    log: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a short command to its end.

    Raises ClusterError with what the command said, and the log it was appended to, when it fails.
    """
    command = [str(word) for word in argv]
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, env=variables)
    if log is not None:
        with log.open("a") as out:
            out.write(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}")
    if check and done.returncode != 0:
        where = f" (log: {log})" if log is not None else ""
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise ClusterError(f"`{' '.join(command)}` ended with {done.returncode}{where}: {said}")
    return done


def wait_for(what: str, condition: Callable[[], bool], *, seconds: float, log: Path, pid: int | None = None) -> None:
    """Poll condition until it holds.

    Raises ClusterError naming the log when time is up or the process pid has ended.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if pid is not None and not alive(pid):
            raise ClusterError(f"{what}: the process ended; read {log}:\n{tail(log)}")
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not so after {seconds:.0f} s; read {log}:\n{tail(log)}")
        time.sleep(0.05)


def tail(log: Path, lines: int = 5) -> str:
    """The last lines of a log, for an error message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return "(no log was written)"


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie doesn't."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


class Daemons:
    """The background programs of one run folder: NAME has its pid in pid/NAME and its output in log/NAME.log."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def log(self, name: str) -> Path:
        """Where a program's output goes."""
        return self.directory / "log" / f"{name}.log"

    def pid(self, name: str) -> int | None:
        """The pid of a running program of this run, or None."""
        try:
            pid = int((self.directory / "pid" / name).read_text())
        except (FileNotFoundError, ValueError):
            return None
        # A pid file that outlived a reboot may name somebody else's process.
        return pid if alive(pid) and _mark_of(pid) == str(self.directory) else None

    def names(self) -> list[str]:
        """The programs that were started, running or not."""
        folder = self.directory / "pid"
        return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []

    def start(self, name: str, argv: Iterable[str | Path], environment: Mapping[str, str] | None = None) -> int:
        """Start a program in the background and return its pid; does nothing when it runs already."""
        running = self.pid(name)
        if running is not None:
            return running
        pid_file = self.directory / "pid" / name
        for folder in (pid_file.parent, self.log(name).parent):
            folder.mkdir(parents=True, exist_ok=True)
        pid_file.unlink(missing_ok=True)
        # Handed to init: Envoy ends with the process that started it. The pid is written before exec, so there is
        # no moment at which the program runs and its pid isn't known.
        script = 'echo $$ > "$0.new"; mv "$0.new" "$0"; exec "$@"'
        with self.log(name).open("a") as log:
            subprocess.run(
                ["setsid", "--fork", "sh", "-c", script, str(pid_file), *map(str, argv)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {}), MARK: str(self.directory)},
                cwd="/",
                check=True,
            )
        wait_for(f"{name} starts", pid_file.exists, seconds=10, log=self.log(name))
        return int(pid_file.read_text())

    def stop(self, name: str, *, grace_seconds: float = 1.0) -> None:
        """End a program: SIGTERM, then SIGKILL after the grace."""
        pid = self.pid(name)
        if pid is not None:
            end([pid], grace_seconds=grace_seconds)
        (self.directory / "pid" / name).unlink(missing_ok=True)

    def marked(self) -> list[int]:
        """All processes that this run started, directly or not, except the caller's own."""
        own = {os.getpid(), os.getppid()}
        pids = (int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit())
        return [pid for pid in pids if pid not in own and _mark_of(pid) == str(self.directory)]


def _mark_of(pid: int) -> str | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = f"{MARK}=".encode()
    return next((e[len(prefix) :].decode() for e in environment if e.startswith(prefix)), None)


def end(pids: Iterable[int], *, grace_seconds: float) -> None:
    """Send SIGTERM to processes, wait for the grace, and SIGKILL what is left."""
    left = list(pids)
    for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, 5.0)):
        for pid in left:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + seconds
        while (left := [pid for pid in left if alive(pid)]) and time.monotonic() < deadline:
            time.sleep(0.02)


@contextmanager
def only_one(lock: Path, waiting: str) -> Iterator[None]:
    """Hold a lock file; says what it waits for while another process holds it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(waiting, flush=True)
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def answers(url: str) -> bool:
    """Whether a URL answers with a status below 400 within a second."""
    try:
        with urllib.request.urlopen(url, timeout=1) as response:
            return bool(response.status < 400)
    except (OSError, http.client.HTTPException):
        return False
