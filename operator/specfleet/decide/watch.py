"""The watch: windows in, one report per deployment out. Array-native over the fleet; no I/O, the clock is an argument.

State is a function of the windows since `Target.since` and the calibration: a fresh Watch fed with the same windows
(replayed from Prometheus by the collector), or with a checkpoint and the windows since, reports the same.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from specfleet.api.status import ArmRole, Calibration
from specfleet.decide.bank import DETECTORS, DetectorBank
from specfleet.decide.calibration import MIN_DISPERSION_WINDOWS, WindowPair, calibrate, measured_dispersion
from specfleet.decide.calibration import prior_dispersion as prior
from specfleet.decide.checkpoint import (
    HALF,
    Checkpoint,
    SavedCheckpoints,
    Views,
    calibration_digest,
    flat,
    pair_rows,
    row_views,
    window_pairs,
    write,
)
from specfleet.decide.comparison import PairColumns, compare
from specfleet.decide.counters import COUNTERS, Counter, Floats, TargetFeed, Window
from specfleet.decide.drift import SLOW_DISPERSION, alarm_threshold
from specfleet.decide.gather import gathered, rounds
from specfleet.decide.pod_columns import PodColumns, PodPlace
from specfleet.decide.record import Record
from specfleet.decide.reference import ROLES, set_reference
from specfleet.decide.shares import ShareBank
from specfleet.decide.sums import ANSWERS, NO_WINDOW, Batch, Slots, Sums
from specfleet.decide.watch_findings import STUCK_SECONDS, overall_answer, suspicions, without_findings
from specfleet.decide.watch_report import UNKNOWN_REPORT, USABLE_ANSWERS, Answer, WatchReport
from specfleet.decide.watch_target import Key, Target
from specfleet.decide.week import SOURCE as WEEK
from specfleet.decide.week import WeekColumns
from specfleet.decide.window_view import ArmTotals, view

FIRST_ROWS = 64
CALIBRATION_WINDOWS = 240
OVERDUE_WINDOWS = 5
OVERDUE_SECONDS = 120.0
DISPERSION_RANGE = (0.1, 5.0)
"""The watch trusts a dispersion of its own only within this range of the prior."""
_USABLE = np.array([answer in USABLE_ANSWERS for answer in ANSWERS])


class Watch:
    """Feed it with `observe`, ask it with `report`."""

    def __init__(self) -> None:
        self._bank = DetectorBank(FIRST_ROWS)
        self._shares = ShareBank(FIRST_ROWS)
        self._last, self._step = Sums(2 * FIRST_ROWS), Sums(2 * FIRST_ROWS)
        """The last window, and the sum since Target.since, of each arm: slots 2 row and 2 row + 1 (plain)."""
        self._pairs = PairColumns(FIRST_ROWS)
        self._pods = PodColumns()
        self._weeks = WeekColumns()
        self._clocks = np.zeros((4, FIRST_ROWS))
        """Target.since, end of the last window, last observation, end of the last window that measured the judged arm.
        """
        self._week_slots = np.full(FIRST_ROWS, -1, np.intp)
        self._allowed = np.full((2, FIRST_ROWS), np.inf)
        """Error shares that the spec allows: server errors and 4xx."""
        self._slow = np.zeros(FIRST_ROWS, bool)
        """Rows of which single windows are kept (no calibration or no dispersion yet)."""
        self._odd = np.zeros(FIRST_ROWS, bool)
        """Rows that are always looked at: no calibration, a floor of the acceptance, no answer from the server."""
        self._has_arm = np.zeros((2, FIRST_ROWS), bool)
        self._stale = np.zeros(FIRST_ROWS, bool)
        """Rows with a newer window than their report."""
        self._records: dict[Key, Record] = {}
        self._rows: dict[int, Record] = {}
        self.saved = SavedCheckpoints()
        self._free = list(range(FIRST_ROWS))[::-1]

    def observe(self, now: datetime, feeds: Mapping[Key, TargetFeed]) -> None:
        """Take in what one tick brought. Windows already seen are ignored, so that feeding twice changes nothing."""
        queues: list[tuple[Record, list[dict[ArmRole, Window]]]] = []
        for feed in feeds.values():
            record = self.aim(feed.target, feed.answers)
            self._clocks[2, record.row] = now.timestamp()
            self._replay_week(record, feed)
            turns = rounds(feed, float(self._clocks[1, record.row]))
            if turns:
                queues.append((record, turns))
        queues.sort(key=lambda queue: queue[0].row)
        for turn in range(max((len(turns) for _, turns in queues), default=0)):
            members = [(record, turns[turn]) for record, turns in queues if turn < len(turns)]
            self.absorb(np.array([record.row for record, _ in members]), gathered(members, self.pod_slot))

    def aim(self, target: Target, answers: Mapping[ArmRole, tuple[Answer, str]]) -> Record:
        """What to look at from now on, and how its metrics answer at this tick."""
        record = self._record(target)
        if record.answers != answers:
            record.answers, record.report = answers, None
        names = {pod.name for pods in target.arms.values() for pod in pods}
        for gone in [name for name in record.pods if name not in names]:
            self._pods.give(record.pods.pop(gone).slot)
        answering = all(answer in USABLE_ANSWERS for answer, _ in answers.values())
        floor = target.guardrails.min_acceptance_rate is not None
        self._odd[record.row] = floor or not answering or record.normal is None
        return record

    def pod_slot(self, record: Record, name: str, role: ArmRole) -> int:
        """Where the sums of a pod are kept."""
        place = record.pods.get(name)
        if place is None:
            place = record.pods[name] = PodPlace(role, self._pods.take(record.row))
        return place.slot

    def absorb(self, rows: Slots, batch: Batch) -> None:
        """Take in one window of many deployments."""
        size = rows.size
        pods = batch.pods()
        arms = batch.arms(pods)
        counts = arms.counts.reshape(COUNTERS, 2, size).transpose(1, 0, 2)
        pod_seconds = arms.pod_seconds.reshape(2, size)
        in_step = batch.start >= self._clocks[0, rows]
        run = _run(rows)
        slots = np.concatenate([2 * rows, 2 * rows + 1])
        told = batch.answers.ravel() != NO_WINDOW
        stepping = told & np.tile(in_step, 2)
        self._last.put(slots[told], arms.of(told))
        self._step.add(slots[stepping], arms.of(stepping))
        self._pods.add(batch.pod_slots, pods, batch.pod_gauges, in_step[batch.pod_group % size])
        if in_step.all():
            self._pairs.add(run, counts, pod_seconds)
        else:
            self._pairs.add(rows[in_step], counts[..., in_step], pod_seconds[:, in_step])
        self._learn(rows, batch.start, counts, pod_seconds)
        self._bank.step(run, counts[0], counts[1], pod_seconds, batch.end, batch.end - batch.start)
        self._shares.step(run, counts[0], counts[1])
        self._clocks[1, run] = batch.end
        self._clocks[2, run] = np.maximum(self._clocks[2, run], batch.end)
        # Without speculative pods the plain ones are all that findings can be about.
        seen = (pod_seconds[0] > 0) | (~self._has_arm[0, rows] & (pod_seconds[1] > 0))
        self._clocks[3, rows[seen]] = batch.end[seen]
        self._stale[run] = True

    def stirred(self, rows: Slots) -> NDArray[np.bool_]:
        """Where the report may say something that decide() acts on. Elsewhere it says: all is as calibrated."""
        found = self._odd[rows] | self._bank.stage[:, rows].any(axis=0) | self._pairs.seems_slower(rows)
        found |= self._shares.exceeds(rows, self._allowed[:, rows]) | self._shares.stalls(rows)
        codes = self._last.answers[[2 * rows, 2 * rows + 1]]
        found |= (~_USABLE[codes] & (codes != NO_WINDOW) & self._has_arm[:, rows]).any(axis=0)
        stuck = self._pods.stuck_seconds >= STUCK_SECONDS
        if stuck.any():
            found |= np.isin(rows, self._pods.rows[stuck])
        week = self._week_slots[rows]
        return np.asarray(found | ((week >= 0) & self._weeks.ended(week, self._clocks[1, rows])))

    def report(self, key: Key) -> WatchReport:
        """What telemetry says about one deployment now."""
        record = self._records.get(key)
        if record is None:
            return UNKNOWN_REPORT
        if record.report is None or self._stale[record.row]:
            record.report, self._stale[record.row] = self._report(record), False
        report, limit = record.report, OVERDUE_WINDOWS * record.target.window_seconds + OVERDUE_SECONDS
        _, closed, now, measured = self._clocks[:, record.row]
        if report.answer is Answer.OK and now - closed > limit:
            report = replace(
                report, answer=Answer.STALE, message=f"the last closed window ended {now - closed:.0f} s ago"
            )
        # Gone on with from a checkpoint, in the midst of a replay, or metrics away: it may have healed long ago.
        return without_findings(report, float(measured)) if report.suspicions and now - measured > limit else report

    def _report(self, record: Record) -> WatchReport:
        target, row = record.target, record.row
        last = self._totals(self._last, row)
        said = {role: (totals.last_answer, record.said.get(role, "")) for role, totals in last.items()}
        answer, message = overall_answer(record.answers, said)
        both = all(target.arms.get(role) for role in ROLES)
        pods = {name: self._pods.at(place) for name, place in record.pods.items()}
        seen_until = float(self._clocks[1, row])
        return WatchReport(
            answer=answer,
            message=message,
            fingerprint=target.fingerprint,
            last={role: view(totals, totals.last_answer) for role, totals in last.items()},
            step={role: totals.window() for role, totals in self._totals(self._step, row).items()},
            pods={
                name: (self._pods.step.totals(place.slot) or ArmTotals()).window()
                for name, place in record.pods.items()
            },
            calibration=self._proposal(record),
            comparison=compare(self._pairs.at(row), target, record.normal is not None) if both else None,
            suspicions=suspicions(record, pods, seen_until, self._bank, self._shares),
        )

    @staticmethod
    def _totals(sums: Sums, row: int) -> dict[ArmRole, ArmTotals]:
        found = {role: sums.totals(2 * row + arm) for arm, role in enumerate(ROLES)}
        return {role: totals for role, totals in found.items() if totals is not None}

    def forget(self, key: Key) -> None:
        """Drop everything about a deployment (deleted, or rolled back and judged anew)."""
        record = self._records.pop(key, None)
        if record is None:
            return
        row = record.row
        for place in record.pods.values():
            self._pods.give(place.slot)
        self._end_week(record)
        self._bank.clear(row)
        self._shares.clear(row)
        self._last.clear(np.array([2 * row, 2 * row + 1]))
        self._clear_step(record)
        self._clocks[:, row] = 0.0
        del self._rows[row]
        self._free.append(row)

    def elevated(self) -> set[tuple[Key, int, int]]:
        """Which detectors of which deployments are past half their threshold or have a suspicion, and their stage."""
        high = (self._bank.level >= HALF * self._bank.thresholds(slice(None))) | (self._bank.stage > 0)
        return {
            (record.target.key, int(detector), int(self._bank.stage[detector, row]))
            for detector, row in np.argwhere(high)
            if (record := self._rows.get(int(row))) is not None
        }

    def watched(self) -> set[Key]:
        """Deployments under watch."""
        return set(self._records)

    def checkpoint(self, key: Key) -> Checkpoint | None:
        """One deployment as it is now, or as another process left it; None before its first window."""
        record = self._records.get(key)
        if record is None:
            return self.saved.get(key)
        row, target = record.row, record.target
        if self._clocks[1, row] <= 0:
            return None
        part = self._bank.level[:, row] / self._bank.thresholds(np.array([row]))[:, 0]
        return Checkpoint(
            key=key,
            fingerprint=target.fingerprint,
            since=target.since.timestamp(),
            calibration=calibration_digest(target.calibration),
            until=float(self._clocks[1, row]),
            suspicion=float(self._bank.stage[:, row].max()) * 10 + float(part.max()),
            said=dict(record.said),
            dispersion=record.dispersion,
            state=flat(self._views(row)),
            pods={name: (place.role, flat(self._pods.state(place.slot))) for name, place in record.pods.items()},
            acceptance=record.acceptance.copy(),
            pairs=pair_rows(record.pairs),
        )

    def _views(self, row: int) -> Views:
        return row_views(row, self._bank, self._shares, self._last, self._step, self._pairs)

    def _take_in(self, record: Record, saved: Checkpoint) -> None:
        """Go on where a checkpoint that holds for the target ends; its step and its limits may have changed since."""
        row, target = record.row, record.target
        write(self._views(row), saved.state)
        for name, (role, state) in saved.pods.items():
            write(self._pods.state(self.pod_slot(record, name, role)), state)
        record.said, record.dispersion, record.acceptance = dict(saved.said), saved.dispersion, saved.acceptance.copy()
        record.pairs = window_pairs(saved.pairs)
        self._clocks[1:, row] = saved.until
        self._stale[row] = True
        dispersion = self._bank.dispersion[row], self._bank.slow_dispersion[row]
        if saved.since != target.since.timestamp():
            self._clear_step(record)
        self._set_parameters(record, target)
        self._bank.dispersion[row], self._bank.slow_dispersion[row] = dispersion

    def _record(self, target: Target) -> Record:
        key = target.key
        record = self._records.get(key)
        if record is not None and record.target.fingerprint != target.fingerprint:
            self.forget(key)
            record = None
        if record is None:
            if not self._free:
                self._grow()
            record = Record(self._free.pop(), target)
            self._records[key] = self._rows[record.row] = record
            self._set_parameters(record, target)
            saved = self.saved.take(target)
            if saved is not None:
                self._take_in(record, saved)
            return record
        old, record.target = record.target, target
        if old is target or old == target:
            return record
        if old.since != target.since:
            self._clear_step(record)
        record.report = None
        self._set_parameters(record, target)
        if old.calibration != target.calibration:
            self._bank.quiet(record.row)
            self._end_week(record)
        if record.acceptance.shape[1] >= MIN_DISPERSION_WINDOWS and old.calibration == target.calibration:
            self._sharpen(record)
        return record

    def _clear_step(self, record: Record) -> None:
        self._step.clear(np.array([2 * record.row, 2 * record.row + 1]))
        self._pairs.clear(record.row)
        self._pods.step.clear(np.array([place.slot for place in record.pods.values()], np.intp))

    def _grow(self) -> None:
        size = len(self._bank)
        self._bank.grow(2 * size)
        self._shares.grow(2 * size)
        self._last.grow(4 * size)
        self._step.grow(4 * size)
        self._pairs.grow(2 * size)
        self._clocks = np.concatenate([self._clocks, np.zeros((4, size))], axis=1)
        self._week_slots = np.concatenate([self._week_slots, np.full(size, -1, np.intp)])
        self._allowed = np.concatenate([self._allowed, np.full((2, size), np.inf)], axis=1)
        self._slow, self._odd, self._stale = (
            np.concatenate([one, np.zeros(size, bool)]) for one in (self._slow, self._odd, self._stale)
        )
        self._has_arm = np.concatenate([self._has_arm, np.zeros((2, size), bool)], axis=1)
        self._free = list(range(size, 2 * size))[::-1]

    def _set_parameters(self, record: Record, target: Target) -> None:
        bank, row, guards = self._bank, record.row, target.guardrails
        bank.threshold[row] = alarm_threshold(
            target.window_seconds, DETECTORS, target.false_alarms.rebenchmarks_per_month
        )
        bank.confirm_seconds[row] = target.confirm_seconds
        bank.drop[row] = target.interesting_drop_ratio
        bank.level_shift[:, row] = np.log1p([guards.max_tpot_increase_ratio, max(guards.max_ttft_increase_ratio, 0.25)])
        set_reference(bank, row, record.normal, target)
        self._clocks[0, row] = target.since.timestamp()
        self._allowed[:, row] = target.rollback_error_share_ratio, guards.max_client_error_share_increase_ratio
        self._has_arm[:, row] = [bool(target.arms.get(role)) for role in ROLES]
        self._slow[row] = self._keeps_windows(record)

    def _learn(self, rows: Slots, starts: Floats, counts: Floats, pod_seconds: Floats) -> None:
        """Before the calibration: keep its windows. After one without a dispersion: measure that, once.

        Only the scatter is learned here, never the level: a slow decay is not taken for normal.
        """
        measured = pod_seconds[0] > 0
        for column in np.flatnonzero(measured & self._slow[rows]):
            record = self._rows[int(rows[column])]
            self._keep(record, float(starts[column]), counts[..., column], pod_seconds[:, column])
        counted = measured & (self._week_slots[rows] >= 0)
        if counted.any():
            weeks = self._week_slots[rows[counted]]
            self._weeks.add(weeks, starts[counted], counts[..., counted], pod_seconds[:, counted])

    def _keeps_windows(self, record: Record) -> bool:
        calibration = record.normal
        if calibration is None:
            return True
        if calibration.source != WEEK and record.week is None:
            record.week = self._weeks.take()
            self._week_slots[record.row] = record.week
        record.pairs = []
        return calibration.dispersion is None and record.acceptance.shape[1] < MIN_DISPERSION_WINDOWS

    def _keep(self, record: Record, start: float, counts: Floats, pod_seconds: Floats) -> None:
        if record.normal is None:
            if start < self._clocks[0, record.row]:
                # Read late, or again by a replay: what was normal before a reset is what was given up.
                return
            pair = WindowPair(start, counts[0].copy(), counts[1].copy(), (float(pod_seconds[0]), float(pod_seconds[1])))
            record.pairs = [*record.pairs[-CALIBRATION_WINDOWS + 1 :], pair]
            return
        drafted = counts[0, Counter.DRAFT_TOKENS]
        if drafted <= 0:
            return
        fresh = np.array([[counts[0, Counter.ACCEPTED_TOKENS]], [drafted]])
        record.acceptance = np.concatenate([record.acceptance, fresh], axis=1)
        if record.acceptance.shape[1] == MIN_DISPERSION_WINDOWS:
            self._sharpen(record)
            self._slow[record.row] = False

    def _sharpen(self, record: Record) -> None:
        accepted, drafted = record.acceptance
        measured = measured_dispersion(accepted, drafted, float(accepted.sum() / drafted.sum()))
        known = prior(record.target.method)
        value = float(np.clip(measured, DISPERSION_RANGE[0] * known, DISPERSION_RANGE[1] * known))
        record.dispersion = value
        self._bank.dispersion[record.row], self._bank.slow_dispersion[record.row] = value, SLOW_DISPERSION * value

    def _replay_week(self, record: Record, feed: TargetFeed) -> None:
        """The hours of the first week that passed before this process began."""
        if record.week is None or feed.week_start is None:
            return
        self._weeks.begin(record.week, feed.week_start)
        slot = np.array([record.week])
        for hour in feed.hours:
            self._weeks.add(slot, np.array([hour.start]), hour.counts[..., None], hour.pod_seconds[:, None])

    def _end_week(self, record: Record) -> None:
        if record.week is not None:
            self._weeks.give(record.week)
            record.week, self._week_slots[record.row] = None, -1

    def _proposal(self, record: Record) -> Calibration | None:
        """A first calibration while the status has none; a sharper one after a healthy week (its source is Week)."""
        known = record.normal
        if record.target.calibration is None:
            return calibrate(record.target.fingerprint, record.pairs, record.target.method, "Watch")
        if known is None or record.week is None or self._bank.stage[:, record.row].any():
            return None
        week = self._weeks.at(record.week)
        if not week.complete(float(self._clocks[1, record.row])):
            return None
        return week.calibration(known, record.dispersion)


def _run(rows: Slots) -> Slots | slice:
    """Neighbouring rows as a slice: read and written in place, not picked one by one."""
    if rows.size and rows[-1] - rows[0] == rows.size - 1 and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows
