"""All rules in the order in which they are reported, and how a spec is run through them."""

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.speculation import Proposer
from specfleet.engine.findings import Finding

RULES: tuple[object, ...] = ()


def check(spec: DeploymentSpec) -> tuple[Finding, ...]:
    """Everything the rules say about the spec and all of its proposers, each finding once."""
    proposers = spec.speculation.proposers() if spec.speculation else ()
    found = [*_check_spec(spec), *(one for proposer in proposers for one in check_proposer(spec, proposer))]
    return tuple(dict.fromkeys(found))


def check_proposer(spec: DeploymentSpec, proposer: Proposer) -> tuple[Finding, ...]:
    """What the rules say about one proposer of the spec; without the rules that hold for both arms."""
    return ()


def _check_spec(spec: DeploymentSpec) -> tuple[Finding, ...]:
    return ()
