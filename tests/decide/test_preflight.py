"""Before a proposer's first engine pod: its files are compared; only a clear refusal keeps it from starting."""

from dataclasses import replace
from datetime import timedelta

import pytest
from specfleet.api.conditions import ConditionStatus, ConditionType
from specfleet.api.preflight import PreflightOutcome
from specfleet.api.status import ArmRole, Phase, Verdict
from specfleet.decide.decide import decide
from specfleet.decide.observation import Command, PreflightView, Proof
from specfleet.decide.preflight import AGAIN_SECONDS, LONGEST_SECONDS
from specfleet.engine.findings import Finding, Severity

from tests.decide.world import World, spec_of

ON_DISK = {"method": "draft_model", "draft": {"model": "/models/draft"}, "numSpeculativeTokens": 3}
IN_REPOSITORY = spec_of()["speculation"]


def found(rule: str, path: str, severity: Severity = Severity.REFUSE, tokens: int | None = None) -> Finding:
    return Finding(rule, severity, path, rule, f"{rule} was scripted", "Do something", "test", tokens)


MISSING = found("DraftMissing", "spec.speculation.draft.model")


def world_of(*findings: Finding, speculation: object = ON_DISK) -> World:
    """A world whose preflight answers so."""
    return World(spec=spec_of(replicas=2, speculation=speculation), files_say=lambda spec: findings)


def speculative_pods(world: World) -> int:
    return sum(len(arm.pods) for arm in world.arms.values() if arm.role is ArmRole.SPECULATIVE)


def test_no_pod_of_a_proposer_exists_before_the_answer() -> None:
    world = world_of()
    world.preflight_runs = False
    world.run_to(Phase.BENCHMARKING)
    world.run(60)
    assert (world.phase, speculative_pods(world)) == (Phase.BENCHMARKING, 0)
    assert world.preflight is not None
    said = world.condition(ConditionType.BENCHMARK_PASSED)
    assert (said.status, said.reason) == (ConditionStatus.UNKNOWN, "Preflight")


def test_files_that_fit_let_the_trial_go_on_and_the_job_is_removed() -> None:
    world = world_of()
    world.run_to(Phase.SPECULATIVE)
    assert world.status is not None
    assert world.status.preflight is not None
    assert world.status.preflight.outcome is PreflightOutcome.PASSED
    assert world.preflight is None
    assert [one.reason for one in world.decisions("Preflight")] == ["Passed"]


def test_a_missing_draft_is_refused_by_field_and_nothing_of_it_ever_starts() -> None:
    world = world_of(MISSING)
    world.run(7200)
    assert world.phase is Phase.BASELINE
    assert not any(arm.role is ArmRole.SPECULATIVE for plan in world.plans for arm in plan.arms)
    (told,) = world.decisions("RefuseCandidate")
    assert (told.reason, told.verdict) == ("DraftMissing", Verdict.FAIL)
    assert "spec.speculation.draft.model: DraftMissing was scripted" in told.message
    said = world.condition(ConditionType.BENCHMARK_PASSED)
    assert (said.status, said.reason) == (ConditionStatus.FALSE, "DraftMissing")
    assert "spec.speculation.draft.model" in said.message
    assert world.condition(ConditionType.READY).status is ConditionStatus.TRUE


def test_after_a_refusal_nothing_is_written_any_more() -> None:
    world = world_of(MISSING)
    world.run(1800)
    before = world.writes
    world.run(6 * 3600)
    assert world.writes == before


def test_one_refused_candidate_leaves_the_others_their_trial() -> None:
    wrong = found("DraftMissing", "spec.speculation.candidates[0].draft.model")
    world = world_of(wrong, speculation={"candidates": [ON_DISK, IN_REPOSITORY]})
    world.run_to(Phase.SPECULATIVE)
    assert world.status is not None
    assert world.status.stable is not None
    assert world.status.stable.speculative == world.observation().proposers[1].fingerprint


def test_of_a_range_only_the_depths_that_do_not_fit_are_refused() -> None:
    ranged = {"method": "draft_model", "draft": {"model": "/models/draft"}}
    ranged["numSpeculativeTokensRange"] = {"min": 2, "max": 3}  # type: ignore[assignment]
    wrong = found("TokensDoNotDivide", "spec.speculation.candidates[0].numSpeculativeTokens", tokens=3)
    world = world_of(wrong, speculation={"candidates": [ranged]})
    world.run_to(Phase.SPECULATIVE)
    assert [one.message.split(":")[0] for one in world.decisions("RefuseCandidate")] == [
        arm.label for arm in world.observation().proposers if arm.proposer and arm.proposer.num_speculative_tokens == 3
    ]


