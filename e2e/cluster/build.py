"""Builds the parts that are missing, shows how far it is, and says where each binary lies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.parts import GO_PARTS, GoPart
from e2e.cluster.settings import ClusterError, cache_dir

_PROGRESS_SECONDS = 10.0


def say(text: str) -> None:
    """Print one line of progress at once."""
    print(text, flush=True)


def clock(seconds: float) -> str:
    """Return a duration as m:ss."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def part_dir(part: GoPart) -> Path:
    """The folder of the part's binaries; its name carries the content key, so it is either whole or absent."""
    return cache_dir() / "parts" / f"{part.name}-{part.key()}"


def binary(part: GoPart, name: str | None = None) -> Path:
    """Return the path of one binary of a part.

    Raises ClusterError when the part isn't built.
    """
    path = part_dir(part) / (name or part.name)
    if not path.exists():
        raise ClusterError(f"{path.name} is not built: run `python3 -m e2e.cluster build`")
    return path


@dataclass
class _Progress:
    """Counts the packages that `go build -v` names while a part compiles."""

    part: GoPart
    log: Path
    started: float
    packages: int = 0

    def follow(self, stream: Iterable[str]) -> None:
        with self.log.open("w") as log:
            for line in stream:
                log.write(line)
                self.packages += not line.startswith("go: ")

    def line(self, word: str) -> str:
        return f"{self.part.name:20} {clock(time.monotonic() - self.started)} {word} ({self.packages} packages)"


def build_parts(parts: Sequence[GoPart] = GO_PARTS) -> float:
    """Build what is missing and return the seconds it took; 0.0 when everything was there.

    Raises ClusterError naming the log of the part that failed.
    """
    missing = [part for part in parts if not part_dir(part).is_dir()]
    if not missing:
        return 0.0
    if shutil.which("go") is None:
        raise ClusterError("the cluster's parts are Go programs and there is no `go` in PATH: install Go 1.26 or later")
    if any(part.cgo for part in missing) and shutil.which("gcc") is None:
        raise ClusterError("runc needs a C compiler and there is no `gcc` in PATH: install gcc and libc6-dev")
    say(f"compiling {len(missing)} parts, minutes the first time: {', '.join(part.name for part in missing)}")
    began = time.monotonic()
    # Two at a time: one part's linking and downloading, which use one core, overlap another's compiling.
    with ThreadPoolExecutor(max_workers=2) as pool:
        for future in [pool.submit(_build, part) for part in missing]:
            future.result()
    took = time.monotonic() - began
    say(f"compiled in {clock(took)}")
    return took


def _build(part: GoPart) -> None:
    target = part_dir(part)
    logs = cache_dir() / "log"
    work = target.with_name(f".{target.name}.{os.getpid()}")
    for stale in target.parent.glob(f".{part.name}-*.*"):
        if not Path(f"/proc/{stale.suffix[1:]}").exists() or stale == work:
            shutil.rmtree(stale)
    work.mkdir(parents=True)
    logs.mkdir(parents=True, exist_ok=True)
    progress = _Progress(part, logs / f"build-{part.name}.log", time.monotonic())
    _compile(part, work, progress)
    for link in part.links:
        (work / link).symlink_to(part.name)
    for module, inside, name in part.files:
        _copy_from_module(part, module, inside, work / name)
    for stale in target.parent.glob(f"{part.name}-" + "?" * 16):
        shutil.rmtree(stale)
    work.rename(target)
    say(progress.line("built"))


def _compile(part: GoPart, work: Path, progress: _Progress) -> None:
    output = work / part.name if part.packages == (".",) else work
    # A build whose command was killed ends too, rather than compile beside the next one.
    leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    command = [*leash, "nice", "-n", "10", "go", "build", "-v", "-p", str(os.cpu_count() or 2)]
    command += ["-o", f"{output}" if output.name == part.name else f"{output}/", *part.arguments()]
    source = _module_copy(part, work) if part.generated else part.source
    process = subprocess.Popen(
        command,
        cwd=source,
        env=_go_environment(part),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    reader = threading.Thread(target=progress.follow, args=(process.stderr,), daemon=True)
    reader.start()
    try:
        while True:
            try:
                code = process.wait(timeout=_PROGRESS_SECONDS)
                break
            except subprocess.TimeoutExpired:
                say(progress.line("compiling"))
    finally:
        process.kill()
    reader.join()
    shutil.rmtree(work / "src", ignore_errors=True)
    if code != 0:
        tail = "".join(progress.log.read_text().splitlines(keepends=True)[-5:])
        raise ClusterError(f"go build of {part.name} ended with {code}; the whole output is in {progress.log}:\n{tail}")


def _go_environment(part: GoPart) -> dict[str, str]:
    environment = {**os.environ, "CGO_ENABLED": "1" if part.cgo else "0", "GOWORK": "off"}
    # -buildvcs needs git to own the tree, and the stamp would make equal sources differ.
    environment["GOFLAGS"] = f"{os.environ.get('GOFLAGS', '')} -buildvcs=false -mod=readonly".strip()
    return environment


def _module_copy(part: GoPart, work: Path) -> Path:
    copy = work / "src"
    _copy_from_module(part, part.module, ".", copy)
    for name, text in part.generated:
        path = copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return copy


def _copy_from_module(part: GoPart, module: str, inside: str, target: Path) -> None:
    listed = subprocess.run(
        ["go", "mod", "download", "-json", module],
        cwd=part.source,
        env=_go_environment(part),
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        raise ClusterError(f"cannot get the Go module {module}: {listed.stderr.strip() or listed.stdout.strip()}")
    source = Path(json.loads(listed.stdout)["Dir"]) / inside
    if not source.exists():
        raise ClusterError(f"the Go module {module} has no {inside} at {source}")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=shutil.copyfile)
        for directory in [target, *(p for p in target.rglob("*") if p.is_dir())]:
            directory.chmod(0o755)
    else:
        shutil.copyfile(source, target)


if __name__ == "__main__":
    try:
        build_parts([part for part in GO_PARTS if len(sys.argv) < 2 or part.name in sys.argv[1:]])
    except ClusterError as error:
        sys.exit(str(error))
