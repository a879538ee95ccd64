"""Many fleets in virtual time on the production detectors: calibrate, run, and note every change of stage."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from specfleet.api.speculation import Method
from specfleet.decide.bank import DETECTORS, Detector, DetectorBank, Stage
from specfleet.decide.calibration import (
    LOOKUP_METHODS,
    WindowPair,
    load_points,
    measured_dispersion,
    prior_dispersion,
    rate_error,
)
from specfleet.decide.counters import Counter, Floats
from specfleet.decide.drift import SLOW_DISPERSION, alarm_threshold
from specfleet.decide.reference import write_load_points
from specfleet.simulate.traffic import DAY, Arm, Effect, EngineModel, Generator, TrafficModel, counters

SPAN_WINDOWS = 720


@dataclass(frozen=True, slots=True)
class Setting:
    """What is simulated: one traffic and engine, many fleets."""

    traffic: TrafficModel
    engine: EngineModel = field(default_factory=EngineModel)
    fleets: int = 100
    window_seconds: float = 60.0
    control_share: float = 0.25
    """Part of pods and of traffic that the plain arm keeps (matched load). 0: no control."""
    method: Method = Method.EAGLE3
    alarms_per_month: float = 1.0
    confirm_seconds: float = 600.0
    drop: float = 0.15


@dataclass(frozen=True, slots=True)
class Event:
    """A detector of one fleet went to another stage."""

    seconds: float
    """Since the start of the watched part."""
    fleet: int
    detector: Detector
    stage: Stage


@dataclass
class Log:
    """What happened in a run."""

    events: list[Event] = field(default_factory=list)
    fleet_days: float = 0.0

    def first(self, stage: Stage, fleet: int, detectors: tuple[Detector, ...]) -> float:
        """Seconds until a fleet first reached a stage; infinite when it never did."""
        found = [
            one.seconds
            for one in self.events
            if one.fleet == fleet and one.stage >= stage and one.detector in detectors
        ]
        return min(found, default=float("inf"))

    def count(self, stage: Stage, detectors: tuple[Detector, ...] = tuple(Detector)) -> int:
        """How often any of these detectors reached a stage."""
        return sum(one.stage == stage and one.detector in detectors for one in self.events)


EffectAt = Callable[[Floats], Effect]
"""(T,) seconds since the start of the watched part -> what is wrong then."""


def healthy(_: Floats) -> Effect:
    """Nothing is wrong."""
    return Effect()


class Fleet:
    """R fleets under one Setting."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        self.generator = Generator(setting.traffic, setting.fleets, setting.window_seconds, seed)
        self.noise = np.random.default_rng([seed, 1])
        self.bank = DetectorBank(setting.fleets)
        self.now = 0.0
        self.bank.threshold[:] = alarm_threshold(setting.window_seconds, DETECTORS, setting.alarms_per_month)
        self.bank.confirm_seconds[:] = setting.confirm_seconds
        self.bank.drop[:] = setting.drop

    def calibrate(self, seconds: float = 7 * DAY) -> None:
        """Watch a healthy span and write down what is normal, by the rules of decide/calibration.py."""
        spans = [(speculative, plain) for _, speculative, plain in self._spans(seconds, healthy, 0.0)]
        ours = np.concatenate([one[0] for one in spans], axis=1)
        plain = np.concatenate([one[1] for one in spans], axis=1)
        for fleet in range(self.setting.fleets):
            self._reference(fleet, ours[:, :, fleet], plain[:, :, fleet])

    def run(self, seconds: float, effect: EffectAt = healthy, reset: bool = True) -> Log:
        """Watch for a while. With `reset` a confirmed detector starts anew, as after a re-benchmark that passed."""
        log = Log(fleet_days=self.setting.fleets * seconds / DAY)
        start = self.now
        before = self.bank.stage.copy()
        rows = slice(None)
        length = np.full(self.setting.fleets, self.setting.window_seconds)
        pod_seconds = self._pod_seconds()
        for starts, ours, plain in self._spans(seconds, effect, start):
            for index, at in enumerate(starts):
                ends = length + at
                self.bank.step(rows, ours[:, index], plain[:, index], pod_seconds, ends, length)
                if (self.bank.stage != before).any():
                    self._note(log, before, float(at) + self.setting.window_seconds - start, reset)
                    before = self.bank.stage.copy()
        return log

    def _note(self, log: Log, before: np.ndarray, seconds: float, reset: bool) -> None:
        for detector, fleet in np.argwhere(self.bank.stage != before):
            stage = Stage(self.bank.stage[detector, fleet])
            log.events.append(Event(seconds, int(fleet), Detector(detector), stage))
            if reset and stage is Stage.CONFIRMED:
                self.bank.stage[:, fleet] = Stage.QUIET
                self.bank.level[:, fleet] = 0.0
                self.bank.pool[:, :, fleet] = 0.0

    def _pod_seconds(self) -> Floats:
        setting = self.setting
        pods = np.array([1 - setting.control_share, setting.control_share]) * setting.engine.pods
        return np.repeat(pods[:, None] * setting.window_seconds, setting.fleets, axis=1)

    def _spans(self, seconds: float, effect: EffectAt, start: float) -> Iterator[tuple[Floats, Floats, Floats]]:
        setting = self.setting
        windows = round(seconds / setting.window_seconds)
        share, pods = setting.control_share, setting.engine.pods
        while windows > 0:
            count = min(windows, SPAN_WINDOWS)
            load = self.generator.span(self.now, count)
            wrong = effect(load.starts - start)
            ours = counters(load, setting.engine, Arm(True, 1 - share, (1 - share) * pods), wrong, self.noise)
            plain = np.zeros_like(ours)
            if share > 0:
                plain = counters(load, setting.engine, Arm(False, share, share * pods), wrong, self.noise)
            yield load.starts, ours, plain
            self.now += count * setting.window_seconds
            windows -= count

    def _reference(self, fleet: int, ours: Floats, plain: Floats) -> None:
        bank = self.bank
        total = ours.sum(axis=1)
        rates = (
            total[Counter.ACCEPTED_TOKENS] / total[Counter.DRAFT_TOKENS],
            total[Counter.ACCEPTED_FIRST] / total[Counter.DRAFTS],
        )
        drafting = ours[Counter.DRAFT_TOKENS] > 0
        found = prior_dispersion(self.setting.method)
        if drafting.sum() >= 200:
            found = measured_dispersion(
                ours[Counter.ACCEPTED_TOKENS][drafting], ours[Counter.DRAFT_TOKENS][drafting], float(rates[0])
            )
        bank.dispersion[fleet], bank.slow_dispersion[fleet] = found, SLOW_DISPERSION * found
        bank.rate[:, fleet] = rates
        if self.setting.method not in LOOKUP_METHODS:
            bank.length_reference[fleet] = 1 + total[Counter.ACCEPTED_TOKENS] / total[Counter.DRAFTS]
        trials = (total[Counter.DRAFT_TOKENS], total[Counter.DRAFTS])
        week = ours.shape[1] * self.setting.window_seconds >= 7 * DAY
        bank.rate_error[:, fleet] = [
            rate_error(float(rate), found, float(trial), week) for rate, trial in zip(rates, trials, strict=True)
        ]
        seconds = self._pod_seconds()[:, fleet]
        pairs = [
            WindowPair(0.0, ours[:, index], plain[:, index], (float(seconds[0]), float(seconds[1])))
            for index in range(0, ours.shape[1], max(1, ours.shape[1] // 2000))
        ]
        write_load_points(bank, fleet, load_points(pairs))
