"""A change of engine: a bad engine is refused even when speculation is fine, and the reverse."""

from typing import Any

import numpy as np
import pytest
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.status import ArmRole, ChangeStatus, Phase, TrialStatus, Verdict
from specfleet.decide.evidence import BenchmarkVerdict, judge
from specfleet.decide.three_way import Serve, compare_three, judge_change
from specfleet.engine.findings import Finding, Severity

from benchmarks.evidence.truth import Effect, Noise, Truth, draw_pairs
from tests.decide.world import World, spec_of

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
NEW_ENGINE = {"image": "vllm/vllm-openai:v0.33.0", "startupTimeoutSeconds": 120}


def change_of(verdict: BenchmarkVerdict, **fields: Any) -> ChangeStatus:
    known = {"verdict": verdict.verdict, "reason": verdict.reason, "message": verdict.message}
    return ChangeStatus(stable="old", baseline="new", gain_ratio=verdict.gain_ratio, **known, **fields)


def trial_of(verdict: BenchmarkVerdict) -> TrialStatus:
    known = {"verdict": verdict.verdict, "reason": verdict.reason, "gain_ratio": verdict.gain_ratio}
    return TrialStatus(fingerprint="f", proposer="ngram k=3", **known)


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
    change = judge_change(SPEC, draw_pairs(SPEC, Truth(engine), Noise(), 3, random))
    gain = judge(SPEC, draw_pairs(SPEC, Truth(speculation), Noise(), 6, random))
    outcome = compare_three(change_of(change), trial_of(gain))
    assert outcome.serve is serve
    assert outcome.message


def test_a_change_that_could_not_be_measured_is_left_to_the_canary() -> None:
    change = judge_change(SPEC, [], budget_spent=True)
    assert change.verdict is Verdict.ERROR
    assert compare_three(change_of(change), None).serve is Serve.NEW_PLAIN


def test_what_only_speculation_has_is_no_guard_of_a_change() -> None:
    guarded = SPEC.model_copy(
        update={
            "guardrails": SPEC.guardrails.model_copy(update={"min_acceptance_rate": 0.5, "min_agreement_ratio": 0.9})
        }
    )
    verdict = judge_change(guarded, draw_pairs(SPEC, Truth(FASTER), Noise(), 3, np.random.default_rng(3)))
    assert verdict.verdict is Verdict.PASS


def test_the_sum_is_told_against_what_served_before_promoted_proposer_and_all() -> None:
    change = ChangeStatus(
        stable="o", baseline="n", verdict=Verdict.PASS, reason="r", gain_ratio=0.1, replaced_gain_ratio=0.5
    )
    trial = TrialStatus(fingerprint="f", proposer="mtp", verdict=Verdict.PASS, reason="r", gain_ratio=0.6)
    assert "together +17.3% against what served before" in compare_three(change, trial).message


# --- in the life of a deployment --------------------------------------------------------------------------------------


def promoted(**changes: Any) -> World:
    world = World(spec=spec_of(**changes))
    world.run_to(Phase.SPECULATIVE)
    world.run(120)
    return world


def purposes(world: World) -> list[str]:
    return list(dict.fromkeys(one.purpose for one in world.evidence))


def test_a_slower_engine_is_refused_on_the_bench_and_no_user_request_meets_it() -> None:
    world = promoted()
    serving = world.drafted
    world.change_gain = lambda tier, piece: 0.7
    world.change(engine=NEW_ENGINE)
    assert world.run(3600, until=lambda one: bool(one.decisions("RefuseRevision"))), world.story()
    world.run(300)
    assert world.phase is Phase.SPECULATIVE
    assert world.serving(serving) == 3
    assert world.share(world.plain) == 0
    assert world.status is not None
    assert world.status.change is not None
    assert world.status.change.serve == Serve.OLD.value
    measured = [one for one in world.evidence if one.purpose == "Change"]
    assert len(measured) == 3
    assert {one.candidate for one in measured} == {world.plain}
    assert not world.decisions("TryRevision")
    assert not world.lost


def test_a_good_engine_whose_speculation_loses_serves_plainly() -> None:
    world = promoted()
    world.change(engine=NEW_ENGINE)
    world.gain = lambda tier, piece: 0.8
    assert world.run(7200, until=lambda one: bool(one.decisions("CompareThree"))), world.story()
    assert world.status is not None
    assert world.status.change is not None
    assert world.status.change.serve == Serve.NEW_PLAIN.value
    world.run(300)
    assert world.share(world.plain) == 1