def test_a_warning_is_told_and_refuses_nothing() -> None:
    world = world_of(found("DraftContextShort", "spec.speculation.draft.model", Severity.WARN))
    world.run_to(Phase.SPECULATIVE)
    assert world.status is not None
    assert "spec.speculation.draft.model: DraftContextShort was scripted" in world.status.warnings


@pytest.mark.parametrize("reason", ["no node", "no answer", "no job", "a blind pod"])
def test_what_could_not_be_looked_at_is_said_and_tried(reason: str) -> None:
    world = world_of(*([found("ModelMissing", "spec.model.name"), MISSING] if reason == "a blind pod" else []))
    world.preflight_runs = reason != "no node"
    if reason == "no answer":
        world.files_say = lambda spec: None
    if reason == "no job":
        world._write_preflight = lambda preflight: None  # type: ignore[method-assign]
    world.run_to(Phase.SPECULATIVE)
    assert world.status is not None
    assert [one.reason for one in world.decisions("Preflight")] == ["NotChecked"]
    assert any("files were not compared" in one for one in world.status.warnings)


def test_it_never_waits_longer_than_its_limit() -> None:
    world = world_of()
    world.preflight_runs = False
    world.run_to(Phase.BENCHMARKING)
    asked = world.now
    world.run(3600, until=lambda one: speculative_pods(one) > 0)
    assert world.now - asked <= timedelta(seconds=LONGEST_SECONDS + 15)


@pytest.mark.parametrize("shift", [-30, 30])
def test_a_start_in_another_age_does_not_hold_the_trial_for_ever(shift: int) -> None:
    world = world_of()
    world.preflight_runs = False
    world.run_to(Phase.BENCHMARKING)
    assert world.status is not None
    assert world.status.preflight is not None
    moved = world.status.preflight.model_copy(update={"started": world.now + timedelta(days=shift)})
    world.status = world.status.model_copy(update={"preflight": moved})
    world.run(60, until=lambda one: speculative_pods(one) > 0)
    assert speculative_pods(world) > 0


def test_a_changed_draft_is_looked_at_anew() -> None:
    world = world_of(MISSING)
    world.run(600)
    world.files_say = lambda spec: ()
    world.change(speculation={**ON_DISK, "draft": {"model": "/models/other"}})
    world.run_to(Phase.SPECULATIVE)


def test_a_retry_after_the_files_were_put_there_looks_again() -> None:
    world = world_of(MISSING)
    world.run(600)
    world.files_say = lambda spec: ()
    world.command = Command("retry", "1")
    world.run_to(Phase.SPECULATIVE)


def test_a_rebenchmark_of_what_the_files_refuse_names_the_command_that_looks_again() -> None:
    world = world_of(found("DraftMissing", "spec.speculation.draft.model"))
    world.run(600)
    world.command = Command("rebenchmark", "n1")
    world.run(60)
    assert world.status is not None
    assert world.status.command is not None
    assert not world.status.command.accepted
    assert "retry" in world.status.command.message


def test_a_pause_ends_the_look_and_its_end_begins_it_again() -> None:
    world = world_of(MISSING)
    world.preflight_runs = False
    world.run_to(Phase.BENCHMARKING)
    world.change(paused=True)
    world.run(600)
    assert world.preflight is None
    world.preflight_runs = True
    world.change(paused=False)
    world.run(120)
    assert [one.reason for one in world.decisions("RefuseCandidate")] == ["DraftMissing"]


def test_repositories_are_not_looked_at() -> None:
    world = World(spec=spec_of(replicas=2))
    world.run_to(Phase.SPECULATIVE)
    assert not any(plan.preflight for plan in world.plans)


def test_an_answer_for_another_spec_does_not_count() -> None:
    world = world_of()
    world.preflight_runs = False
    world.run_to(Phase.BENCHMARKING)
    obs = world.observation()
    late = replace(obs, preflight_key="another", preflight=PreflightView(True, (MISSING,)))
    plan = decide(late)
    assert not plan.status.trials
    assert plan.status.preflight is not None
    assert (plan.status.preflight.key, plan.status.preflight.outcome) == ("another", None)


# --- the model itself -------------------------------------------------------------------------------------------------

ON_VOLUME = {
    "resources": {"limits": {"nvidia.com/gpu": "1"}},
    "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
    "volumeMounts": [{"name": "models", "mountPath": "/models"}],
}
NO_MODEL = found("ModelMissing", "spec.model.name")


def plain_world(*findings: Finding, there: bool = False, **changes: object) -> World:
    """A model on a volume, without any proposer; its engine comes up only where the model is there."""
    fields: dict[str, object] = {"model": {"name": "/models/target"}, "template": ON_VOLUME, "speculation": None}
    world = World(spec=spec_of(replicas=2, **{**fields, **changes}), files_say=lambda spec: findings)
    world.broken_roles = frozenset() if there else frozenset({ArmRole.BASELINE})
    return world


