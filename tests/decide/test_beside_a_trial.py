"""The promoted arm carries most users while a changed engine is tried: it is guarded as at any other time."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specfleet.api.conditions import ConditionStatus, ConditionType
from specfleet.api.status import ArmRole, Calibration, Phase, Verdict
from specfleet.decide.decide import decide
from specfleet.decide.observation import Observation
from specfleet.decide.watch_report import Answer, Attribution, Severity, Signal, Stage, Suspicion, WatchReport
from specfleet.decide.watch_scope import PROMOTED, promoted_target, watch_target

from tests.decide.test_road import NEW_ENGINE, actions, crash, keep_one_bad, promoted, suspicion
from tests.decide.world import World, spec_of

HARD = {"severity": Severity.HARD}


def in_engine_canary(**changes: Any) -> tuple[World, str]:
    """A changed engine meets its first users beside a promoted arm, whose fingerprint is returned."""
    world = promoted(**changes)
    serving = world.drafted
    world.comparison = Verdict.INCONCLUSIVE
    world.change(engine=NEW_ENGINE)
    world.run_to(Phase.CANARY, seconds=7200)
    assert world.run(300, until=lambda one: one.status is not None and one.status.step_since is not None)
    assert world.serving(serving) > 0
    return world, serving


def seen(world: World) -> tuple[Observation, datetime]:
    obs = world.observation()
    return obs, obs.now


@pytest.mark.parametrize(
    ("finding", "reason"),
    [
        (suspicion(Signal.NO_PROGRESS, **HARD), "NoProgress"),
        (suspicion(Signal.NO_PROGRESS, attribution=Attribution.HISTORICAL, **HARD), "NoProgress"),
        (suspicion(Signal.SERVER_ERRORS, **HARD), "ServerErrors"),
    ],
    ids=["all its pods hang", "they hang, with no plain pod beside", "its requests fail"],
)
def test_a_hard_fault_of_the_promoted_arm_rolls_it_back_in_mid_trial(finding: Suspicion, reason: str) -> None:
    world, serving = in_engine_canary()
    world.promoted_suspicions = (finding,)
    world.run(10)
    assert [one.reason for one in world.decisions("RollBack")] == [reason]
    world.promoted_suspicions = ()
    assert world.run(1800, until=lambda one: one.serving(serving) == 0 and one.serving_total() >= 4), world.story()
    assert world.status is not None
    assert world.status.attempts is None, "an arm of an earlier spec uses up no attempt of what is asked for now"
    assert not world.lost


def test_one_hung_pod_of_the_promoted_arm_is_restarted_and_the_trial_begins_again() -> None:
    world, serving = in_engine_canary()
    hung = world.arms[serving, False].pods[0].name
    pod = {"attribution": Attribution.POD, "pod": hung}
    world.promoted_suspicions = (suspicion(Signal.NO_PROGRESS, **HARD, **pod),)
    world.run(30)
    assert hung not in [one.name for one in world.pods() if one.deleting_until is None]
    world.promoted_suspicions = ()
    world.comparison = Verdict.PASS
    assert world.run(7200, until=lambda one: "AdoptRevision" in actions(one)), world.story()
    assert not world.decisions("RollBack")
    assert not world.lost


def test_one_bad_gpu_of_the_promoted_arm_never_ends_the_trial_and_costs_one_pod_a_day() -> None:
    rollout = {**spec_of()["rollout"], "noTrafficTimeoutSeconds": 604800}
    world, serving = in_engine_canary(replicas=12, rollout=rollout)
    for days in range(2):
        for _ in range(2):
            keep_one_bad(world, serving)
            assert world.status is not None
            world.status = world.status.model_copy(update={"history": []})
        assert len(world.decisions("RestartPod")) == days + 1, world.story()
        world.heal()
        world.now += timedelta(days=1)
    assert world.phase is Phase.CANARY
    assert world.status is not None
    assert not world.decisions("Investigate")
    assert world.decisions("RestartPod")[0].context.arm == serving
    assert not world.status.actions
    assert not world.lost


def test_a_gain_below_zero_in_mid_trial_serves_plain_first() -> None:
    world, _ = in_engine_canary()
    world.promoted_ratio = (1.1, 1.3)
    world.run(60)
    assert [one.reason for one in world.decisions("RollBack")] == ["GainBelowZero"]


@pytest.mark.parametrize(
    "finding",
    [suspicion(), suspicion(Signal.TPOT_REGRESSION, severity=Severity.SLO)],
    ids=["its acceptance collapses", "its latency collapses"],
)
def test_confirmed_drift_ends_the_trial_once_and_is_told_as_long_as_it_lasts(finding: Suspicion) -> None:
    """The changed engine may be the cure: the same finding must not keep it away for ever."""
    world, serving = in_engine_canary()
    world.pod_acceptance = lambda pod: 0.3
    world.promoted_suspicions = world.suspicions = (replace(finding, attribution=Attribution.PENDING),)
    world.run(60)
    assert [one.reason for one in world.decisions("Investigate")] == [finding.signal.value]
    world.run_to(Phase.CANARY, seconds=4 * 3600)
    world.run(600)
    told = world.condition(ConditionType.DRIFT_DETECTED)
    assert (told.status, told.reason) == (ConditionStatus.TRUE, finding.signal.value)
    assert world.phase is Phase.CANARY
    world.comparison = Verdict.PASS
    assert world.run(7200, until=lambda one: "AdoptRevision" in actions(one)), world.story()
    assert len(world.decisions("Investigate")) == 1
    assert world.serving(serving) == 0 or world.run(600, until=lambda one: one.serving(serving) == 0)
    assert not world.lost


def test_a_finding_that_was_followed_up_or_is_a_mere_suspicion_hides_no_other() -> None:
    world, _ = in_engine_canary()
    world.pod_acceptance = lambda pod: 0.3
    slow = suspicion(Signal.TPOT_REGRESSION, severity=Severity.SLO, attribution=Attribution.PENDING)
    mere = suspicion(Signal.TTFT_REGRESSION, severity=Severity.SLO, stage=Stage.SUSPECT)
    world.promoted_suspicions = world.suspicions = (slow,)
    world.run_to(Phase.INVESTIGATING)
    world.run_to(Phase.CANARY, seconds=4 * 3600)
    world.promoted_suspicions = world.suspicions = (slow, mere, suspicion(attribution=Attribution.PENDING))
    assert world.run(900, until=lambda one: len(one.decisions("Investigate")) == 2), world.story()
    assert world.decisions("Investigate")[1].reason == Signal.ACCEPTANCE_DRIFT.value


def test_drift_that_ended_a_trial_stays_known_after_any_number_of_decisions_until_the_spec_changes_again() -> None:
    world, _ = in_engine_canary()
    world.pod_acceptance = lambda pod: 0.3
    found = (replace(suspicion(), attribution=Attribution.PENDING),)
    world.promoted_suspicions = world.suspicions = found
    world.run_to(Phase.INVESTIGATING)
    world.run_to(Phase.CANARY, seconds=4 * 3600)
    assert world.status is not None
    other = world.decisions("NextStep")[0]
    world.status = world.status.model_copy(update={"history": [other] * 20})
    world.run(900)
    assert world.phase is Phase.CANARY
    assert len(world.decisions("Investigate")) == 1
    world.promoted_suspicions = world.suspicions = ()
    world.change(engine={**NEW_ENGINE, "image": "vllm/vllm-openai:v0.34.0"})
    world.run_to(Phase.CANARY, seconds=4 * 3600)
    world.promoted_suspicions = world.suspicions = found
    assert world.run(900, until=lambda one: len(one.decisions("Investigate")) == 2), world.story()


@pytest.mark.parametrize(
    "finding",
    [
        suspicion(stage=Stage.SUSPECT, severity=Severity.SLO),
        suspicion(attribution=Attribution.SHARED),
        suspicion(Signal.NO_PROGRESS, attribution=Attribution.SHARED, **HARD),
    ],
    ids=["a mere suspicion", "plain decoding degrades too", "plain pods hang too"],
)
def test_what_does_not_accuse_the_promoted_arm_leaves_the_trial_alone(finding: Suspicion) -> None:
    world, _ = in_engine_canary()
    before = len(world.decisions())
    world.promoted_suspicions = (finding,)
    world.run(900)
    assert world.phase is Phase.CANARY
    assert len(world.decisions()) == before


@pytest.mark.parametrize("happens", ["the breaker is open", "paused"])
def test_drift_that_nobody_may_act_on_is_told(happens: str) -> None:
    world, _ = in_engine_canary()
    world.breaker = happens == "the breaker is open"
    if happens == "paused":
        world.change(paused=True)
    world.promoted_suspicions = (suspicion(),)
    world.run(300)
    assert world.phase is Phase.CANARY
    assert world.condition(ConditionType.DRIFT_DETECTED).reason == Signal.ACCEPTANCE_DRIFT.value


def test_a_finding_about_the_trial_never_takes_the_traffic_off_the_promoted_arm() -> None:
    """Also not in the moment when the phase has moved on and the report still speaks of the trial."""
    world, serving = in_engine_canary()
    found = (suspicion(Signal.SERVER_ERRORS, **HARD),)
    world.suspicions = found
    assert world.run(60, until=lambda one: bool(one.decisions("RollBack")))
    world.suspicions = ()
    context = world.decisions("RollBack")[-1].context
    assert context is not None
    assert context.arm == world.plain
    late = WatchReport(Answer.OK, fingerprint=world.plain, suspicions=found)
    plan = decide(replace(world.observation(), watch=late))
    assert plan.status.stable is not None
    assert plan.status.stable.speculative == serving
    assert plan.decisions == ()


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.PASS])
def test_a_report_that_still_speaks_of_the_promoted_arm_judges_no_trial(verdict: Verdict) -> None:
    world, serving = in_engine_canary()
    world.run(120)
    obs = world.observation()
    assert obs.watch.comparison is not None
    late = replace(obs.watch, fingerprint=serving, comparison=replace(obs.watch.comparison, verdict=verdict))
    plan = decide(replace(obs, watch=late))
    assert plan.decisions == ()
    assert (plan.status.phase, plan.status.step) == (Phase.CANARY, 0)
    of_the_trial = decide(replace(obs, watch=replace(late, fingerprint=world.plain)))
    assert [one.action for one in of_the_trial.decisions] == ["RollBack" if verdict is Verdict.FAIL else "NextStep"]


def test_an_investigation_of_the_promoted_arm_does_not_follow_what_is_still_said_of_the_trial() -> None:
    world, serving = in_engine_canary()
    slower = suspicion(Signal.TPOT_REGRESSION, severity=Severity.SLO)
    world.promoted_suspicions = (replace(slower, attribution=Attribution.PENDING),)
    world.run_to(Phase.INVESTIGATING)
    late = WatchReport(Answer.OK, fingerprint=world.plain, suspicions=(slower,))
    assert decide(replace(world.observation(), watch=late)).decisions == ()
    own = decide(replace(world.observation(), watch=replace(late, fingerprint=serving)))
    assert [one.action for one in own.decisions] == ["RollBack"]


def test_what_is_normal_for_the_promoted_arm_is_not_taken_from_a_trial_that_has_just_ended() -> None:
    world = promoted()
    assert world.status is not None
    world.status = world.status.model_copy(update={"calibration": None})
    obs = world.observation()
    of_another = Calibration(fingerprint="another", since=obs.now, source="Watch")
    late = replace(obs.watch, fingerprint="another", calibration=of_another)
    assert decide(replace(obs, watch=late)).status.calibration is None
    own = of_another.model_copy(update={"fingerprint": world.drafted})
    assert decide(replace(obs, watch=replace(obs.watch, calibration=own))).status.calibration == own


def test_the_promoted_arm_that_dies_while_a_failed_engine_leaves_gives_way_to_the_plain_one() -> None:
    world, serving = in_engine_canary()
    world.drain_seconds = 120.0
    world.suspicions = (suspicion(Signal.SERVER_ERRORS, **HARD),)
    world.run_to(Phase.ROLLING_BACK)
    world.suspicions = ()
    crash(world, serving)
    assert world.run(1800, until=lambda one: one.phase is Phase.ROLLED_BACK), world.story()
    assert world.serving(serving) == 0
    assert world.status is not None
    assert world.status.revision_refused == world.status.revision, "the engine that failed is not tried again"
    assert not world.lost


def test_metrics_that_lack_only_the_promoted_arm_are_not_called_available() -> None:
    world, serving = in_engine_canary()
    obs = world.observation()
    assert obs.promoted_watch is not None
    world.run(30)
    assert world.condition(ConditionType.METRICS_AVAILABLE).status is ConditionStatus.TRUE
    world.promoted_answer = Answer.TARGET_DOWN
    world.run(30)
    assert world.condition(ConditionType.METRICS_AVAILABLE).reason == Answer.TARGET_DOWN.value
    assert world.serving(serving) > 0


def test_the_watch_is_asked_about_both_arms_during_the_trial_and_about_one_otherwise() -> None:
    world, serving = in_engine_canary()
    assert world.status is not None
    world.status = world.status.model_copy(
        update={"calibration": Calibration(fingerprint=serving, since=world.now, acceptance_rate=0.7)}
    )
    obs, now = seen(world)
    trial, guard = watch_target(obs, obs.status, now), promoted_target(obs, obs.status, now)
    assert guard is not None
    assert trial.fingerprint == world.plain
    assert guard.fingerprint == serving
    assert guard.key == (*trial.key[:2], trial.key[2] + PROMOTED)
    assert len(guard.arms[ArmRole.SPECULATIVE]) == world.serving(serving)
    assert guard.calibration is not None
    assert guard.calibration.fingerprint == guard.fingerprint, "what was normal for it is known from the first window"
    steady = promoted()
    obs, now = seen(steady)
    assert promoted_target(obs, obs.status, now) is None
    first = World()
    first.run_to(Phase.CANARY)
    obs, now = seen(first)
    assert promoted_target(obs, obs.status, now) is None, "nothing is promoted yet"


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(list(Signal)),
    st.sampled_from(list(Severity)),
    st.sampled_from(list(Stage)),
    st.sampled_from(list(Attribution)),
    st.booleans(),
)
def test_whatever_is_found_the_users_keep_an_arm_and_the_change_gets_its_end(
    signal: Signal, severity: Severity, stage: Stage, attribution: Attribution, extra: bool
) -> None:
    world, _ = in_engine_canary(**({} if extra else {"capacity": {"maxExtraReplicas": 1}}))
    world.promoted_suspicions = (suspicion(signal, severity=severity, stage=stage, attribution=attribution),)
    world.run(900)
    assert world.serving_total() >= 3, world.story()
    world.promoted_suspicions = ()
    world.comparison = Verdict.PASS
    ends = ("AdoptRevision", "RefuseRevision")
    assert world.run(6 * 3600, until=lambda one: any(end in actions(one) for end in ends)), world.story()
    assert not world.lost