def test_a_good_engine_with_good_speculation_is_summed_up_once() -> None:
    world = promoted()
    world.change(engine=NEW_ENGINE)
    assert world.run(7200, until=lambda one: bool(one.decisions("AdoptRevision"))), world.story()
    world.run_to(Phase.SPECULATIVE)
    world.run(120)
    assert purposes(world) == ["Qualify", "Change"]
    told = world.decisions("CompareThree")
    assert [one.message.split()[0] for one in told] == [Serve.NEW_SPECULATIVE.value]
    assert "against what served before" in told[0].message


def test_an_engine_whose_benchmark_cannot_be_done_is_left_to_the_canary() -> None:
    world = promoted()
    world.change(engine=NEW_ENGINE)
    world.job_fails = True
    world.run_to(Phase.CANARY)
    assert world.status is not None
    assert world.status.change is not None
    assert world.status.change.verdict is Verdict.ERROR


@pytest.mark.parametrize("extra", [0, 1, 2])
def test_with_whatever_room_there_is_a_changed_engine_ends_up_serving(extra: int) -> None:
    world = promoted(capacity={"maxExtraReplicas": 2})
    world.change(engine=NEW_ENGINE, capacity={"maxExtraReplicas": extra})
    assert world.run(7200, until=lambda one: bool(one.decisions("AdoptRevision"))), world.story()
    units = [one.unit for one in world.evidence if one.purpose == "Change"]
    assert len(units) == {0: 0, 1: 6, 2: 3}[extra]
    assert not world.lost


def test_on_change_canary_goes_to_the_canary_at_once() -> None:
    world = promoted()
    world.change(engine=NEW_ENGINE, remedies={**spec_of()["remedies"], "onChange": "Canary"})
    world.run_to(Phase.CANARY)
    assert "Change" not in purposes(world)


def test_changing_back_in_mid_measurement_ends_it_and_leaves_what_served() -> None:
    world = promoted()
    engine = world.spec["engine"]
    world.change(engine=NEW_ENGINE)
    assert world.run(3600, until=lambda one: any(e.purpose == "Change" for e in one.evidence))
    world.change(engine=engine)
    world.run(300)
    assert world.phase is Phase.SPECULATIVE
    assert world.status is not None
    assert world.status.benchmark is None
    assert not [arm for (_, bench), arm in world.arms.items() if bench]


def test_a_pod_of_the_old_engine_that_does_not_start_again_leaves_the_question_to_the_canary() -> None:
    world = promoted()
    world.change(engine=NEW_ENGINE)
    new = world.plain
    assert world.run(3600, until=lambda one: one.status is not None and one.status.benchmark is not None)
    world.run(2)
    for (fingerprint, bench), arm in world.arms.items():
        if bench and fingerprint != new:
            assert arm.role is ArmRole.BASELINE
            for pod in arm.pods:
                pod.ready_at, pod.restarts, pod.failure = None, 2, "CrashLoopBackOff"
                pod.last_run_started, pod.last_restart = world.now, world.now
    world.run_to(Phase.CANARY)
    assert world.status is not None
    assert world.status.change is not None
    assert (world.status.change.verdict, world.status.change.reason) == (Verdict.INCONCLUSIVE, "CrashLoop")


def changing(**changes: Any) -> World:
    """A changed engine is being measured on pods of its own."""
    world = promoted(**changes)
    world.change(engine=NEW_ENGINE)
    assert world.run(3600, until=lambda one: one.job is not None and one.job.purpose == "Change"), world.story()
    return world


def test_a_change_that_a_person_holds_while_it_is_measured_gives_its_pods_back() -> None:
    world = changing()
    world.change(remedies={**spec_of()["remedies"], "onChange": "Hold"})
    world.run(600)
    assert not [slot for slot in world.arms if slot[1]], "benchmark pods hold GPUs for nothing"
    assert world.serving_total() == 4
    world.change(remedies=spec_of()["remedies"])
    assert world.run(3600, until=lambda one: bool(one.decisions("AdoptRevision"))), world.story()
    assert not world.lost


