"""SpeculativeBenchmark objects: immutable evidence."""

from specfleet.api import labels, names
from specfleet.api.base import API_VERSION, RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.evidence import KIND, BenchmarkEvidenceSpec
from specfleet.resources.metadata import child


def speculative_benchmark(owner: SpeculativeDeployment, evidence: BenchmarkEvidenceSpec) -> RawObject:
    """One evidence object; its name is that of the unit, so that recording twice is recording once."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": child(
            owner,
            names.unit(owner.name, evidence.benchmark, evidence.unit),
            {labels.BENCHMARK: evidence.benchmark},
        ),
        "spec": evidence.to_wire(),
    }
