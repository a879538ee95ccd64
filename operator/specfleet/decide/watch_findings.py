"""From detector state to findings in words: which signal, how sure, whose fault, which pod, since when."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from specfleet.api.status import ArmRole
from specfleet.decide.bank import CONFIRM_REQUESTS, Detector, DetectorBank
from specfleet.decide.bank import Stage as BankStage
from specfleet.decide.calibration import LOOKUP_METHODS
from specfleet.decide.counters import Floats
from specfleet.decide.drift import CONFIRM_RATIO, NULL_RATIO, wilson_bounds
from specfleet.decide.pod_columns import PodRecord
from specfleet.decide.record import Record
from specfleet.decide.shares import CLIENT, MIN_REQUESTS, SERVER, STALLED_SHARE, ShareBank
from specfleet.decide.watch_report import (
    Answer,
    Attribution,
    Severity,
    Signal,
    Stage,
    Suspicion,
    WatchReport,
)

STUCK_WINDOWS = 2
STUCK_SECONDS = 30.0
POD_DISPERSIONS = 5.0
SHARED_PART = 0.5
"""The control degrades by at least this part of what the speculative arm does: a shared cause."""
OWN_PART = 0.33
LEAST_EXCESS = 0.05
"""Log excess below which it cannot be told whose it is."""
FLOOR_Z = 3.0

_SIGNALS: Mapping[Detector, tuple[Signal, Severity]] = {
    Detector.ACCEPTANCE: (Signal.ACCEPTANCE_DRIFT, Severity.ECONOMIC),
    Detector.POSITION_ZERO: (Signal.ACCEPTANCE_DRIFT, Severity.ECONOMIC),
    Detector.ACCEPTANCE_SLOW: (Signal.ACCEPTANCE_RAMP, Severity.ECONOMIC),
    Detector.POSITION_ZERO_SLOW: (Signal.ACCEPTANCE_RAMP, Severity.ECONOMIC),
    Detector.TPOT: (Signal.TPOT_REGRESSION, Severity.SLO),
    Detector.TTFT: (Signal.TTFT_REGRESSION, Severity.SLO),
    Detector.LOST_GAIN: (Signal.LOST_GAIN, Severity.ECONOMIC),
}
_ORDER = (
    Answer.UNAVAILABLE,
    Answer.SCHEMA_MISSING,
    Answer.TARGET_DOWN,
    Answer.STALE,
    Answer.NOT_SPECULATING,
    Answer.INSUFFICIENT,
    Answer.NO_TRAFFIC,
)
"""Which answer speaks for the deployment when arms differ: the one that needs a person most."""


Said = Mapping[ArmRole, tuple[Answer, str]]
Pods = Mapping[str, PodRecord]


def overall_answer(answers: Said, last: Said) -> tuple[Answer, str]:
    """OK only when every arm with pods is OK now and in its last window."""
    found: list[tuple[Answer, str]] = []
    for role, (answer, message) in answers.items():
        found.append((answer, f"{role.value}: {message}" if message else ""))
        window = last.get(role)
        if answer is Answer.OK:
            found.append(
                (window[0], f"{role.value}: {window[1]}" if window[1] else "")
                if window is not None
                else (Answer.INSUFFICIENT, f"{role.value}: no window has closed yet")
            )
    if not found:
        return Answer.INSUFFICIENT, "no arm has a pod"
    worst = next((one for kind in _ORDER for one in found if one[0] is kind), None)
    return worst if worst is not None else (Answer.OK, "; ".join(message for _, message in found if message))


def without_findings(report: WatchReport, measured: float) -> WatchReport:
    """What may be said of an arm that nothing was measured of since `measured` (epoch seconds): no finding of then."""
    since = datetime.fromtimestamp(measured, UTC)
    said = f"nothing has been measured since {since:%Y-%m-%d %H:%M} UTC: what was found until then does not count now"
    return replace(report, suspicions=(), message="; ".join(one for one in (report.message, said) if one))


def suspicions(
    record: Record, pods: Pods, seen_until: float, bank: DetectorBank, shares: ShareBank
) -> tuple[Suspicion, ...]:
    """All findings of one deployment, at most one per signal (the surest)."""
    found = [
        *_error_findings(record, seen_until, shares),
        *_stalls(record, seen_until, shares),
        *_stuck(record, pods, seen_until),
        *_floor(record, pods, seen_until, bank),
        *_drifts(record, pods, seen_until, bank),
    ]
    best: dict[Signal, Suspicion] = {}
    for one in found:
        known = best.get(one.signal)
        if known is None or (known.stage is Stage.SUSPECT and one.stage is Stage.CONFIRMED):
            best[one.signal] = one
    return tuple(best.values())


def _drifts(record: Record, pods: Pods, seen_until: float, bank: DetectorBank) -> list[Suspicion]:
    row = record.row
    if not bank.stage[:, row].any():
        return []
    limits, thresholds = (found[:, 0] for found in (bank.limits(np.array([row])), bank.thresholds(np.array([row]))))
    lookup = record.target.method in LOOKUP_METHODS
    found = []
    for detector in Detector:
        stage = bank.stage[detector, row]
        # With n-gram and suffix the acceptance follows the text: it explains, it does not accuse.
        if stage == BankStage.QUIET or (lookup and detector < Detector.TPOT):
            continue
        if _not_borne_out(bank, detector, row, limits):
            continue
        signal, severity = _SIGNALS[detector]
        attribution, pod = _attribution(record, pods, bank, detector)
        observed, expected, words = _numbers(bank, detector, row)
        level, threshold = float(bank.level[detector, row]), float(thresholds[detector])
        found.append(
            Suspicion(
                signal=signal,
                severity=severity,
                stage=Stage.CONFIRMED if stage == BankStage.CONFIRMED else Stage.SUSPECT,
                attribution=attribution,
                since=datetime.fromtimestamp(_onset(record, seen_until, bank, detector), UTC),
                message=f"{words}; statistic {level:.1f}, threshold {threshold:.1f}, "
                f"confirms beyond {limits[detector]:.3f}{f'; only pod {pod}' if pod else ''}",
                statistic=level,
                threshold=threshold,
                observed=observed,
                expected=expected,
                pod=pod,
            )
        )
    return found


def _not_borne_out(bank: DetectorBank, detector: Detector, row: int, limits: Floats) -> bool:
    """Fresh windows since the suspicion are nearer to normal than to what would confirm it: nothing to tell yet."""
    seen = float(bank.observed[detector, row])
    if np.isnan(seen) or bank.pool[2, detector, row] <= 0:
        return False
    limit = float(limits[detector])
    if detector < Detector.TPOT:
        return seen > (limit + float(bank.rate[int(detector) % 2, row])) / 2
    return seen < limit / 2


def _onset(record: Record, seen_until: float, bank: DetectorBank, detector: Detector) -> float:
    onset = float(bank.onset[detector, record.row])
    return onset if np.isfinite(onset) else seen_until


def _numbers(bank: DetectorBank, detector: Detector, row: int) -> tuple[float | None, float | None, str]:
    """Observed, expected and both in words. Levels are ratios to what is normal (1.0)."""
    raw = float(bank.observed[detector, row])
    seen = None if np.isnan(raw) else raw
    if detector < Detector.TPOT:
        plane = int(detector) % 2
        expected = float(bank.rate[plane, row])
        what = ("acceptance rate", "position-0 acceptance rate")[plane]
        now = "not yet pooled" if seen is None else f"{seen:.3f}"
        return seen, expected, f"{what} {now}, calibrated {expected:.3f} (dispersion {bank.dispersion[row]:.0f})"
    what = {
        Detector.TPOT: "TPOT against its own history at the same load and accepted length",
        Detector.TTFT: "TTFT against its own history at the same load",
        Detector.LOST_GAIN: "TPOT against the plain arm",
    }[detector]
    ratio = None if seen is None else float(np.exp(seen))
    return ratio, 1.0, f"{what}: {'not yet pooled' if ratio is None else f'{ratio:.3f} times'}"


def _attribution(record: Record, pods: Pods, bank: DetectorBank, detector: Detector) -> tuple[Attribution, str | None]:
    if detector < Detector.TPOT:
        pod = _single_bad_pod(record, pods, bank)
        return (Attribution.POD, pod) if pod else (Attribution.SPECULATION, None)
    if detector is Detector.LOST_GAIN:
        return Attribution.SPECULATION, None
    level = int(detector) - int(Detector.TPOT)
    if not record.target.arms.get(ArmRole.BASELINE):
        return Attribution.HISTORICAL, None
    total, weight = bank.control_pool[level, :, record.row]
    seen = float(bank.observed[detector, record.row])
    if weight < CONFIRM_REQUESTS or not seen > LEAST_EXCESS:
        return Attribution.PENDING, None
    own, control = seen, float(total / weight)
    if control >= SHARED_PART * own:
        return Attribution.SHARED, None
    return (Attribution.SPECULATION if control <= OWN_PART * own else Attribution.PENDING), None


def _single_bad_pod(record: Record, pods: Pods, bank: DetectorBank) -> str | None:
    """The only pod whose recent acceptance is low while all others are normal; None with fewer than two judged pods."""
    rate = float(bank.rate[0, record.row])
    enough = POD_DISPERSIONS * float(bank.dispersion[record.row])
    judged = {name: pod for name, pod in _of(pods, ArmRole.SPECULATIVE).items() if pod.drafted >= enough}
    bad = [name for name, pod in judged.items() if pod.accepted < CONFIRM_RATIO * rate * pod.drafted]
    others = [pod for name, pod in judged.items() if name not in bad]
    if len(bad) != 1 or not others:
        return None
    rest = sum(pod.accepted for pod in others) / sum(pod.drafted for pod in others)
    return bad[0] if rest >= NULL_RATIO * rate - float(bank.rate_error[0, record.row]) else None


def _error_findings(record: Record, seen_until: float, shares: ShareBank) -> list[Suspicion]:
    target, found = record.target, []
    has_control = bool(target.arms.get(ArmRole.BASELINE)) and shares.sums[0, 1, 1, record.row] >= MIN_REQUESTS
    for kind, signal, severity, allowed, words in (
        (SERVER, Signal.SERVER_ERRORS, Severity.HARD, target.rollback_error_share_ratio, "server error share"),
        (
            CLIENT,
            Signal.CLIENT_ERRORS,
            Severity.SLO,
            target.guardrails.max_client_error_share_increase_ratio,
            "4xx share",
        ),
    ):
        # Without a plain arm a 4xx may be any client's mistake: nothing to compare with.
        if kind == CLIENT and not has_control:
            continue
        ours, plain, excess = shares.excess(record.row, kind)
        if excess <= allowed:
            continue
        found.append(
            Suspicion(
                signal=signal,
                severity=severity,
                stage=Stage.CONFIRMED,
                attribution=Attribution.SPECULATION if has_control else Attribution.HISTORICAL,
                since=datetime.fromtimestamp(seen_until, UTC),
                message=f"{words} {ours:.3f} against {plain:.3f} on the plain arm: at least {excess:.3f} more, "
                f"allowed {allowed:.3f}",
                statistic=excess,
                threshold=allowed,
                observed=ours,
                expected=plain,
            )
        )
    return found


def _stalls(record: Record, seen_until: float, shares: ShareBank) -> list[Suspicion]:
    """guardrails.stallSloSeconds: more than 5 % of the gaps between outputs are longer, beyond doubt.

    The edge that is counted at is not below the limit, so what is counted is surely over it.
    """
    rows = np.array([record.row])
    if not shares.stalls(rows)[0]:
        return []
    ours, plain, least = (float(value[0]) for value in shares.stalled(rows))
    attribution = Attribution.HISTORICAL
    if record.target.arms.get(ArmRole.BASELINE):
        # A plain pod that has just come up has shown nothing yet: it proves neither.
        shared, own = shares.control_stalls(record.row)
        attribution = Attribution.SHARED if shared else Attribution.SPECULATION if own else Attribution.PENDING
    return [
        Suspicion(
            signal=Signal.STALLS,
            severity=Severity.SLO,
            stage=Stage.CONFIRMED,
            attribution=attribution,
            since=datetime.fromtimestamp(seen_until, UTC),
            message=f"{ours:.1%} (at least {least:.1%}) of the gaps between outputs are longer than "
            f"guardrails.stallSloSeconds {record.target.guardrails.stall_slo_seconds} s, counted at the first bucket "
            f"edge that is not below it; {plain:.1%} on the plain arm; allowed {STALLED_SHARE:.0%}",
            statistic=least,
            threshold=STALLED_SHARE,
            observed=ours,
            expected=plain,
        )
    ]


def _stuck(record: Record, pods: Pods, seen_until: float) -> list[Suspicion]:
    least = max(STUCK_SECONDS, STUCK_WINDOWS * record.target.window_seconds)
    # With plain pods alone nobody is accused, but users wait for ever all the same: it is told.
    ours = _of(pods, ArmRole.SPECULATIVE) or _of(pods, ArmRole.BASELINE)
    stuck = {name: pod.stuck_seconds for name, pod in ours.items() if pod.stuck_seconds >= least}
    if not stuck:
        return []
    control = _of(pods, ArmRole.BASELINE)
    plain_stuck = any(pod.stuck_seconds >= least for pod in control.values())
    name = max(stuck, key=lambda one: stuck[one])
    if len(stuck) < len(ours):
        attribution = Attribution.POD
    elif plain_stuck:
        attribution = Attribution.SHARED
    else:
        attribution = Attribution.SPECULATION if control else Attribution.HISTORICAL
    return [
        Suspicion(
            signal=Signal.NO_PROGRESS,
            severity=Severity.HARD,
            stage=Stage.CONFIRMED,
            attribution=attribution,
            since=datetime.fromtimestamp(seen_until - stuck[name], UTC),
            message=f"{len(stuck)} of {len(ours)} pods have requests running and generated no token for "
            f"{stuck[name]:.0f} s ({name})",
            statistic=stuck[name],
            threshold=least,
            pod=name if attribution is Attribution.POD else None,
        )
    ]


def _of(pods: Pods, role: ArmRole) -> dict[str, PodRecord]:
    return {name: pod for name, pod in pods.items() if pod.role is role}


def _floor(record: Record, pods: Pods, seen_until: float, bank: DetectorBank) -> list[Suspicion]:
    """guardrails.minAcceptanceRate: the recent rate is below the floor beyond doubt."""
    floor = record.target.guardrails.min_acceptance_rate
    if floor is None:
        return []
    ours = _of(pods, ArmRole.SPECULATIVE).values()
    accepted, drafted = sum(pod.accepted for pod in ours), sum(pod.drafted for pod in ours)
    dispersion = float(bank.dispersion[record.row])
    upper = float(wilson_bounds(np.array(accepted), np.array(drafted), FLOOR_Z, dispersion)[1])
    if upper >= floor:
        return []
    return [
        Suspicion(
            signal=Signal.ACCEPTANCE_DRIFT,
            severity=Severity.ECONOMIC,
            stage=Stage.CONFIRMED,
            attribution=Attribution.SPECULATION,
            since=datetime.fromtimestamp(seen_until, UTC),
            message=f"acceptance rate {accepted / drafted:.3f} (at most {upper:.3f}) is below "
            f"guardrails.minAcceptanceRate {floor:.3f}",
            statistic=floor - upper,
            threshold=0.0,
            observed=accepted / drafted,
            expected=floor,
        )
    ]
