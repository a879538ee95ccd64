"""Nothing that is stable answers any more, and a changed engine could: the users come before the comparison."""

from specfleet.api.status import DeploymentStatus, Phase
from specfleet.decide.faults import Fault, crash_fault, loop_fault, no_room, start_fault
from specfleet.decide.observation import ArmView, Observation

NOTHING_ELSE_SERVES = "NothingElseServes"
"""Reason of a trial that compares with nothing, and of the adoption that ends it. It stays until the trial is over:
pods that only die are taken away, and nothing would show any more that they died."""


def stranded(obs: Observation, status: DeploymentStatus) -> Fault | None:
    """Why no pod of the stable arms answers and none will by itself, while the spec asks for another engine."""
    stable = status.stable
    if stable is None or stable.baseline == obs.baseline.fingerprint:
        return None
    arms = [arm for arm in _stable(obs, status) if arm.replicas > 0]
    faults = [_fault(obs, arm) for arm in arms if not arm.serving]
    return faults[0] if faults and len(faults) == len(arms) and None not in faults else None


def rescue(obs: Observation, status: DeploymentStatus) -> bool:
    """Whether the trial in flight is a rescue and still no stable pod answers."""
    begun = status.phase in (Phase.DEPLOYING, Phase.CANARY) and status.phase_reason == NOTHING_ELSE_SERVES
    return begun and not any(arm.serving for arm in _stable(obs, status))


def _stable(obs: Observation, status: DeploymentStatus) -> list[ArmView]:
    names = () if status.stable is None else (status.stable.baseline, status.stable.speculative)
    return [arm for arm in obs.arms if arm.fingerprint in names]


def _fault(obs: Observation, arm: ArmView) -> Fault | None:
    looping = loop_fault(arm, obs.now)
    if looping is not None or crash_fault(arm, obs.now) is not None:
        return looping
    timeout = obs.spec.engine.startup_timeout_seconds
    # A node that the autoscaler brings, or that is upgraded, takes minutes: a pod without one is not lost before that.
    return start_fault(arm, obs.now, timeout) or no_room(arm, obs.now, timeout)
