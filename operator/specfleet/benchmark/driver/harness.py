"""The port behind which a load generator ("harness") runs, and the one behind it: `vllm bench serve`.

Another one (aiperf, guidellm) is a class with the members of Harness, an entry in HARNESSES, and its name in
benchmark/plan.py; docs/evidence.md tells the steps.

A harness sends requests and says when it sent and what came back. Whether a run counts is the driver's business: it
compares with the pod's own counters, whatever the harness says of itself (validity.py).
"""

import json
import math
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

Json = dict[str, Any]
PLAN_VERSION = 1
"""Of what benchmark/plan.py writes and this package reads."""

API_KEY = "VLLM_API_KEY"
"""Variable with the engines' key, for whoever sends a request: absent or empty where they ask for none."""


@dataclass(frozen=True)
class ClientRecord:
    """What a harness saw of one run. Lists have one entry per request, in the order in which they were to be sent."""

    duration_seconds: float
    """First send to last answer."""
    completed: int
    failed: int
    prompt_tokens: int
    output_tokens: int
    starts: Sequence[float] = ()
    """When each request left, in seconds of any clock; empty: not known, so no open-loop latency can pass."""
    ttfts: Sequence[float] = ()
    """Seconds from the send to the first token."""
    latencies: Sequence[float] = ()
    """Seconds from the send to the last token."""
    output_lens: Sequence[int] = ()
    """Tokens; 0 for a request that failed."""
    pauses: Sequence[Sequence[float]] = field(default_factory=list)
    """Seconds between chunks of the stream after the first, as they came: several tokens may come in one."""
    errors: Sequence[str] = ()
    """Empty text: none."""


class Harness(Protocol):
    """A load generator. Everything that it has to be asked for is in `run`; see plan.py for the keys."""

    name: str

    def command(self, plan: Json, arm: Json, run: Json, dataset: Path, result: Path) -> list[str]:
        """Command line of one run: every prompt of `dataset` (JSON lines, key `prompt`) once, in that order, to the
        pod at arm["url"], streamed, at run["requests_per_second"] (Poisson, seeded by run["seed"]) or with
        run["concurrency"] in flight, and what was seen into `result`."""
        ...

    def intended_delays(self, run: Json) -> list[float] | None:
        """When each request was to leave, in seconds after the first moment; None: closed loop, or not known."""
        ...

    def read(self, result: Path) -> ClientRecord:
        """What `result` says. Raises OSError, ValueError, KeyError or TypeError when it is not what was asked for."""
        ...

    def prepared_command(self, plan: Json) -> list[str]:
        """Words with which every command of this plan begins, when it is a Python script whose imports take long: they
        are done once (prepared.py). Empty: every run starts its process anew."""
        ...

    def environment(self, work: Path) -> dict[str, str]:
        """Variables of its process beside the image's own; `work` is a folder that it may write to.

        Where API_KEY is set, every request needs it as `Authorization: Bearer KEY`."""
        ...


def intended_delays(seed: int, count: int, requests_per_second: float) -> list[float]:
    """When `vllm bench serve --seed S --request-rate R` means to send each request, seconds after its start.

    It draws np.random.gamma(1, 1/R), which is -log(1 - u)/R of the MT19937 stream seeded by np.random.seed(S), and
    scales the sum to count/R. Python's generator has the same stream once its state is set the way NumPy sets it.
    """
    state = [seed & 0xFFFFFFFF]
    for index in range(1, 624):
        state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + index) & 0xFFFFFFFF)
    stream = random.Random()  # noqa: S311
    stream.setstate((3, (*state, 624), None))
    total = 0.0
    delays = []
    for _ in range(count):
        total += -math.log(1.0 - stream.random()) / requests_per_second
        delays.append(total)
    scale = count / requests_per_second / total if total > 0 else 1.0
    return [delay * scale for delay in delays]


READER = '''"""The image's pandas; without one, the function by which `vllm bench serve` reads a custom dataset."""

import json
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path


class Row(dict):
    def to_dict(self):
        return dict(self)


class Table:
    def __init__(self, rows):
        self.rows = rows
        self.columns = list(rows[0]) if rows else []

    def iterrows(self):
        return enumerate(map(Row, self.rows))


def read_json(path_or_buf, lines=True):
    text = Path(path_or_buf).read_text(encoding="utf-8")
    return Table([json.loads(line) for line in text.splitlines() if line.strip()])


here = Path(__file__).parent
found = PathFinder.find_spec("pandas", [path for path in sys.path if path and Path(path) != here])
if found is not None and found.loader is not None:
    sys.path[:] = [path for path in sys.path if Path(path) != here]
    real = module_from_spec(found)
    sys.modules["pandas"] = real
    found.loader.exec_module(real)
'''


