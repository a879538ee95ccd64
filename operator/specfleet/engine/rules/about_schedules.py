"""Rules about tokensPerBatchSize (`num_speculative_tokens_per_batch_size`, vLLM 0.24+)."""

from collections.abc import Iterator
from itertools import pairwise

from specfleet.engine.findings import Severity
from specfleet.engine.rules.case import ProposerCase
from specfleet.engine.rules.rule import Hit, Shows, proposer_rule

_FIELD = "tokensPerBatchSize"


@proposer_rule(
    Severity.REFUSE,
    Shows.FIRST_REQUEST,
    why="the engine becomes ready and then dies of an assertion at the first request",
    remedy="Remove tokensPerBatchSize, or use ngram, draft_model, eagle, eagle3 or mtp",
    source="vllm 0.32 run (medusa); vllm 0.32 source (suffix, ngram_gpu)",
    since="0.24",
)
def schedule_kills_engine(case: ProposerCase) -> Iterator[Hit]:
    """A schedule with a method whose proposer cannot change k."""
    if case.proposer.tokens_per_batch_size and case.facts.schedule is False:
        yield Hit(case.at(_FIELD), f"{case.method} cannot change k per batch size: the engine dies")


@proposer_rule(
    Severity.WARN,
    Shows.FIRST_REQUEST,
    why="nobody has been seen to run the combination",
    remedy="Expect the benchmark to fail it, or remove tokensPerBatchSize",
    source="specfleet",
    since="0.24",
)
def schedule_untried(case: ProposerCase) -> Iterator[Hit]:
    """A schedule with a method for which it is not known to work."""
    if case.proposer.tokens_per_batch_size and case.facts.schedule is None:
        yield Hit(case.at(_FIELD), f"tokensPerBatchSize with {case.method} is not known to work")


@proposer_rule(
    Severity.REFUSE,
    Shows.SILENT,
    why="vLLM drops the schedule with a warning in the log: k stays constant",
    remedy="Remove tokensPerBatchSize, or set engine.dataParallelSize to 1 and raise replicas instead",
    source="vllm 0.32 source; vllm#32374",
    since="0.24",
)
def schedule_ignored_with_data_parallel(case: ProposerCase) -> Iterator[Hit]:
    """A schedule with data parallel ranks."""
    ranks = case.spec.engine.data_parallel_size
    if case.proposer.tokens_per_batch_size and ranks > 1:
        yield Hit(case.at(_FIELD), f"ignored by vLLM because engine.dataParallelSize is {ranks}")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="vLLM refuses ranges that overlap",
    remedy="Let each range start after the one below it ends",
    source="vllm 0.32 source; vllm#32374",
)
def schedule_ranges_overlap(case: ProposerCase) -> Iterator[Hit]:
    """Ranges that overlap, in whatever order they are written."""
    written = enumerate(case.proposer.tokens_per_batch_size or [])
    for (_, one), (index, two) in pairwise(sorted(written, key=lambda entry: entry[1].min_batch_size)):
        if two.min_batch_size <= one.max_batch_size:
            message = f"starts at {two.min_batch_size}, but another range ends at {one.max_batch_size}"
            yield Hit(case.at(f"{_FIELD}[{index}].minBatchSize"), message)


@proposer_rule(
    Severity.WARN,
    Shows.LOAD,
    why="throughput has been seen to collapse where the batch size crosses an edge of the schedule",
    remedy="Benchmark with a tier at each edge of the schedule",
    source="vllm#49548",
    since="0.24",
)
def schedule_may_collapse_throughput(case: ProposerCase) -> Iterator[Hit]:
    """Any schedule with more than one entry."""
    if len(case.proposer.tokens_per_batch_size or []) > 1 and case.facts.schedule is not False:
        yield Hit(case.at(_FIELD), "throughput may collapse where k changes")
