"""Rules about tensor, pipeline and data parallelism of target and draft."""

from collections.abc import Iterator

from specfleet.api.speculation import Method
from specfleet.engine.findings import Severity
from specfleet.engine.flags import find, switched_on
from specfleet.engine.rules.case import ARGS, Case, ProposerCase
from specfleet.engine.rules.rule import Hit, Shows, proposer_rule, spec_rule

_DRAFT_SIZE = "draft.tensorParallelSize"


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="vLLM takes 1 or the target's size only",
    remedy="Set 1 or engine.tensorParallelSize, or leave it out (then it is the target's)",
    source="vllm 0.32 source",
)
def draft_parallel_size_invalid(case: ProposerCase) -> Iterator[Hit]:
    """draft.tensorParallelSize is neither 1 nor the target's."""
    draft, size = case.proposer.draft, case.spec.engine.tensor_parallel_size
    if draft is None or draft.tensor_parallel_size in (None, 1, size):
        return
    yield Hit(case.at(_DRAFT_SIZE), f"{draft.tensor_parallel_size} is neither 1 nor the target's {size}")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="the proposer for draft models shares the target's process group on the V1 runner",
    remedy="Leave draft.tensorParallelSize out",
    source="vllm 0.32 source",
    since="0.15",
)
def draft_model_parallel_size_differs(case: ProposerCase) -> Iterator[Hit]:
    """draft_model with a smaller draft group."""
    draft, size = case.proposer.draft, case.spec.engine.tensor_parallel_size
    if draft is None or case.method is not Method.DRAFT_MODEL or case.runner_v2:
        return
    if draft.tensor_parallel_size == 1 and size > 1:
        yield Hit(case.at(_DRAFT_SIZE), f"draft_model needs the target's size {size} on the V1 runner")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="the candidate list is not gathered across ranks",
    remedy="Set draft.tensorParallelSize to 1, or remove dspark.draftTopk",
    source="vllm 0.32 source",
    since="0.28",
)
def draft_topk_needs_one_rank(case: ProposerCase) -> Iterator[Hit]:
    """dspark.draftTopk with a draft on several ranks."""
    if case.proposer.dspark is None or case.proposer.dspark.draft_topk is None:
        return
    draft = case.proposer.draft
    size = (draft.tensor_parallel_size if draft else None) or case.spec.engine.tensor_parallel_size
    if size > 1:
        yield Hit(case.at("dspark.draftTopk"), f"draftTopk needs a draft on one rank, not on {size}")


@proposer_rule(
    Severity.REFUSE,
    Shows.LOAD,
    why="the method crashes, or vLLM refuses the combination, on a pipeline of several stages",
    remedy="Set engine.pipelineParallelSize to 1 and raise engine.tensorParallelSize",
    source="vllm#57817",
)
def pipeline_unsupported(case: ProposerCase) -> Iterator[Hit]:
    """ngram_gpu with pipeline parallelism."""
    if case.spec.engine.pipeline_parallel_size > 1 and case.facts.pipeline is False:
        yield Hit("spec.engine.pipelineParallelSize", f"{case.method} does not run on several pipeline stages")


@proposer_rule(
    Severity.WARN,
    Shows.LOAD,
    why="open reports of broken drafts on a pipeline of several stages",
    remedy="Prefer tensor parallelism; set guardrails.minAgreementRatio so that wrong output is found",
    source="vllm#49355",
)
def pipeline_doubtful(case: ProposerCase) -> Iterator[Hit]:
    """mtp, dflash or dspark with pipeline parallelism."""
    if case.spec.engine.pipeline_parallel_size > 1 and case.facts.pipeline is None:
        yield Hit("spec.engine.pipelineParallelSize", f"{case.method} on several pipeline stages is reported broken")


@proposer_rule(
    Severity.REFUSE,
    Shows.LOAD,
    why="wrong output has been reported for speculation on a pipeline without asynchronous scheduling",
    remedy="Remove --no-async-scheduling, or set engine.pipelineParallelSize to 1",
    source="vllm#52071",
)
def pipeline_without_async_scheduling(case: ProposerCase) -> Iterator[Hit]:
    """Speculation, pipeline parallelism and --no-async-scheduling."""
    forced_off = find(case.flags, "--no-async-scheduling") is not None
    if case.spec.engine.pipeline_parallel_size > 1 and forced_off:
        yield Hit(ARGS, "--no-async-scheduling with several pipeline stages gives wrong output under speculation")


@spec_rule(
    Severity.REFUSE,
    Shows.START,
    why="structured output breaks on several stages of the V1 runner with asynchronous scheduling, so vLLM refuses it",
    remedy="Remove --async-scheduling, or leave the runner to vLLM",
    source="vllm#45014",
)
def pipeline_with_async_scheduling_on_v1(case: Case) -> Iterator[Hit]:
    """Pipeline parallelism and --async-scheduling on the V1 runner, in either arm."""
    asked = switched_on(case.flags, "--async-scheduling")
    if case.spec.engine.pipeline_parallel_size > 1 and asked and case.runner_v2 is False:
        yield Hit(ARGS, "--async-scheduling with several pipeline stages is refused by the V1 runner")


@proposer_rule(
    Severity.WARN,
    Shows.LOAD,
    why="engines have been reported to hang near the context limit with data parallel ranks and a drafting head",
    remedy="Prefer engine.dataParallelSize 1 and more replicas",
    source="vllm#44185",
)
def data_parallel_may_hang(case: ProposerCase) -> Iterator[Hit]:
    """A drafting head with data parallelism."""
    if case.spec.engine.data_parallel_size > 1 and case.method in (Method.MTP, Method.EAGLE, Method.EAGLE3):
        yield Hit("spec.engine.dataParallelSize", f"{case.method} with data parallel ranks may hang near maxModelLen")
