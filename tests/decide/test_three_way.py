"""A change of engine: a bad engine is refused even when speculation is fine, and the reverse."""

import numpy as np
import pytest
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.status import Verdict
from specfleet.decide.evidence import judge
from specfleet.decide.three_way import Serve, compare_three, judge_change

from benchmarks.evidence.truth import Effect, Noise, Truth, draw_pairs

SPEC = DeploymentSpec.model_validate(
    {
        "model": {"name": "m"},
        "engine": {"image": "vllm:0.33.0"},
        "speculation": {"method": "ngram", "numSpeculativeTokens": 3},
        "benchmark": {
            "tiers": [{"name": "low", "requestsPerSecond": 2}, {"name": "peak", "concurrency": 16}],
            "slices": [{"name": "chat"}, {"name": "code"}],
            "pairs": 6,
        },
    }
)
SAME, SLOWER, FASTER = Effect(), Effect(tpot=1.3, throughput=0.8), Effect(tpot=0.6, throughput=1.3)


@pytest.mark.parametrize(
    ("engine", "speculation", "serve"),
    [
        (SAME, FASTER, Serve.NEW_SPECULATIVE),
        (SAME, SLOWER, Serve.NEW_PLAIN),
        (SAME, SAME, Serve.NEW_PLAIN),
        (SLOWER, FASTER, Serve.OLD),
        (SLOWER, SLOWER, Serve.OLD),
        (FASTER, FASTER, Serve.NEW_SPECULATIVE),
    ],
)
def test_each_question_has_its_own_answer(engine: Effect, speculation: Effect, serve: Serve) -> None:
    random = np.random.default_rng(11)
    change = judge_change(SPEC, draw_pairs(SPEC, Truth(engine), Noise(), 6, random))
    gain = judge(SPEC, draw_pairs(SPEC, Truth(speculation), Noise(), 6, random))
    outcome = compare_three(change, gain)
    assert outcome.serve is serve
    assert outcome.message


def test_a_change_that_could_not_be_measured_keeps_what_serves() -> None:
    change = judge_change(SPEC, [], budget_spent=True)
    assert change.verdict is Verdict.ERROR
    assert compare_three(change, None).serve is Serve.OLD


def test_a_change_without_speculation_serves_plain() -> None:
    change = judge_change(SPEC, draw_pairs(SPEC, Truth(SAME), Noise(), 6, np.random.default_rng(3)))
    assert compare_three(change, None).serve is Serve.NEW_PLAIN
