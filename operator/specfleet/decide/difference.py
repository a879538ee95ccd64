"""What a changed spec changed, in words: `engine 0.31.0 -> 0.32.0, draft revision a1b2c3d4 -> c3d4e5f6`."""

from collections.abc import Mapping

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.speculation import Proposer
from specfleet.api.status import DeploymentStatus
from specfleet.decide.observation import Observation
from specfleet.engine.arguments import build_arm
from specfleet.engine.environment import content_hash
from specfleet.engine.fingerprint import describe_difference
from specfleet.engine.redaction import redacted

LONGEST = 400
"""Characters: a volume list alone may be longer than a condition's message."""
SAME_SPEC = "the content of a ConfigMap"
"""All else that the fingerprint of an engine is made of is in the spec."""
HASHED = ("init containers", "--hf-token")
"""Told by their hash: they may hold credentials, and Events and alerts go further than the spec."""


def engine_in_words(obs: Observation, status: DeploymentStatus) -> str:
    """From the engine that serves to the one that the spec asks for now; "" where the earlier spec is not kept."""
    earlier = _earlier(obs, status)
    return _words(earlier, None, obs.spec, None) or SAME_SPEC if earlier is not None else ""


def proposer_in_words(obs: Observation, status: DeploymentStatus) -> str:
    """From the promoted proposer to the one of its method that the spec has now; "" where there is no such pair."""
    earlier, stable = _earlier(obs, status), status.stable
    if earlier is None or stable is None or stable.speculative is None:
        return ""
    before = earlier.speculation.proposers() if earlier.speculation else ()
    promoted = [one for one in before if build_arm(earlier, one).fingerprint == stable.speculative]
    old = promoted or (before if len(before) == 1 else ())
    after = [one.proposer for one in obs.proposers if old and one.proposer and one.proposer.method is old[0].method]
    return _words(earlier, old[0], obs.spec, after[0]) if old and len(after) == 1 else ""


def _earlier(obs: Observation, status: DeploymentStatus) -> DeploymentSpec | None:
    return obs.revisions.get(status.stable.name) if status.stable is not None else None


def _words(earlier: DeploymentSpec, old: Proposer | None, spec: DeploymentSpec, new: Proposer | None) -> str:
    """Without the content of ConfigMaps, which nobody has kept of the earlier one."""
    before, after = build_arm(earlier, old), build_arm(spec, new)
    text = redacted(describe_difference(_told(before.fingerprint_inputs), _told(after.fingerprint_inputs)))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def _told(inputs: Mapping[str, str]) -> dict[str, str]:
    return {name: content_hash(value)[:8] if name in HASHED else value for name, value in inputs.items()}
