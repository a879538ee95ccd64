"""The state machine under random lives: specs, faults, shortages, deaths, telemetry, commands, crashes and clocks."""

import os
from datetime import timedelta
from functools import cache
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import Phase as Phase_
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from specfleet.api.status import ArmRole, Phase, Verdict
from specfleet.decide.decide import decide
from specfleet.decide.observation import Command
from specfleet.decide.preflight import screened
from specfleet.decide.watch_report import Answer, Attribution, Severity, Signal, Stage
from specfleet.engine.findings import Finding
from specfleet.engine.findings import Severity as Refusal

from tests.decide.test_road import NEW_ENGINE, OTHER_PROPOSER, TWO_CANDIDATES, crash, suspicion
from tests.decide.world import World, spec_of

ON_DISK: dict[str, Any] = {"method": "draft_model", "draft": {"model": "/models/draft"}, "numSpeculativeTokens": 3}
DIFFERENT = Finding(
    "VocabularyDiffers",
    Refusal.REFUSE,
    "spec.speculation.candidates[0].draft.model",
    "VocabularyDiffers",
    "512 and 640",
    "Use another",
    "test",
)
PROPOSERS: dict[str, Any] = {
    "first": spec_of()["speculation"],
    "other": OTHER_PROPOSER,
    "two": TWO_CANDIDATES,
    "of files": {"candidates": [ON_DISK, spec_of()["speculation"]]},
    "none": None,
}
REFUSED = Finding("ConfigMapMissing", Refusal.REFUSE, "spec", "ConfigMapMissing", "cm is gone", "make it", "x")
ENGINES = {"old": spec_of()["engine"], "new": NEW_ENGINE}
RESTING = (Phase.BASELINE, Phase.SPECULATIVE, Phase.EXHAUSTED, Phase.HELD, Phase.ROLLED_BACK)


@cache
def _grown(replicas: int, extra: int, speculation: str, reached: Phase) -> World:
    """A world that has come to a phase, or as far as it goes; lives start from copies of it."""
    remedies = {**spec_of()["remedies"], "backoffSeconds": [60, 120], "maxActionsPerDay": 50}
    spec = spec_of(
        replicas=replicas, capacity={"maxExtraReplicas": extra}, speculation=PROPOSERS[speculation], remedies=remedies
    )
    world = World(spec=spec)
    world.run(1800, until=lambda one: one.phase is reached)
    if reached is Phase.SPECULATIVE:
        world.run(120)
    return world


