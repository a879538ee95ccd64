"""Where each phase can go, in words: what would change the present state. Tests hold that the lists are complete."""

from collections.abc import Callable
from dataclasses import dataclass

from specfleet.api.status import DeploymentStatus, Phase
from specfleet.decide.faults import CRASHES, RECENT_SECONDS, UNSCHEDULABLE_SECONDS
from specfleet.decide.gates import fruitless_seconds
from specfleet.decide.observation import Observation


@dataclass(frozen=True, slots=True)
class Way:
    """A phase that may follow, and when it does."""

    to: Phase
    when: str


def ways(obs: Observation, status: DeploymentStatus) -> tuple[Way, ...]:
    """Phases that may follow this one without a person and without a changed spec, likeliest first."""
    return tuple(_WAYS[status.phase](obs, status))


def _hard_fault() -> str:
    minutes = RECENT_SECONDS / 60
    return f"{CRASHES} crashes in {minutes:.0f} min, out of memory, or no pod that answers, while the plain arm is well"


def _from_deploying(obs: Observation, status: DeploymentStatus) -> list[Way]:
    if status.stable is None:
        return [Way(Phase.BASELINE, f"all {obs.spec.replicas} plain pods have answered a completion")]
    return [
        Way(Phase.CANARY, "one pod of the changed model or engine has answered a completion"),
        Way(Phase.HELD, f"the scheduler has had no place for it for {UNSCHEDULABLE_SECONDS:.0f} s"),
        Way(Phase.SPECULATIVE, "it does not start: it is refused, and what was promoted goes on"),
        Way(Phase.ROLLED_BACK, "it does not start: it is refused, and what serves goes on"),
        Way(Phase.BASELINE, "the spec asks for the arm that serves"),
        Way(Phase.ROLLING_BACK, _hard_fault()),
    ]


def _from_baseline(obs: Observation, status: DeploymentStatus) -> list[Way]:
    del obs, status
    return [
        Way(Phase.BENCHMARKING, "all gates are met and a candidate has not been measured"),
        Way(Phase.CANARY, "all gates are met and a candidate has passed"),
        Way(Phase.EXHAUSTED, "the attempts of this revision are used up"),
        Way(Phase.HELD, "no extra pod is allowed"),
    ]


def _from_benchmarking(obs: Observation, status: DeploymentStatus) -> list[Way]:
    del obs, status
    return [
        Way(Phase.BASELINE, "there is a verdict: Pass goes on to the canary, anything else tries what is left"),
        Way(Phase.HELD, "there is no room, the plain pod fails, or nothing could be measured"),
    ]


def _from_canary(obs: Observation, status: DeploymentStatus) -> list[Way]:
    steps = obs.spec.rollout.steps
    step = min(max(0, status.step or 0), len(steps) - 1)
    trial = status.candidate == obs.baseline.fingerprint
    following = [Way(Phase.CANARY, f"all gates are met: step {step + 2} of {len(steps)}")]
    if step + 1 >= len(steps):
        after = Phase.BASELINE if trial else Phase.SPECULATIVE
        following = [Way(after, f"all gates are met: {'the changed engine serves' if trial else 'promoted'}")]
    hours = (obs.spec.rollout.no_traffic_timeout_seconds - fruitless_seconds(obs, status)) / 3600
    return [
        *following,
        Way(Phase.ROLLING_BACK, f"the comparison says Fail, a hard finding is confirmed, or: {_hard_fault()}"),
        Way(
            Phase.HELD,
            f"no Pass within another {max(0.0, hours):.1f} h, no room, or requests that only speculation refuses",
        ),
    ]


def _from_speculative(obs: Observation, status: DeploymentStatus) -> list[Way]:
    del obs, status
    return [
        Way(Phase.INVESTIGATING, "a finding is confirmed and the gates are met"),
        Way(Phase.ROLLING_BACK, f"it is slower than plain for sure, a hard finding is confirmed, or: {_hard_fault()}"),
    ]


def _from_investigating(obs: Observation, status: DeploymentStatus) -> list[Way]:
    del obs, status
    return [
        Way(Phase.SPECULATIVE, "the plain arm degrades too, the finding is gone, a restart heals it, or it gains"),
        Way(Phase.ROLLING_BACK, f"it is speculation and a remedy of the ladder says Fail, or: {_hard_fault()}"),
    ]


def _from_rolling_back(obs: Observation, status: DeploymentStatus) -> list[Way]:
    del obs, status
    return [
        Way(Phase.ROLLED_BACK, "the stable arm carries all traffic"),
        Way(Phase.EXHAUSTED, "the stable arm carries all traffic and no attempt is left"),
        Way(Phase.DEPLOYING, "the stable arm carries all traffic and the spec asks for another engine"),
        Way(Phase.SPECULATIVE, "the trial of a changed engine ended and what was promoted serves again"),
        Way(Phase.BASELINE, "the stable arm carries all traffic and the spec has changed"),
    ]


def _from_rolled_back(obs: Observation, status: DeploymentStatus) -> list[Way]:
    del obs, status
    return [
        Way(Phase.BASELINE, "the back-off is over: measured again from the start"),
        Way(Phase.DEPLOYING, "the back-off is over and the spec asks for another engine"),
        Way(Phase.EXHAUSTED, "no attempt is left"),
    ]


def _from_exhausted(obs: Observation, status: DeploymentStatus) -> list[Way]:
    del obs, status
    return []


def _from_held(obs: Observation, status: DeploymentStatus) -> list[Way]:
    del obs, status
    return [
        Way(Phase.BASELINE, "the hold is over: the next trial starts when its gates are met"),
        Way(Phase.DEPLOYING, "the hold is over and the spec asks for another engine"),
        Way(Phase.SPECULATIVE, "the hold is over and a proposer was promoted before"),
        Way(Phase.ROLLED_BACK, "the hold is over and the changed engine stays refused"),
        Way(Phase.ROLLING_BACK, _hard_fault()),
    ]


_WAYS: dict[Phase, Callable[[Observation, DeploymentStatus], list[Way]]] = {
    Phase.DEPLOYING: _from_deploying,
    Phase.BASELINE: _from_baseline,
    Phase.BENCHMARKING: _from_benchmarking,
    Phase.CANARY: _from_canary,
    Phase.SPECULATIVE: _from_speculative,
    Phase.INVESTIGATING: _from_investigating,
    Phase.ROLLING_BACK: _from_rolling_back,
    Phase.ROLLED_BACK: _from_rolled_back,
    Phase.EXHAUSTED: _from_exhausted,
    Phase.HELD: _from_held,
}
