"""What a fresh process has to know of one deployment to go on with its watch where another one left off.

Exactly so: fed with the same windows from `until` on, it reports what the other would have reported. The hours of the
first week are not in it (telemetry/week_replay.py reads them again), nor anything that follows from the target.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from specfleet.api.status import ArmRole, Calibration
from specfleet.decide.bank import Detector, DetectorBank, Stage
from specfleet.decide.calibration import WindowPair
from specfleet.decide.comparison import PairColumns
from specfleet.decide.counters import COUNTERS, Counter, Floats
from specfleet.decide.pod_columns import PodColumns
from specfleet.decide.shares import ShareBank
from specfleet.decide.sums import ANSWERS, NO_WINDOW, Sums
from specfleet.decide.watch_target import Key, Target

HALF = 0.5
"""Of a threshold: from here on a statistic is worth keeping."""
OLDEST_SECONDS = 3 * 86400.0
"""Longer away than that, and the traffic of the days between is unknown: six hours are read again instead."""
AHEAD_SECONDS = 300.0
"""Clocks of two nodes may differ by so much."""
LARGEST = 1e30
PAIR_SIZE = 3 + 2 * COUNTERS

Views = Mapping[str, NDArray[np.generic]]
"""Columns of one row or slot by name, as views: to be read, or to be written into."""


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """One deployment's part of the watch at the end of a window."""

    key: Key
    fingerprint: str
    since: float
    """Target.since, epoch seconds."""
    calibration: str
    """`calibration_digest` of the one that it was judged by."""
    until: float
    """End of the last window that is in it, epoch seconds."""
    suspicion: float
    """How near it is to an alarm, for the order in which checkpoints are left out where there is no room."""
    said: Mapping[ArmRole, str]
    dispersion: float | None
    state: Floats
    """(ROW_SIZE,): `row_views` one after the other."""
    pods: Mapping[str, tuple[ArmRole, Floats]]
    """Each (POD_SIZE,)."""
    acceptance: Floats
    """(2, n), Record.acceptance."""
    pairs: Floats
    """(n, PAIR_SIZE), Record.pairs."""


def calibration_digest(calibration: Calibration | None) -> str:
    """Tells one calibration from another; "" where there is none."""
    return "" if calibration is None else sha256(calibration.model_dump_json().encode()).hexdigest()[:16]


def refusal(found: Checkpoint, now: float) -> str | None:
    """Why a checkpoint may not be gone on with at all; None when it may."""
    if not found.until <= now + AHEAD_SECONDS:
        return f"it ends {found.until - now:.0f} s from now: a clock has jumped"
    if now - found.until > OLDEST_SECONDS:
        return f"it is {(now - found.until) / 86400:.1f} days old"
    numbers = [found.since, found.suspicion, found.dispersion or 1.0, *found.acceptance.flat, *found.pairs.flat]
    if not (np.abs(numbers) < LARGEST).all():
        return "it holds what no watch has written"
    if not (sound(found.state, FRESH_ROW) and all(sound(state, FRESH_POD) for _, state in found.pods.values())):
        return "it holds what no watch has written"
    return None


def holds(found: Checkpoint, target: Target) -> bool:
    """Whether it tells of what the target is about: this arm, judged by this calibration.

    An arm that was taken back and tried again has the same fingerprint. Then, and where what was normal is to be
    learned anew, there is no calibration to tell one life from the other, but this one began after the checkpoint.
    """
    same = found.fingerprint == target.fingerprint and found.calibration == calibration_digest(target.calibration)
    return same and (target.normal is not None or target.since.timestamp() <= found.until)


class SavedCheckpoints:
    """What another process knew. Each is gone on with when its deployment is first aimed at."""

    def __init__(self) -> None:
        self._saved: dict[Key, Checkpoint] = {}

    def add(self, found: Iterable[Checkpoint]) -> None:
        """To be gone on with (see `refusal`)."""
        self._saved.update((one.key, one) for one in found)

    def keys(self) -> set[Key]:
        """Deployments that were not aimed at yet."""
        return set(self._saved)

    def get(self, key: Key) -> Checkpoint | None:
        """One that was not gone on with yet."""
        return self._saved.get(key)

    def resumes_at(self, target: Target) -> float | None:
        """Where the windows of a deployment that is new to this process have to begin; None: it has no checkpoint."""
        saved = self._saved.get(target.key)
        return saved.until if saved is not None and holds(saved, target) else None

    def take(self, target: Target) -> Checkpoint | None:
        """The one to go on with; one that does not hold any more is void."""
        saved = self._saved.pop(target.key, None)
        return saved if saved is not None and holds(saved, target) else None

    def keep(self, wanted: Callable[[Key], bool]) -> None:
        """Forget those of deployments that are gone."""
        self._saved = {key: saved for key, saved in self._saved.items() if wanted(key)}


