"""Keys of --speculative-config beyond the typed ones: what may stand in `extra`, in which releases, and why not.

vLLM forbids unknown keys: a pod with one exits about 13 s after start.
"""

from dataclasses import dataclass

FIRST, LAST = "0.8", "0.33"
"""The releases that these tables were compared against."""


@dataclass(frozen=True, slots=True)
class UntypedKey:
    """A key that vLLM's schema has (inclusive releases) and specfleet has no typed field for."""

    key: str
    since: str | None = None
    last: str | None = None
    refused: str = ""
    """Why it is refused even where vLLM takes it; empty: passed through, unverified."""
    remedy: str = ""


_LOSSY = "it accepts tokens that the target model would not have chosen"
_INTERNAL = "vLLM fills it in itself"

UNTYPED_KEYS: dict[str, UntypedKey] = {
    one.key: one
    for one in (
        UntypedKey(
            "disable_by_batch_size", last="0.16", refused="vLLM's V1 engine never reads it",
            remedy="Use tokensPerBatchSize (vLLM 0.24+)",
        ),
        UntypedKey("disable_logprobs", last="0.11"),
        UntypedKey("posterior_threshold", last="0.9", refused="it belongs to the removed V0 engine"),
        UntypedKey("posterior_alpha", last="0.9", refused="it belongs to the removed V0 engine"),
        UntypedKey("acceptance_method", last="0.9", refused="it belongs to the removed V0 engine"),
        UntypedKey("disable_mqa_scorer", last="0.9", refused="it belongs to the removed V0 engine"),
        UntypedKey("speculative_token_tree", since="0.9.2", last="0.20"),
        UntypedKey("index_share_for_mtp_iteration", since="0.29"),
        UntypedKey("synthetic_acceptance_rates", since="0.20", refused=_LOSSY, remedy="Remove it"),
        UntypedKey("synthetic_acceptance_length", since="0.20", refused=_LOSSY, remedy="Remove it"),
        UntypedKey("fly_threshold", since="0.33", refused=_LOSSY, remedy="Remove it"),
        UntypedKey("disable_lookahead_block_hashes", since="0.33"),
        UntypedKey("draft_lm_head_quantization", since="0.33"),
        UntypedKey("xpress_topc", since="0.33"),
        UntypedKey(
            "tensor_parallel_size", refused="vLLM has the key only to reject it",
            remedy="Set draft.tensorParallelSize",
        ),
        UntypedKey("target_model_config", refused=_INTERNAL, remedy="Remove it"),
        UntypedKey("target_parallel_config", refused=_INTERNAL, remedy="Remove it"),
        UntypedKey("draft_model_config", refused=_INTERNAL, remedy="Remove it"),
        UntypedKey("draft_parallel_config", refused=_INTERNAL, remedy="Remove it"),
    )
}  # fmt: skip

LOSSY_PREFIXES = ("synthetic_", "fly_")
LOSSY_SAMPLERS = frozenset({"synthetic", "fly"})
