"""spec.speculation: the proposer, typed per method, or candidates of which the benchmark picks one."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from specfleet.api.base import ApiModel, cel, validations
from specfleet.api.model import Name, Raw


class Method(StrEnum):
    """Proposers of vLLM (`--speculative-config` key `method`)."""

    NGRAM = "ngram"
    NGRAM_GPU = "ngram_gpu"
    SUFFIX = "suffix"
    DRAFT_MODEL = "draft_model"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MTP = "mtp"
    MEDUSA = "medusa"
    DFLASH = "dflash"
    DSPARK = "dspark"


DRAFT_REQUIRED = (Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3, Method.MEDUSA, Method.DFLASH)


class RejectionSampling(StrEnum):
    """Lossless rejection samplers of vLLM; `synthetic` and `fly` change the output and are refused."""

    STANDARD = "standard"
    BLOCK = "block"


class DraftSampling(StrEnum):
    """How the draft picks its tokens (`draft_sample_method`, vLLM 0.21+)."""

    GREEDY = "greedy"
    PROBABILISTIC = "probabilistic"


class DraftSpec(ApiModel):
    """The draft model or head, and how it is loaded."""

    model: Name = Field(description="Hugging Face repository or absolute path of the draft.")
    revision: Name | None = Field(None, description="Revision of the draft's weights. Pin a commit.")
    code_revision: Name | None = Field(None, description="Revision of the draft's code on the hub.")
    quantization: Name | None = Field(None, description="Quantisation of the draft, when it differs from the target.")
    tensor_parallel_size: int | None = Field(
        None, ge=1, description="1 or the target's size (`draft_tensor_parallel_size`)."
    )
    max_model_len: int | None = Field(
        None, ge=1, description="Context length of the draft; below the target's it silently stops helping."
    )
    load_config: Raw | None = Field(None, description="`draft_load_config` (vLLM 0.17+).")
    attention_backend: Name | None = Field(None, description="Attention backend of the draft (vLLM 0.21+).")
    kv_cache_dtype: Name | None = Field(None, description="KV-cache type of the draft (vLLM 0.26+).")
    moe_backend: Name | None = Field(None, description="MoE backend of the draft (vLLM 0.19+).")
    enforce_eager: bool | None = Field(None, description="Run the draft without graphs.")
    sampling: DraftSampling | None = Field(None, description="`draft_sample_method` (vLLM 0.21+).")
    parallel_drafting: bool | None = Field(None, description="Draft all positions in one pass (vLLM 0.16+).")
    heterogeneous_vocabulary: bool | None = Field(
        None, description="Allow a draft with another vocabulary (vLLM 0.25+, greedy only)."
    )
    disable_padded_batch: bool | None = Field(None, description="`disable_padded_drafter_batch` (vLLM 0.11+).")
    local_argmax_reduction: bool | None = Field(None, description="`use_local_argmax_reduction` (vLLM 0.17+).")
    disable_eagle_block_drop: bool | None = Field(None, description="`disable_eagle_block_drop` (vLLM 0.30+).")


class NgramSpec(ApiModel):
    """Prompt look-up (methods ngram and ngram_gpu)."""

    prompt_lookup_min: int | None = Field(None, ge=1, description="Shortest n-gram that is looked up.")
    prompt_lookup_max: int | None = Field(None, ge=1, description="Longest n-gram that is looked up.")


class SuffixSpec(ApiModel):
    """Suffix decoding (method suffix, vLLM 0.11.2+, needs arctic-inference in the image)."""

    max_tree_depth: int | None = Field(None, ge=1, description="`suffix_decoding_max_tree_depth`.")
    max_cached_requests: int | None = Field(None, ge=0, description="`suffix_decoding_max_cached_requests`.")
    max_spec_factor: float | None = Field(None, gt=0, description="`suffix_decoding_max_spec_factor`.")
    min_token_probability: float | None = Field(None, ge=0, le=1, description="`suffix_decoding_min_token_prob`.")


class DsparkSpec(ApiModel):
    """DSpark (vLLM 0.25+, V2 runner)."""

    adaptive_verification: bool | None = Field(None, description="`enable_adaptive_verification` (vLLM 0.28+).")
    draft_topk: int | None = Field(None, ge=1, description="`dspark_draft_topk` (vLLM 0.28+).")


class BatchSizeRule(ApiModel):
    """One entry of `num_speculative_tokens_per_batch_size` (vLLM 0.24+), both ends inclusive."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel("self.minBatchSize <= self.maxBatchSize", "minBatchSize must not exceed maxBatchSize", ".minBatchSize")
        )
    )
    min_batch_size: int = Field(ge=1, description="Smallest batch of the range.")
    max_batch_size: int = Field(ge=1, description="Largest batch of the range.")
    tokens: int = Field(ge=0, description="Speculative tokens for such a batch; 0 switches drafting off.")


