"""The client as a process of its own, so that nothing that the narrator does disturbs what the client measures."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from e2e.road.access import ROOT
from e2e.road.traffic import DRAIN_SECONDS


@dataclass
class TrafficProcess:
    """Start, stop (drains) and wait for e2e.road.traffic."""

    url: str
    host: str
    model: str
    log: Path
    rate: float = 6.0
    long_streams: int = 3
    seconds: float = 2400.0
    more: tuple[str, ...] = ()
    """More arguments of e2e.road.traffic."""
    _process: subprocess.Popen[bytes] | None = field(default=None)

    def answers(self) -> bool:
        """Whether the gateway leads to an engine by this hostname."""
        request = urllib.request.Request(f"{self.url}/v1/models", headers={"Host": self.host})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def command(self) -> list[str]:
        """Command line of the client."""
        return [
            *(sys.executable, "-m", "e2e.road.traffic", "--url", self.url, "--host", self.host),
            *("--model", self.model, "--log", str(self.log), "--rate", str(self.rate)),
            *("--long-streams", str(self.long_streams), "--seconds", str(self.seconds)),
            *self.more,
        ]

    def start(self) -> None:
        """Start sending."""
        self._process = subprocess.Popen(self.command(), cwd=ROOT, stderr=subprocess.DEVNULL)

    @property
    def running(self) -> bool:
        """Whether it sends, or drains."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Send no new request; open streams are read to their end."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def wait(self) -> bool:
        """Wait until all is answered. False when it had to be killed: its log then lacks the open requests."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout=DRAIN_SECONDS + 30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False
        return True