class Life(RuleBasedStateMachine):
    """One deployment; every rule is something that happens to it, followed by some time."""

    @initialize(
        replicas=st.integers(1, 4),
        extra=st.sampled_from([1, 2, 1, 2, 0]),
        speculation=st.sampled_from(["first", "first", "two", "of files", "none"]),
        reached=st.sampled_from([Phase.SPECULATIVE, Phase.SPECULATIVE, Phase.CANARY, Phase.DEPLOYING]),
    )
    def begin(self, replicas: int, extra: int, speculation: str, reached: Phase) -> None:
        self.world = _grown(replicas, extra, speculation, reached).fork()
        self.nonce = 0

    @rule(seconds=st.sampled_from([1, 10, 60, 300, 1200]))
    def time_passes(self, seconds: int) -> None:
        self.world.run(seconds)

    @rule(phase=st.sampled_from([Phase.SPECULATIVE, Phase.CANARY, Phase.INVESTIGATING, Phase.ROLLING_BACK]))
    def it_gets_somewhere(self, phase: Phase) -> None:
        self.world.run(1200, until=lambda one: one.phase is phase)

    @rule(signal=st.sampled_from([Signal.ACCEPTANCE_DRIFT, Signal.LOST_GAIN]), decayed=st.booleans())
    def acceptance_drifts(self, signal: Signal, decayed: bool) -> None:
        self.world.suspicions = (suspicion(signal),)
        self.world.pod_acceptance = lambda pod: 0.4 if decayed else 0.7
        self.world.run(120)

    @rule(attribution=st.sampled_from([Attribution.PENDING, Attribution.SPECULATION, Attribution.SHARED]))
    def latency_regresses(self, attribution: Attribution) -> None:
        found = suspicion(Signal.TPOT_REGRESSION, severity=Severity.SLO, attribution=attribution)
        self.world.suspicions = (found,)
        self.world.run(60)

    @rule(ratio=st.sampled_from([(0.5, 0.7), (1.05, 1.3)]), verdict=st.sampled_from([Verdict.PASS, Verdict.FAIL]))
    def arms_compare(self, ratio: tuple[float, float], verdict: Verdict) -> None:
        self.world.comparison_ratio, self.world.comparison = ratio, verdict
        self.world.run(60)

    @rule(speculation=st.sampled_from(list(PROPOSERS)))
    def other_proposers(self, speculation: str) -> None:
        self.world.change(speculation=PROPOSERS[speculation])
        self.world.run(20)

    @rule(engine=st.sampled_from(list(ENGINES)))
    def other_engine(self, engine: str) -> None:
        self.world.change(engine=ENGINES[engine])
        self.world.run(60)

    @rule(replicas=st.integers(1, 5), extra=st.integers(0, 2))
    def other_size(self, replicas: int, extra: int) -> None:
        self.world.change(replicas=replicas, capacity={"maxExtraReplicas": extra})

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.world.change(paused=paused)

    @rule(spare=st.integers(-1, 2))
    def gpus_are_short(self, spare: int) -> None:
        self.world.capacity = max(0, len(self.world.pods()) + spare)

    @rule()
    def gpus_are_back(self) -> None:
        self.world.capacity = 100

    @rule(answer=st.sampled_from(list(Answer)), verdict=st.sampled_from(list(Verdict)))
    def telemetry_says(self, answer: Answer, verdict: Verdict) -> None:
        self.world.answer, self.world.comparison = answer, verdict

    @rule(loses=st.booleans())
    def benchmarks_say(self, loses: bool) -> None:
        self.world.gain = (lambda tier, piece: 0.8) if loses else (lambda tier, piece: 1.6)

    @rule(fails=st.booleans())
    def jobs_die(self, fails: bool) -> None:
        self.world.job_fails = fails

    @rule(answer=st.sampled_from(["fits", "differs", "nothing"]), runs=st.booleans())
    def files_say(self, answer: str, runs: bool) -> None:
        said = {"fits": (), "differs": (DIFFERENT,), "nothing": None}[answer]
        self.world.files_say, self.world.preflight_runs = (lambda spec: said), runs

    @rule(acceptance=st.sampled_from([0.4, 0.7]))
    def acceptance_is(self, acceptance: float) -> None:
        self.world.pod_acceptance = lambda pod: acceptance

    @rule(
        signal=st.sampled_from(list(Signal)),
        severity=st.sampled_from(list(Severity)),
        stage=st.sampled_from(list(Stage)),
        attribution=st.sampled_from(list(Attribution)),
        index=st.integers(0, 5),
    )
    def something_is_found(
        self, signal: Signal, severity: Severity, stage: Stage, attribution: Attribution, index: int
    ) -> None:
        pods = self.world.pods()
        pod = pods[index % len(pods)].name if pods and attribution is Attribution.POD else None
        found = suspicion(signal, severity=severity, stage=stage, attribution=attribution, pod=pod)
        self.world.suspicions = (found,)

    @rule(
        attribution=st.sampled_from(list(Attribution)), severity=st.sampled_from(list(Severity)), slower=st.booleans()
    )
    def something_is_found_beside_a_trial(self, attribution: Attribution, severity: Severity, slower: bool) -> None:
        self.world.promoted_suspicions = (suspicion(severity=severity, attribution=attribution, pod="p001"),)
        self.world.promoted_ratio = (1.1, 1.3) if slower else (0.5, 0.7)

    @rule()
    def nothing_is_found(self) -> None:
        self.world.suspicions = self.world.promoted_suspicions = ()
        self.world.promoted_ratio = (0.5, 0.7)

    @rule(index=st.integers(0, 3))
    def one_arm_cannot_start(self, index: int) -> None:
        names = sorted({fingerprint for fingerprint, _ in self.world.arms})
        self.world.broken_arms = frozenset(names[index : index + 1])

    @rule(refused=st.booleans())
    def the_cluster_refuses(self, refused: bool) -> None:
        self.world.refusals = (REFUSED,) if refused else ()

    @rule(index=st.integers(0, 9))
    def a_pod_disappears(self, index: int) -> None:
        arms = [arm for arm in self.world.arms.values() if arm.pods]
        if arms:
            arm = arms[index % len(arms)]
            arm.pods.pop(index % len(arm.pods))

    @rule(role=st.sampled_from(list(ArmRole)), out_of_memory=st.booleans())
    def an_arm_crashes(self, role: ArmRole, out_of_memory: bool) -> None:
        for (fingerprint, bench), arm in self.world.arms.items():
            if arm.role is role and not bench:
                crash(self.world, fingerprint, out_of_memory=out_of_memory)
        self.world.run(10)

    @rule(roles=st.frozensets(st.sampled_from(list(ArmRole))))
    def arms_cannot_start(self, roles: frozenset[ArmRole]) -> None:
        self.world.broken_roles = roles

    @rule()
    def pods_recover(self) -> None:
        self.world.heal()

    @rule(is_open=st.booleans())
    def breaker(self, is_open: bool) -> None:
        self.world.breaker = is_open

    @rule(verb=st.sampled_from(["retry", "promote", "abort", "rebenchmark", "dance"]))
    def a_person_commands(self, verb: str) -> None:
        self.nonce += 1
        self.world.command = Command(verb, str(self.nonce))
        self.world.run(10)

    @rule(writes=st.integers(0, 8))
    def the_operator_dies(self, writes: int) -> None:
        self.world.reconcile(writes)

    @rule(hours=st.sampled_from([1, 30, 200]))
    def nobody_watches(self, hours: int) -> None:
        self.world.tick(3600.0 * hours)

    @rule(seconds=st.sampled_from([2, 60, 4000]))
    def the_clock_is_set_back(self, seconds: int) -> None:
        self.world.now -= timedelta(seconds=seconds)

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "world"):
            assert not self.world.lost, f"{self.world.lost[:3]}: {self.world.story()}"

    @invariant()
    def deciding_twice_is_deciding_once(self) -> None:
        if hasattr(self, "world"):
            observed = self.world.observation()
            assert decide(observed) == decide(observed)

    @rule()
    def everything_becomes_healthy(self) -> None:
        self.recovers()

    def teardown(self) -> None:
        """From any state there is a way to rest, and rest is restful."""
        if hasattr(self, "world"):
            self.recovers()

    def recovers(self) -> None:
        world = self.world
        world.capacity, world.answer, world.comparison = 100, Answer.OK, Verdict.PASS
        world.suspicions, world.job_fails, world.breaker = (), False, False
        world.promoted_suspicions, world.promoted_ratio, world.refusals = (), (0.5, 0.7), ()
        world.comparison_ratio = (0.55, 0.65)
        world.pod_acceptance, world.gain = (lambda pod: 0.7), (lambda tier, piece: 1.6)
        world.change(paused=False)
        world.command = None
        world.heal()
        self.rests()

    def rests(self) -> None:
        world = self.world
        quiet = 0
        writes = world.writes

        def settled(one: World) -> bool:
            nonlocal quiet, writes
            quiet = quiet + 1 if one.writes == writes else 0
            writes = one.writes
            return quiet >= 12 and self.at_rest()

        reached = world.run(3 * 86400, until=settled)
        told = f"{world.phase} {world.status.phase_reason if world.status else None}: {world.story()[-600:]}"
        assert reached, f"no rest: {told}"
        assert world.serving_total() == world.spec["replicas"], told
        assert not world.lost, f"{world.lost[:3]}: {told}"

    def at_rest(self) -> bool:
        """A phase from which nothing more is to be expected with this spec, and all pods serve."""
        world, status = self.world, self.world.status
        assert status is not None
        if world.phase not in RESTING or world.serving_total() != world.spec["replicas"]:
            return False
        observed = world.observation()
        refused = status.revision_refused == status.revision
        if world.phase is Phase.HELD:
            return observed.spec.capacity.max_extra_replicas == 0
        if world.phase is Phase.ROLLED_BACK:
            return refused
        if world.phase is Phase.BASELINE:
            tried = {one.fingerprint for one in status.trials}
            tried |= {one.fingerprint for one in screened(observed, status).proposers if one.refusals}
            passed = any(one.verdict is Verdict.PASS for one in status.trials)
            return all(arm.fingerprint in tried for arm in observed.proposers) and not passed
        return True


Life.TestCase.settings = settings(
    max_examples=int(os.environ.get("SPECFLEET_LIVES", "20")),
    stateful_step_count=25,
    deadline=None,
    phases=[Phase_.explicit, Phase_.reuse, Phase_.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLife = Life.TestCase
