"""Past decisions again: from stored benchmark evidence and, for what the watch decided, from Prometheus.

Each one AGREES, DISAGREES, or it CANNOT TELL and says why. A decision is never called right because it cannot be
checked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.status import DecisionRecord, Phase, Verdict
from specfleet.cli.picture import Picture
from specfleet.cli.replay_pods import DataGoneError
from specfleet.cli.replay_watch import Replayer, Then
from specfleet.cli.stored import JUDGE, StoredBenchmark, benchmarks
from specfleet.cli.verify import recompute
from specfleet.controller.wanted import WantedArms
from specfleet.decide.breaker import BY_PERSON
from specfleet.decide.observation import WantedArm
from specfleet.decide.stranded import NOTHING_ELSE_SERVES
from specfleet.decide.turn import COUNTED
from specfleet.telemetry.servers import MetricsServer

BY_WATCH = (
    "NextStep",
    "Promote",
    "AdoptRevision",
    "RollBack",
    "Hold",
    "Investigate",
    "RestartProbe",
    "RestartProbeFailed",
    "RestartRest",
)
"""Decisions that the watch's figures may have led to."""
CLOSED_BY_WATCH = ("SharedCause", "Recovered")
CLOSED_BY_BENCHMARK: Mapping[str, tuple[Verdict, ...]] = {
    "StillFaster": (Verdict.PASS,),
    "NotProven": (Verdict.INCONCLUSIVE, Verdict.ERROR, Verdict.FAIL),
}
BY_KUBERNETES = (
    "OutOfMemory",
    "CrashLoop",
    "EngineContradictsSpec",
    "StartTimeout",
    "InsufficientCapacity",
    "BenchmarkPodPending",
    "EngineMoved",
    "GpusDiffer",
    "BaselineUnstable",
    NOTHING_ELSE_SERVES,
)
"""Reasons that rest on what pods showed: Kubernetes keeps no past."""
ASKED_FOR = (*BY_PERSON, "CommandRetry", "CommandRebenchmark")
ASKED = "a person asked"
STATE_ONLY = "it follows from the state then, not from evidence"


class Outcome(StrEnum):
    """What became of a decision that was taken again."""

    AGREES = "AGREES"
    DISAGREES = "DISAGREES"
    CANNOT_TELL = "CANNOT TELL"


@dataclass(frozen=True, slots=True)
class Replayed:
    """One decision and what came out this time."""

    record: DecisionRecord
    outcome: Outcome
    why: str


def replay(seen: Picture, server: MetricsServer | None) -> list[Replayed]:
    """Every decision of the history, oldest first."""
    owner = seen.obs.deployment
    evidence = [one for one in benchmarks(seen.objects) if one.deployment.metadata.get("uid") == owner.uid]
    known = _known_arms(owner.spec, list(seen.obs.revisions.values()))
    history = seen.status.history
    replayer = Replayer(seen.obs, server, history, known) if server is not None else None
    return [_one(record, history, evidence, replayer) for record in history]


def _known_arms(spec: DeploymentSpec, earlier: Sequence[DeploymentSpec]) -> dict[str, WantedArm]:
    """Arms of the present spec and of every kept revision, by fingerprint."""
    found: dict[str, WantedArm] = {}
    for one in (spec, *earlier):
        wanted = WantedArms(one, {})
        for arm in (wanted.baseline, *wanted.proposers):
            found.setdefault(arm.fingerprint, arm)
    return found


def _one(
    record: DecisionRecord,
    history: Sequence[DecisionRecord],
    evidence: Sequence[StoredBenchmark],
    replayer: Replayer | None,
) -> Replayed:
    if record.action == JUDGE:
        return _judged(record, evidence)
    if record.reason in ASKED_FOR or record.message.startswith(ASKED):
        return Replayed(record, Outcome.CANNOT_TELL, "a person asked for it: nothing was measured")
    if record.reason in BY_KUBERNETES:
        return Replayed(record, Outcome.CANNOT_TELL, "it rests on what pods showed then: Kubernetes keeps no past")
    wanted = _verdicts_needed(record)
    if wanted:
        return _follows(record, wanted, history, evidence)
    if record.action in BY_WATCH or (record.action == "CloseInvestigation" and record.reason in CLOSED_BY_WATCH):
        return _watched(record, replayer)
    return Replayed(record, Outcome.CANNOT_TELL, STATE_ONLY)


