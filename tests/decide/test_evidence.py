"""What the benchmark decides, told as the situations in which a person would read it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec, RequestProbe, RunSummary
from specfleet.api.status import ArmRole, Verdict
from specfleet.decide.evidence import judge, judge_suspicion

from benchmarks.evidence.truth import Effect, Noise, Truth, draw_pairs

NOISE = Noise()
QUIET = Noise(pair=0.002, run=0.004)


def spec(guardrails: dict[str, Any] | None = None, **benchmark: Any) -> DeploymentSpec:
    matrix: dict[str, Any] = {
        "tiers": [{"name": "low", "requestsPerSecond": 2}, {"name": "peak", "concurrency": 16}],
        "slices": [{"name": "chat"}, {"name": "code"}],
        "pairs": 3,
        "minimumRequests": 20,
    }
    return DeploymentSpec.model_validate(
        {
            "model": {"name": "m"},
            "engine": {"image": "vllm:0.32.0"},
            "speculation": {"method": "ngram", "numSpeculativeTokens": 3},
            "benchmark": {**matrix, **benchmark},
            "guardrails": guardrails or {},
        }
    )


def pairs_of(
    given: DeploymentSpec, truth: Truth, noise: Noise = NOISE, seed: int = 1, count: int | None = None
) -> list[BenchmarkEvidenceSpec]:
    return draw_pairs(given, truth, noise, count or given.benchmark.pairs, np.random.default_rng(seed))


GOOD = Truth(Effect(tpot=0.6, ttft=0.95, throughput=1.3))


def change(
    evidence: list[BenchmarkEvidenceSpec], arm: ArmRole, pairs: Any, **fields: Any
) -> list[BenchmarkEvidenceSpec]:
    """The same evidence with the arm's runs in these pairs changed."""
    return [
        one.model_copy(update={"runs": [run.model_copy(update=fields) if run.arm is arm else run for run in one.runs]})
        if one.pair in pairs
        else one
        for one in evidence
    ]


def test_a_proposer_that_is_faster_everywhere_passes_with_three_short_pairs() -> None:
    verdict = judge(spec(), pairs_of(spec(), GOOD))
    assert verdict.verdict is Verdict.PASS
    assert verdict.reason == "GainProven"
    assert verdict.lower is not None
    assert verdict.upper is not None
    assert verdict.lower < 1 / 0.6 - 1 < verdict.upper
    assert not verdict.need_more
    assert {(cell.tier, cell.slice) for cell in verdict.cells} == {
        ("low", "chat"),
        ("low", "code"),
        ("peak", "chat"),
        ("peak", "code"),
    }
    assert all(cell.verdict is Verdict.PASS for cell in verdict.cells)
    assert all(cell.accepted_length == pytest.approx(2.8, rel=1e-3) for cell in verdict.cells)


def test_winning_at_low_load_and_losing_at_the_peak_is_not_promoted_and_the_tiers_are_named() -> None:
    truth = Truth(GOOD.default, {"peak": Effect(tpot=1.25, throughput=0.8)})
    verdict = judge(spec(), pairs_of(spec(), truth))
    assert verdict.verdict is Verdict.FAIL
    assert verdict.recommendation is not None
    assert "wins at low and loses at peak" in verdict.recommendation
    assert "for large batches" in verdict.recommendation
    assert verdict.recommendation in verdict.message


def test_the_recommendation_says_from_which_batch_on_where_the_tiers_differ_in_it() -> None:
    truth = Truth(GOOD.default, {"peak": Effect(tpot=1.25, throughput=0.8)})
    busy = [
        one.model_copy(
            update={
                "runs": [
                    run.model_copy(update={"completed_requests_per_second": 4 * run.completed_requests_per_second})
                    if run.tier == "peak"
                    else run
                    for run in one.runs
                ]
            }
        )
        for one in pairs_of(spec(), truth)
    ]
    # 128 tokens x 20 ms x 5 requests/s: 12.8 requests at once at low load, 51.2 at the peak.
    assert "for batches above about 26" in str(judge(spec(), busy).recommendation)


def test_a_better_tpot_does_not_buy_a_loss_of_completed_requests_at_the_peak() -> None:
    truth = Truth(GOOD.default, {"peak": Effect(tpot=0.8, throughput=0.85)})
    verdict = judge(spec(), pairs_of(spec(), truth))
    assert (verdict.verdict, verdict.reason) == (Verdict.FAIL, "ThroughputLoss")
    assert "peak" in verdict.message