class VllmBenchServe:
    """`vllm bench serve` of the engine image (vLLM 0.11 to 0.33)."""

    name = "vllm-bench-serve"

    def command(self, plan: Json, arm: Json, run: Json, dataset: Path, result: Path) -> list[str]:
        """Temperature is always explicit: since 0.15 it is not forced to 0."""
        command = [
            *plan["bench_command"],
            *("--backend", "vllm", "--base-url", arm["url"], "--endpoint", plan["endpoint"]),
            *("--model", arm["model"], "--tokenizer", plan["tokenizer"]),
            *("--dataset-name", "custom", "--dataset-path", str(dataset)),
            *("--custom-output-len", str(run["output_tokens"])),
            *("--disable-shuffle", "--skip-chat-template", "--disable-tqdm"),
            *("--num-prompts", str(run["requests"]), "--seed", str(run["seed"])),
            *("--temperature", str(run["temperature"]), "--top-p", str(run["top_p"])),
            *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,95,99"),
            *("--save-result", "--save-detailed", "--result-dir", str(result.parent)),
            *("--result-filename", result.name, "--ready-check-timeout-sec", "0"),
        ]
        if run.get("concurrency"):
            return [*command, "--request-rate", "inf", "--max-concurrency", str(run["concurrency"])]
        return [*command, "--request-rate", str(run["requests_per_second"])]

    def prepared_command(self, plan: Json) -> list[str]:
        """The bench imports torch and transformers: 10 to 20 s."""
        return list(plan["bench_command"])

    def intended_delays(self, run: Json) -> list[float] | None:
        """Reconstructed from the seed: the bench does not write them down."""
        if not run.get("requests_per_second"):
            return None
        return intended_delays(run["seed"], run["requests"], run["requests_per_second"])

    def read(self, result: Path) -> ClientRecord:
        """The JSON of --save-detailed."""
        return self.record(json.loads(result.read_text(encoding="utf-8")))

    def record(self, detail: Json) -> ClientRecord:
        """Older versions write neither latencies nor the number of failures."""
        ttfts = [float(value) for value in detail.get("ttfts") or []]
        pauses = [[float(gap) for gap in gaps] for gaps in detail.get("itls") or []]
        latencies = [float(value) for value in detail.get("latencies") or []]
        if len(latencies) != len(ttfts):
            latencies = [ttft + sum(gaps) for ttft, gaps in zip(ttfts, pauses or [[] for _ in ttfts], strict=False)]
        completed = int(detail.get("completed") or 0)
        asked = int(detail.get("num_prompts") or 0)
        return ClientRecord(
            duration_seconds=float(detail.get("duration") or 0.0),
            completed=completed,
            failed=int(detail.get("failed", max(0, asked - completed))),
            prompt_tokens=int(detail.get("total_input_tokens") or 0),
            output_tokens=int(detail.get("total_output_tokens") or 0),
            starts=[float(value) for value in detail.get("start_times") or []],
            ttfts=ttfts,
            latencies=latencies,
            output_lens=[int(value) for value in detail.get("output_lens") or []],
            pauses=pauses,
            errors=[str(value) for value in detail.get("errors") or []],
        )

    def environment(self, work: Path) -> dict[str, str]:
        """An image without pandas (extra `bench`), which the bench needs to read a JSONL file, gets READER for it.

        For the bench process only. READER gives way to the real one where there is one: to try without it first would
        cost every pair of such an image the bench's start (20 s and more) while two arms stand idle.
        """
        folder = work / "reader"
        folder.mkdir(exist_ok=True)
        (folder / "pandas.py").write_text(READER, encoding="utf-8")
        paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        key = os.environ.get(API_KEY)
        # The bench takes the key from the variable of the OpenAI client, whatever name the server reads it by.
        keys = {"OPENAI_API_KEY": key} if key else {}
        # An engine's environment may switch to the bench in Rust (0.32), whose arrivals and results are others.
        return {"PYTHONPATH": os.pathsep.join(paths), "VLLM_USE_RUST_BENCH": "0", **keys}


HARNESSES: dict[str, Harness] = {VllmBenchServe.name: VllmBenchServe()}
"""By the name that a plan gives."""
