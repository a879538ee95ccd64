"""How many pods each serving arm should have in a phase. exchange() keeps within the room."""

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.operation import Control
from specfleet.api.status import DeploymentStatus, Phase, RevisionStatus
from specfleet.decide.exchange import Room
from specfleet.decide.faults import no_room
from specfleet.decide.observation import Observation
from specfleet.decide.stranded import rescue

CONTROL_SHARE = 1 / 8
"""Share of pods that stay plain after promotion (at least one): +12 % of the GPUs of 8 replicas (design, room)."""
ATTRIBUTION_SHARE = 1 / 2
"""Share of plain pods while a suspicion is attributed: a small control is slow (135 min at 5 %, 29 at 50 %)."""


def control_replicas(spec: DeploymentSpec) -> int:
    """Plain pods that keep serving after promotion."""
    if spec.control is not Control.CONCURRENT or spec.replicas < 2:
        return 0
    return max(1, round(spec.replicas * CONTROL_SHARE))


def promoted(spec: DeploymentSpec, stable: RevisionStatus, control: int) -> dict[str, int]:
    """The promoted split with so many plain pods."""
    if stable.speculative is None:
        return {stable.baseline: spec.replicas}
    return {stable.baseline: control, stable.speculative: spec.replicas - control}


def attributing(spec: DeploymentSpec, stable: RevisionStatus) -> dict[str, int]:
    """The split with a raised control, so that a suspicion can be attributed at matched load."""
    if stable.speculative is None:
        return {stable.baseline: spec.replicas}
    if spec.replicas >= 2:
        control = max(1, round(spec.replicas * ATTRIBUTION_SHARE))
        return {stable.baseline: control, stable.speculative: spec.replicas - control}
    borrowed = min(1, spec.capacity.max_extra_replicas)
    return {stable.baseline: borrowed, stable.speculative: spec.replicas}


def can_attribute(spec: DeploymentSpec) -> bool:
    """Whether a plain pod can serve beside the speculative ones at all."""
    return spec.replicas >= 2 or spec.capacity.max_extra_replicas >= 1


def canary(spec: DeploymentSpec, stable: RevisionStatus, candidate: str, step: int) -> dict[str, int]:
    """A canary step: weight and pods together. With one replica the extra pod makes it one against one.

    A changed engine beside a promoted arm is compared with the plain pods of the old one (plain against speculative
    would refuse every engine), so some of those serve during its trial.
    """
    total = spec.replicas
    weight_percent = spec.rollout.steps[spec.rollout.step_index(step)].weight_percent
    pods = min(max(1, round(total * weight_percent / 100)), max(1, total - 1))
    rest = total - pods if total > 1 else min(1, spec.capacity.max_extra_replicas)
    if stable.speculative is None:
        return {stable.baseline: rest, candidate: pods}
    plain = min(rest, max(1, round(total * CONTROL_SHARE)))
    return {stable.baseline: plain, stable.speculative: rest - plain, candidate: pods}


def target(obs: Observation, status: DeploymentStatus) -> dict[str, int]:
    """Pods per fingerprint that the phase asks for."""
    spec, stable = obs.spec, status.stable
    if stable is None:
        return {} if obs.baseline.refusals else {obs.baseline.fingerprint: spec.replicas}
    if rescue(obs, status):
        return _rescuing(obs, status)
    if status.phase is Phase.CANARY and status.candidate is not None and status.step is not None:
        return canary(spec, stable, status.candidate, status.step)
    investigation = status.investigation
    if status.phase is Phase.INVESTIGATING and investigation is not None and investigation.stage == "Attribute":
        return attributing(spec, stable)
    return promoted(spec, stable, control_replicas(spec))


def _rescuing(obs: Observation, status: DeploymentStatus) -> dict[str, int]:
    """What answers stays; the rest is for the changed engine, or in Deploying for the pods that may yet come up.

    Pods that only die must not hold the room that the changed engine needs.
    """
    assert status.stable is not None
    grows = status.candidate if status.phase is Phase.CANARY and status.candidate else status.stable.baseline
    kept = {arm.fingerprint: len(arm.serving) for arm in obs.arms if arm.serving and arm.fingerprint != grows}
    least = 1 if status.phase is Phase.CANARY else 0
    return {**kept, grows: max(least, obs.spec.replicas - sum(kept.values()))}


def room(obs: Observation) -> Room:
    """What exchange() may use: benchmark pods that still exist are taken off the extra ones.

    Where the cluster has no place for a declared extra pod, serving pods make room for each other down to
    maxUnavailable, but the last one that answers stays: a slower answer is better than none.
    """
    replicas, declared = obs.spec.replicas, obs.spec.capacity.max_extra_replicas
    used = sum(max(arm.replicas, arm.occupying) for arm in obs.bench)
    full = any(no_room(arm, obs.now) is not None for arm in obs.arms)
    lowest = max(0, replicas - obs.spec.rollout.max_unavailable)
    left = declared - used
    if declared == 0:
        return Room(replicas=replicas, extra=left, floor=lowest)
    if full:
        return Room(replicas=replicas, extra=min(0, left), floor=max(1, lowest))
    return Room(replicas=replicas, extra=left, floor=replicas)
