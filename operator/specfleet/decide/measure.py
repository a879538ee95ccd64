"""Carrying a benchmark through: record what a Job measured, judge it, say which Job comes next. Level-triggered."""

from dataclasses import dataclass

from specfleet.api import names
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import ArmRole, BenchmarkProgress, Verdict
from specfleet.decide.evidence import MINIMUM_PAIRS, BenchmarkVerdict, criteria, judge
from specfleet.decide.evidence_pairs import arrange
from specfleet.decide.faults import (
    UNSCHEDULABLE_SECONDS,
    Fault,
    crash_fault,
    engine_mismatch,
    no_room,
    start_fault,
)
from specfleet.decide.gpu_budget import gpu_hour_budget, gpus_per_pod
from specfleet.decide.observation import ArmView, JobView, Observation, PodView
from specfleet.decide.plan import ArmIntent, JobIntent, PodRef
from specfleet.decide.search import error_shares
from specfleet.decide.three_way import CHANGE_PAIRS, rule_of
from specfleet.decide.turn import Turn
from specfleet.decide.units import CAPACITY_UNIT, Unit, complete_pairs, next_unit, of_benchmark, units

JOB_RETRIES = 3
NAMES_KEPT = 32
"""DecisionRecord.evidence holds no more; a benchmark of more units is reproduced from all that is stored of it."""
SIDE_BY_SIDE_EXTRA = 2


@dataclass(frozen=True, slots=True)
class Interruption:
    """Why the benchmark cannot go on: no room, or one of its arms does not run."""

    fault: Fault
    role: ArmRole | None
    """The arm at fault; None: the surroundings."""


@dataclass(frozen=True, slots=True)
class RoundOver:
    """The candidate has the pairs of the search's present round; nothing is decided about it yet."""


def side_by_side(obs: Observation) -> bool:
    """Both arms up at once need two extra pods; with one they take turns."""
    return obs.spec.capacity.max_extra_replicas >= SIDE_BY_SIDE_EXTRA


def fingerprints(obs: Observation, progress: BenchmarkProgress) -> dict[ArmRole, str]:
    """Requested fingerprints of the two arms. A changed engine is measured against the plain arm that serves."""
    return {
        ArmRole.BASELINE: progress.baseline or obs.baseline.fingerprint,
        ArmRole.SPECULATIVE: progress.candidate,
    }


def job_unit_name(unit: str, progress: BenchmarkProgress) -> str:
    """The Job's unit name carries the number of retries: a Job that died is never mistaken for its successor."""
    return f"{unit}-r{progress.retries}" if progress.retries else unit


def advance(turn: Turn) -> BenchmarkVerdict | Interruption | RoundOver | None:
    """Record a finished Job and judge. None: still measuring."""
    progress = turn.status.benchmark
    if progress is None:
        return None
    unit = next_unit(turn.spec, progress, side_by_side(turn.obs), turn.obs.evidence)
    job = turn.obs.job
    if unit is not None and job is not None and job.finished and _is_of(job, progress, unit):
        _record(turn, progress, unit, job)
    progress = _tally(turn)
    turn.restarts.extend(PodRef(pod.name, pod.uid) for pod in worn_pods(turn.obs, progress, unit) if not pod.deleting)
    verdict = _judge(turn, progress) if progress.round_pairs is None else _round(turn, progress, progress.round_pairs)
    if verdict is not None:
        return verdict
    return _interruption(turn, progress)


def worn_pods(obs: Observation, progress: BenchmarkProgress, unit: Unit | None) -> list[PodView]:
    """Pods of the first half of the pairs that would measure the second half too: each arm gets a fresh one half way.

    What one process or node happens to be good at then counts for one half only. Arms that take turns change their pods
    at every turn anyway.
    """
    if unit is None or not _in_second_half(obs, progress, unit):
        return []
    half = _half(obs, progress)
    used = {run.pod for one in of_benchmark(obs.evidence, progress) if one.pair < half for run in one.runs}
    arms = (obs.bench_arm(one) for one in fingerprints(obs, progress).values())
    return [pod for arm in arms if arm is not None for pod in arm.pods if pod.name in used]