def test_a_missing_model_takes_its_first_engine_back_and_says_which_also_without_speculation() -> None:
    world = plain_world(NO_MODEL)
    world.run(120)
    stalled = world.condition(ConditionType.STALLED)
    assert (stalled.status, stalled.reason) == (ConditionStatus.TRUE, "ModelMissing")
    assert stalled.message.startswith("spec.model.name: ")
    assert not any(arm.pods for arm in world.arms.values()), "no GPU is held for it"
    assert [one.reason for one in world.decisions("RefuseModel")] == ["ModelMissing"]
    assert world.preflight is None


def test_files_that_are_put_there_later_are_found_without_anybody_asking() -> None:
    world = plain_world(NO_MODEL)
    world.run(120)
    world.files_say = lambda spec: ()
    world.broken_roles = frozenset()
    world.run(AGAIN_SECONDS + 120)
    assert world.phase is Phase.BASELINE
    assert world.condition(ConditionType.READY).status is ConditionStatus.TRUE


def test_a_model_that_stays_away_is_told_once_and_tried_again_and_again() -> None:
    world = plain_world(NO_MODEL)
    world.run(6 * AGAIN_SECONDS)
    assert len(world.decisions("RefuseModel")) == 1
    started = {plan.status.preflight.started for plan in world.plans if plan.status.preflight is not None}
    assert len(started) >= 4


def test_nothing_waits_for_the_look_and_a_model_that_serves_is_never_refused_by_it() -> None:
    looked = plain_world(NO_MODEL, there=True)
    looked.startup_seconds = 1.0
    looked.run_to(Phase.BASELINE)
    other = plain_world(there=True, model={"name": "org/target"})
    other.startup_seconds = 1.0
    other.run_to(Phase.BASELINE)
    assert looked.now == other.now
    looked.run(600)
    assert looked.condition(ConditionType.READY).status is ConditionStatus.TRUE
    assert not looked.decisions("RefuseModel")


def test_a_look_that_ends_as_the_first_of_two_pods_begins_to_serve_does_not_take_it_away() -> None:
    world = plain_world(NO_MODEL, there=True)
    assert world.run(120, until=lambda one: one.preflight is not None)
    obs = world.observation()
    (arm,) = obs.arms
    answered = PreflightView(finished=True, findings=(NO_MODEL,))
    slow, fast = arm.pods
    fast = replace(fast, ready_since=obs.now, unready_since=None, proof=Proof.PROVEN)
    half = replace(arm, pods=(slow, fast))
    assert len(half.serving) == 1
    kept = decide(replace(obs, arms=(half,), preflight=answered))
    assert [(one.fingerprint, one.replicas) for one in kept.arms] == [(arm.fingerprint, 2)]
    assert kept.decisions == ()
    assert decide(replace(obs, preflight=answered)).decisions[0].action == "RefuseModel"


def test_a_warning_about_the_model_is_told_while_it_starts() -> None:
    world = plain_world(found("ArchitectureUnknown", "spec.model.name", Severity.WARN), there=True)
    world.run_to(Phase.BASELINE)
    assert world.status is not None
    assert "spec.model.name: ArchitectureUnknown was scripted" in world.status.warnings


@pytest.mark.parametrize("reason", ["the hub", "an init container", "a config of its own", "no answer"])
def test_a_model_that_cannot_be_judged_by_its_folder_is_left_to_the_engine(reason: str) -> None:
    world = plain_world(NO_MODEL)
    if reason == "the hub":
        world = plain_world(NO_MODEL, model={"name": "org/target"})
    if reason == "an init container":
        world = plain_world(NO_MODEL, template={**ON_VOLUME, "initContainers": [{"name": "fetch", "image": "i"}]})
    if reason == "a config of its own":
        engine = {**spec_of()["engine"], "args": ["--hf-config-path", "/models/config"]}
        world = plain_world(NO_MODEL, engine=engine)
    if reason == "no answer":
        world.files_say = lambda spec: None
    world.run(600)
    assert not world.decisions("RefuseModel")
    assert any(plan.preflight for plan in world.plans) is (reason == "no answer")
    assert world.condition(ConditionType.STALLED).reason != "ModelMissing"


def test_the_look_at_the_model_does_not_stand_for_the_comparison_with_its_draft() -> None:
    draft = {"method": "draft_model", "draft": {"model": "/models/draft"}, "numSpeculativeTokens": 3}
    world = plain_world(there=True, speculation=draft)
    world.files_say = lambda spec: (MISSING,) if world.status is not None and world.status.stable is not None else ()
    world.run(600)
    assert [one.reason for one in world.decisions("RefuseCandidate")] == ["DraftMissing"]
