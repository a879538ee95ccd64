"""A comparison at unequal load invents or hides a gain (design, section 6): it must decide nothing."""

from datetime import UTC, datetime

import numpy as np
import pytest
from specfleet.api.speculation import Method
from specfleet.api.status import ArmRole, Verdict
from specfleet.decide.bank import Detector, DetectorBank
from specfleet.decide.comparison import PairedTotals, compare
from specfleet.decide.watch_target import Target, TargetPod
from specfleet.simulate.steps import StepModel
from specfleet.simulate.traffic import Arm, Effect, EngineModel, Generator, TrafficModel, counters

PODS = 5
SINCE = datetime(2026, 11, 1, tzinfo=UTC)
TARGET = Target(
    key=("ns", "n", "u"),
    arms={role: (TargetPod(role.value, role.value, SINCE),) for role in ArmRole},
    since=SINCE,
    window_seconds=60,
    method=Method.EAGLE3,
)


def arms(rate: float, spec_share: float, spec_pods: int, engine: EngineModel, hours: int = 2):
    """Counters of both arms, (COUNTERS, T) each, and their pod-seconds per window."""
    load = Generator(TrafficModel(rate, diurnal=0.0, runaways=False), 1, 60.0, 3).span(0.0, 60 * hours)
    noise = np.random.default_rng(1)
    ours = counters(load, engine, Arm(True, spec_share, spec_pods), Effect(), noise)[:, :, 0]
    plain = counters(load, engine, Arm(False, 1 - spec_share, PODS - spec_pods), Effect(), noise)[:, :, 0]
    return ours, plain, (60.0 * spec_pods, 60.0 * (PODS - spec_pods))


@pytest.mark.parametrize(("share", "pods"), [(0.01, 1), (0.05, 1), (0.20, 2)])
@pytest.mark.parametrize("context", [700, 4000])
def test_a_canary_with_less_traffic_than_its_pods_could_take_neither_passes_nor_fails(share, pods, context):
    ours, plain, seconds = arms(40.0, share, pods, EngineModel(context_tokens=context))
    totals = PairedTotals()
    for index in range(ours.shape[1]):
        totals.add(ours[:, index], plain[:, index], *seconds)
    said = compare(totals, TARGET, promoted=False)
    assert said.verdict is Verdict.INCONCLUSIVE, said.message
    assert said.tpot_ratio_lower is None, "no bound, so nothing that serves plain first"


def test_the_same_canary_at_matched_load_passes():
    ours, plain, seconds = arms(40.0, 0.2, 1, EngineModel())
    totals = PairedTotals()
    for index in range(ours.shape[1]):
        totals.add(ours[:, index], plain[:, index], *seconds)
    assert compare(totals, TARGET, promoted=False).verdict is Verdict.PASS


@pytest.mark.parametrize(("share", "pods"), [(0.01, 1), (0.05, 1), (0.10, 1), (0.20, 2)])
def test_a_starved_control_never_looks_like_a_lost_gain(share, pods):
    """With less traffic than its pods could take a control is fast because it is idle, not because it is plain."""
    ours, plain, seconds = arms(60.0, 1 - share, PODS - pods, EngineModel(context_tokens=4000), hours=12)
    bank = DetectorBank(1)
    bank.threshold[:] = 12.6
    pod_seconds = np.array([[seconds[0]], [seconds[1]]])
    for index in range(ours.shape[1]):
        ends = np.array([60.0 * (index + 1)])
        bank.step(
            slice(None), ours[:, index : index + 1], plain[:, index : index + 1], pod_seconds, ends, np.array([60.0])
        )
    assert bank.stage[Detector.LOST_GAIN, 0] == 0


def test_a_proposer_that_wins_idle_and_loses_under_load_is_seen_to_lose_at_matched_load():
    """Draft cost grows with the batch here: at 1 request/s and pod it wins, at the peak it loses."""
    engine = EngineModel(steps=StepModel(draft_per_token=0.5, draft_base=1.0))
    verdicts = []
    for rate in (5.0, 60.0):
        ours, plain, seconds = arms(rate, 0.4, 2, engine)
        totals = PairedTotals()
        for index in range(ours.shape[1]):
            totals.add(ours[:, index], plain[:, index], *seconds)
        verdicts.append(compare(totals, TARGET, promoted=False))
    assert verdicts[0].verdict is Verdict.PASS, verdicts[0].message
    assert verdicts[1].verdict is Verdict.FAIL, verdicts[1].message
