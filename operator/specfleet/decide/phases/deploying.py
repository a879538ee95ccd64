"""Deploying: the plain arm of a revision comes up and proves itself."""

from specfleet.api.status import Phase, RevisionStatus, Verdict
from specfleet.decide.difference import engine_in_words
from specfleet.decide.faults import no_room, start_fault
from specfleet.decide.phases.resting import hold
from specfleet.decide.phases.speculative import guard_beside_trial
from specfleet.decide.replacement import replace_lone
from specfleet.decide.resume import resume
from specfleet.decide.revision_trial import proposers_measured, screened
from specfleet.decide.stranded import NOTHING_ELSE_SERVES, rescue, stranded
from specfleet.decide.turn import Turn


def deploying(turn: Turn) -> None:
    """First revision: serve it as soon as it is proven at full capacity. Later ones: prove one pod, then canary."""
    if guard_beside_trial(turn):
        return
    if turn.obs.baseline.refusals:
        # Nobody carries a benchmark on from here: its pods would hold their GPUs until a person has mended the spec.
        turn.set(benchmark=None)
        return
    if turn.status.stable is None:
        _first(turn)
    elif turn.status.stable.baseline == turn.obs.baseline.fingerprint:
        resume(turn, "Resumed")
    else:
        _next(turn)


def _first(turn: Turn) -> None:
    wanted = turn.obs.baseline
    arm = turn.obs.arm(wanted.fingerprint)
    if arm is None or len(arm.serving) < turn.spec.replicas:
        replace_lone(turn, arm)
        turn.look_again(5)
        return
    turn.set(stable=RevisionStatus(name=turn.status.revision or "", baseline=wanted.fingerprint))
    pods = "1 plain pod" if len(arm.serving) == 1 else f"{len(arm.serving)} plain pods"
    turn.decide(
        "ServeBaseline",
        "BaselineReady",
        f"{pods} answered a completion with fingerprint {wanted.fingerprint}",
        Verdict.PASS,
    )
    turn.enter(Phase.BASELINE, "BaselineReady")


def _next(turn: Turn) -> None:
    """A changed model or engine: one pod of it starts beside the serving arm, without user traffic."""
    if turn.spec.paused:
        return
    if turn.spec.remedies.on_change == "Hold":
        # As above, for as long as the hold lasts.
        turn.set(benchmark=None)
        return
    wanted = turn.obs.baseline
    bench = turn.obs.bench_arm(wanted.fingerprint)
    if turn.spec.capacity.max_extra_replicas == 0:
        turn.enter(Phase.CANARY, "RevisionTrial", candidate=wanted.fingerprint, benchmark=None, step=0, step_since=None)
        return
    answers = bench is not None and bool(bench.serving)
    full = no_room(bench, turn.obs.now)
    lost = stranded(turn.obs, turn.status)
    if lost is not None and turn.status.phase_reason != NOTHING_ELSE_SERVES:
        turn.decide("Rescue", NOTHING_ELSE_SERVES, f"no pod of the stable arms answers any more: {lost.message}")
        turn.set(phase_reason=NOTHING_ELSE_SERVES, benchmark=None)
    if rescue(turn.obs, turn.status) and (answers or full is not None):
        # The canary adopts it as soon as a pod of its own serves; dead pods make room for that one.
        turn.decide("TryRevision", NOTHING_ELSE_SERVES, "the changed engine takes over as soon as a pod of it serves")
        fields = {"candidate": wanted.fingerprint, "benchmark": None, "step": 0, "step_since": None}
        turn.enter(Phase.CANARY, NOTHING_ELSE_SERVES, **fields)
        return
    if turn.status.benchmark is not None or answers:
        _measured(turn)
        return
    if full is not None:
        hold(turn, full.reason, f"{full.message}; capacity.maxExtraReplicas: 0 lets serving pods make room for it")
        return
    fault = start_fault(bench, turn.obs.now, turn.spec.engine.startup_timeout_seconds)
    if fault is not None:
        refuse(turn, fault.reason, fault.message, Verdict.FAIL)
        return
    turn.look_again(5)


def _measured(turn: Turn) -> None:
    """One pod of the changed engine answers: measure it against what serves, then let it meet users step by step."""
    progress = turn.status.benchmark
    measuring_proposers = progress is not None and progress.purpose != "Change"
    passed = True if measuring_proposers else screened(turn)
    change = turn.status.change
    if passed and proposers_measured(turn):
        said = "the changed engine answers as asked and was not found worse than what serves; its canary decides"
        turn.decide("TryRevision", "NotFoundWorse", said)
        turn.enter(
            Phase.CANARY,
            "RevisionTrial",
            candidate=turn.obs.baseline.fingerprint,
            benchmark=None,
            step=0,
            step_since=None,
        )
    elif passed is False and change is not None:
        refuse(turn, change.reason, f"the changed model or engine: {change.message}", Verdict.FAIL)


def refuse(turn: Turn, reason: str, message: str, verdict: Verdict | None) -> None:
    """The revision is not tried (again) until the spec changes or a person says retry; what serves goes on serving."""
    what = engine_in_words(turn.obs, turn.status)
    turn.decide("RefuseRevision", reason, f"{message}{f' (changed: {what})' if what else ''}", verdict)
    turn.set(revision_refused=turn.status.revision)
    resume(turn, reason)