def _half(obs: Observation, progress: BenchmarkProgress) -> int:
    return (CHANGE_PAIRS if progress.purpose == "Change" else obs.spec.benchmark.pairs) // 2


def _in_second_half(obs: Observation, progress: BenchmarkProgress, unit: Unit) -> bool:
    return side_by_side(obs) and unit.pair >= _half(obs, progress)


def _room_patience(obs: Observation, progress: BenchmarkProgress, unit: Unit | None) -> float:
    """Half way the fresh pods of a full cluster wait for the GPUs of the worn ones, which drain and stop first."""
    if unit is None or not _in_second_half(obs, progress, unit):
        return UNSCHEDULABLE_SECONDS
    engine = obs.spec.engine
    return UNSCHEDULABLE_SECONDS + engine.drain_timeout_seconds + engine.shutdown_timeout_seconds


def _is_of(job: JobView, progress: BenchmarkProgress, unit: Unit) -> bool:
    return (job.benchmark, job.unit) == (progress.id, job_unit_name(unit.name, progress))


def _record(turn: Turn, progress: BenchmarkProgress, unit: Unit, job: JobView) -> None:
    """Evidence of a Job; one that died is repeated a few times first and then recorded as an error."""
    if job.failure is not None and progress.retries < JOB_RETRIES:
        progress = progress.model_copy(update={"retries": progress.retries + 1})
        turn.decide("RepeatUnit", "BenchmarkJobFailed", f"unit {unit.name}: {job.failure}; measured again")
        turn.set(benchmark=progress)
        return
    finished = job.finished or turn.now
    seconds = (finished - job.started).total_seconds() * len(unit.roles) * gpus_per_pod(turn.spec)
    wanted = turn.obs.wanted(progress.candidate)
    reference = fingerprints(turn.obs, progress)[ArmRole.BASELINE]
    bench = turn.obs.bench_arm(progress.candidate) or turn.obs.bench_arm(reference)
    evidence = BenchmarkEvidenceSpec(
        deployment=turn.obs.deployment.name,
        benchmark=progress.id,
        purpose="Capacity" if unit.name == CAPACITY_UNIT else progress.purpose,
        unit=unit.name,
        pair=unit.pair,
        baseline=reference,
        candidate=progress.candidate,
        proposer=wanted.label if wanted else "unknown",
        candidates=_candidates(turn, progress),
        criteria=criteria(turn.spec),
        engine_version=next((pod.engine_version for pod in bench.pods), None) if bench else None,
        started=job.started,
        finished=finished,
        gpu_seconds=max(0.0, seconds),
        capacity_requests_per_second=job.capacity_requests_per_second,
        runs=list(job.runs),
        request_probes=list(job.request_probes),
        greedy_texts=dict(job.greedy_texts),
        error=job.failure,
    )
    turn.record.append(evidence)
    turn.set(benchmark=progress.model_copy(update={"retries": 0}))


def _candidates(turn: Turn, progress: BenchmarkProgress) -> int:
    """Candidates among which the verdict shares its error. A confirmation is a question of its own."""
    search = turn.status.search
    if progress.purpose != "Qualify" or search is None:
        return 1
    others = [one for one in turn.status.trials if one.fingerprint != progress.candidate]
    return error_shares(turn.spec, len(search.candidates), others)


