"""Rules about the engine's scheduler and runners: what a method cannot run together with."""

from collections.abc import Iterator

from specfleet.api.speculation import DraftSampling, Method, RejectionSampling
from specfleet.engine.findings import Severity
from specfleet.engine.flags import Flag, find, integer, switched_on
from specfleet.engine.methods import Runner
from specfleet.engine.rules.case import ARGS, ENV, ProposerCase
from specfleet.engine.rules.rule import Hit, Shows, proposer_rule

RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
_ON = Flag("--optimization-level", ("2",))


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="the method drafts from tokens on the CPU and has to wait for them; asked explicitly, vLLM refuses",
    remedy="Remove --async-scheduling (vLLM then switches it off itself), or use ngram_gpu, eagle, mtp or draft_model",
    source="vllm 0.32 source: async scheduling is only supported with EAGLE/MTP/Draft Model/NGram GPU/DSpark",
)
def async_scheduling_unsupported(case: ProposerCase) -> Iterator[Hit]:
    """--async-scheduling with ngram, suffix or medusa."""
    if switched_on(case.flags, "--async-scheduling") and not case.facts.asynchronous:
        yield Hit(ARGS, f"--async-scheduling excludes {case.method}")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="asynchronous scheduling drafts before the lengths are known; asked explicitly, vLLM refuses",
    remedy="Remove --async-scheduling or draft.disablePaddedBatch",
    source="vllm 0.32 source: not compatible with disable_padded_drafter_batch",
)
def async_scheduling_needs_padded_batch(case: ProposerCase) -> Iterator[Hit]:
    """--async-scheduling with draft.disablePaddedBatch."""
    draft = case.proposer.draft
    if draft is not None and draft.disable_padded_batch and switched_on(case.flags, "--async-scheduling"):
        yield Hit(case.at("draft.disablePaddedBatch"), "--async-scheduling needs the padded batch")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="only a head that drafts token by token with its own probabilities keeps the watermark",
    remedy="Use eagle, eagle3, mtp or dspark with draft.sampling probabilistic, or serve without watermarks",
    source="vllm 0.32 source",
)
def watermark_conflict(case: ProposerCase) -> Iterator[Hit]:
    """--watermark-config with a method or sampling that cannot keep it."""
    if find(case.flags, "--watermark-config") is None:
        return
    draft = case.proposer.draft
    probabilistic = draft is not None and draft.sampling is DraftSampling.PROBABILISTIC
    if case.method not in (Method.EAGLE, Method.EAGLE3, Method.MTP, Method.DSPARK):
        yield Hit(case.at("method"), f"{case.method} cannot speculate under a watermark")
    elif not probabilistic or case.proposer.rejection_sampling is RejectionSampling.BLOCK:
        yield Hit(case.path, "a watermark needs draft.sampling probabilistic and rejectionSampling standard")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="the runner that the environment forces does not have the method",
    remedy=f"Remove {RUNNER_VARIABLE} from engine.env",
    source="vllm 0.32 source",
    since="0.18",
)
def wrong_model_runner(case: ProposerCase) -> Iterator[Hit]:
    """The environment forces a model runner that cannot run the method."""
    if case.runner_v2 is None:
        return
    forced = Runner.V2 if case.runner_v2 else Runner.V1
    if case.facts.runner not in (Runner.BOTH, forced):
        yield Hit(ENV, f"{RUNNER_VARIABLE} forces runner {forced}, {case.method} runs on {case.facts.runner} only")
        return
    draft = case.proposer.draft
    if not case.runner_v2 or draft is None:
        return
    for field, value in (
        ("heterogeneousVocabulary", draft.heterogeneous_vocabulary),
        ("parallelDrafting", draft.parallel_drafting),
    ):
        if value:
            yield Hit(case.at(f"draft.{field}"), f"{RUNNER_VARIABLE} forces runner V2, {field} runs on V1 only")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="CPU engines have neither pinned memory nor the V2 runner",
    remedy="Use ngram, suffix, draft_model, eagle, eagle3 or medusa on CPU, or a GPU image",
    source="vllm 0.32 run on CPU (ngram_gpu); vllm 0.32 source (dspark)",
)
def method_needs_gpu(case: ProposerCase) -> Iterator[Hit]:
    """ngram_gpu or dspark on a CPU image."""
    if case.cpu_engine and case.method in (Method.NGRAM_GPU, Method.DSPARK):
        yield Hit(case.at("method"), f"{case.method} does not run on a CPU engine")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="the CPU worker asserts that speculation is off",
    remedy="Use vLLM 0.20 or newer on CPU",
    source="vllm 0.9 to 0.19 source",
    since="0.9",
    last="0.19",
)
def cpu_engine_without_speculation(case: ProposerCase) -> Iterator[Hit]:
    """Speculation on CPU before 0.20."""
    if case.cpu_engine:
        yield Hit(case.at("method"), f"vLLM {case.version} does not speculate on CPU")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="processors would see drafted tokens; the engine refuses to start",
    remedy="Remove the processors, or speculate with plain requests only",
    source="vllm 0.32 source",
)
def logits_processors_unsupported(case: ProposerCase) -> Iterator[Hit]:
    """Custom logits processors with speculation."""
    if find(case.flags, "--logits-processors", "--logits-processor-pattern") is not None:
        yield Hit(ARGS, "custom logits processors exclude speculation")


