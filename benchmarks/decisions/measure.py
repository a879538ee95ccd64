"""Runs of the watch and of the other rules on the same traces; results as plain numbers."""

import copy
import time
from dataclasses import dataclass, field

import numpy as np
from specfleet.decide.bank import Detector, Stage
from specfleet.decide.counters import Counter
from specfleet.decide.watch_findings import OWN_PART, SHARED_PART
from specfleet.simulate.fleet import EffectAt, Fleet, Log, Setting
from specfleet.simulate.traffic import DAY, Effect, TrafficModel

from benchmarks.decisions.rules import RULES, Floats, Reference

LEVELS = (0.02, 0.1, 0.5, 2.0, 5.0, 20.0)
ACCEPTANCE = (Detector.ACCEPTANCE, Detector.POSITION_ZERO, Detector.ACCEPTANCE_SLOW, Detector.POSITION_ZERO_SLOW)
HOURS = 24 * 3600.0


@dataclass
class Recorder(Fleet):
    """A fleet that keeps the acceptance windows it was fed with, for the other rules."""

    setting: Setting
    seed: int
    accepted: list[Floats] = field(default_factory=list)
    drafted: list[Floats] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.setting, self.seed)

    def _spans(self, seconds, effect, start):  # type: ignore[no-untyped-def]
        for starts, ours, plain in super()._spans(seconds, effect, start):
            self.accepted.append(ours[Counter.ACCEPTED_TOKENS].astype(np.float32))
            self.drafted.append(ours[Counter.DRAFT_TOKENS].astype(np.float32))
            yield starts, ours, plain

    def windows(self) -> tuple[Floats, Floats]:
        """(T, R) accepted and drafted tokens since the last call."""
        found = np.concatenate(self.accepted).astype(float), np.concatenate(self.drafted).astype(float)
        self.accepted, self.drafted = [], []
        return found


def reference(accepted: Floats, drafted: Floats) -> Reference:
    """What the other rules know of the healthy week."""
    rate = accepted.sum(axis=0) / drafted.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.where(drafted > 0, accepted / drafted, np.nan)
    return Reference(rate, np.nanstd(rates, axis=0))


CHANGES: dict[str, EffectAt] = {
    "-20 %": lambda s: Effect(acceptance=np.full((s.size, 1), 0.8)),
    "-30 %": lambda s: Effect(acceptance=np.full((s.size, 1), 0.7)),
    "-50 %": lambda s: Effect(acceptance=np.full((s.size, 1), 0.5)),
    "ramp -30 % in 6 h": lambda s: Effect(acceptance=1 - 0.3 * np.clip(s / 21600, 0, 1)[:, None]),
    "accepted length 3.07 to 2.8 in 6 h": lambda s: Effect(acceptance=1 - 0.13 * np.clip(s / 21600, 0, 1)[:, None]),
}
BLIPS = (1, 5, 15)
"""Minutes."""
STAGES = (Stage.SUSPECT, Stage.CONFIRMED)


def blip(minutes: float) -> EffectAt:
    """Acceptance 25 % lower for some minutes."""
    return lambda s: Effect(acceptance=np.where(s < 60 * minutes, 0.75, 1.0)[:, None])


def constant(effect: Effect) -> EffectAt:
    """The same fault all the time."""
    return lambda _: effect


def level(rate: float, fleets: int, days: float, seed: int, rules: bool) -> dict[str, object]:
    """Everything about one traffic level."""
    began = time.monotonic()
    fleet = Recorder(Setting(TrafficModel(rate), fleets=fleets), seed)
    fleet.calibrate()
    known = reference(*fleet.windows())
    quiet = copy.deepcopy(fleet)
    log = quiet.run(days * DAY)
    months = log.fleet_days / 30
    out: dict[str, object] = {
        "rate": rate,
        "fleets": fleets,
        "days": days,
        "months": months,
        "dispersion": float(np.median(fleet.bank.dispersion)),
        "threshold": float(fleet.bank.threshold[0]),
        "false": {stage.name: {one.name: log.count(stage, (one,)) for one in Detector} for stage in STAGES},
    }
    others: dict[str, dict[str, object]] = {}
    if rules:
        accepted, drafted = quiet.windows()
        for name, rule in RULES.items():
            others[name] = {"false": int(rule(accepted, drafted, known).sum())}
        del accepted, drafted
    quiet.accepted, quiet.drafted = [], []
    out["changes"] = {}
    for name, effect in CHANGES.items():
        changed = copy.deepcopy(fleet)
        changed.run(2 * DAY)
        warm = changed.windows()
        log = changed.run(HOURS, effect, reset=False)
        out["changes"][name] = delays(log, fleets)  # type: ignore[index]
        if rules and name in ("-20 %", "-30 %"):
            accepted, drafted = (np.concatenate(pair) for pair in zip(warm, changed.windows(), strict=True))
            for other, rule in RULES.items():
                found = rule(accepted, drafted, known)[warm[0].shape[0] :]
                first = np.where(found.any(axis=0), (found.argmax(axis=0) + 1) * 60.0, np.inf)
                others[other][name] = quantiles(first)
    blips = {}
    for minutes in BLIPS:
        log = copy.deepcopy(fleet).run(3 * 3600, blip(minutes))
        tripped = {stage: {one.fleet for one in log.events if one.stage == stage} for stage in STAGES}
        blips[f"{minutes} min"] = {stage.name: len(who) / fleets for stage, who in tripped.items()}
    out["blips of -25 %"] = blips
    out["others"] = others
    out["seconds"] = time.monotonic() - began
    return out