@pytest.mark.parametrize(
    ("effect", "reason"),
    [
        (Effect(tpot=1.4, throughput=0.99), "TimePerOutputToken"),
        (Effect(tpot=0.6, ttft=1.4), "TimeToFirstToken"),
        (Effect(tpot=0.99), "GainBelowMinimum"),
    ],
)
def test_a_proposer_that_costs_more_than_the_margins_fails_with_the_reason(effect: Effect, reason: str) -> None:
    verdict = judge(spec(), pairs_of(spec(), Truth(effect), QUIET))
    assert (verdict.verdict, verdict.reason) == (Verdict.FAIL, reason)


def test_a_gain_just_around_the_bar_is_inconclusive_and_says_so_in_numbers() -> None:
    verdict = judge(spec(), pairs_of(spec(), Truth(Effect(tpot=1 / 1.06, throughput=1.1))))
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert "%" in verdict.message


def test_a_ttft_that_grows_by_milliseconds_is_not_held_against_a_proposer() -> None:
    evidence = pairs_of(spec(), Truth(Effect(tpot=0.6, throughput=1.3, ttft=1.3)))
    assert judge(spec(), evidence).reason == "TimeToFirstToken"
    short = [
        one.model_copy(
            update={
                "runs": [
                    run.model_copy(update={"ttft_mean_seconds": (run.ttft_mean_seconds or 0) / 20}) for run in one.runs
                ]
            }
        )
        for one in evidence
    ]
    assert judge(spec(), short).verdict is Verdict.PASS


def test_an_open_guard_keeps_a_large_gain_from_passing() -> None:
    truth = Truth(Effect(tpot=0.5, ttft=1.08, throughput=1.3))
    verdict = judge(spec(), pairs_of(spec(), truth, Noise(ttft_factor=4.0)))
    assert (verdict.verdict, verdict.reason) == (Verdict.INCONCLUSIVE, "TimeToFirstToken")


def test_nothing_is_judged_before_the_declared_look() -> None:
    eight = spec(pairs=8, looks=[4])
    for count in (1, 2, 3, 5, 7):
        verdict = judge(eight, pairs_of(eight, GOOD, count=count))
        assert (verdict.verdict, verdict.need_more) == (Verdict.INCONCLUSIVE, True)
    assert judge(eight, pairs_of(eight, GOOD, count=4)).verdict is Verdict.PASS
    assert judge(eight, pairs_of(eight, GOOD, count=8)).verdict is Verdict.PASS


def test_an_early_look_asks_for_more_where_the_last_one_would_decide() -> None:
    sequential, fixed = spec(pairs=8, looks=[4]), spec(pairs=4)
    truth = Truth(Effect(tpot=1 / 1.085, throughput=1.1))
    undecided = 0
    for seed in range(20):
        evidence = pairs_of(fixed, truth, seed=seed)
        if judge(fixed, evidence).verdict is Verdict.PASS:
            undecided += judge(sequential, evidence).verdict is Verdict.INCONCLUSIVE
    assert undecided > 0


def test_what_ends_at_its_first_look_shows_the_interval_of_a_single_test() -> None:
    sequential, fixed = spec(pairs=8, looks=[4, 6]), spec(pairs=4)
    four = pairs_of(fixed, GOOD)
    early, single = judge(sequential, four), judge(fixed, four)
    assert (early.verdict, early.lower, early.upper) == (Verdict.PASS, single.lower, single.upper)
    eight = pairs_of(sequential, GOOD, count=8)
    late, once = judge(sequential, eight), judge(spec(pairs=8), eight)
    assert late.lower is not None
    assert once.lower is not None
    assert late.lower < once.lower


def test_when_the_budget_is_spent_what_is_there_is_judged() -> None:
    eight = spec(pairs=8)
    assert judge(eight, pairs_of(eight, GOOD, count=3), budget_spent=True).verdict is Verdict.PASS
    two = judge(eight, pairs_of(eight, GOOD, count=2), budget_spent=True)
    assert (two.verdict, two.reason, two.need_more) == (Verdict.ERROR, "TooFewPairs", False)
    none = judge(eight, [], budget_spent=True)
    assert none.verdict is Verdict.ERROR


def test_a_harness_that_fails_every_request_is_an_error_and_no_verdict() -> None:
    evidence = pairs_of(spec(), GOOD)
    for arm in ArmRole:
        evidence = change(
            evidence,
            arm,
            range(3),
            valid=False,
            invalid_reason="FailedRequests: 20 of 20 failed Not Found",
            completed_requests=0,
            failed_requests=20,
        )
    verdict = judge(spec(), evidence)
    assert (verdict.verdict, verdict.reason) == (Verdict.ERROR, "HarnessFailed")
    assert "Not Found" in verdict.message