class TokenRange(ApiModel):
    """A small range of numSpeculativeTokens for the benchmark to search."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel("self.min <= self.max", "min must not exceed max", ".min"),
            cel("self.max - self.min <= 7", "at most 8 values: each one costs a whole benchmark", ".max"),
        )
    )
    min: int = Field(ge=1, le=128, description="Smallest number of speculative tokens.")
    max: int = Field(ge=1, le=128, description="Largest number of speculative tokens.")


def _proposer_rules() -> list[Any]:
    drafted = ", ".join(f"'{m.value}'" for m in DRAFT_REQUIRED)
    return [
        cel(
            f"!has(self.method) || !(self.method in [{drafted}]) || has(self.draft)",
            "this method needs a draft: set draft.model (the repository or path of the draft or head)",
            ".draft",
        ),
        cel(
            "!has(self.method) || !has(self.draft) || !(self.method in ['ngram', 'ngram_gpu', 'suffix'])",
            "ngram, ngram_gpu and suffix draft without a model: remove draft, or pick a method that uses it",
            ".draft",
        ),
        cel(
            "!has(self.method) || has(self.numSpeculativeTokens) || has(self.numSpeculativeTokensRange) || "
            "self.method in ['suffix', 'dspark', 'mtp']",
            "this method needs numSpeculativeTokens (how many tokens are drafted per step, for example 3)",
            ".numSpeculativeTokens",
        ),
        cel(
            "!(has(self.numSpeculativeTokens) && has(self.numSpeculativeTokensRange))",
            "set numSpeculativeTokens or numSpeculativeTokensRange, not both",
            ".numSpeculativeTokensRange",
        ),
        cel(
            "!has(self.ngram) || (has(self.method) && self.method in ['ngram', 'ngram_gpu'])",
            "ngram settings are only for the methods ngram and ngram_gpu",
            ".ngram",
        ),
        cel(
            "!has(self.ngram) || !has(self.ngram.promptLookupMin) || !has(self.ngram.promptLookupMax) || "
            "self.ngram.promptLookupMin <= self.ngram.promptLookupMax",
            "ngram.promptLookupMin must not exceed ngram.promptLookupMax",
            ".ngram",
        ),
        cel(
            "!has(self.suffix) || (has(self.method) && self.method == 'suffix')",
            "suffix settings are only for the method suffix",
            ".suffix",
        ),
        cel(
            "!has(self.dspark) || (has(self.method) && self.method == 'dspark')",
            "dspark settings are only for the method dspark",
            ".dspark",
        ),
        cel(
            "!has(self.tokensPerBatchSize) || self.tokensPerBatchSize.size() == 0 || "
            "self.tokensPerBatchSize[0].minBatchSize == 1",
            "the first entry of tokensPerBatchSize must start at batch size 1",
            ".tokensPerBatchSize",
        ),
        cel(
            "!has(self.tokensPerBatchSize) || !has(self.numSpeculativeTokens) || "
            "self.tokensPerBatchSize.all(r, r.tokens <= self.numSpeculativeTokens)",
            "tokensPerBatchSize must not exceed numSpeculativeTokens",
            ".tokensPerBatchSize",
        ),
    ]


class Proposer(ApiModel):
    """One way to speculate. `method` is always explicit: vLLM's guessing from the model's name is never used."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-validations": _proposer_rules()})

    method: Method = Field(description="The proposer.")
    num_speculative_tokens: int | None = Field(
        None, ge=1, le=128, description="Tokens drafted per step (k). vLLM asserts at most 128."
    )
    num_speculative_tokens_range: TokenRange | None = Field(
        None, description="Let the benchmark search k in this range instead of one numSpeculativeTokens."
    )
    tokens_per_batch_size: list[BatchSizeRule] | None = Field(
        None, max_length=16, description="k per batch size (vLLM 0.24+; not with medusa, suffix or data parallel)."
    )
    draft: DraftSpec | None = Field(None, description="The draft model or head.")
    ngram: NgramSpec | None = Field(None, description="Settings of ngram and ngram_gpu.")
    suffix: SuffixSpec | None = Field(None, description="Settings of suffix.")
    dspark: DsparkSpec | None = Field(None, description="Settings of dspark.")
    rejection_sampling: RejectionSampling | None = Field(None, description="`rejection_sample_method` (vLLM 0.18+).")
    extra: Raw | None = Field(
        None,
        description="Escape hatch: more keys of --speculative-config, passed through unverified. The status says so.",
    )


class SpeculationSpec(Proposer):
    """One proposer written inline, or several `candidates`. Left out of the spec: plain decoding only."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                *_proposer_rules(),
                cel(
                    "has(self.method) != (has(self.candidates) && self.candidates.size() > 0)",
                    "set either one method or candidates (at least one), not both",
                    ".method",
                ),
            ]
        }
    )

    method: Method | None = Field(None, description="The proposer, when there is only one.")  # type: ignore[assignment]
    candidates: Annotated[list[Proposer], Field(max_length=8)] | None = Field(
        None, description="Several proposers; the benchmark picks the best one that passes, or none."
    )
    incompatible_requests: str = Field(
        "HoldPromotion",
        pattern="^(HoldPromotion|Accept)$",
        description="Requests with min_p, logit_bias and the like get 400 only with speculation on. HoldPromotion: "
        "when production sends them (the 4xx share of the canary rises), the plain arm keeps serving, Held with reason "
        "IncompatibleRequests. Accept: their 4xx share is not guarded; send traffic.plainHeader with such requests.",
    )

    def proposers(self) -> tuple[Proposer, ...]:
        """All candidates in spec order, ranges of k expanded to one proposer per value (smallest k first)."""
        listed: tuple[Proposer, ...]
        if self.candidates:
            listed = tuple(self.candidates)
        else:
            fields = {name: getattr(self, name) for name in Proposer.model_fields}
            listed = (Proposer.model_validate(fields),)
        return tuple(one for proposer in listed for one in _expand(proposer))


def _expand(proposer: Proposer) -> tuple[Proposer, ...]:
    tokens = proposer.num_speculative_tokens_range
    if tokens is None:
        return (proposer,)
    return tuple(
        proposer.model_copy(update={"num_speculative_tokens": k, "num_speculative_tokens_range": None})
        for k in range(tokens.min, tokens.max + 1)
    )
