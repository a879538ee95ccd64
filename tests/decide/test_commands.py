"""Commands by annotation: each nonce is answered once, in status, in words that say what to do."""

import pytest
from specfleet.api.status import Phase, Verdict
from specfleet.decide.observation import Command

from tests.decide.test_road import NEW_ENGINE, crash, ended, in_canary, promoted
from tests.decide.world import World, spec_of


def command(world: World, verb: str, nonce: str = "n1") -> str:
    """Give a command and return the answer."""
    world.command = Command(verb, nonce)
    world.reconcile()
    assert world.status is not None
    assert world.status.command is not None
    assert world.status.command.nonce == nonce
    return world.status.command.message if not world.status.command.accepted else ""


def rolled_back() -> World:
    world = in_canary()
    world.comparison = Verdict.FAIL
    world.run_to(Phase.ROLLED_BACK)
    world.comparison = Verdict.PASS
    return world


def test_retry_starts_the_next_attempt_without_waiting_for_the_back_off() -> None:
    world = rolled_back()
    assert command(world, "retry") == ""
    assert world.status is not None
    assert world.status.attempts is None
    world.run_to(Phase.SPECULATIVE)


def test_retry_leads_out_of_exhausted() -> None:
    remedies = {**spec_of()["remedies"], "maxAttempts": 1}
    world = World(spec=spec_of(remedies=remedies), comparison=Verdict.FAIL)
    world.run_to(Phase.EXHAUSTED)
    world.comparison = Verdict.PASS
    assert command(world, "retry") == ""
    world.run_to(Phase.SPECULATIVE)


def test_retry_tries_a_refused_engine_again_while_the_promoted_arm_serves() -> None:
    world = promoted()
    world.comparison, world.comparison_ratio = Verdict.FAIL, (0.9, 1.3)
    world.change(engine=NEW_ENGINE)
    assert world.run(3600, until=lambda one: bool(one.decisions("RolledBack")))
    world.comparison, world.comparison_ratio = Verdict.PASS, (0.5, 0.6)
    assert command(world, "retry") == ""
    assert world.run(3600, until=lambda one: bool(one.decisions("AdoptRevision"))), world.story()
    world.run_to(Phase.SPECULATIVE)


def test_promote_skips_the_remaining_steps_and_traffic_follows_ready_pods_only() -> None:
    world = in_canary()
    assert command(world, "promote") == ""
    assert world.phase is Phase.SPECULATIVE
    world.run(300)
    assert world.serving(world.drafted) == 3
    assert not world.lost


def test_abort_of_a_canary_serves_plain_and_is_not_retried_by_itself() -> None:
    world = in_canary()
    world.comparison = Verdict.PASS
    assert command(world, "abort") == ""
    world.run_to(Phase.EXHAUSTED)
    world.run(2 * 86400)
    assert world.phase is Phase.EXHAUSTED
    assert world.share(world.plain) == 1


def test_abort_of_a_benchmark_removes_its_pods() -> None:
    world = World()
    world.run_to(Phase.BENCHMARKING)
    world.run(30)
    assert command(world, "abort") == ""
    world.run(120)
    assert world.phase is Phase.EXHAUSTED
    assert not any(bench for _, bench in world.arms)


def test_abort_of_a_promoted_arm_serves_plain() -> None:
    world = promoted()
    assert command(world, "abort") == ""
    world.run_to(Phase.EXHAUSTED)
    assert world.share(world.plain) == 1


@pytest.mark.parametrize("phase", [Phase.DEPLOYING, Phase.CANARY])
def test_abort_of_a_new_engine_keeps_what_served(phase: Phase) -> None:
    world = promoted()
    drafted = world.drafted
    world.comparison = Verdict.INCONCLUSIVE
    world.change(engine=NEW_ENGINE)
    world.run_to(phase)
    world.run(15)
    assert command(world, "abort") == ""
    world.run(900)
    assert world.serving(drafted) == 3
    assert world.phase is Phase.SPECULATIVE


def test_rebenchmark_of_a_promoted_arm_measures_and_keeps_it_serving() -> None:
    world = promoted()
    before = len(world.evidence)
    assert command(world, "rebenchmark") == ""
    world.run_to(Phase.SPECULATIVE)
    assert len(world.evidence) > before
    assert not world.decisions("RollBack")


def test_rebenchmark_at_rest_measures_from_the_start() -> None:
    world = ended(World(gain=lambda tier, piece: 0.8), Phase.BASELINE)
    world.gain = lambda tier, piece: 1.6
    assert command(world, "rebenchmark") == ""
    world.run_to(Phase.SPECULATIVE)


def test_the_same_nonce_is_carried_out_once() -> None:
    world = rolled_back()
    command(world, "retry", "once")
    world.run(60)
    before = len(world.decisions("Retry"))
    world.run(300)
    assert len(world.decisions("Retry")) == before == 1


def test_a_crash_before_the_answer_is_written_carries_the_command_out_afterwards() -> None:
    world = rolled_back()
    world.command = Command("retry", "n2")
    world.reconcile(writes=0)
    assert world.status is not None
    assert world.status.command is None
    world.reconcile()
    assert world.status.command is not None
    assert world.phase is not Phase.ROLLED_BACK


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("promote", "promote is for a canary"),
        ("retry", "retry is for a deployment at rest"),
        ("dance", "use one of retry, promote, abort, rebenchmark"),
    ],
)
def test_a_command_that_does_not_fit_is_refused_in_words_and_changes_nothing(verb: str, said: str) -> None:
    world = promoted()
    assert said in command(world, verb)
    assert world.phase is Phase.SPECULATIVE


def test_nothing_to_abort_is_said() -> None:
    world = ended(World(gain=lambda tier, piece: 0.8), Phase.BASELINE)
    assert "nothing to abort" in command(world, "abort")


def test_rebenchmark_without_room_says_which_field_to_raise() -> None:
    world = World(spec=spec_of(capacity={"maxExtraReplicas": 0}))
    world.run_to(Phase.HELD)
    assert "capacity.maxExtraReplicas" in command(world, "rebenchmark")


def test_rebenchmark_is_refused_while_another_engine_serves() -> None:
    world = promoted()
    world.comparison = Verdict.INCONCLUSIVE
    world.change(engine=NEW_ENGINE)
    world.run_to(Phase.CANARY)
    assert "not adopted" in command(world, "rebenchmark")


def test_commands_are_answered_while_paused() -> None:
    world = promoted()
    world.change(paused=True)
    assert command(world, "abort") == ""
    world.run_to(Phase.EXHAUSTED)


def test_a_crash_during_an_abort_is_still_a_roll_back() -> None:
    world = promoted()
    command(world, "abort")
    crash(world, world.drafted)
    world.run_to(Phase.EXHAUSTED)
    assert world.serving(world.plain) == 4