def _judged(record: DecisionRecord, evidence: Sequence[StoredBenchmark]) -> Replayed:
    """The same judge on the stored runs."""
    stored = _benchmark_of(record, evidence)
    if stored is None:
        return Replayed(record, Outcome.CANNOT_TELL, f"its evidence is gone: {', '.join(record.evidence) or 'none'}")
    result = recompute(replace(stored, decision=record))
    now = f"{result.verdict.verdict.value} {result.verdict.reason}: {result.verdict.message}"
    if result.agrees is None:
        return Replayed(record, Outcome.CANNOT_TELL, f"{result.difference or 'no verdict was recorded'}; now {now}")
    return Replayed(record, Outcome.AGREES if result.agrees else Outcome.DISAGREES, f"recomputed {now}")


def _benchmark_of(record: DecisionRecord, evidence: Sequence[StoredBenchmark]) -> StoredBenchmark | None:
    """The benchmark whose objects the record names, if every one of them is still there."""
    for stored in evidence:
        units = tuple(f"-{one.benchmark}-{one.unit}" for one in stored.evidence)
        if record.evidence and all(name.endswith(units) for name in record.evidence):
            return stored if stored.measured else None
    return None


def _verdicts_needed(record: DecisionRecord) -> tuple[Verdict, ...]:
    """Verdicts of a benchmark that this decision follows from; empty when it follows from something else."""
    phase = record.context.phase if record.context is not None else None
    if record.action == "StartCanary":
        return (Verdict.PASS,)
    if record.action == "RollBack" and record.evidence and phase is Phase.INVESTIGATING:
        return (Verdict.FAIL,)
    if record.action == "CloseInvestigation":
        return CLOSED_BY_BENCHMARK.get(record.reason, ())
    return (Verdict.ERROR,) if (record.action, record.reason) == ("Hold", "BenchmarkError") else ()


def _follows(
    record: DecisionRecord,
    wanted: tuple[Verdict, ...],
    history: Sequence[DecisionRecord],
    evidence: Sequence[StoredBenchmark],
) -> Replayed:
    """A decision that follows from the verdict before it: as right as that one is."""
    before = [one for one in history if one.action == JUDGE and one.time <= record.time]
    # A canary is started for the best of all that passed: its message begins with the proposer, as the verdict's does.
    proposer = record.message.split(" goes to canary")[0] if record.action == "StartCanary" else ""
    mine = [one for one in before if one.message.startswith(proposer)]
    if not mine:
        return Replayed(record, Outcome.CANNOT_TELL, "the verdict that it follows from is not in history any more")
    judged = _judged(mine[-1], evidence)
    said = f"follows from the verdict of {mine[-1].time:%Y-%m-%dT%H:%M:%SZ} ({mine[-1].reason})"
    if mine[-1].verdict not in wanted:
        needs = " or ".join(one.value for one in wanted)
        return Replayed(record, Outcome.DISAGREES, f"{said}, which is not {needs}")
    return Replayed(record, judged.outcome, f"{said}: {judged.why}")


def _watched(record: DecisionRecord, replayer: Replayer | None) -> Replayed:
    """The phase that decided, asked again with the figures of then."""
    context = record.context
    if context is not None and context.phase not in COUNTED:
        return Replayed(record, Outcome.CANNOT_TELL, STATE_ONLY)
    if context is None:
        return Replayed(record, Outcome.CANNOT_TELL, "an earlier operator recorded it, without where it stood")
    if replayer is None:
        return Replayed(record, Outcome.CANNOT_TELL, "it rests on metrics: give --prometheus URL")
    try:
        then = replayer.replay(record, context)
    except DataGoneError as error:
        return Replayed(record, Outcome.CANNOT_TELL, str(error))
    if then.same_as(record) and then.decision is not None:
        return Replayed(record, Outcome.AGREES, f"again {then.decision.message or then.decision.reason}")
    return Replayed(record, Outcome.DISAGREES, _difference(then))


def _difference(then: Then) -> str:
    """What was decided instead, and what the watch says."""
    instead = (
        f"now {then.decision.action} {then.decision.reason}: {then.decision.message}"
        if then.decision is not None
        else "now nothing would be decided"
    )
    report = then.report
    compared = (
        f"; comparison {report.comparison.verdict.value} ({report.comparison.message})" if report.comparison else ""
    )
    found = ", ".join(f"{one.signal.value} {one.stage.value} ({one.attribution.value})" for one in report.suspicions)
    return f"{instead}; metrics {report.answer.value}{compared}; suspicions: {found or 'none'}"
