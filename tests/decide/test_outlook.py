"""What `explain` shows is what decides: gates open exactly when a phase moves on, and ways list every move."""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant
from specfleet.api.operation import MaintenanceWindow
from specfleet.api.status import ArmRole, DeploymentStatus, Phase, Verdict
from specfleet.decide import budget
from specfleet.decide.decide import MOVES_PER_TURN, PHASES
from specfleet.decide.gates import Gate, GateName, first_unmet
from specfleet.decide.observation import Observation
from specfleet.decide.outlook import options, phase_gates
from specfleet.decide.plan import Plan
from specfleet.decide.revisions import revision_name
from specfleet.decide.turn import Turn
from specfleet.decide.watch_report import Answer, Attribution, Severity, Signal
from specfleet.decide.ways import ways

from tests.decide.test_machine import Life
from tests.decide.test_road import NEW_ENGINE, crash, promoted, suspicion
from tests.decide.world import START, World, spec_of

ABORTS = (Phase.ROLLING_BACK, Phase.HELD, Phase.EXHAUSTED)
WAITING = (Phase.BASELINE, Phase.CANARY, Phase.ROLLED_BACK, Phase.ROLLING_BACK, Phase.HELD)


def walk(obs: Observation) -> None:
    """One turn, phase by phase: every move is listed, and it is made if and only if no gate is closed."""
    turn = Turn(obs, obs.status)
    turn.set(actions=budget.recent_actions(turn.status.actions, obs.now))
    if turn.status.revision != revision_name(obs):
        return
    for _ in range(MOVES_PER_TURN):
        before = turn.status
        expected = first_unmet(phase_gates(obs, before)) is None
        listed = {way.to for way in ways(obs, before)}
        PHASES[before.phase](turn)
        after = turn.status
        if after.phase is not before.phase:
            lost = after.phase_reason in ("CandidateGone", "Resumed", "NothingPromoted", "InvestigationLost")
            assert after.phase in listed or lost, (
                f"{before.phase} -> {after.phase} ({after.phase_reason}) is not listed"
            )
        check_gates(before, after, expected, phase_gates(obs, before))
        if after.phase is before.phase:
            return


def check_gates(before: DeploymentStatus, after: DeploymentStatus, expected: bool, gates: tuple[Gate, ...]) -> None:
    if before.phase not in WAITING or after.phase_reason in ("CandidateGone", "Resumed"):
        return
    if before.phase is Phase.CANARY and before.step_since is None:
        moved = after.step_since is not None
    else:
        moved = after.phase is not before.phase or after.step != before.step
    aborted = after.phase is not before.phase and after.phase in ABORTS and before.phase is not Phase.ROLLING_BACK
    assert moved == expected or aborted, (before.phase, after.phase, after.phase_reason, gates)


class ShownLife(Life):
    """The random lives of the state machine, looked at through gates and ways after every event."""

    @invariant()
    def gates_and_ways_are_those_that_decide(self) -> None:
        if hasattr(self, "world"):
            walk(self.world.observation())

    @invariant()
    def a_listed_command_is_taken(self) -> None:
        if hasattr(self, "world") and self.world.status is not None:
            obs = self.world.observation()
            for option in options(obs, obs.status):
                assert option.message, option

    def teardown(self) -> None:
        """Recovery is the business of test_machine."""


