"""Deployments of the real engine on two cores: one pod serves, and arms take turns while they are measured.

The engine's folder is mounted into the pods from the node: 5 GB would be waste in an image. Only the embedded cluster,
whose node is this machine, can do that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from e2e.cluster.settings import GATEWAY_NAME, GATEWAY_NAMESPACE
from e2e.engine import second_version
from e2e.engine.models import deep_models, tiny_models
from e2e.engine.set_up import folder
from e2e.road.access import ROOT, Object, RoadError, cluster_command
from e2e.road.example import Place, merge

SPACE = "engine"
VERSION = "0.32.0"
IMAGE = f"localhost/vllm-cpu:{VERSION}"
OLDER_IMAGE = f"localhost/vllm-cpu:{second_version.VERSION}"
MOUNT = "/opt/engine"
NUMA = "libnuma.so.1"
SWAPPED = "swapped"
STARTUP_SECONDS = 600
CONTEXT = 2048
LONGEST_TOKENS = 250
PAIRS = 3
CLIENT = (
    *("--prompt-words", "4,8,12", "--answer-tokens", "24,48,72", "--longest-tokens", str(LONGEST_TOKENS)),
    *("--sampled-share", "0"),
)
"""The client's options: prompts that two cores can read while they decode, greedy as the benchmark's slice. Random
weights have no opinion: with a third of the requests at a temperature of 0.7 the acceptance rate was 0.19 instead of
0.87, and the canary rightly stayed undecided."""

Change = dict[str, Any]
ARGS = ["--enforce-eager", "--max-num-seqs", "16", "--disable-uvicorn-access-log"]
DTYPE = "float32"
"""Verification is cheap where several tokens cost little more than one, as on a GPU. On a CPU that is so in float32
(four tokens 1.8 times one, 32 three times); bfloat16, which vLLM takes there by itself, is emulated where the processor
has none, and four tokens may cost as much as four."""

AT_THE_PEAK: Change = {"benchmark": {"tiers": [{"name": "peak", "concurrency": 8}]}}
"""Half the runs, for what shows under load."""

UP_TO_FOUR: Change = {
    "benchmark": {"tiers": [{"name": "single", "concurrency": 1}, {"name": "peak", "concurrency": 4}]}
}
"""For the good draft: fewer requests per run, and still more than one step at a time."""

FORTY_EIGHT: Change = {
    "engine": {"args": ["64" if one == "16" else one for one in ARGS]},
    "benchmark": {"tiers": [{"name": "single", "concurrency": 1}, {"name": "peak", "concurrency": 48}]},
}
"""For a draft that is to lose under load, as on a GPU whose batch leaves nothing idle: with 48 in flight 336 tokens are
verified per step, each at its full price."""

ALONE_AND_LONG: Change = {
    "benchmark": {
        "tiers": [{"name": "single", "concurrency": 1}],
        "slices": [{"name": "chat", "promptTokens": 16, "outputTokens": 48}],
    }
}
"""For an n-gram proposer, which finds nothing before an answer has gone round its circle once."""


def prepare() -> None:
    """Build the images and put what they need beside the engine. Raises RoadError or EngineMissingError."""
    if os.environ.get("CLUSTER", "embedded") != "embedded":
        raise RoadError("the real engine's pods mount its folder from this machine: CLUSTER=embedded only")
    tiny_models()
    deep_models()
    native = folder() / "native"
    native.mkdir(exist_ok=True)
    if not (native / NUMA).exists():
        shutil.copy(_library(NUMA), native / NUMA)
    _build(IMAGE)
    _build(OLDER_IMAGE, "--build-arg", f"VERSION_FOLDER={inside(second_version.set_up_second())}")


def _build(image: str, *more: str) -> None:
    done = subprocess.run(cluster_command("image", image, "images/vllm-cpu", *more), cwd=ROOT, check=False)
    if done.returncode != 0:
        raise RoadError(f"image {image} could not be built; why is said above")


def _library(name: str) -> Path:
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = [line.split()[-1] for line in listed.splitlines() if line.split()[:1] == [name]]
    if not found:
        raise RoadError(f"{name} is not on this machine (Debian: apt-get install libnuma1)")
    return Path(found[0])


def inside(path: Path) -> str:
    """Where pods see a path of the engine's folder."""
    return f"{MOUNT}/{path.relative_to(folder())}"


