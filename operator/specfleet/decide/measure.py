"""Carrying a benchmark through: record what a Job measured, judge it, say which Job comes next. Level-triggered."""

from collections.abc import Mapping
from dataclasses import dataclass

from specfleet.api import names
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import ArmRole, BenchmarkProgress, Verdict
from specfleet.decide.evidence import MINIMUM_PAIRS, BenchmarkVerdict, criteria, judge
from specfleet.decide.evidence_pairs import arrange
from specfleet.decide.faults import (
    Fault,
    crash_fault,
    driver_fault,
    engine_mismatch,
    no_room,
    start_fault,
)
from specfleet.decide.gpu_budget import gpus_per_engine
from specfleet.decide.observation import ArmView, JobView, Observation
from specfleet.decide.placement import node_of, preferred_nodes, worn_pods
from specfleet.decide.plan import ArmIntent, JobIntent
from specfleet.decide.search import error_shares
from specfleet.decide.spending import gpu_hours_used_up
from specfleet.decide.three_way import rule_of
from specfleet.decide.turn import Turn
from specfleet.decide.units import (
    CAPACITY_UNIT,
    SIDE_BY_SIDE_EXTRA,
    Unit,
    complete_pairs,
    next_unit,
    of_benchmark,
    pairs_of,
    together,
    units,
)

JOB_RETRIES = 3
NAMES_KEPT = 32
"""DecisionRecord.evidence holds no more; a benchmark of more units is reproduced from all that is stored of it."""


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
    verdict = _judge(turn, progress) if progress.round_pairs is None else _round(turn, progress, progress.round_pairs)
    if verdict is not None:
        return verdict
    return _interruption(turn, progress)


def _is_of(job: JobView, progress: BenchmarkProgress, unit: Unit) -> bool:
    return (job.benchmark, job.unit) == (progress.id, job_unit_name(unit.name, progress))


