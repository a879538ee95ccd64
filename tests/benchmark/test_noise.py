"""The noise that is read from stored evidence is the noise that was put into it."""

import json
from pathlib import Path

import numpy as np
import pytest
from specfleet.api.deployment import DeploymentSpec

from benchmarks.evidence.__main__ import ASSUMED, RECORDED, default_spec
from benchmarks.evidence.noise import measured, noise_of, noise_table
from benchmarks.evidence.truth import Effect, Noise, Truth, draw_pairs

MIXED = Truth(Effect(tpot=0.8), {"peak": Effect(tpot=1.4, throughput=0.7)})


def spec() -> DeploymentSpec:
    return default_spec()


def test_the_sd_between_pairs_is_recovered_whatever_each_cell_gains() -> None:
    found = noise_of("drawn", draw_pairs(spec(), MIXED, Noise(), 400, np.random.default_rng(11)))
    spreads = (found.tpot, found.ttft, found.throughput)
    assert [spread.sd for spread in spreads if spread] == pytest.approx(ASSUMED, rel=0.06)
    assert found.tpot is not None
    assert (found.tpot.pairs, found.tpot.cells) == (400, 6)
    assert found.throughput is not None
    assert found.throughput.cells == 2, "requests/s mean something in closed loop only"


def test_one_pair_has_no_spread_and_says_so() -> None:
    found = noise_of("short", draw_pairs(spec(), MIXED, Noise(), 1, np.random.default_rng(1)))
    assert found.tpot is None
    assert "| short | too few |" in noise_table([found], ASSUMED)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_every_recorded_benchmark_can_be_read(path: Path) -> None:
    assert any(one.tpot is not None for one in measured(path))
    assert json.loads(path.read_text())["kind"] == "List"