def test_a_change_that_the_cluster_begins_to_refuse_while_it_is_measured_gives_its_pods_back() -> None:
    world = changing()
    said = Finding("KueueMissing", Severity.REFUSE, "spec.template.queueName", "KueueMissing", "gone", "install", "x")
    world.refusals = (said,)
    world.run(600)
    assert not [slot for slot in world.arms if slot[1]], "benchmark pods hold GPUs for nothing"
    assert world.serving_total() == 4
    world.refusals = ()
    assert world.run(3600, until=lambda one: bool(one.decisions("AdoptRevision"))), world.story()
    assert not world.lost


def test_a_change_whose_spare_pods_are_taken_away_while_it_is_measured_goes_to_the_canary_without_a_benchmark() -> None:
    world = changing()
    world.change(capacity={"maxExtraReplicas": 0})
    world.run(3600)
    assert world.status is not None
    assert world.status.benchmark is None
    assert not world.lost


def test_where_a_proposer_serves_that_of_the_new_engine_is_measured_before_it_gives_way() -> None:
    world = promoted()
    world.change(engine=NEW_ENGINE)
    old = next(fingerprint for (fingerprint, bench), arm in world.arms.items() if arm.role is ArmRole.SPECULATIVE)
    assert world.run(7200, until=lambda one: bool(one.decisions("TryRevision"))), world.story()
    assert purposes(world) == ["Qualify", "Change"], (
        "of the old engine; then the change, then the new engine's proposer"
    )
    assert [one.purpose for one in world.evidence] == ["Qualify"] * 3 + ["Change"] * 3 + ["Qualify"] * 3
    assert world.serving(old) == 3, "users keep what they have while all of it is measured"
    assert world.run(7200, until=lambda one: bool(one.decisions("AdoptRevision"))), world.story()
    adopted = world.now
    assert world.run(7200, until=lambda one: len(one.decisions("StartCanary")) == 2), world.story()
    assert (world.now - adopted).total_seconds() < 120, "nothing is left to measure"
    world.run_to(Phase.SPECULATIVE)
    assert not world.lost


def test_several_proposers_of_a_new_engine_are_searched_and_confirmed_before_it_gives_way() -> None:
    draft = {"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "revision": "ada412b"}
    listed = {"candidates": [{"method": "eagle3", "draft": draft, "numSpeculativeTokensRange": {"min": 2, "max": 3}}]}
    world = promoted(speculation=listed)
    begun = len(world.evidence)
    world.change(engine=NEW_ENGINE)
    assert world.run(7200, until=lambda one: bool(one.decisions("TryRevision"))), world.story()
    assert list(dict.fromkeys(one.purpose for one in world.evidence[begun:])) == ["Change", "Qualify", "Confirm"]
    assert world.status is not None
    assert any(one.confirmed for one in world.status.trials)
    world.run_to(Phase.BASELINE, 7200)
    world.run_to(Phase.SPECULATIVE)


def test_a_proposer_that_cannot_be_measured_beside_what_serves_keeps_no_engine_from_its_canary() -> None:
    world = promoted()
    world.change(engine=NEW_ENGINE)
    assert world.run(7200, until=lambda one: len(one.evidence) == 6), world.story()
    world.run(3)
    world.job_fails = True
    world.run_to(Phase.CANARY, 3600)
    assert world.decisions("TryRevision")
    world.job_fails = False
    world.run_to(Phase.SPECULATIVE, 14400)


def test_where_nothing_is_promoted_a_new_engine_does_not_wait_for_its_proposer() -> None:
    world = World(gain=lambda tier, piece: 0.8)
    world.run(1200)
    world.change(engine=NEW_ENGINE)
    assert world.run(7200, until=lambda one: bool(one.decisions("TryRevision"))), world.story()
    assert [one.purpose for one in world.evidence] == ["Qualify"] * 3 + ["Change"] * 3


@pytest.mark.parametrize(("mode", "phase"), [("Hold", Phase.DEPLOYING), ("Canary", Phase.CANARY)])
def test_another_wish_in_mid_measurement_ends_it_and_frees_its_pods(mode: str, phase: Phase) -> None:
    world = promoted()
    world.change(engine=NEW_ENGINE)
    assert world.run(3600, until=lambda one: any(e.purpose == "Change" for e in one.evidence))
    world.change(remedies={**spec_of()["remedies"], "onChange": mode})
    world.run(20)
    assert world.phase is phase
    assert world.status is not None
    assert world.status.benchmark is None
    assert not [arm for (_, bench), arm in world.arms.items() if bench and arm.replicas]
