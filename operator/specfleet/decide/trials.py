"""Which candidate is measured next, and how: one alone to its verdict, several by a search (search.py)."""

from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256

from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.speculation import Proposer
from specfleet.api.status import BenchmarkProgress, SearchCandidate, SearchStatus, TrialStatus, Verdict
from specfleet.decide import search
from specfleet.decide.evidence_pairs import arrange
from specfleet.decide.gpu_budget import gpu_hour_budget
from specfleet.decide.observation import Observation, WantedArm
from specfleet.decide.search import NextPairs, SearchDone
from specfleet.decide.traffic import load_in_force, slices_in_force
from specfleet.decide.turn import Turn
from specfleet.decide.units import SIDE_BY_SIDE_EXTRA, is_half


def next_candidate(turn: Turn) -> WantedArm | None:
    """The proposer to measure next: the search's choice, else the first without a verdict; none that a rule refuses."""
    step = _step(turn)
    if isinstance(step, NextPairs):
        return turn.obs.wanted(step.candidate)
    if isinstance(step, SearchDone) and step.finalists:
        return None
    return next(iter(_untried(turn)), None)


def best_passed(turn: Turn) -> tuple[TrialStatus, WantedArm] | None:
    """The best candidate that passed and is still asked for; a confirmed one was the best when it was chosen."""
    passed = sorted(
        (one for one in turn.status.trials if one.verdict is Verdict.PASS),
        key=lambda one: (not one.confirmed, -(one.gain_ratio or 0.0)),
    )
    found = ((one, turn.obs.wanted(one.fingerprint)) for one in passed)
    return next(((one, arm) for one, arm in found if arm is not None and not arm.refusals), None)


def next_run(turn: Turn) -> tuple[str, WantedArm] | None:
    """Purpose and candidate of what has to be measured next; None: nothing, or a winner that needs no confirmation."""
    candidate, winner = next_candidate(turn), best_passed(turn)
    if candidate is not None:
        return "Qualify", candidate
    if winner is not None and is_search(turn) and not winner[0].confirmed:
        return "Confirm", winner[1]
    return None


def progress_for(turn: Turn, candidate: WantedArm, purpose: str) -> BenchmarkProgress:
    """Progress of a new benchmark, or of a candidate's next stretch of a search."""
    if purpose == "Qualify":
        return qualify(turn, candidate)
    if purpose == "Confirm":
        return confirm(turn, candidate)
    return progress_of(turn, candidate, purpose, turn.spec.benchmark.pairs)


def confirm(turn: Turn, candidate: WantedArm) -> BenchmarkProgress:
    """Progress of the winner's run on fresh pairs."""
    progress = progress_of(turn, candidate, "Confirm", turn.spec.benchmark.pairs)
    if turn.status.search is not None:
        turn.set(search=turn.status.search.model_copy(update={"confirmation": progress.id}))
    return progress


def is_search(turn: Turn) -> bool:
    """Whether several candidates stand against each other, so that the winner has to be confirmed."""
    return len(turn.status.trials) > 1 or (turn.status.search is not None and len(turn.status.search.candidates) > 1)


def qualify(turn: Turn, candidate: WantedArm) -> BenchmarkProgress:
    """Progress of the candidate's next stretch of measuring; a search begins where several have no verdict yet."""
    untried = _untried(turn)
    if turn.status.search is None and len(untried) > 1:
        _begin(turn, untried)
    step = _step(turn)
    if turn.status.search is None or not isinstance(step, NextPairs) or step.candidate != candidate.fingerprint:
        return progress_of(turn, candidate, "Qualify", turn.spec.benchmark.pairs)
    _note_behind(turn, step.alive)
    return _stretch(turn, turn.status.search, step)