def test_pairs_that_are_spoilt_here_and_there_are_no_failed_harness() -> None:
    evidence = [
        one.model_copy(
            update={
                "runs": [
                    run.model_copy(update={"valid": False, "invalid_reason": "ClientLag: starved"})
                    if run.order == one.pair
                    else run
                    for run in one.runs
                ]
            }
        )
        for one in pairs_of(spec(), GOOD)
    ]
    verdict = judge(spec(), evidence)
    assert (verdict.verdict, verdict.pairs, verdict.need_more) == (Verdict.INCONCLUSIVE, 0, True)


def test_an_engine_that_answers_5xx_only_with_speculation_fails() -> None:
    evidence = change(
        pairs_of(spec(), GOOD),
        ArmRole.SPECULATIVE,
        range(3),
        valid=False,
        invalid_reason="FailedRequests: 6 of 20 failed",
        failed_requests=6,
        server_errors=6,
    )
    verdict = judge(spec(), evidence)
    assert (verdict.verdict, verdict.reason) == (Verdict.FAIL, "ServerErrors")


def test_requests_that_only_speculation_refuses_fail_as_incompatible() -> None:
    evidence = change(pairs_of(spec(), GOOD), ArmRole.SPECULATIVE, range(3), client_errors=3)
    verdict = judge(spec(), evidence)
    assert (verdict.verdict, verdict.reason) == (Verdict.FAIL, "IncompatibleRequests")


def test_one_invalid_run_asks_for_the_pair_to_be_repeated() -> None:
    evidence = pairs_of(spec(), GOOD, count=4)
    first = change(evidence[:3], ArmRole.BASELINE, [1], valid=False, invalid_reason="OtherTraffic: 26 instead of 20")
    verdict = judge(spec(), first)
    assert (verdict.verdict, verdict.need_more, verdict.pairs) == (Verdict.INCONCLUSIVE, True, 2)
    assert "OtherTraffic" in verdict.message
    assert judge(spec(), [*first, evidence[3]]).verdict is Verdict.PASS


def test_a_job_that_died_loses_its_pair_only() -> None:
    evidence = pairs_of(spec(), GOOD, count=4)
    dead = evidence[1].model_copy(update={"runs": [], "error": "the Job died"})
    verdict = judge(spec(), [evidence[0], dead, evidence[2]])
    assert verdict.need_more
    assert "the Job died" in verdict.message
    assert judge(spec(), [evidence[0], dead, *evidence[2:]]).verdict is Verdict.PASS


def test_halves_of_arms_that_took_turns_are_the_same_pair() -> None:
    whole = pairs_of(spec(), GOOD)
    halves = [
        one.model_copy(update={"unit": f"p{one.pair}{name}", "runs": [run for run in one.runs if run.arm is arm]})
        for one in whole
        for name, arm in (("a", ArmRole.BASELINE), ("b", ArmRole.SPECULATIVE))
    ]
    assert judge(spec(), halves) == judge(spec(), whole)


def test_an_engine_that_restarts_under_load_twice_fails_and_once_is_repeated() -> None:
    evidence = pairs_of(spec(), GOOD)
    dead: dict[str, Any] = {"valid": False, "invalid_reason": "PodRestarted: the engine process was started again"}
    once = judge(
        spec(),
        [
            one.model_copy(
                update={
                    "runs": [
                        run.model_copy(update=dead) if (one.pair, run.order) == (0, 1) else run for run in one.runs
                    ]
                }
            )
            for one in evidence
        ],
    )
    assert once.need_more
    always = judge(spec(), change(evidence, ArmRole.SPECULATIVE, range(3), **dead))
    assert (always.verdict, always.reason) == (Verdict.FAIL, "EngineRestarts")


def test_a_rate_that_only_the_speculative_arm_cannot_carry_is_a_loss_of_throughput() -> None:
    evidence = [
        one.model_copy(
            update={
                "runs": [
                    run.model_copy(update={"valid": False, "invalid_reason": "Oversaturated: the queue grew"})
                    if run.arm is ArmRole.SPECULATIVE and run.tier == "low"
                    else run
                    for run in one.runs
                ]
            }
        )
        for one in pairs_of(spec(), GOOD)
    ]
    verdict = judge(spec(), evidence)
    assert (verdict.verdict, verdict.reason) == (Verdict.FAIL, "ThroughputLoss")