def false_alarms(rate: float, fleets: int, days: float, seed: int) -> dict[str, object]:
    """Of all detectors on healthy fleets, as in `level` but alone."""
    fleet = Fleet(Setting(TrafficModel(rate), fleets=fleets), seed)
    fleet.calibrate()
    log = fleet.run(days * DAY)
    counts = {stage.name: {one.name: log.count(stage, (one,)) for one in Detector} for stage in STAGES}
    return {"rate": rate, "months": log.fleet_days / 30, "false": counts}


def first_week(rate: float, fleets: int, seed: int) -> dict[str, object]:
    """The same after a calibration from two hours (a canary) with the prior dispersion: false alarms, delays."""
    fleet = Fleet(Setting(TrafficModel(rate), fleets=fleets), seed)
    fleet.calibrate(2 * 3600.0)
    log = copy.deepcopy(fleet).run(7 * DAY)
    out: dict[str, object] = {
        "rate": rate,
        "months": log.fleet_days / 30,
        "false": {stage.name: {one.name: log.count(stage, (one,)) for one in Detector} for stage in STAGES},
    }
    for name in ("-30 %", "-50 %"):
        out[name] = delays(copy.deepcopy(fleet).run(HOURS, CHANGES[name], reset=False), fleets)
    return out


def latency(rate: float, fleets: int, seed: int, share: float) -> dict[str, object]:
    """TPOT +15 % in the speculative arm: suspected against its own history, confirmed, told from a shared cause."""
    base = Fleet(Setting(TrafficModel(rate), fleets=fleets, control_share=share), seed)
    base.calibrate()
    out: dict[str, object] = {"rate": rate, "control_share": share}
    for name, effect in {
        "own": Effect(step_time=1.15),
        "shared": Effect(shared_step_time=1.15),
    }.items():
        fleet = copy.deepcopy(base)
        log = fleet.run(HOURS, constant(effect), reset=False)
        out[name] = delays(log, fleets, (Detector.TPOT,)) | {"attributed": attribution(fleet)}
    return out


def attribution(fleet: Fleet) -> dict[str, int]:
    """What the control says at the end of a run, by the rule of decide/watch_findings.py."""
    bank = fleet.bank
    some = bank.stage[Detector.TPOT] > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        part = bank.control_pool[0, 0] / bank.control_pool[0, 1] / bank.observed[Detector.TPOT]
    return {
        "found": int(some.sum()),
        "Speculation": int((some & (part <= OWN_PART)).sum()),
        "Shared": int((some & (part >= SHARED_PART)).sum()),
    }


def delays(log: Log, fleets: int, detectors: tuple[Detector, ...] = ACCEPTANCE) -> dict[str, object]:
    """Minutes to Suspect and Confirmed by any of the detectors."""
    return {stage.name: quantiles([log.first(stage, one, detectors) for one in range(fleets)]) for stage in STAGES}


def quantiles(seconds: object) -> dict[str, float]:
    """Median and p90 in minutes (None: not within the run), share not found within 24 h."""
    minutes = np.asarray(seconds, float) / 60

    def at(q: float) -> float | None:
        value = float(np.quantile(minutes, q, method="higher"))
        return round(value, 1) if np.isfinite(value) else None

    return {"median": at(0.5), "p90": at(0.9), "missed": float(np.mean(~(minutes <= 1440)))}  # type: ignore[dict-item]
