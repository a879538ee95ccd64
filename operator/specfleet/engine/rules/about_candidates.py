"""Rules about the list of candidates."""

from collections.abc import Iterator

from specfleet.engine.findings import Severity
from specfleet.engine.rules.case import Case, proposer_path
from specfleet.engine.rules.rule import Hit, Shows, spec_rule
from specfleet.engine.speculative import config_text, proposer_label, speculative_config

_AFFORDABLE = 8


@spec_rule(
    Severity.REFUSE,
    Shows.OPERATION,
    why="the same engine would be benchmarked twice",
    remedy="Remove one of them",
    source="specfleet",
)
def candidate_repeated(case: Case) -> Iterator[Hit]:
    """Two candidates that render to the same configuration."""
    seen: dict[str, str] = {}
    for proposer in case.spec.speculation.proposers() if case.spec.speculation else ():
        text, path = config_text(speculative_config(proposer)), proposer_path(case.spec, proposer)
        if text in seen:
            yield Hit(path, f"{proposer_label(proposer)} is the same as {seen[text]}")
        seen.setdefault(text, path)


@spec_rule(
    Severity.WARN,
    Shows.OPERATION,
    why="every candidate costs a whole benchmark, and choosing among many inflates the winner's gain",
    remedy="Narrow numSpeculativeTokensRange or the list of candidates",
    source="specfleet",
)
def many_candidates(case: Case) -> Iterator[Hit]:
    """More candidates than a benchmark budget usually affords."""
    count = len(case.spec.speculation.proposers()) if case.spec.speculation else 0
    if count > _AFFORDABLE:
        yield Hit("spec.speculation", f"{count} candidates are benchmarked one after another")