def progress_of(turn: Turn, candidate: WantedArm, purpose: str, pairs: int) -> BenchmarkProgress:
    """A benchmark with an id of its own, so that its Jobs and evidence have names before they exist."""
    return BenchmarkProgress(
        id=benchmark_id(turn.obs, candidate.fingerprint, purpose, turn.now),
        purpose=purpose,
        candidate=candidate.fingerprint,
        started=turn.now,
        pairs_planned=pairs,
        capacity_from=_capacity_from(turn.status.search, turn.obs.evidence) if purpose == "Confirm" else None,
        slices=slices_in_force(turn.spec, turn.status),
        load_ratio=load_in_force(turn.spec, turn.status),
    )


def benchmark_id(obs: Observation, fingerprint: str, purpose: str, moment: datetime) -> str:
    """8 hexadecimal digits; another one for every moment at which a benchmark is begun."""
    return sha256(f"{obs.deployment.uid}/{fingerprint}/{purpose}/{moment.isoformat()}".encode()).hexdigest()[:8]


def round_over(turn: Turn) -> None:
    """Write down what the present stretch brought; which candidate goes on is found from the evidence."""
    progress, run = turn.status.benchmark, turn.status.search
    if progress is None or run is None:
        return
    mine = [one for one in (*turn.obs.evidence, *turn.record) if one.benchmark == progress.id]
    measured = [one for one in mine if one.purpose == "Qualify"]
    gain = search.gain_so_far(turn.spec, measured)
    pairs = arrange(measured).count
    listed = [
        one.model_copy(update={"pairs": pairs, "gain_ratio": gain}) if one.benchmark == progress.id else one
        for one in run.candidates
    ]
    turn.set(search=run.model_copy(update={"candidates": listed}))


def measure_anew(turn: Turn) -> None:
    """After an Error the candidate's pairs prove nothing: it gets another id, the others keep theirs."""
    progress, run = turn.status.benchmark, turn.status.search
    if progress is None or run is None:
        return
    fresh = benchmark_id(turn.obs, progress.candidate, progress.purpose, turn.now)
    listed = [
        one.model_copy(update={"benchmark": fresh, "pairs": 0, "gain_ratio": None})
        if one.benchmark == progress.id
        else one
        for one in run.candidates
    ]
    turn.set(search=run.model_copy(update={"candidates": listed}))


def measured_pairs(turn: Turn) -> list[tuple[Proposer, list[BenchmarkEvidenceSpec]]]:
    """Every candidate of the present search (or the one that is measured alone) with its pairs so far."""
    progress, run = turn.status.benchmark, turn.status.search
    everything = (*turn.obs.evidence, *turn.record)
    if run is not None:
        found = _evidence(run, everything)
    elif progress is not None:
        mine = [one for one in everything if one.benchmark == progress.id and one.purpose == progress.purpose]
        found = {progress.candidate: mine}
    else:
        return []
    arms = ((turn.obs.wanted(fingerprint), pairs) for fingerprint, pairs in found.items())
    return [(arm.proposer, pairs) for arm, pairs in arms if arm is not None and arm.proposer is not None]


def _untried(turn: Turn) -> list[WantedArm]:
    tried = {trial.fingerprint for trial in turn.status.trials}
    return [arm for arm in turn.obs.proposers if not arm.refusals and arm.fingerprint not in tried]


def _begin(turn: Turn, arms: list[WantedArm]) -> None:
    listed = [
        SearchCandidate(
            fingerprint=arm.fingerprint,
            proposer=arm.label,
            benchmark=benchmark_id(turn.obs, arm.fingerprint, "Qualify", turn.now),
        )
        for arm in arms[:64]
    ]
    pairs = turn.spec.benchmark.pairs
    text = (
        f"{len(listed)} candidates, better half kept after each round: at most "
        f"{search.planned_pairs(len(listed), pairs)} pairs, {gpu_hour_budget(turn.spec):g} GPU hours, "
        "and one confirmatory run of the winner"
    )
    turn.decide("StartSearch", "SeveralCandidates", text)
    turn.set(search=SearchStatus(started=turn.now, candidates=listed))