def _tally(turn: Turn) -> BenchmarkProgress:
    """Progress as the evidence has it: a crash between writing evidence and status must not lose a pair."""
    progress = turn.status.benchmark
    assert progress is not None
    everything = (*turn.obs.evidence, *turn.record)
    mine = of_benchmark(everything, progress)
    hours = sum(one.gpu_seconds for one in mine if one.benchmark == progress.id) / 3600
    capacity = next((one.capacity_requests_per_second for one in mine if one.purpose == "Capacity"), None)
    done = complete_pairs(turn.spec, progress, side_by_side(turn.obs), everything)
    turn.set(
        benchmark=progress.model_copy(
            update={"capacity_requests_per_second": capacity, "pairs_done": done, "gpu_hours": round(hours, 4)}
        ),
        gpu_hours_spent=round(turn.status.gpu_hours_spent + max(0.0, hours - progress.gpu_hours), 4),
    )
    search = turn.status.search
    if search is not None and progress.purpose in ("Qualify", "Confirm"):
        spent = search.gpu_hours + max(0.0, hours - progress.gpu_hours)
        turn.set(search=search.model_copy(update={"gpu_hours": round(spent, 4)}))
    assert turn.status.benchmark is not None
    return turn.status.benchmark


def _judge(turn: Turn, progress: BenchmarkProgress) -> BenchmarkVerdict | None:
    """A verdict at a declared look, after the last pair, or when the budget is used up."""
    spec = turn.spec.benchmark
    measured, spent, failed_capacity = _so_far(turn, progress)
    complete = progress.pairs_done >= progress.pairs_planned
    # The judge itself tests nothing between the declared looks; asked after every pair it finds a harness that only
    # fails, or an engine that breaks under load, before hours are spent on it. Looks count valid pairs, not Jobs.
    at_look = progress.pairs_done >= MINIMUM_PAIRS
    if not (complete or at_look or spent or failed_capacity):
        return None
    verdict = rule_of(progress.purpose)(turn.spec, measured, spent or failed_capacity)
    if verdict.need_more and not (spent or failed_capacity):
        if complete and progress.pairs_planned < 2 * spec.pairs:
            turn.set(benchmark=progress.model_copy(update={"pairs_planned": progress.pairs_planned + 1}))
            return None
        if not complete:
            return None
    return verdict


def _so_far(turn: Turn, progress: BenchmarkProgress) -> tuple[list[BenchmarkEvidenceSpec], bool, bool]:
    """Evidence to judge, whether the budget is used up, and whether the capacity run failed.

    A search has one GPU budget for all its candidates; the time budget is for each stretch of measuring.
    """
    spec, search = turn.spec.benchmark, turn.status.search
    mine = of_benchmark((*turn.obs.evidence, *turn.record), progress)
    measured = [one for one in mine if one.purpose != "Capacity"]
    hours = search.gpu_hours if search is not None and progress.purpose == "Qualify" else progress.gpu_hours
    spent = turn.seconds_since(progress.started) > spec.time_budget_seconds or hours > gpu_hour_budget(turn.spec)
    return measured, spent, any(one.purpose == "Capacity" and one.error for one in mine)


def _round(turn: Turn, progress: BenchmarkProgress, wanted: int) -> BenchmarkVerdict | RoundOver | None:
    """A round of a search only chooses: it may fail a candidate for sure, and never passes one."""
    measured, spent, failed_capacity = _so_far(turn, progress)
    count, ended = arrange(measured).count, spent or failed_capacity
    verdict = judge(turn.spec, measured)
    if verdict.verdict in (Verdict.FAIL, Verdict.ERROR) and not verdict.need_more:
        return verdict
    if count < wanted and not ended:
        if progress.pairs_done >= progress.pairs_planned and progress.pairs_planned < 2 * wanted:
            turn.set(benchmark=progress.model_copy(update={"pairs_planned": progress.pairs_planned + 1}))
            return None
        if progress.pairs_done < progress.pairs_planned:
            return None
    final = judge(turn.spec, measured, budget_spent=True) if verdict.need_more else verdict
    return RoundOver() if count >= wanted and not ended and final.verdict is not Verdict.FAIL else final


