"""Lints 1,000 files in a fresh process, three times, and prints the seconds: `python -m benchmarks.lint`."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

FILES = 1000
ROUNDS = 3
EXAMPLES = Path(__file__).parents[2] / "examples" / "models"


def write(folder: Path) -> None:
    """Copies of the examples, each under a name of its own."""
    sources = [file.read_text() for file in sorted(EXAMPLES.glob("*.yaml"))]
    for number in range(FILES):
        (folder / f"{number}.yaml").write_text(
            sources[number % len(sources)].replace("metadata:\n  name: ", f"metadata:\n  name: n{number}-")
        )


def main() -> None:
    """Prints one line per round."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        for _ in range(ROUNDS):
            start = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "specfleet.cli.main", "lint", name], capture_output=True, text=True, check=True
            )
            seconds = time.perf_counter() - start
            print(f"{seconds:.2f} s: {done.stdout.strip().splitlines()[-1]}")


if __name__ == "__main__":
    main()
