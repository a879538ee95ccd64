"""The step model as clients on loopback see it, and what a restart heals."""

import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from vllm_sim.profile import parse_profile
from vllm_sim.step_time import StepTimer

from tests.vllm_sim.launch import FAST_PROFILE, RunningEngine, parse_page, running, wait_until

pytestmark = pytest.mark.usefixtures("simulated_only")

STREAMS = 16
TOKENS = 60
# Sixteen streams of about 28 ms per step: few enough wake-ups for a busy machine.
SIXTEEN = {"time_scale": 4.0, "step_noise_sd": 0}
EAGLE = {"method": "eagle3", "model": "sim/draft", "num_speculative_tokens": 3}
PERFECT = {"proposers": {"eagle3": {"acceptance": [1.0]}}}


def _stream(engine: RunningEngine, number: int) -> tuple[int, float]:
    """Tokens by the engine's count, and the client's seconds per token after the first."""
    with engine.open_stream(f"stream {number}", max_tokens=TOKENS) as answer:
        assert answer.readline().startswith(b"data: ")
        first = time.perf_counter()
        last, usage = first, {}
        for line in answer:
            if b'"choices":[{' in line:
                last = time.perf_counter()
            elif b'"usage"' in line:
                usage = json.loads(line.removeprefix(b"data: "))["usage"]
        return int(usage["completion_tokens"]), (last - first) / (TOKENS - 1)


def test_sixteen_streams_get_their_tokens_in_the_time_of_the_model(folder: Path) -> None:
    with running(folder, profile=SIXTEEN) as engine, ThreadPoolExecutor(STREAMS) as pool:
        found = list(pool.map(lambda number: _stream(engine, number), range(STREAMS)))
        page = parse_page(engine.metrics())
    assert [tokens for tokens, _ in found] == [TOKENS] * STREAMS
    assert page.value("vllm:generation_tokens_total") == STREAMS * TOKENS
    timer = StepTimer(parse_profile({**FAST_PROFILE, **SIXTEEN}), None)
    model = timer.expected_seconds(STREAMS, STREAMS * (10 + TOKENS // 2), 0)
    decode = page.value("vllm:request_decode_time_seconds_sum") / (STREAMS * (TOKENS - 1))
    # The engine keeps its own deadlines, so a busy machine shows up in the client's clock only as jitter.
    assert decode / model == pytest.approx(1.0, abs=0.05)
    assert statistics.median(tpot for _, tpot in found) / model == pytest.approx(1.0, abs=0.15)


def _accepted_share(engine: RunningEngine) -> float:
    before = parse_page(engine.metrics())
    assert engine.complete(f"again {time.time()}", max_tokens=60, ignore_eos=True).status == 200
    after = parse_page(engine.metrics())

    def new(name: str) -> float:
        return after.value(f"vllm:spec_decode_num_{name}_total") - before.value(f"vllm:spec_decode_num_{name}_total")

    return new("accepted_tokens") / new("draft_tokens")


@pytest.mark.parametrize(("heals", "after_restart"), [(True, 1.0), (False, 0.0)])
def test_a_restart_heals_the_decay_that_says_so(heals: bool, after_restart: float, folder: Path) -> None:
    file = folder / "faults.json"
    start: dict[str, Any] = {"speculative": EAGLE, "profile": PERFECT, "env": {"VLLM_SIM_FAULTS_FILE": str(file)}}
    with running(folder, **start) as engine:
        assert _accepted_share(engine) == 1.0
        decay = {"id": "decay", "kind": "acceptance_decay", "acceptance": [0.0], "heals_on_restart": heals}
        file.write_text(json.dumps([decay]))
        wait_until(lambda: engine.get("/sim/state").json()["faults"]["active"] == ["decay"], 20, "the decay works")
        assert _accepted_share(engine) == 0.0
    with running(folder, **start) as engine:
        assert _accepted_share(engine) == after_restart