def row_views(row: int, bank: DetectorBank, shares: ShareBank, last: Sums, step: Sums, pairs: PairColumns) -> Views:
    """All columns of one row; the arms' slots are 2 row and 2 row + 1."""
    parts: list[tuple[str, Views]] = [("bank", bank.state(row)), ("shares", shares.state(row))]
    for arm in (0, 1):
        parts += [(f"last {arm}", last.state(2 * row + arm)), (f"step {arm}", step.state(2 * row + arm))]
    parts.append(("pairs", pairs.state(row)))
    return {f"{prefix} {name}": view for prefix, views in parts for name, view in views.items()}


def flat(views: Views) -> Floats:
    """All columns, one after the other."""
    return np.concatenate([np.asarray(view, np.float64).ravel() for view in views.values()])


def write(views: Views, values: Floats) -> None:
    """The opposite of `flat`."""
    begin = 0
    for view in views.values():
        view[...] = values[begin : begin + view.size].reshape(view.shape)
        begin += view.size


def pair_rows(pairs: Sequence[WindowPair]) -> Floats:
    """(n, PAIR_SIZE)."""
    rows = [np.concatenate([[one.start], one.speculative, one.plain, one.pod_seconds]) for one in pairs]
    return np.array(rows).reshape(len(rows), PAIR_SIZE)


def window_pairs(rows: Floats) -> list[WindowPair]:
    """The opposite of `pair_rows`."""
    return [
        WindowPair(
            float(row[0]),
            row[1 : 1 + COUNTERS].copy(),
            row[1 + COUNTERS : 1 + 2 * COUNTERS].copy(),
            (float(row[-2]), float(row[-1])),
        )
        for row in rows
    ]


def sound(values: Floats, fresh: Views) -> bool:
    """Whether these could be the columns of a row: numbers (NaN only where a new row has it) and known codes."""
    empty = flat(fresh)
    if values.shape != empty.shape:
        return False
    numbers = np.abs(values) < LARGEST
    if not (numbers | (np.isnan(values) & np.isnan(empty))).all():
        return False
    begin = 0
    for name, view in fresh.items():
        part = values[begin : begin + view.size]
        begin += view.size
        low, high = _LIMITS.get(name.rpartition(" ")[2], (0.0, 1e9) if view.dtype.kind == "i" else (-LARGEST, LARGEST))
        if ((part < low) | (part > high)).any() or (view.dtype.kind == "i" and (part != np.rint(part)).any()):
            return False
    return True


_MOMENT = (0.0, 1e11)
_LIMITS = {
    "stage": (0.0, float(max(Stage))),
    "answers": (float(NO_WINDOW), len(ANSWERS) - 1.0),
    "start": _MOMENT,
    "end": _MOMENT,
    "onset": _MOMENT,
}
FRESH_ROW = row_views(0, DetectorBank(1), ShareBank(1), Sums(2), Sums(2), PairColumns(1))
FRESH_POD = PodColumns().state(0)
ROW_SIZE = flat(FRESH_ROW).size
POD_SIZE = flat(FRESH_POD).size


def _layout() -> str:
    def columns(views: Views) -> Iterable[str]:
        return (f"{name}{view.shape}" for name, view in views.items())

    order = [one.name for kind in (Counter, Detector, Stage) for one in kind]
    words = [*columns(FRESH_ROW), *columns(FRESH_POD), *order, *(answer.value for answer in ANSWERS)]
    return sha256("\n".join(words).encode()).hexdigest()[:16]


LAYOUT = _layout()
"""Changes with the columns: what was written by an operator that keeps other ones cannot be gone on with."""
