"""From scraped counters to reports, over a loopback server: what a user of the watch sees."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from specfleet.api.speculation import Method
from specfleet.api.status import ArmRole, Verdict
from specfleet.decide.watch import Watch
from specfleet.decide.watch_report import Answer, Signal, Stage, WatchReport
from specfleet.decide.watch_target import Target, TargetPod
from specfleet.telemetry.collector import Collector
from specfleet.telemetry.servers import MetricsServer

from tests.telemetry.fake_server import FakePrometheus, fake_prometheus
from tests.telemetry.fleet import EngineModel, play

T0 = 1_800_000_000.0
KEY = ("ns", "chat", "uid-1")


class Scene:
    """Two speculative and two plain pods, a collector and a watch, and a clock of its own."""

    def __init__(self, fake: FakePrometheus, interval: float = 2.0, window: float = 8.0, jitter: float = 0.0) -> None:
        self.fake, self.interval, self.window, self.jitter = fake, interval, window, jitter
        self.now = T0
        self.server = MetricsServer(fake.url, timeout_seconds=2)
        self.collector, self.watch = Collector(), Watch()
        self.engines = {("ns", f"spec-{i}"): EngineModel(start_time=T0 - 60) for i in (0, 1)}
        self.engines |= {("ns", f"plain-{i}"): EngineModel(acceptance=None, start_time=T0 - 60) for i in (0, 1)}
        self.since = self.moment(T0)
        self.calibration = None
        self.fields: dict = {}

    @staticmethod
    def moment(at: float) -> datetime:
        return datetime.fromtimestamp(at, UTC)

    @property
    def spec(self) -> list[EngineModel]:
        return [engine for (_, name), engine in sorted(self.engines.items()) if name.startswith("spec")]

    @property
    def plain(self) -> list[EngineModel]:
        return [engine for (_, name), engine in sorted(self.engines.items()) if name.startswith("plain")]

    def target(self) -> Target:
        pods = {
            role: tuple(
                TargetPod(name, name, self.moment(engine.start_time))
                for (_, name), engine in sorted(self.engines.items())
                if name.startswith(prefix)
            )
            for role, prefix in ((ArmRole.SPECULATIVE, "spec"), (ArmRole.BASELINE, "plain"))
        }
        fields = {
            "key": KEY,
            "arms": {role: members for role, members in pods.items() if members},
            "since": self.since,
            "window_seconds": self.window,
            "scrape_interval_seconds": self.interval,
            "warmup_seconds": 4.0,
            "confirm_seconds": 3 * self.window,
            "min_requests": 50,
            "fingerprint": "f1",
            "calibration": self.calibration,
            "method": Method.EAGLE3,
        }
        return Target(**(fields | self.fields))

    def run(self, seconds: float, tick: float | None = None, skip=lambda _: False) -> WatchReport:
        end = self.now + seconds
        tick = tick or self.window
        while self.now < end:
            step = min(tick, end - self.now)
            self.now = play(
                self.fake.store, self.engines, self.now, step, self.interval, self.jitter, int(self.now), skip
            )
            report = self.tick()
        return report

    def tick(self) -> WatchReport:
        now = self.moment(self.now)
        feeds = asyncio.run(self.collector.tick({self.server: [self.target()]}, now))
        self.watch.observe(now, feeds)
        return self.watch.report(KEY)

    def calibrate(self) -> None:
        proposal = self.watch.report(KEY).calibration
        assert proposal is not None
        self.calibration = proposal

    def signals(self, report: WatchReport) -> dict[Signal, Stage]:
        return {one.signal: one.stage for one in report.suspicions}


@pytest.fixture
def fake():
    with fake_prometheus() as server:
        yield server


@pytest.mark.parametrize(("interval", "window"), [(2.0, 8.0), (15.0, 60.0), (30.0, 60.0), (60.0, 60.0)])
@pytest.mark.parametrize("jitter", [0.0, 0.2])
def test_figures_are_those_of_the_engines_at_every_scrape_interval(fake, interval, window, jitter):
    scene = Scene(fake, interval, window, jitter)
    report = scene.run(40 * window)
    assert report.answer is Answer.OK, report.message
    spec, plain = report.step[ArmRole.SPECULATIVE], report.step[ArmRole.BASELINE]
    assert spec.acceptance_rate == pytest.approx((0.7 + 0.5 + 0.35) / 3)
    assert spec.position_zero_rate == pytest.approx(0.7)
    assert spec.accepted_length == pytest.approx(2.55)
    assert spec.tpot_seconds == pytest.approx(0.02 / 2.55)
    assert spec.tokens_per_step == pytest.approx(2.55)
    assert plain.tpot_seconds == pytest.approx(0.02)
    assert plain.acceptance_rate is None
    assert spec.requests_per_second_per_pod == pytest.approx(2.0, rel=0.15)
    assert set(report.pods) == {"spec-0", "spec-1", "plain-0", "plain-1"}


def test_a_faster_arm_passes_the_canary_and_a_slower_one_fails(fake):
    scene = Scene(fake)
    report = scene.run(400)
    assert report.comparison is not None
    assert report.comparison.verdict is Verdict.PASS, report.comparison.message
    assert report.comparison.tpot_ratio == pytest.approx(1 / 2.55)
    scene.since = scene.moment(scene.now)
    for engine in scene.spec:
        engine.step_seconds = 0.08
    report = scene.run(400)
    assert report.comparison is not None
    assert report.comparison.verdict is Verdict.FAIL
    assert report.comparison.reason == "TimePerOutputTokenRegression"


def test_decay_of_acceptance_is_suspected_confirmed_and_gone_after_it_heals(fake):
    scene = Scene(fake)
    scene.run(400)
    scene.calibrate()
    assert scene.signals(scene.run(400)) == {}
    for engine in scene.spec:
        engine.acceptance = (0.4, 0.2, 0.1)
    seen: dict[Signal, Stage] = {}
    decayed_at = scene.now
    while seen.get(Signal.ACCEPTANCE_DRIFT) is not Stage.CONFIRMED and scene.now < decayed_at + 600:
        seen = scene.signals(scene.run(8))
    assert seen[Signal.ACCEPTANCE_DRIFT] is Stage.CONFIRMED
    assert scene.now - decayed_at < 300
    report = scene.watch.report(KEY)
    finding = next(one for one in report.suspicions if one.signal is Signal.ACCEPTANCE_DRIFT)
    assert finding.since.timestamp() == pytest.approx(decayed_at, abs=40)
    assert "2.55" in finding.message or "calibrated 0.517" in finding.message
    for engine in scene.spec:
        engine.acceptance = (0.7, 0.5, 0.35)
    assert Signal.ACCEPTANCE_DRIFT not in scene.signals(scene.run(200))


def test_what_is_normal_for_one_arm_is_not_held_against_another(fake):
    """In the trial of a changed engine the plain arm is judged beside the calibration of the promoted proposer."""
    scene = Scene(fake)
    scene.run(400)
    scene.calibrate()
    scene.fields = {"fingerprint": "another", "method": None}
    for engine in scene.spec:
        engine.acceptance = None
    assert scene.signals(scene.run(300)) == {}


def test_one_bad_pod_is_named(fake):
    scene = Scene(fake)
    scene.run(400)
    scene.calibrate()
    scene.run(80)
    scene.spec[1].acceptance = (0.1, 0.02, 0.0)
    report = scene.run(400)
    assert {one.pod for one in report.suspicions if one.signal is Signal.ACCEPTANCE_DRIFT} == {"spec-1"}


def test_slower_steps_in_both_arms_are_a_shared_cause_and_in_one_are_not(fake):
    for shared in (True, False):
        fake.store.series.clear()
        scene = Scene(fake)
        scene.run(600)
        scene.calibrate()
        for engine in [*scene.spec, *(scene.plain if shared else [])]:
            engine.step_seconds *= 1.5
        report = scene.run(600)
        found = next(one for one in report.suspicions if one.signal is Signal.TPOT_REGRESSION)
        assert found.attribution.value == ("Shared" if shared else "Speculation"), found.message


def test_errors_and_hangs_are_hard_faults(fake):
    scene = Scene(fake)
    scene.run(200)
    for engine in scene.spec:
        engine.server_error_share = 0.2
    assert scene.signals(scene.run(80))[Signal.SERVER_ERRORS] is Stage.CONFIRMED
    for engine in scene.spec:
        engine.server_error_share = 0.0
        engine.stuck = True
    assert scene.signals(scene.run(80))[Signal.NO_PROGRESS] is Stage.CONFIRMED


def test_requests_that_only_speculation_refuses_are_found(fake):
    scene = Scene(fake)
    for engine in scene.spec:
        engine.client_error_share = 0.05
    report = scene.run(400)
    assert scene.signals(report) == {Signal.CLIENT_ERRORS: Stage.CONFIRMED}
    assert report.comparison is not None
    assert report.comparison.reason == "IncompatibleRequests"


def test_a_restart_in_the_middle_costs_windows_and_changes_no_figure(fake):
    scene = Scene(fake)
    scene.run(100)
    scene.spec[0].restart(scene.now)
    report = scene.run(100)
    spec = report.step[ArmRole.SPECULATIVE]
    assert spec.acceptance_rate == pytest.approx(1.55 / 3)
    assert spec.tpot_seconds == pytest.approx(0.02 / 2.55)
    assert report.pods["spec-0"].generated_tokens < 0.95 * report.pods["spec-1"].generated_tokens


def test_scrape_gaps_are_dropped_and_an_outage_stays_typed(fake):
    scene = Scene(fake)
    scene.run(80)
    gap = scene.now
    report = scene.run(40, skip=lambda at: gap + 5 < at < gap + 25)
    assert report.step[ArmRole.SPECULATIVE].acceptance_rate == pytest.approx(1.55 / 3)
    report = scene.run(60, skip=lambda _: True)
    assert report.answer in (Answer.STALE, Answer.TARGET_DOWN)
    assert report.suspicions == ()
    assert scene.run(60).answer is Answer.OK


def test_a_fresh_watch_replays_to_the_same_report(fake):
    scene = Scene(fake)
    scene.run(300)
    scene.calibrate()
    for engine in scene.spec:
        engine.acceptance = (0.55, 0.35, 0.2)
    old = scene.run(200)
    scene.collector, scene.watch = Collector(), Watch()
    new = scene.tick()
    assert new.suspicions == old.suspicions
    assert new.step == old.step
    assert new.comparison == old.comparison


def test_a_failing_server_is_unavailable_and_nothing_else_happens(fake):
    scene = Scene(fake)
    before = scene.run(200)
    fake.status, fake.body = 503, b"overloaded"
    report = scene.run(40)
    assert report.answer is Answer.UNAVAILABLE
    assert "503" in report.message
    assert report.suspicions == ()
    assert report.step == before.step
    fake.status, fake.body = 200, None
    assert scene.run(16).answer is Answer.OK


@pytest.mark.parametrize(
    ("fault", "answer"),
    [
        ("no series at all", Answer.TARGET_DOWN),
        ("renamed metric", Answer.SCHEMA_MISSING),
        ("no traffic", Answer.NO_TRAFFIC),
        ("speculation is off", Answer.NOT_SPECULATING),
        ("only NaN", Answer.SCHEMA_MISSING),
        ("infinite token counts", Answer.SCHEMA_MISSING),
        ("partial result", Answer.UNAVAILABLE),
        ("scraped every two minutes", Answer.UNAVAILABLE),
    ],
)
def test_absence_of_data_has_a_type_and_is_never_a_finding(fake, fault, answer):
    scene = Scene(fake, interval=120.0 if "two minutes" in fault else 2.0, window=60.0 if "two" in fault else 8.0)
    if fault == "no series at all":
        scene.engines = {("other", name): engine for (_, name), engine in scene.engines.items()}
    if fault == "no traffic":
        for engine in scene.engines.values():
            engine.requests_per_second = 0.0
    if fault == "speculation is off":
        for engine in scene.spec:
            engine.acceptance = None
    if fault == "partial result":
        fake.warnings = ["store gateway 3 did not answer"]
    broken = {"only NaN": float("nan"), "infinite token counts": float("inf"), "renamed metric": None}.get(fault, 0.0)
    if broken != 0.0:
        add = fake.store.add

        def spoiled(at, value, name, **labels):
            if name != "vllm:generation_tokens_total":
                add(at, value, name, **labels)
            elif broken is not None:
                add(at, broken, name, **labels)

        fake.store.add = spoiled
    report = scene.run(15 * scene.window, tick=4 * scene.window)
    assert report.answer is answer, report.message
    assert report.message
    assert report.suspicions == ()
    assert report.comparison is None or report.comparison.verdict is Verdict.INCONCLUSIVE


def test_a_pod_scraped_twice_is_counted_once(fake):
    scene = Scene(fake)
    single = scene.run(200).step[ArmRole.SPECULATIVE]
    add = fake.store.add

    def twice(at, value, name, **labels):
        add(at, value, name, **labels)
        add(at + 0.5, value, name, **(labels | {"job": "again"}))

    scene2 = Scene(fake)
    fake.store.series.clear()
    fake.store.add = twice
    doubled = scene2.run(200).step[ArmRole.SPECULATIVE]
    assert doubled.generated_tokens == pytest.approx(single.generated_tokens, rel=0.02)


def test_queries_do_not_depend_on_the_number_of_deployments(fake):
    collector = Collector()
    now = datetime.fromtimestamp(T0, UTC)

    def targets(count: int) -> list[Target]:
        pod = {ArmRole.SPECULATIVE: (TargetPod("p", "p", now - timedelta(hours=1)),)}
        return [Target((f"ns-{i}", "chat", f"u{i}"), pod, now, 60.0) for i in range(count)]

    server = MetricsServer(fake.url)
    for count in (1, 50):
        collector = Collector()
        asyncio.run(collector.tick({server: targets(count)}, now))
        before = collector.queries
        asyncio.run(collector.tick({server: targets(count)}, now + timedelta(seconds=125)))
        assert collector.queries - before == 1


def test_the_count_of_queries_never_falls_when_the_last_deployment_of_a_server_goes(fake):
    scene = Scene(fake)
    scene.run(3 * scene.window)
    before = scene.collector.queries
    assert before > 0
    asyncio.run(scene.collector.tick({}, scene.moment(scene.now)))
    assert scene.collector.queries == before
    scene.run(3 * scene.window)
    assert scene.collector.queries > before
    seen = scene.collector.queries
    scene.collector.close()
    assert scene.collector.queries == seen
