"""The watch: windows in, one report per deployment out. Array-native over the fleet; no I/O, the clock is an argument.

State is a function of the windows since `Target.since` and the calibration: a fresh Watch fed with the same windows
(replayed from Prometheus by the collector) reports the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from specfleet.api.status import ArmRole, Calibration, LoadPoint
from specfleet.decide.bank import DETECTORS, FIRST_LOAD_OCTAVE, LOAD_BINS, TPOT_SPREAD, TTFT_SPREAD, DetectorBank
from specfleet.decide.calibration import (
    MIN_DISPERSION_WINDOWS,
    WindowPair,
    calibrate,
    measured_dispersion,
    prior_dispersion,
    rate_error,
)
from specfleet.decide.comparison import PairedTotals, compare
from specfleet.decide.counters import COUNTERS, Counter, Floats, PodWindow, TargetFeed, Window
from specfleet.decide.drift import SLOW_DISPERSION, alarm_threshold
from specfleet.decide.shares import ShareBank
from specfleet.decide.watch_findings import overall_answer, suspicions
from specfleet.decide.watch_report import UNKNOWN_REPORT, Answer, WatchReport
from specfleet.decide.watch_target import Key, Target
from specfleet.decide.week import SOURCE as WEEK
from specfleet.decide.week import WeekSums
from specfleet.decide.window_view import ArmTotals, arm_window

FIRST_ROWS = 64
CALIBRATION_WINDOWS = 240
OVERDUE_WINDOWS = 5
OVERDUE_SECONDS = 120.0
DISPERSION_RANGE = (0.1, 5.0)
"""The watch trusts a dispersion of its own only within this range of the prior."""
POD_MEMORY = 0.9
ROLES = (ArmRole.SPECULATIVE, ArmRole.BASELINE)


@dataclass
class PodRecord:
    """What is known of one pod besides the sums of its arm."""

    role: ArmRole
    step: ArmTotals = field(default_factory=ArmTotals)
    """Since Target.since."""
    accepted: float = 0.0
    drafted: float = 0.0
    drafts: float = 0.0
    """Recent (decayed) acceptance: tells a single bad pod from a bad arm."""
    stuck_seconds: float = 0.0


@dataclass
class Record:
    """One deployment under watch."""

    row: int
    target: Target
    answers: Mapping[ArmRole, tuple[Answer, str]] = field(default_factory=dict)
    seen_until: float = -np.inf
    observed_at: float = 0.0
    last: dict[ArmRole, Window] = field(default_factory=dict)
    step: dict[ArmRole, ArmTotals] = field(default_factory=dict)
    paired: PairedTotals = field(default_factory=PairedTotals)
    pods: dict[str, PodRecord] = field(default_factory=dict)
    pairs: list[WindowPair] = field(default_factory=list)
    """Windows for a first calibration; empty once there is one."""
    acceptance: Floats = field(default_factory=lambda: np.zeros((2, 0)))
    """Accepted and drafted tokens of the first windows after a calibration that has no measured dispersion."""
    dispersion: float | None = None
    """Measured from them."""
    week: WeekSums | None = None
    """While the calibration is not yet one of a whole week."""
    report: WatchReport | None = None
    """The report, until something changes: most ticks bring nothing new for most deployments."""


class Watch:
    """Feed it with `observe`, ask it with `report`."""

    def __init__(self) -> None:
        self._bank = DetectorBank(FIRST_ROWS)
        self._shares = ShareBank(FIRST_ROWS)
        self._records: dict[Key, Record] = {}
        self._free = list(range(FIRST_ROWS))[::-1]

    def observe(self, now: datetime, feeds: Mapping[Key, TargetFeed]) -> None:
        """Take in what one tick brought. Windows already seen are ignored, so that feeding twice changes nothing."""
        queues: list[tuple[Record, list[dict[ArmRole, Window]]]] = []
        for key, feed in feeds.items():
            record = self._record(key, feed.target)
            if record.answers != feed.answers:
                record.answers, record.report = feed.answers, None
            record.observed_at = now.timestamp()
            record.pods = {name: pod for name, pod in record.pods.items() if name in _pod_names(feed.target)}
            rounds = _rounds(feed, record.seen_until)
            if rounds:
                queues.append((record, rounds))
        for turn in range(max((len(rounds) for _, rounds in queues), default=0)):
            self._step([(record, rounds[turn]) for record, rounds in queues if turn < len(rounds)])

    def report(self, key: Key) -> WatchReport:
        """What telemetry says about one deployment now."""
        record = self._records.get(key)
        if record is None:
            return UNKNOWN_REPORT
        if record.report is None:
            record.report = self._report(record)
        overdue = record.observed_at - record.seen_until
        limit = OVERDUE_WINDOWS * record.target.window_seconds + OVERDUE_SECONDS
        if record.report.answer is Answer.OK and overdue > limit:
            return replace(
                record.report, answer=Answer.STALE, message=f"the last closed window ended {overdue:.0f} s ago"
            )
        return record.report

    def _report(self, record: Record) -> WatchReport:
        target = record.target
        answer, message = overall_answer(record.answers, record.last)
        both = all(target.arms.get(role) for role in ROLES)
        return WatchReport(
            answer=answer,
            message=message,
            last={role: arm_window(window) for role, window in record.last.items()},
            step={role: totals.window() for role, totals in record.step.items()},
            pods={name: pod.step.window() for name, pod in record.pods.items()},
            calibration=self._proposal(record),
            comparison=compare(record.paired, target, _normal(target) is not None) if both else None,
            suspicions=suspicions(record, self._bank, self._shares),
        )

    def forget(self, key: Key) -> None:
        """Drop everything about a deployment (deleted, or rolled back and judged anew)."""
        record = self._records.pop(key, None)
        if record is not None:
            self._bank.clear(record.row)
            self._shares.clear(record.row)
            self._free.append(record.row)

    def snapshot(self, key: Key) -> dict[str, list[float]]:
        """Detector state of one deployment as plain numbers, for a checkpoint. Empty when unknown."""
        record = self._records.get(key)
        if record is None:
            return {}
        return {**self._bank.snapshot(record.row), "seen_until": [record.seen_until]}

    def restore(self, target: Target, state: Mapping[str, list[float]]) -> None:
        """Continue from a checkpoint: windows up to it are not counted again."""
        record = self._record(target.key, target)
        self._bank.restore(record.row, {name: values for name, values in state.items() if name != "seen_until"})
        record.seen_until = state["seen_until"][0]

    def _record(self, key: Key, target: Target) -> Record:
        record = self._records.get(key)
        if record is not None and record.target.fingerprint != target.fingerprint:
            self.forget(key)
            record = None
        if record is None:
            if not self._free:
                size = len(self._bank)
                self._bank.grow(2 * size)
                self._shares.grow(2 * size)
                self._free = list(range(size, 2 * size))[::-1]
            record = Record(self._free.pop(), target)
            self._records[key] = record
            self._set_parameters(record, target)
            return record
        old, record.target = record.target, target
        if old.since != target.since:
            record.step, record.paired = {}, PairedTotals()
            for pod in record.pods.values():
                pod.step = ArmTotals()
        if old != target:
            record.report = None
            self._set_parameters(record, target)
            if old.calibration != target.calibration:
                self._bank.quiet(record.row)
                record.week = None
            if record.acceptance.shape[1] >= MIN_DISPERSION_WINDOWS and old.calibration == target.calibration:
                self._sharpen(record)
        return record

    def _set_parameters(self, record: Record, target: Target) -> None:
        bank, row = self._bank, record.row
        bank.threshold[row] = alarm_threshold(
            target.window_seconds, DETECTORS, target.false_alarms.rebenchmarks_per_month
        )
        bank.confirm_seconds[row] = target.confirm_seconds
        bank.drop[row] = target.interesting_drop_ratio
        bank.level_shift[:, row] = np.log1p(
            [target.guardrails.max_tpot_increase_ratio, max(target.guardrails.max_ttft_increase_ratio, 0.25)]
        )
        set_reference(bank, row, _normal(target), target)

    def _step(self, members: Sequence[tuple[Record, dict[ArmRole, Window]]]) -> None:
        count = len(members)
        counts = np.zeros((2, COUNTERS, count))
        pod_seconds = np.zeros((2, count))
        edges = np.zeros((2, count))
        for column, (record, windows) in enumerate(members):
            for arm, role in enumerate(ROLES):
                window = windows.get(role)
                if window is None:
                    continue
                counts[arm, :, column] = window.counts
                pod_seconds[arm, column] = window.pod_seconds
                edges[:, column] = window.start, window.end
            self._remember(record, windows, counts[:, :, column], pod_seconds[:, column], edges[:, column])
        rows = np.array([record.row for record, _ in members])
        self._bank.step(rows, counts[0], counts[1], pod_seconds, edges[1], edges[1] - edges[0])
        self._shares.step(rows, counts[0], counts[1])

    def _remember(
        self, record: Record, windows: Mapping[ArmRole, Window], counts: Floats, pod_seconds: Floats, edges: Floats
    ) -> None:
        record.seen_until = float(edges[1])
        record.report = None
        in_step = edges[0] >= record.target.since.timestamp()
        for role, window in windows.items():
            record.last[role] = window
            if in_step:
                record.step.setdefault(role, ArmTotals()).add(window)
            for name, pod in window.pods.items():
                _remember_pod(record.pods.setdefault(name, PodRecord(role)), pod, window, in_step)
        if in_step:
            record.paired.add(counts[0], counts[1], float(pod_seconds[0]), float(pod_seconds[1]))
        if pod_seconds[0] > 0:
            self._learn(record, float(edges[0]), counts, pod_seconds)

    def _learn(self, record: Record, start: float, counts: Floats, pod_seconds: Floats) -> None:
        """Before the calibration: keep its windows. After one without a dispersion: measure that, once.

        Only the scatter is learned here, never the level: a slow decay is not taken for normal.
        """
        calibration = _normal(record.target)
        if calibration is None:
            pair = WindowPair(start, counts[0].copy(), counts[1].copy(), (float(pod_seconds[0]), float(pod_seconds[1])))
            record.pairs = [*record.pairs[-CALIBRATION_WINDOWS + 1 :], pair]
            return
        record.pairs = []
        if calibration.source != WEEK:
            record.week = record.week or WeekSums()
            record.week.add(start, counts, pod_seconds)
        known = record.acceptance.shape[1]
        drafted = counts[0, Counter.DRAFT_TOKENS]
        if calibration.dispersion is not None or known >= MIN_DISPERSION_WINDOWS or drafted <= 0:
            return
        fresh = np.array([[counts[0, Counter.ACCEPTED_TOKENS]], [drafted]])
        record.acceptance = np.concatenate([record.acceptance, fresh], axis=1)
        if known + 1 == MIN_DISPERSION_WINDOWS:
            self._sharpen(record)

    def _sharpen(self, record: Record) -> None:
        accepted, drafted = record.acceptance
        measured = measured_dispersion(accepted, drafted, float(accepted.sum() / drafted.sum()))
        prior = prior_dispersion(record.target.method)
        value = float(np.clip(measured, DISPERSION_RANGE[0] * prior, DISPERSION_RANGE[1] * prior))
        record.dispersion = value
        self._bank.dispersion[record.row], self._bank.slow_dispersion[record.row] = value, SLOW_DISPERSION * value

    def _proposal(self, record: Record) -> Calibration | None:
        """A first calibration while the status has none; a sharper one after a healthy week (its source is Week)."""
        known = _normal(record.target)
        if record.target.calibration is None:
            return calibrate(record.target.fingerprint, record.pairs, record.target.method, "Watch")
        week, quiet = record.week, not self._bank.stage[:, record.row].any()
        if known is None or week is None or not quiet or not week.complete(record.seen_until):
            return None
        return week.calibration(known, record.dispersion)


def set_reference(bank: DetectorBank, row: int, calibration: Calibration | None, target: Target) -> None:
    """Write a calibration into a row; without one the detectors that need it are off."""
    bank.rate[:, row] = np.nan
    bank.curve[..., row] = np.nan
    bank.curve_error[..., row] = 0.0
    bank.length_reference[row] = np.nan
    prior = prior_dispersion(target.method)
    bank.dispersion[row], bank.slow_dispersion[row] = prior, SLOW_DISPERSION * prior
    if calibration is None:
        return
    dispersion = calibration.dispersion or prior
    bank.dispersion[row], bank.slow_dispersion[row] = dispersion, SLOW_DISPERSION * dispersion
    bank.length_reference[row] = calibration.accepted_length or np.nan
    length = max((calibration.accepted_length or 1.0) - 1.0, 0.0)
    rate = calibration.acceptance_rate
    depth = length / rate if rate else 1.0
    trials = (calibration.drafted_tokens, calibration.drafted_tokens / max(depth, 1.0))
    for plane, value in enumerate((rate, calibration.position_zero_rate)):
        if value is None or not 0.0 < value < 1.0 or (plane == 0 and target.scheduled_depth):
            continue
        bank.rate[plane, row] = value
        bank.rate_error[plane, row] = rate_error(value, dispersion, trials[plane], calibration.source == WEEK)
    write_load_points(bank, row, calibration.load_points)


def write_load_points(bank: DetectorBank, row: int, points: Sequence[LoadPoint]) -> None:
    """Latency by load as calibrated, into the bins of the bank."""
    spreads = (TPOT_SPREAD, TTFT_SPREAD)
    for point in points:
        octave = int(np.clip(round(np.log2(point.tokens_per_second_per_pod) - FIRST_LOAD_OCTAVE), 0, LOAD_BINS - 1))
        arm = ROLES.index(point.role)
        for level, seconds in enumerate((point.tpot_seconds, point.ttft_seconds)):
            if seconds is not None and seconds > 0:
                bank.curve[level, arm, octave, row] = np.log(seconds)
                bank.curve_error[level, arm, octave, row] = spreads[level] / np.sqrt(max(point.requests, 1))


def _normal(target: Target) -> Calibration | None:
    """The calibration, if it is of the arm that is judged: in the trial of another arm it says nothing."""
    known = target.calibration
    return known if known is not None and known.fingerprint == target.fingerprint else None


def _pod_names(target: Target) -> set[str]:
    return {pod.name for pods in target.arms.values() for pod in pods}


def _rounds(feed: TargetFeed, seen_until: float) -> list[dict[ArmRole, Window]]:
    """Windows of all arms grouped by their common start, oldest first, without those seen before."""
    found: dict[float, dict[ArmRole, Window]] = {}
    for role, windows in feed.windows.items():
        for window in windows:
            if window.start >= seen_until - 1e-6:
                found.setdefault(window.start, {})[role] = window
    return [found[start] for start in sorted(found)]


def _remember_pod(record: PodRecord, pod: PodWindow, window: Window, in_step: bool) -> None:
    if in_step:
        record.step.add_pod(pod, window)
    record.accepted = POD_MEMORY * record.accepted + float(pod.counts[Counter.ACCEPTED_TOKENS])
    record.drafted = POD_MEMORY * record.drafted + float(pod.counts[Counter.DRAFT_TOKENS])
    record.drafts = POD_MEMORY * record.drafts + float(pod.counts[Counter.DRAFTS])
    record.stuck_seconds = record.stuck_seconds + (window.end - window.start) if pod.stuck else 0.0
