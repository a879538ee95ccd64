"""What the plain arm was seen to share is remembered for as long as its pods take to come back.

With the only plain pod away a finding looks as if only the arm's own history spoke against it; a fresh one takes some
windows until it has something to say.
"""

from collections.abc import Iterable
from dataclasses import replace

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.status import ArmRole, SharedCause
from specfleet.decide.observation import Observation
from specfleet.decide.turn import Turn
from specfleet.decide.watch_report import Answer, Attribution, Severity, Signal, Suspicion, WatchReport

UNCLEAR = (Attribution.HISTORICAL, Attribution.PENDING)
HANG = Signal.NO_PROGRESS.value
"""The only hard finding that plain pods can share: of errors only what they do not have counts."""
OVER_SECONDS = 60.0
"""How often it is looked at whether a hang that is told no more is over."""


def patience(spec: DeploymentSpec, severity: Severity) -> float:
    """Seconds that a cause stays known as shared without a plain pod that says so: until one could say it again."""
    engine, remedies = spec.engine, spec.remedies
    restart = engine.drain_timeout_seconds + engine.shutdown_timeout_seconds + engine.startup_timeout_seconds
    if severity is Severity.HARD:
        return float(restart)
    return float(restart + remedies.warmup_seconds + remedies.confirm_seconds)


def remembered(turn: Turn) -> Observation:
    """The observation in which findings whose cause is known to be shared say so; notes in status what is known."""
    obs, stable = turn.obs, turn.status.stable
    if stable is None or stable.speculative is None:
        if turn.status.shared_causes:
            turn.set(shared_causes=[])
        return obs
    report = obs.watch_of(stable.speculative)
    known = {one.signal: one for one in turn.status.shared_causes}
    kept = list(_kept(turn, report, known))
    if kept != turn.status.shared_causes:
        turn.set(shared_causes=kept)
    signals = {one.signal for one in kept}
    told = tuple(_as_shared(one) if one.signal.value in signals else one for one in report.suspicions)
    if told == report.suspicions:
        return obs
    said = replace(report, suspicions=told)
    return replace(obs, promoted_watch=said) if report is obs.promoted_watch else replace(obs, watch=said)


def _kept(turn: Turn, report: WatchReport, known: dict[str, SharedCause]) -> Iterable[SharedCause]:
    found = {one.signal.value: one for one in report.suspicions}
    shared = {signal for signal, one in found.items() if one.attribution is Attribution.SHARED}
    for signal in sorted({*known, *shared}):
        seen = found.get(signal)
        if signal in shared:
            yield SharedCause(signal=signal)
        elif seen is None and signal == HANG and _generates(report):
            continue  # That hang is over: the next one is another and waits for nobody.
        elif seen is None or seen.attribution in UNCLEAR:
            since = known[signal].unclear_since or turn.now
            severity = Severity.HARD if signal == HANG else Severity.SLO
            left = patience(turn.spec, severity) - turn.seconds_since(since)
            if left >= 0:
                turn.look_again(min(left + 1, OVER_SECONDS) if signal == HANG and seen is None else left + 1)
                yield SharedCause(signal=signal, unclear_since=since)


def _generates(report: WatchReport) -> bool:
    """Whether the arm was seen to answer in the last window. No finding alone may mean that nobody could look."""
    window = report.last.get(ArmRole.SPECULATIVE)
    return window is not None and window.answer is Answer.OK and window.generated_tokens > 0


def _as_shared(finding: Suspicion) -> Suspicion:
    if finding.attribution not in UNCLEAR:
        return finding
    said = f"{finding.message}; the plain arm degraded too while its pods could tell"
    return replace(finding, attribution=Attribution.SHARED, message=said)
