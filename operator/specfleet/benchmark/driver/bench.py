"""The harness's process."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .failures import StoppedError
from .harness import Harness
from .prepared import Prepared, PreparedError
from .progress import say


@dataclass
class Bench:
    """The harness's process in flight, so that SIGTERM can end it."""

    harness: Harness
    child: "subprocess.Popen[bytes] | None" = None
    stop: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    """Beside our own; see Harness.environment."""
    prepared: Prepared | None = None

    def prepare(self, command: Sequence[str]) -> None:
        """Let the command's imports begin, so that no run waits for them; without effect where that cannot work."""
        if not command:
            return
        try:
            self.prepared = Prepared(command, {**os.environ, **self.environment})
        except PreparedError as error:
            say(f"every run starts its client anew: {error}")

    def give_up_prepared(self) -> bool:
        """From now on start every run's process anew. Returns whether that is a change."""
        if self.prepared is None:
            return False
        self.prepared.end()
        self.prepared = None
        return True

    def check(self) -> None:
        """Raise StoppedError once SIGTERM has come."""
        if self.stop:
            raise StoppedError

    def run(self, command: Sequence[str], log: Path, timeout_seconds: float) -> int | None:
        """Exit code, None on time-out. The child gets its own group and ends with us."""
        if self.prepared is not None and self.prepared.fits(command):
            try:
                return self.prepared.run(command, log, timeout_seconds, self.check)
            except PreparedError as error:
                say(f"  every run starts its client anew: {error}")
                self.give_up_prepared()
        with log.open("wb") as output:
            environment = {**os.environ, **self.environment}
            self.child = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, env=environment
            )
            deadline = time.monotonic() + timeout_seconds
            try:
                while self.child.poll() is None:
                    self.check()
                    if time.monotonic() > deadline:
                        return None
                    try:
                        self.child.wait(timeout=0.1)
                    except subprocess.TimeoutExpired:
                        continue
                return self.child.returncode
            finally:
                if self.child.poll() is None:
                    os.killpg(self.child.pid, signal.SIGKILL)
                    self.child.wait()
                self.child = None
