"""Long gaps between outputs: counted at an edge that is not below the limit, told from a shared cause."""

from datetime import UTC, datetime

import numpy as np
import pytest
from specfleet.api.benchmark import GuardrailsSpec
from specfleet.api.status import ArmRole
from specfleet.decide.counters import COUNTERS, GAUGES, Counter, PodWindow, TargetFeed, Window
from specfleet.decide.watch import Watch
from specfleet.decide.watch_report import Answer, Attribution, Signal
from specfleet.decide.watch_target import Target, TargetPod
from specfleet.telemetry.prometheus import Series
from specfleet.telemetry.queries import GAP_BUCKETS, fleet_queries, stall_edges
from specfleet.telemetry.samples import by_pod

POD = ("ns", "p")
START = datetime(2026, 11, 2, tzinfo=UTC)


def series(name: str, values: list[float], **labels: str) -> Series:
    times = np.arange(len(values)) * 15.0
    return Series({"__name__": name, "namespace": "ns", "pod": "p", **labels}, times, np.array(values))


def stalled(limit: float | None, *found: Series) -> list[float]:
    count = series("vllm:inter_token_latency_seconds_count", [0, 100], engine="0")
    return by_pod([count, *found], {POD: limit}, "namespace", "pod")[POD].values[Counter.STALLED_STEPS].tolist()


def bucket(le: str, *values: float, engine: str = "0") -> Series:
    return series(GAP_BUCKETS, list(values), le=le, engine=engine)


@pytest.mark.parametrize(
    ("limit", "buckets", "over"),
    [
        (0.2, [bucket("0.2", 0, 90)], 10),
        (0.2, [bucket("0.2", 0, 90), bucket("0.3", 0, 97)], 10),
        (0.22, [bucket("0.3", 0, 97), bucket("0.2", 0, 90)], 3),
        (1, [bucket("1.0", 0, 60)], 40),
        (0.2, [bucket("0.2", 0, 50), bucket("0.2", 0, 40, engine="1")], 10),
    ],
)
def test_gaps_over_a_limit_are_those_above_the_first_edge_that_is_not_below_it(limit, buckets, over):
    assert stalled(limit, *buckets) == [0, over]


@pytest.mark.parametrize(
    ("limit", "buckets"),
    [
        (0.2, []),
        (None, [bucket("0.2", 0, 90)]),
        (0.5, [bucket("0.2", 0, 90)]),
        (0.2, [bucket("+Inf", 0, 100)]),
        (0.2, [bucket("x", 0, 90)]),
    ],
)
def test_without_a_fitting_bucket_nothing_is_known_of_stalls(limit, buckets):
    assert np.isnan(stalled(limit, *buckets)).all()


def test_only_the_buckets_of_a_limit_are_asked_for_in_every_spelling():
    assert stall_edges([]) == frozenset()
    assert stall_edges([0.2, 1]) == {0.2, 1}
    assert stall_edges([0.22]) == {0.22, 0.3}
    (plain,) = fleet_queries({"ns": 2}, "namespace", 90)
    assert GAP_BUCKETS not in plain
    (query,) = fleet_queries({"ns": 2}, "namespace", 90, edges=stall_edges([0.22, 1]))
    assert GAP_BUCKETS in query
    assert 'le=~"|0[.]22|0[.]3|1|1[.]0",' in query


@pytest.mark.parametrize(
    ("ours", "plain", "blame"),
    [
        (0.12, 0.01, Attribution.SPECULATION),
        (0.12, 0.12, Attribution.SHARED),
        (0.12, None, Attribution.HISTORICAL),
        (0.04, 0.0, None),
        (0.052, 0.0, None),
    ],
)
def test_more_than_one_gap_in_twenty_is_a_finding_and_whose_it_is(ours, plain, blame):
    shares = {ArmRole.SPECULATIVE: ours} | ({} if plain is None else {ArmRole.BASELINE: plain})
    found = findings(shares, tuple(shares))
    assert [one.attribution for one in found] == ([] if blame is None else [blame])
    if found:
        assert "0.2 s" in found[0].message


@pytest.mark.parametrize("steps", [0, 10], ids=["nothing", "next to nothing"])
def test_a_plain_pod_that_has_shown_nothing_yet_blames_nobody(steps):
    measured = {ArmRole.SPECULATIVE: 0.12} | ({ArmRole.BASELINE: 0.0} if steps else {})
    found = findings(measured, tuple(ArmRole), steps={ArmRole.BASELINE: steps})
    assert [one.attribution for one in found] == [Attribution.PENDING]


def findings(shares, serving, steps=None):
    """What half an hour of these shares of stalled gaps leads to; arms that serve need not have been measured."""
    watch = Watch()
    pods = {role: (TargetPod(role.value, "u", START),) for role in serving}
    guards = GuardrailsSpec(stall_slo_seconds=0.2)
    target = Target(("ns", "n", "u"), pods, START, 60, fingerprint="f", guardrails=guards)
    for index in range(30):
        windows = {}
        for role, share in shares.items():
            counts = np.zeros(COUNTERS)
            counts[Counter.GENERATED_TOKENS], counts[Counter.FIRST_TOKENS] = 9000, 30
            every = (steps or {}).get(role, 4000)
            counts[Counter.STEPS], counts[Counter.STALLED_STEPS] = every, every * share
            begin = START.timestamp() + 60 * index
            pod = PodWindow(60.0, counts, np.zeros(GAUGES))
            windows[role] = (Window(begin, begin + 60, Answer.OK, "", {role.value: pod}),)
        feed = TargetFeed(target, windows, dict.fromkeys(shares, (Answer.OK, "")))
        watch.observe(datetime.fromtimestamp(START.timestamp() + 60 * (index + 1), UTC), {target.key: feed})
    return [one for one in watch.report(target.key).suspicions if one.signal is Signal.STALLS]