def swap_draft(name: str) -> str:
    """Make the swappable draft a copy of the deep model's draft `name`. Returns the path that pods see.

    The path stays, so that nothing in a spec says that the content changed.
    """
    place = folder() / SWAPPED / "draft"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(deep_models() / name, place)
    return inside(place)


def draft(name: str, tokens: int) -> Change:
    """spec.speculation of a draft of the deep target."""
    return {
        "method": "draft_model",
        "draft": {"model": inside(deep_models() / name)},
        "numSpeculativeTokens": tokens,
    }


def deep(name: str, speculation: Change | None, changes: Change | None = None) -> Object:
    """The deep target: with its draft a token takes half the time."""
    return _deployment(name, inside(deep_models() / "target"), speculation, changes)


def repeating(name: str, speculation: Change | None, changes: Change | None = None) -> Object:
    """As deep, with answers that go round in circles: something for an n-gram proposer to find."""
    return _deployment(name, inside(deep_models() / "target-repeats"), speculation, changes)


def tiny(name: str, speculation: Change | None, changes: Change | None = None) -> Object:
    """The tiny target: starts faster and answers at once."""
    return _deployment(name, inside(tiny_models() / "target"), speculation, changes)


def _deployment(name: str, model: str, speculation: Change | None, changes: Change | None) -> Object:
    place = Place(SPACE, name)
    spec: Object = {
        "model": {"name": model, "servedName": "target", "maxModelLen": CONTEXT, "dtype": DTYPE},
        "engine": {
            "image": IMAGE,
            "version": VERSION,
            "args": ARGS,
            "startupTimeoutSeconds": STARTUP_SECONDS,
            "drainTimeoutSeconds": 240,
            "shutdownTimeoutSeconds": 30,
        },
        "replicas": 1,
        # The plain arm and the candidate beside what serves; the driver loads one of them at a time.
        "capacity": {"maxExtraReplicas": 2},
        "template": {
            "imagePullPolicy": "Never",
            "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
            # The CPU engine's message queue takes 160 MiB there, also with one rank; a container has 64 MiB.
            "sharedMemorySize": "512Mi",
            "volumes": [{"name": "engine", "hostPath": {"path": str(folder()), "type": "Directory"}}],
            "volumeMounts": [{"name": "engine", "mountPath": MOUNT, "readOnly": True}],
        },
        "traffic": {
            "parentRefs": [{"name": GATEWAY_NAME, "namespace": GATEWAY_NAMESPACE}],
            "hostnames": [place.hostname],
        },
        "benchmark": {
            # Closed loops: on two cores no client keeps to a Poisson schedule beside an engine.
            "tiers": [{"name": "single", "concurrency": 1}, {"name": "peak", "concurrency": 8}],
            "slices": [{"name": "chat", "promptTokens": 16, "outputTokens": 24}],
            "pairs": PAIRS,
            "runSeconds": 6,
            "warmupSeconds": 1,
            "minimumRequests": 8,
        },
        # A CPU's step grows with every drafted token, and a new request waits for the step in flight: the user of this
        # deployment cares for the time per token.
        "guardrails": {"maxTtftIncreaseRatio": 1.0},
        "rollout": {"steps": [{"weightPercent": 50, "minDurationSeconds": 30, "minRequests": 15}]},
        "monitoring": {"scrapeIntervalSeconds": 2, "windowSeconds": 8},
        "remedies": {"confirmSeconds": 15, "warmupSeconds": 10, "cooldownSeconds": 20},
    }
    if speculation is not None:
        spec["speculation"] = speculation
    merge(spec, changes or {})
    return {
        "apiVersion": "specfleet.dev/v1alpha1",
        "kind": "SpeculativeDeployment",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": spec,
    }
