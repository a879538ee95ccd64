"""`kubectl specfleet verify`: recomputes a verdict from the stored runs and compares it with the recorded one."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.status import Verdict
from specfleet.cli.exit_codes import OK, REFUSED, UNUSABLE_INPUT
from specfleet.cli.help_text import HelpFormatter, examples
from specfleet.cli.stored import (
    StoredBenchmark,
    UnusableInputError,
    add_source,
    benchmarks,
    cluster_flags,
    read_objects,
    where,
)
from specfleet.decide.evidence import BenchmarkVerdict, criteria
from specfleet.decide.measure import NAMES_KEPT
from specfleet.decide.three_way import rule_of


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A verdict again, and whether it is the recorded one (None: nothing was recorded to compare with)."""

    verdict: BenchmarkVerdict
    agrees: bool | None
    difference: str = ""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command."""
    command = subparsers.add_parser(
        "verify",
        help="recompute the verdict of a benchmark from its stored evidence",
        description="Recompute the verdict of a benchmark from its stored evidence (SpeculativeBenchmark objects) and "
        "compare it with the decision in the deployment's status. Exit code 1 when they disagree.",
        epilog=examples("verify llama -n ml", "verify -f evidence.yaml")
        + "\n  kubectl get sd,sb -n ml -o yaml | kubectl specfleet verify -f -",
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument(
        "benchmark", nargs="?", help="benchmark id, SpeculativeBenchmark or SpeculativeDeployment; default: all"
    )
    add_source(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Exit code: OK, REFUSED when a verdict disagrees, UNUSABLE_INPUT."""
    try:
        found = chosen(
            benchmarks(read_objects(options.filename, options.namespace, cluster_flags(options))), options.benchmark
        )
    except (UnusableInputError, OSError) as error:
        print(f"kubectl specfleet verify: {error}", file=sys.stderr)
        return UNUSABLE_INPUT
    if not found:
        place = where(options.filename, options.namespace)
        print(
            f"kubectl specfleet verify: no evidence of {options.benchmark or 'any benchmark'} in {place}",
            file=sys.stderr,
        )
        return UNUSABLE_INPUT
    agrees = True
    for one in found:
        result = recompute(one)
        agrees = agrees and result.agrees is not False
        _show(one, result)
    return OK if agrees else REFUSED


def chosen(stored: Sequence[StoredBenchmark], name: str | None) -> list[StoredBenchmark]:
    """Those that a name means: a benchmark id, one of its objects, or a deployment."""
    measured = [one for one in stored if one.measured]
    return [one for one in measured if name is None or name in (one.benchmark, one.deployment.name, *one.names)]


def recompute(stored: StoredBenchmark) -> Recomputed:
    """Judge the stored runs again. Where the record says that the budget had ended, so must the judgement."""
    rule = rule_of(stored.purpose)
    spec, record = stored.deployment.spec, stored.decision
    evidence = stored.measured
    if record is not None and len(record.evidence) < NAMES_KEPT:
        evidence = tuple(
            one for one in evidence if any(name.endswith(f"-{one.benchmark}-{one.unit}") for name in record.evidence)
        )
    verdict = rule(spec, evidence, False)
    if verdict.need_more:
        verdict = rule(spec, evidence, True)
    if record is None or record.verdict is None:
        return Recomputed(verdict, None)
    if record.verdict is verdict.verdict and record.reason == verdict.reason:
        return Recomputed(verdict, True)
    recorded = f"recorded {record.verdict.value} {record.reason}: {record.message}"
    if stored.evidence[-1].candidate not in _fingerprints(spec):
        # Margins and matrix may have changed with the engine: another verdict proves nothing then.
        return Recomputed(verdict, None, f"{recorded}; the present spec is not the one that was judged")
    measured_by = {one.criteria for one in evidence} - {None}
    if measured_by and measured_by != {criteria(spec)}:
        said = "spec.guardrails or spec.benchmark (matrix, pairs, looks, objective) has changed since then"
        return Recomputed(verdict, None, f"{recorded}; {said}, and by what they say now the same runs mean this")
    return Recomputed(verdict, False, recorded)


def _fingerprints(spec: DeploymentSpec) -> set[str]:
    """Requested fingerprints of the spec's arms, as far as they do not depend on ConfigMaps."""
    from specfleet.engine.arguments import build_arm

    proposers = spec.speculation.proposers() if spec.speculation else ()
    return {build_arm(spec, one).fingerprint for one in (None, *proposers)}


def _show(stored: StoredBenchmark, result: Recomputed) -> None:
    verdict = result.verdict
    mark = {True: "agrees", False: "DISAGREES", None: "cannot be compared"}[result.agrees]
    if result.agrees is None and not result.difference:
        mark = "nothing recorded to compare with"
    print(f"{stored.deployment.name} {stored.benchmark} ({stored.purpose}, {stored.evidence[-1].proposer}): {mark}")
    print(f"  recomputed {verdict.verdict.value} {verdict.reason}: {verdict.message}")
    if result.difference:
        print(f"  {result.difference}")
    for cell in verdict.cells:
        interval = ""
        if cell.gain_ratio is not None and cell.lower is not None and cell.upper is not None:
            interval = f"{cell.gain_ratio:+.1%} [{cell.lower:+.1%}, {cell.upper:+.1%}]"
        print(f"    {cell.tier}/{cell.slice}: {cell.verdict.value} {interval} {cell.reason or ''}".rstrip())
    for guard in verdict.guards:
        if guard.verdict is not Verdict.PASS:
            print(f"    guard {guard.name}: {guard.verdict.value} {guard.message}")