TestShownLife = ShownLife.TestCase
TestShownLife.settings = settings(
    max_examples=int(os.environ.get("SPECFLEET_LIVES", "40")),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


def gate(world: World, name: GateName) -> Gate:
    obs = world.observation()
    return next(one for one in phase_gates(obs, obs.status) if one.name is name)


class ShownWorld(World):
    """Every turn of the operator is walked through first."""

    def reconcile(self, writes: int | None = None) -> Plan:
        walk(self.observation())
        return super().reconcile(writes)


def drifts(world: World) -> None:
    world.suspicions, world.gain = (suspicion(),), lambda tier, piece: 0.8
    world.pod_acceptance = lambda pod: 0.3


def regresses(world: World) -> None:
    found = suspicion(Signal.TPOT_REGRESSION, severity=Severity.SLO, attribution=Attribution.PENDING)
    world.suspicions = (found,)


def hangs_while_the_engine_changes(world: World) -> None:
    world.startup_seconds = 3000.0
    world.change(engine={**NEW_ENGINE, "startupTimeoutSeconds": 3600})
    world.run(30)
    world.startup_seconds = 20.0
    pod = next(one for one in world.arms.values() if one.role is ArmRole.SPECULATIVE).pods[0].name
    found = suspicion(Signal.NO_PROGRESS, severity=Severity.HARD, attribution=Attribution.POD, pod=pod)
    world.suspicions = (found,)


def loses(world: World) -> None:
    world.comparison_ratio, world.comparison = (1.05, 1.3), Verdict.FAIL


@pytest.mark.parametrize(
    ("happens", "seen"),
    [
        (lambda world: None, Phase.SPECULATIVE),
        (drifts, Phase.INVESTIGATING),
        (drifts, Phase.ROLLED_BACK),
        (regresses, Phase.INVESTIGATING),
        (loses, Phase.ROLLED_BACK),
        (hangs_while_the_engine_changes, Phase.INVESTIGATING),
        (hangs_while_the_engine_changes, Phase.DEPLOYING),
        (lambda world: world.change(engine=NEW_ENGINE), Phase.CANARY),
        (lambda world: crash(world, world.drafted), Phase.ROLLING_BACK),
        (lambda world: setattr(world, "answer", Answer.NO_TRAFFIC), Phase.SPECULATIVE),
    ],
)
def test_the_road_is_walked_only_through_open_gates(happens: Callable[[World], None], seen: Phase) -> None:
    world = ShownWorld()
    world.run_to(Phase.SPECULATIVE)
    happens(world)
    world.run_to(seen)
    world.run(8 * 3600)
    assert not world.lost


def test_a_canary_step_says_how_many_requests_and_seconds_are_missing() -> None:
    world = World()
    world.run_to(Phase.CANARY)
    assert gate(world, GateName.PODS_MOVED).met is False
    world.run(300, until=lambda one: one.status is not None and one.status.step_since is not None)
    world.tick(10)
    found = gate(world, GateName.DURATION)
    assert (found.met, found.has, found.needs, found.left_seconds) == (False, 10, 30, 20)
    requests = gate(world, GateName.REQUESTS)
    assert (requests.met, requests.has, requests.needs, requests.unit) == (False, 20, 50, "requests")
    world.answer = Answer.UNAVAILABLE
    assert gate(world, GateName.METRICS).has == "Unavailable"
    assert gate(world, GateName.VERDICT).has == "pending"


def test_a_promoted_arm_says_which_guard_holds_a_finding_back() -> None:
    world = promoted(remedies={**spec_of()["remedies"], "cooldownSeconds": 7200})
    world.suspicions = (suspicion(),)
    assert gate(world, GateName.FINDING).met is False
    cooldown = gate(world, GateName.COOLDOWN)
    assert not cooldown.met
    assert cooldown.left_seconds is not None
    assert 0 < cooldown.left_seconds < 7200
    world.breaker = True
    assert gate(world, GateName.BREAKER).has == "open"
    assert gate(world, GateName.ACTIONS).has == 0


def test_a_closed_maintenance_window_is_shown_to_hold_back_drift_and_not_a_missed_slo() -> None:
    closed = {**spec_of()["remedies"], "maintenanceWindows": [{"start": "03:00", "durationSeconds": 3600}]}
    world = promoted()
    world.change(remedies=closed)
    world.suspicions = (suspicion(),)
    assert not gate(world, GateName.MAINTENANCE).met
    world.suspicions = (suspicion(), suspicion(Signal.TPOT_REGRESSION, severity=Severity.SLO))
    obs = world.observation()
    assert first_unmet(phase_gates(obs, obs.status)) is None


@pytest.mark.parametrize(
    ("phase", "accepted"),
    [
        (Phase.DEPLOYING, set()),
        (Phase.BENCHMARKING, {"abort"}),
        (Phase.CANARY, {"promote", "abort"}),
        (Phase.SPECULATIVE, {"abort", "rebenchmark"}),
        (Phase.BASELINE, {"retry", "rebenchmark"}),
    ],
)
def test_the_commands_shown_are_those_that_would_be_taken(phase: Phase, accepted: set[str]) -> None:
    world = World(spec=spec_of(paused=True)) if phase is Phase.BASELINE else World()
    if phase is not Phase.DEPLOYING:
        world.run_to(phase)
    else:
        world.reconcile()
    obs = world.observation()
    assert {one.verb for one in options(obs, obs.status) if one.accepted} == accepted


@pytest.mark.parametrize(
    ("days", "start", "hours", "left"),
    [
        ([], "10:00", 1, 3600.0),
        ([], "09:00", 1, 86400.0),
        (["Mon"], "08:00", 1, 7 * 86400.0 - 3600.0),
        (["Wed"], "09:00", 1, 2 * 86400.0),
    ],
)
def test_the_next_maintenance_window_is_told(days: list[str], start: str, hours: int, left: float) -> None:
    """START is a Monday, 09:00."""
    window: Any = MaintenanceWindow(days=days, start=start, duration_seconds=3600 * hours)
    assert budget.seconds_until_window([window], START) == left
    assert budget.in_maintenance_window([window], START + timedelta(seconds=left))


def test_the_oldest_action_frees_the_budget_a_day_later() -> None:
    actions = [START, START + timedelta(hours=1), START + timedelta(hours=2)]
    now = START + timedelta(hours=3)
    assert budget.seconds_until_fewer(actions, 4, now) is None
    assert budget.seconds_until_fewer(actions, 3, now) == 21 * 3600
    assert budget.seconds_until_fewer(actions, 2, now) == 22 * 3600
