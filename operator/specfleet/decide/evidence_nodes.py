"""On which nodes the arms were measured, and whether a difference between nodes could look like a gain."""

from collections.abc import Sequence

from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import ArmRole
from specfleet.decide.units import pairs_of


def nodes_by_pair(evidence: Sequence[BenchmarkEvidenceSpec]) -> dict[int, dict[ArmRole, str]]:
    """Node of each arm by pair, as far as it was recorded; halves of a pair are joined by its index."""
    found: dict[int, dict[ArmRole, str]] = {}
    for one in pairs_of(evidence):
        found.setdefault(one.pair, {}).update(one.nodes)
    return {pair: nodes for pair, nodes in sorted(found.items()) if nodes}


def node_warning(evidence: Sequence[BenchmarkEvidenceSpec]) -> str | None:
    """That a difference between nodes counts as one between the arms: no node has measured both. None: one has, or it
    is not known where all pairs ran."""
    found = nodes_by_pair(evidence)
    known = [nodes for nodes in found.values() if len(nodes) == len(ArmRole)]
    if not known or len(known) < len({one.pair for one in pairs_of(evidence)}):
        return None
    plain, drafted = ({nodes[role] for nodes in known} for role in (ArmRole.BASELINE, ArmRole.SPECULATIVE))
    if plain & drafted:
        return None
    return (
        f"in all {len(known)} pairs the plain arm was on {', '.join(sorted(plain))} and the speculative one on "
        f"{', '.join(sorted(drafted))}: a difference between these nodes counts as one between the arms"
    )