def evidence_names(turn: Turn) -> tuple[str, ...]:
    """Objects that the present benchmark's verdict rests on, those of this turn included; the newest NAMES_KEPT."""
    progress = turn.status.benchmark
    if progress is None:
        return ()
    mine = of_benchmark((*turn.obs.evidence, *turn.record), progress)
    return tuple(names.unit(turn.obs.deployment.name, one.benchmark, one.unit) for one in mine)[-NAMES_KEPT:]


def _interruption(turn: Turn, progress: BenchmarkProgress) -> Interruption | None:
    now = turn.obs.now
    arms = fingerprints(turn.obs, progress)
    moved = engine_mismatch(*(turn.obs.bench_arm(one) for one in arms.values()))
    if moved is not None and progress.baseline is None:
        return Interruption(moved, None)
    timeout = turn.spec.engine.startup_timeout_seconds
    unit = next_unit(turn.spec, progress, side_by_side(turn.obs), turn.obs.evidence)
    patience = _room_patience(turn.obs, progress, unit)
    for role, fingerprint in arms.items():
        arm = turn.obs.bench_arm(fingerprint)
        full = no_room(arm, now, patience)
        if full is not None:
            return Interruption(full, None)
        broken = start_fault(arm, now, timeout) or crash_fault(arm, now)
        if broken is not None:
            return Interruption(broken, role)
    return None


def bench_intents(obs: Observation, progress: BenchmarkProgress) -> tuple[tuple[ArmIntent, ...], JobIntent | None]:
    """Benchmark pods that should exist now, and the Job to run on them once they are proven."""
    together = side_by_side(obs)
    unit = next_unit(obs.spec, progress, together, obs.evidence)
    arms = fingerprints(obs, progress)
    if unit is None:
        return (), None
    up = tuple(arms) if together else unit.roles
    intents = []
    for role in ArmRole:
        other = obs.bench_arm(arms[ArmRole.SPECULATIVE if role is ArmRole.BASELINE else ArmRole.BASELINE])
        blocked = not together and other is not None and other.occupying > 0 and role in up
        replicas = 1 if role in up and not blocked else 0
        if replicas or obs.bench_arm(arms[role]) is not None:
            intents.append(_intent(obs, role, arms[role], replicas))
    return tuple(intents), _job(obs, progress, unit, arms)


def _intent(obs: Observation, role: ArmRole, fingerprint: str, replicas: int) -> ArmIntent:
    """A benchmark arm. One of an earlier spec is built from the revision that serves."""
    wanted, stable = obs.wanted(fingerprint), obs.status.stable
    if wanted is not None:
        return ArmIntent(wanted.role, fingerprint, replicas, benchmark=True)
    return ArmIntent(role, fingerprint, replicas, benchmark=True, revision=stable.name if stable else None)


def _job(obs: Observation, progress: BenchmarkProgress, unit: Unit, by_role: dict[ArmRole, str]) -> JobIntent | None:
    views: dict[ArmRole, ArmView | None] = {role: obs.bench_arm(by_role[role]) for role in unit.roles}
    pods = {role: view.serving[0].name for role, view in views.items() if view is not None and view.serving}
    name = job_unit_name(unit.name, progress)
    if worn_pods(obs, progress, unit):
        return None
    running = obs.job is not None and (obs.job.benchmark, obs.job.unit) == (progress.id, name) and not obs.job.finished
    if len(pods) < len(unit.roles) and not running:
        return None
    return JobIntent(
        benchmark=progress.id,
        unit=name,
        pair=unit.pair,
        purpose="Capacity" if unit.name == CAPACITY_UNIT else progress.purpose,
        arms={role: by_role[role] for role in unit.roles},
        pods=pods,
        cells=unit.cells,
    )


def remaining(obs: Observation, progress: BenchmarkProgress) -> int:
    """Units still to be measured, for progress messages."""
    done = {one.unit for one in of_benchmark(obs.evidence, progress)}
    return sum(unit.name not in done for unit in units(obs.spec, progress, side_by_side(obs)))