def _step(turn: Turn) -> NextPairs | SearchDone | None:
    """What the search wants next; None without one."""
    run = turn.status.search
    if run is None:
        return None
    lost = {one.fingerprint for one in turn.status.trials if one.verdict is not Verdict.PASS}
    order = []
    for one in run.candidates:
        arm = turn.obs.wanted(one.fingerprint)
        if arm is not None and not arm.refusals and one.fingerprint not in lost:
            order.append(one.fingerprint)
    evidence = _evidence(run, (*turn.obs.evidence, *turn.record))
    left = search.affordable(gpu_hour_budget(turn.spec), run.gpu_hours, evidence)
    judged = {one.fingerprint for one in turn.status.trials}
    step = search.next_step(turn.spec, order, evidence, left, judged - lost)
    if isinstance(step, SearchDone):
        # All pairs are there, but a crash or a hold came before the verdict.
        open_ = next((one for one in step.finalists if one not in judged), None)
        return step if open_ is None else NextPairs(open_, turn.spec.benchmark.pairs, step.finalists)
    return step


def _evidence(run: SearchStatus, everything: Iterable[BenchmarkEvidenceSpec]) -> dict[str, list[BenchmarkEvidenceSpec]]:
    names = {one.benchmark: one.fingerprint for one in run.candidates}
    found: dict[str, list[BenchmarkEvidenceSpec]] = {one.fingerprint: [] for one in run.candidates}
    for one in everything:
        if one.benchmark in names and one.purpose == "Qualify":
            found[names[one.benchmark]].append(one)
    return found


def _stretch(turn: Turn, run: SearchStatus, step: NextPairs) -> BenchmarkProgress:
    own = next(one for one in run.candidates if one.fingerprint == step.candidate)
    mine = [one for one in (*turn.obs.evidence, *turn.record) if one.benchmark == own.benchmark]
    arranged = arrange([one for one in mine if one.purpose == "Qualify"])
    missing = max(0, step.pairs - arranged.count)
    last = step.pairs >= turn.spec.benchmark.pairs
    # Declared for both, but there was no room: that is not waited for again at each stretch.
    no_room = turn.spec.capacity.max_extra_replicas >= SIDE_BY_SIDE_EXTRA and any(is_half(one) for one in mine)
    return BenchmarkProgress(
        id=own.benchmark,
        purpose="Qualify",
        candidate=own.fingerprint,
        started=turn.now,
        pairs_planned=min(2 * step.pairs, max(step.pairs, arranged.attempted + missing)),
        pairs_done=arranged.attempted,
        round_pairs=None if last else step.pairs,
        gpu_hours=round(sum(one.gpu_seconds for one in mine) / 3600, 4),
        capacity_from=_capacity_from(run, turn.obs.evidence),
        turns_from_pair=arranged.attempted if no_room else None,
        slices=slices_in_force(turn.spec, turn.status),
        load_ratio=load_in_force(turn.spec, turn.status),
    )


def _capacity_from(run: SearchStatus | None, evidence: Iterable[BenchmarkEvidenceSpec]) -> str | None:
    """The plain arm's capacity is the same for all candidates: measured once per search."""
    ids = {one.benchmark for one in run.candidates} if run is not None else set()
    known = (one for one in evidence if one.purpose == "Capacity" and one.error is None and one.benchmark in ids)
    return next((one.benchmark for one in known), None)


def _note_behind(turn: Turn, alive: tuple[str, ...]) -> None:
    """Tell once who is left behind, and who comes back because the better ones failed."""
    run = turn.status.search
    assert run is not None
    lost = {one.fingerprint for one in turn.status.trials}
    told = []
    listed = []
    for one in run.candidates:
        behind = one.fingerprint not in alive and one.fingerprint not in lost
        if behind and not one.behind:
            gain = "not measured" if one.gain_ratio is None else f"{one.gain_ratio:+.1%} after {one.pairs} pairs"
            told.append(f"{one.proposer} ({gain})")
        listed.append(one.model_copy(update={"behind": behind}))
    if told:
        left = ", ".join(one.proposer for one in listed if one.fingerprint in alive)
        turn.decide("NarrowSearch", "BehindOthers", f"{', '.join(told)} are behind; measured further: {left}")
    turn.set(search=run.model_copy(update={"candidates": listed}))