@proposer_rule(
    Severity.REFUSE,
    Shows.FIRST_REQUEST,
    why="the backend cannot roll back tokens that were drafted and rejected: structured requests fail",
    remedy="Use xgrammar, guidance or outlines",
    source="vllm 0.32 source",
)
def structured_backend_unsupported(case: ProposerCase) -> Iterator[Hit]:
    """lm-format-enforcer with speculation."""
    if case.structured_backend == "lm-format-enforcer":
        yield Hit(ARGS, "the structured output backend lm-format-enforcer excludes speculation")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="the head needs hidden states of every prompt token",
    remedy="Remove --kv-sharing-fast-prefill",
    source="vllm 0.32 source",
)
def fast_prefill_unsupported(case: ProposerCase) -> Iterator[Hit]:
    """--kv-sharing-fast-prefill with an EAGLE-like head."""
    heads = (Method.EAGLE, Method.EAGLE3, Method.MTP, Method.DFLASH, Method.DSPARK)
    if switched_on(case.flags, "--kv-sharing-fast-prefill") and case.method in heads:
        yield Hit(ARGS, f"--kv-sharing-fast-prefill excludes {case.method}")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="a step has to hold the drafted tokens of a request, and with LoRA those of all requests",
    remedy="Raise --max-num-batched-tokens, lower numSpeculativeTokens or, with LoRA, --max-num-seqs",
    source="vllm 0.32 source",
)
def batch_too_small_for_drafts(case: ProposerCase) -> Iterator[Hit]:
    """--max-num-batched-tokens does not hold the drafting slots of a request, or with LoRA the tokens of all."""
    budget, requests = integer(case.flags, "--max-num-batched-tokens"), integer(case.flags, "--max-num-seqs")
    if budget is None or case.tokens is None:
        return
    if budget <= _drafting_slots(case):
        yield Hit(ARGS, f"{case.method} needs more than {_drafting_slots(case)} tokens per step, not {budget}")
    elif case.lora and requests is not None and budget < requests * (case.tokens + 1):
        yield Hit(ARGS, f"with LoRA {requests} requests need {requests * (case.tokens + 1)} tokens, not {budget}")


@proposer_rule(
    Severity.WARN,
    Shows.SILENT,
    why="the V1 runner's sampler knows standard only and takes block for it",
    remedy="Remove rejectionSampling, or run on the V2 runner",
    source="vllm 0.32 source",
    since="0.18",
)
def block_sampling_without_effect(case: ProposerCase) -> Iterator[Hit]:
    """rejectionSampling block where the V1 runner is certain."""
    on_v1 = case.runner_v2 is False or case.cpu_engine or case.facts.runner is Runner.V1
    if case.proposer.rejection_sampling is RejectionSampling.BLOCK and on_v1:
        yield Hit(case.at("rejectionSampling"), "block sampling does nothing on the V1 runner")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="adaptive verification changes the batch's shape, which needs full CUDA graphs on one pipeline stage",
    remedy="Remove dspark.adaptiveVerification, or the setting that excludes it",
    source="vllm 0.32 source",
    since="0.28",
)
def adaptive_verification_conflict(case: ProposerCase) -> Iterator[Hit]:
    """dspark.adaptiveVerification with LoRA, pipeline parallelism or eager mode."""
    if case.proposer.dspark is None or not case.proposer.dspark.adaptive_verification:
        return
    conflicts = {
        "LoRA": case.lora,
        "pipelineParallelSize above 1": case.spec.engine.pipeline_parallel_size > 1,
        "--enforce-eager": switched_on(case.flags, "--enforce-eager"),
    }
    for name, present in conflicts.items():
        if present:
            yield Hit(case.at("dspark.adaptiveVerification"), f"adaptive verification excludes {name}")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="the compiled look-up kernel needs vLLM's compilation, which this setting switches off",
    remedy="Raise the optimisation level, or use ngram",
    source="specfleet (public reports: No compilation mode is set)",
    since="0.18",
)
def ngram_gpu_needs_compilation(case: ProposerCase) -> Iterator[Hit]:
    """ngram_gpu with compilation off."""
    off = find(case.flags, "-O0") is not None or (find(case.flags, "--optimization-level", "-O") or _ON).text == "0"
    if case.method is Method.NGRAM_GPU and off:
        yield Hit(ARGS, "ngram_gpu needs compilation, which optimisation level 0 switches off")


def _drafting_slots(case: ProposerCase) -> int:
    """Extra slots per request beyond its own query token (table in vLLM's SpeculativeConfig)."""
    k, draft = case.tokens or 0, case.proposer.draft
    parallel = draft is not None and bool(draft.parallel_drafting)
    if case.method is Method.DFLASH:
        return k
    if case.method is Method.DSPARK:
        return k - 1
    if case.method is Method.DRAFT_MODEL:
        return k if parallel else 1
    return k - 1 if parallel else 0