def _record(turn: Turn, progress: BenchmarkProgress, unit: Unit, job: JobView) -> None:
    """Evidence of a Job; one that died is repeated a few times first and then recorded as an error."""
    finished = job.finished or turn.now
    seconds = max(0.0, (finished - job.started).total_seconds()) * len(unit.roles) * gpus_per_engine(turn.spec)
    if job.failure is not None and progress.retries < JOB_RETRIES:
        lost = progress.lost_gpu_hours + seconds / 3600
        progress = progress.model_copy(update={"retries": progress.retries + 1, "lost_gpu_hours": round(lost, 4)})
        turn.decide("RepeatUnit", "BenchmarkJobFailed", f"unit {unit.name}: {job.failure}; measured again")
        turn.set(benchmark=progress)
        return
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
        gpu_seconds=seconds,
        capacity_requests_per_second=job.capacity_requests_per_second,
        runs=list(job.runs),
        nodes=_nodes(turn.obs, progress, unit, job),
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
    hours = sum(one.gpu_seconds for one in mine if one.benchmark == progress.id) / 3600 + progress.lost_gpu_hours
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

    A search has one GPU budget for all its candidates and the confirmation; the time budget is for each stretch.
    """
    spec = turn.spec.benchmark
    mine = of_benchmark((*turn.obs.evidence, *turn.record), progress)
    measured = pairs_of(mine)
    hours_up = progress.pairs_done < progress.pairs_planned and gpu_hours_used_up(
        turn, progress, side_by_side(turn.obs)
    )
    spent = turn.seconds_since(progress.started) > spec.time_budget_seconds or hours_up
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
    unit = next_unit(turn.spec, progress, side_by_side(turn.obs), turn.obs.evidence)
    full = _without_room(turn.obs, progress, unit, arms)
    if full is not None and unit is not None and _room_for_one(turn.obs, progress, unit, arms):
        _take_turns(turn, progress, unit, full)
        return None
    job = turn.obs.job
    if full is None and unit is not None and job is not None and _is_of(job, progress, unit):
        full = driver_fault(job, now)
    if full is not None:
        return Interruption(full, None)
    timeout = turn.spec.engine.startup_timeout_seconds
    for role, fingerprint in arms.items():
        arm = turn.obs.bench_arm(fingerprint)
        broken = start_fault(arm, now, timeout) or crash_fault(arm, now)
        if broken is not None:
            return Interruption(broken, role)
    return None


def _both_up(obs: Observation, progress: BenchmarkProgress, unit: Unit) -> bool:
    """Whether both arms have pods during a unit. A capacity run needs one only, the other is for what follows."""
    if unit.name == CAPACITY_UNIT:
        return together(progress, side_by_side(obs), unit.pair)
    return len(unit.roles) > 1


def _without_room(
    obs: Observation, progress: BenchmarkProgress, unit: Unit | None, arms: Mapping[ArmRole, str]
) -> Fault | None:
    """Why a pod that should be up has no place. Taking turns, an arm whose turn it is waits for the other to go."""
    both = unit is None or _both_up(obs, progress, unit)
    views = {role: obs.bench_arm(fingerprint) for role, fingerprint in arms.items()}
    holding = [role for role, view in views.items() if view is not None and view.occupying > 0]
    if not both and len(holding) > 1:
        return None
    return next((fault for view in views.values() if (fault := no_room(view, obs.now)) is not None), None)


def _room_for_one(obs: Observation, progress: BenchmarkProgress, unit: Unit, arms: Mapping[ArmRole, str]) -> bool:
    """Whether one of two arms that should be up together has a place."""
    if not _both_up(obs, progress, unit):
        return False
    views = [obs.bench_arm(fingerprint) for fingerprint in arms.values()]
    return any(view is not None and view.pods and no_room(view, obs.now) is None for view in views)


def _take_turns(turn: Turn, progress: BenchmarkProgress, unit: Unit, full: Fault) -> None:
    said = f"{full.message}; there is room for one pod, so the arms take turns from pair {unit.pair} on"
    turn.decide("TakeTurns", full.reason, said)
    turn.set(benchmark=progress.model_copy(update={"turns_from_pair": unit.pair}))


def bench_intents(obs: Observation, progress: BenchmarkProgress) -> tuple[tuple[ArmIntent, ...], JobIntent | None]:
    """Benchmark pods that should exist now, and the Job to run on them once they are proven."""
    unit = next_unit(obs.spec, progress, side_by_side(obs), obs.evidence)
    arms = fingerprints(obs, progress)
    if unit is None:
        return (), None
    both = _both_up(obs, progress, unit)
    worn = bool(worn_pods(obs, progress, unit, arms, both))
    nodes = preferred_nodes(obs, progress, unit, both)
    up = tuple(arms) if both else unit.roles
    intents = []
    for role in ArmRole:
        other = obs.bench_arm(arms[ArmRole.SPECULATIVE if role is ArmRole.BASELINE else ArmRole.BASELINE])
        blocked = worn or (not both and other is not None and other.occupying > 0)
        replicas = 1 if role in up and not blocked else 0
        if replicas or obs.bench_arm(arms[role]) is not None:
            intents.append(_intent(obs, role, arms[role], replicas, nodes.get(role)))
    return tuple(intents), _job(obs, progress, unit, arms)


def _intent(obs: Observation, role: ArmRole, fingerprint: str, replicas: int, node: str | None) -> ArmIntent:
    """A benchmark arm. One of an earlier spec is built from the revision that serves."""
    wanted, stable = obs.wanted(fingerprint), obs.status.stable
    if wanted is not None:
        return ArmIntent(wanted.role, fingerprint, replicas, benchmark=True, node=node)
    revision = stable.name if stable else None
    return ArmIntent(role, fingerprint, replicas, benchmark=True, revision=revision, node=node)


def _nodes(obs: Observation, progress: BenchmarkProgress, unit: Unit, job: JobView) -> dict[ArmRole, str]:
    """Node of each arm's pod during a unit, where it is known."""
    measured = {run.arm: run.pod for run in job.runs}
    arms = fingerprints(obs, progress)
    found = {role: node_of(obs.bench_arm(arms[role]), measured.get(role)) for role in unit.roles}
    return {role: node for role, node in found.items() if node is not None}


def _job(obs: Observation, progress: BenchmarkProgress, unit: Unit, by_role: dict[ArmRole, str]) -> JobIntent | None:
    views: dict[ArmRole, ArmView | None] = {role: obs.bench_arm(by_role[role]) for role in unit.roles}
    pods = {role: view.serving[0].name for role, view in views.items() if view is not None and view.serving}
    name = job_unit_name(unit.name, progress)
    if worn_pods(obs, progress, unit, by_role, _both_up(obs, progress, unit)):
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
    return sum(unit.name not in done for unit in units(obs.spec, progress, side_by_side(obs), done))