def test_a_cell_that_the_plain_arm_cannot_carry_is_left_out() -> None:
    evidence = [
        one.model_copy(
            update={
                "runs": [
                    run.model_copy(update={"valid": False, "invalid_reason": "Oversaturated: the queue grew"})
                    if (run.tier, run.slice) == ("low", "code")
                    else run
                    for run in one.runs
                ]
            }
        )
        for one in pairs_of(spec(), GOOD)
    ]
    verdict = judge(spec(), evidence)
    assert verdict.verdict is Verdict.PASS
    left_out = next(cell for cell in verdict.cells if (cell.tier, cell.slice) == ("low", "code"))
    assert left_out.verdict is Verdict.INCONCLUSIVE


def test_an_unknown_client_lag_keeps_open_loop_latency_from_passing() -> None:
    evidence = change(pairs_of(spec(), GOOD), ArmRole.BASELINE, [2], client_lag_p99_seconds=None)
    verdict = judge(spec(), evidence)
    assert (verdict.verdict, verdict.reason) == (Verdict.INCONCLUSIVE, "ClientLagUnknown")


def test_a_lossy_proposer_is_held_to_the_plain_arms_agreement_with_itself() -> None:
    held = spec({"minAgreementRatio": 0.99})
    assert judge(held, pairs_of(held, GOOD)).reason == "Agreement"
    same = {"baseline": "aaaabbbb" * 8, "baseline-again": "aaaabbbb" * 8, "speculative": "aaaabbbb" * 8}
    agreeing = [one.model_copy(update={"greedy_texts": same}) for one in pairs_of(held, GOOD)]
    assert judge(held, agreeing).verdict is Verdict.PASS
    wrong = [one.model_copy(update={"greedy_texts": {**same, "speculative": "aaaacccc" * 8}}) for one in agreeing]
    assert (judge(held, wrong).verdict, judge(held, wrong).reason) == (Verdict.FAIL, "Agreement")
    unsteady = {"baseline": "aaaabbbb" * 8, "baseline-again": "aaaaeeee" * 8, "speculative": "aaaacccc" * 8}
    noisy = [one.model_copy(update={"greedy_texts": unsteady}) for one in agreeing]
    assert judge(held, noisy).verdict is Verdict.PASS


def test_an_acceptance_floor_is_a_guard() -> None:
    held = spec({"minAcceptanceRate": 0.5})
    assert judge(held, pairs_of(held, GOOD)).verdict is Verdict.PASS
    poor = pairs_of(held, Truth(Effect(tpot=0.7, throughput=1.2, acceptance=0.3)))
    assert judge(held, poor).reason == "AcceptanceFloor"


def test_pressure_on_the_cache_and_preemptions_are_guards() -> None:
    evidence = change(pairs_of(spec(), GOOD), ArmRole.BASELINE, range(3), kv_cache_peak_ratio=0.6)
    full = change(evidence, ArmRole.SPECULATIVE, range(3), kv_cache_peak_ratio=0.95)
    assert judge(spec(), full).reason == "KVCachePressure"
    evicting = change(pairs_of(spec(), GOOD), ArmRole.SPECULATIVE, range(3), preemptions=20)
    assert judge(spec(), evicting).reason == "Preemptions"


def test_a_stall_limit_is_a_guard_unless_the_plain_arm_breaks_it_too() -> None:
    held = spec({"stallSloSeconds": 0.1})
    assert judge(held, pairs_of(held, GOOD)).verdict is Verdict.PASS
    stalling = change(pairs_of(held, GOOD), ArmRole.SPECULATIVE, range(3), stall_p95_seconds=0.2)
    assert judge(held, stalling).reason == "InterTokenStalls"
    both = change(stalling, ArmRole.BASELINE, range(3), stall_p95_seconds=0.2)
    assert judge(held, both).verdict is Verdict.PASS


def test_a_declared_slo_is_a_guard_on_its_share_of_requests() -> None:
    held = spec({"ttftSloSeconds": 0.5})
    calm = change(pairs_of(held, GOOD), ArmRole.BASELINE, range(3), ttft_over_slo_share=0.0)
    calm = change(calm, ArmRole.SPECULATIVE, range(3), ttft_over_slo_share=0.0)
    assert judge(held, calm).verdict is Verdict.PASS
    late = change(calm, ArmRole.SPECULATIVE, range(3), ttft_over_slo_share=0.3)
    assert judge(held, late).reason == "TimeToFirstTokenSLO"


def test_broken_request_kinds_are_named_whatever_the_verdict() -> None:
    probe = RequestProbe(name="min_p", baseline_status=200, speculative_status=400)
    evidence = [one.model_copy(update={"request_probes": [probe]}) for one in pairs_of(spec(), GOOD)]
    verdict = judge(spec(), evidence)
    assert verdict.verdict is Verdict.PASS
    assert verdict.incompatible_requests == ("min_p",)
    assert "min_p" in verdict.message


