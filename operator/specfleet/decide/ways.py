"""Where each phase can go, in words: what would change the present state. Tests hold that the lists are complete."""

from collections.abc import Mapping
from dataclasses import dataclass

from specfleet.api.status import DeploymentStatus, Phase
from specfleet.decide.faults import CRASHED_SHARE, RECENT_SECONDS, UNSCHEDULABLE_SECONDS
from specfleet.decide.gates import fruitless_seconds
from specfleet.decide.observation import Observation
from specfleet.decide.stranded import rescue


@dataclass(frozen=True, slots=True)
class Way:
    """A phase that may follow, and when it does."""

    to: Phase
    when: str


def ways(obs: Observation, status: DeploymentStatus) -> tuple[Way, ...]:
    """Phases that may follow this one without a person and without a changed spec, likeliest first."""
    if status.phase is Phase.DEPLOYING and status.stable is None:
        return (Way(Phase.BASELINE, f"all {obs.spec.replicas} plain pods have answered a completion"),)
    if status.phase is Phase.CANARY:
        return _from_canary(obs, status)
    return _WAYS[status.phase]


def _from_canary(obs: Observation, status: DeploymentStatus) -> tuple[Way, ...]:
    rollout = obs.spec.rollout
    step, last = rollout.step_index(status.step), len(rollout.steps) - 1
    following = Way(Phase.CANARY, f"all gates are met: step {step + 2} of {last + 1}")
    if step == last and status.candidate == obs.baseline.fingerprint:
        following = Way(Phase.BASELINE, "all gates are met: the changed engine serves")
    elif rescue(obs, status):
        following = Way(Phase.BASELINE, "nothing else answers: the changed engine takes over with its first pod")
    elif step == last:
        following = Way(Phase.SPECULATIVE, "all gates are met: promoted")
    hours = max(0.0, rollout.no_traffic_timeout_seconds - fruitless_seconds(obs, status)) / 3600
    said = f"no Pass within another {hours:.1f} h, no room, or requests that only speculation refuses"
    beside = status.stable is not None and status.stable.speculative is not None
    return (
        following,
        Way(Phase.ROLLING_BACK, f"the comparison says Fail, a hard finding is confirmed, or: {_HARD_FAULT}"),
        Way(Phase.HELD, said),
        *(_GUARDED[1:] if beside else ()),
    )


_HARD_FAULT = (
    f"crashes within {RECENT_SECONDS / 60:.0f} min or exhausted memory in {100 * CRASHED_SHARE:.0f} % of its pods, "
    "or no pod that answers, while the plain arm is well"
)
_GUARDED = (
    Way(Phase.ROLLING_BACK, f"it is slower than plain for sure, a hard finding is confirmed, or: {_HARD_FAULT}"),
    Way(Phase.INVESTIGATING, "a pod of what is promoted hangs or ends again and again, or a finding is confirmed"),
)
"""While something else is waited for, what is promoted is guarded (phases/speculative.guard_beside_trial)."""
_WAYS: Mapping[Phase, tuple[Way, ...]] = {
    Phase.DEPLOYING: (
        Way(Phase.CANARY, "one pod of the changed model or engine has answered a completion"),
        Way(Phase.HELD, f"the scheduler has had no place for it for {UNSCHEDULABLE_SECONDS:.0f} s"),
        Way(Phase.SPECULATIVE, "it does not start: it is refused, and what was promoted goes on"),
        Way(Phase.ROLLED_BACK, "it does not start: it is refused, and what serves goes on"),
        Way(Phase.BASELINE, "the spec asks for the arm that serves"),
        *_GUARDED,
    ),
    Phase.BASELINE: (
        Way(Phase.BENCHMARKING, "all gates are met and a candidate has not been measured"),
        Way(Phase.CANARY, "all gates are met and a candidate has passed"),
        Way(Phase.EXHAUSTED, "the attempts of this revision are used up"),
        Way(Phase.HELD, "no extra pod is allowed"),
    ),
    Phase.BENCHMARKING: (
        Way(Phase.BASELINE, "there is a verdict: Pass goes on to the canary, anything else tries what is left"),
        Way(Phase.HELD, "there is no room, the plain pod fails, or nothing could be measured"),
    ),
    Phase.SPECULATIVE: (
        Way(Phase.INVESTIGATING, "a finding is confirmed and the gates are met"),
        _GUARDED[0],
    ),
    Phase.INVESTIGATING: (
        Way(Phase.SPECULATIVE, "the plain arm degrades too, the finding is gone, a restart heals it, or it gains"),
        Way(Phase.ROLLING_BACK, f"it is speculation and a remedy of the ladder says Fail, or: {_HARD_FAULT}"),
        Way(Phase.DEPLOYING, "it is over and the spec asks for another engine"),
    ),
    Phase.ROLLING_BACK: (
        Way(Phase.ROLLED_BACK, "the stable arm carries all traffic"),
        Way(Phase.EXHAUSTED, "the stable arm carries all traffic and no attempt is left"),
        Way(Phase.DEPLOYING, "the stable arm carries all traffic and the spec asks for another engine"),
        Way(Phase.SPECULATIVE, "the trial of a changed engine ended and what was promoted serves again"),
        Way(Phase.BASELINE, "the stable arm carries all traffic and the spec has changed"),
    ),
    Phase.ROLLED_BACK: (
        Way(Phase.BASELINE, "the back-off is over: measured again from the start"),
        Way(Phase.DEPLOYING, "the back-off is over and the spec asks for another engine"),
        Way(Phase.EXHAUSTED, "no attempt is left"),
    ),
    Phase.EXHAUSTED: (),
    Phase.HELD: (
        Way(Phase.BASELINE, "the hold is over: the next trial starts when its gates are met"),
        Way(Phase.DEPLOYING, "the hold is over and the spec asks for another engine"),
        Way(Phase.SPECULATIVE, "the hold is over and a proposer was promoted before"),
        Way(Phase.ROLLED_BACK, "the hold is over and the changed engine stays refused"),
        *_GUARDED,
    ),
}
"""What may follow wherever that depends on the phase alone."""