def test_several_candidates_have_to_be_more_certain_than_one() -> None:
    evidence = pairs_of(spec(), GOOD)
    lone = judge(spec(), evidence)
    among = judge(spec(), [item.model_copy(update={"candidates": 8}) for item in evidence])
    assert lone.lower is not None
    assert among.lower is not None
    assert among.lower < lone.lower
    assert among.upper > lone.upper


def test_what_a_request_probe_of_two_halves_says_is_put_together() -> None:
    evidence = pairs_of(spec(), GOOD)
    halves = [
        item.model_copy(update={"unit": f"p{item.pair}{half}", "runs": runs, "request_probes": [probe]})
        for item in evidence
        for half, runs, probe in (
            (
                "a",
                [run for run in item.runs if run.arm is ArmRole.BASELINE],
                RequestProbe(name="min_p", baseline_status=200),
            ),
            (
                "b",
                [run for run in item.runs if run.arm is not ArmRole.BASELINE],
                RequestProbe(name="min_p", speculative_status=400),
            ),
        )
    ]
    assert judge(spec(), halves).incompatible_requests == ("min_p",)


def test_suspicion_passes_while_the_gain_is_there_and_fails_when_it_is_gone() -> None:
    assert judge_suspicion(spec(), pairs_of(spec(), GOOD)).reason == "GainConfirmed"
    gone = judge_suspicion(spec(), pairs_of(spec(), Truth(Effect(tpot=1.2, throughput=0.97))))
    assert gone.verdict is Verdict.FAIL
    none = judge_suspicion(spec(), pairs_of(spec(), Truth(Effect()), QUIET))
    assert (none.verdict, none.reason) == (Verdict.FAIL, "GainLost")
    small = judge_suspicion(spec(), pairs_of(spec(), Truth(Effect(tpot=1 / 1.03, throughput=1.02)), QUIET))
    assert small.verdict is Verdict.PASS


def test_suspicion_judges_the_suspect_cells_alone() -> None:
    only_peak = [
        one.model_copy(update={"runs": [run for run in one.runs if run.tier == "peak"]})
        for one in pairs_of(spec(), Truth(Effect(tpot=1.3, throughput=0.8)))
    ]
    verdict = judge_suspicion(spec(), only_peak)
    assert verdict.verdict is Verdict.FAIL
    assert {cell.tier for cell in verdict.cells} == {"peak"}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.4, 2.0), st.floats(0.5, 1.6), st.integers(0, 6))
def test_the_order_in_which_evidence_is_read_changes_nothing(seed: int, tpot: float, rps: float, turn: int) -> None:
    evidence = pairs_of(spec(), Truth(Effect(tpot=tpot, throughput=rps)), seed=seed)
    assert judge(spec(), evidence) == judge(spec(), [*evidence[turn:], *evidence[:turn]][::-1])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.3, 3.0), st.floats(0.3, 2.0), st.floats(0.5, 2.0), st.booleans())
def test_whatever_was_measured_the_verdict_is_consistent(
    seed: int, tpot: float, rps: float, ttft: float, suspicion: bool
) -> None:
    evidence = pairs_of(spec(), Truth(Effect(tpot=tpot, throughput=rps, ttft=ttft)), seed=seed)
    verdict = (judge_suspicion if suspicion else judge)(spec(), evidence)
    failed = [guard for guard in verdict.guards if guard.verdict is Verdict.FAIL]
    if verdict.verdict is Verdict.PASS:
        assert verdict.lower is not None
        assert verdict.lower > (0 if suspicion else 0.05)
        assert not failed
    if failed:
        assert verdict.verdict is Verdict.FAIL
    assert verdict.reason.isalpha()
    assert len(verdict.message) <= 1500


@settings(deadline=None)
@given(st.sampled_from(["tpot_mean_seconds", "ttft_mean_seconds", "completed_requests_per_second"]))
def test_a_missing_or_zero_quantity_never_passes(name: str) -> None:
    value = 0.0 if name == "completed_requests_per_second" else None
    evidence = change(pairs_of(spec(), GOOD), ArmRole.SPECULATIVE, [1], **{name: value, "engine_tpot_seconds": None})
    assert judge(spec(), evidence).verdict is not Verdict.PASS


def test_summaries_of_the_generator_are_valid_models() -> None:
    for one in pairs_of(spec(), GOOD):
        for run in one.runs:
            assert RunSummary.model_validate(run.model_dump()) == run
