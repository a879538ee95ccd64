"""The proposers of vLLM: which release has them, what they need, and which ones are refused by name and why."""

from dataclasses import dataclass
from enum import StrEnum

from specfleet.api.speculation import Method


class Need(StrEnum):
    """Whether something has to be written in the spec."""

    NEVER = "never"
    OPTIONAL = "optional"
    REQUIRED = "required"


class Runner(StrEnum):
    """vLLM's model runners (`VLLM_USE_V2_MODEL_RUNNER`)."""

    V1 = "V1"
    V2 = "V2"
    BOTH = "V1 and V2"


@dataclass(frozen=True, slots=True)
class MethodFacts:
    """What vLLM knows about one method. Releases are inclusive; None: since before 0.8, until now."""

    method: Method
    summary: str
    draft: Need
    since: str | None = None
    last: str | None = None
    runner: Runner = Runner.BOTH
    schedule: bool | None = True
    """tokensPerBatchSize: True works, False kills the engine at the first request, None unknown."""
    asynchronous: bool = True
    """Whether --async-scheduling may be set."""
    pipeline: bool | None = True
    """Whether it runs with pipeline parallelism; None: open reports of wrong output or crashes."""
    note: str = ""


METHODS: dict[Method, MethodFacts] = {
    facts.method: facts
    for facts in (
        MethodFacts(
            Method.NGRAM, "looks the last tokens up in the prompt (CPU)", Need.NEVER, asynchronous=False,
            note="drafts nothing where nothing matches: zero drafts is no data, not zero acceptance",
        ),
        MethodFacts(
            Method.NGRAM_GPU, "the same look-up on the GPU", Need.NEVER, since="0.18", schedule=False, pipeline=False,
            note="needs pinned memory, so not on CPU engines",
        ),
        MethodFacts(
            Method.SUFFIX, "suffix trees over prompts and earlier answers", Need.NEVER, since="0.11.2",
            runner=Runner.V1, schedule=False, asynchronous=False, note="needs arctic-inference 0.1.1 in the image",
        ),
        MethodFacts(
            Method.DRAFT_MODEL, "a small model of the same vocabulary", Need.REQUIRED, since="0.15",
            note="0.9 to 0.14 raise NotImplementedError; vocabularies must have the same size",
        ),
        MethodFacts(Method.EAGLE, "an EAGLE head on the target's hidden states", Need.REQUIRED),
        MethodFacts(
            Method.EAGLE3, "an EAGLE-3 head on several layers' hidden states", Need.REQUIRED,
            note="auxiliary layers are looked up at the first forward pass only",
        ),
        MethodFacts(
            Method.MTP, "the target's own multi-token-prediction layers", Need.OPTIONAL, since="0.11", pipeline=None,
            note="k above the number of trained layers reuses the last one and lowers acceptance",
        ),
        MethodFacts(
            Method.MEDUSA, "Medusa heads", Need.REQUIRED, last="0.32", runner=Runner.V1, schedule=False,
            asynchronous=False, note="can change the output; removed in 0.33",
        ),
        MethodFacts(
            Method.DFLASH, "a block-diffusion draft", Need.REQUIRED, since="0.20", schedule=None, pipeline=None,
            note="drafts with sliding windows or candidate heads need the V2 runner",
        ),
        MethodFacts(
            Method.DSPARK, "DSpark stages of the target or a DSpark draft", Need.OPTIONAL, since="0.25",
            runner=Runner.V2, schedule=None, pipeline=None, note="needs the V2 runner, so not on CPU engines",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RefusedMethod:
    """A method that vLLM's schema knows and specfleet does not take."""

    reason: str
    remedy: str
    source: str


REFUSED_METHODS: dict[str, RefusedMethod] = {
    "mlp_speculator": RefusedMethod(
        "vLLM's V1 engine has no MLP speculator (its registry entry is disabled) and 0.33 removed the name",
        "Use eagle, eagle3, medusa or draft_model",
        "vllm 0.32 run: exit 1, architectures not supported",
    ),
    "extract_hidden_states": RefusedMethod(
        "extract_hidden_states exports data and does not speed anything up",
        "Run it outside specfleet; for serving pick a proposer",
        "vllm 0.32 source",
    ),
    "custom_class": RefusedMethod(
        "custom_class loads arbitrary Python and its interface changes between releases, so no rule can vouch for it",
        "Use one of the methods that vLLM ships",
        "vllm 0.32 source",
    ),
    "synthetic": RefusedMethod(
        "synthetic is a rejection sampler that accepts wrong tokens, not a proposer",
        "Remove it: it is for tests of the engine only",
        "vllm 0.32 source",
    ),
}

LEGACY_MTP_SUFFIX = "_mtp"


def refused_method(name: str) -> RefusedMethod | None:
    """Why a method name is not taken although vLLM's schema has it, None for names that vLLM does not know either."""
    if name in REFUSED_METHODS:
        return REFUSED_METHODS[name]
    if name.endswith(LEGACY_MTP_SUFFIX):
        return RefusedMethod(
            f"{name} is a legacy name that vLLM rewrites to mtp with a warning", "Write method: mtp", "vllm 0.32 source"
        )
    return None


DRAFT_SETTINGS: dict[str, frozenset[Method]] = {
    "load_config": frozenset(Method) - {Method.MEDUSA},
    "parallel_drafting": frozenset({Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3}),
    "disable_padded_batch": frozenset({Method.EAGLE, Method.EAGLE3, Method.MTP}),
    "local_argmax_reduction": frozenset(
        {Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3, Method.MTP, Method.DFLASH, Method.DSPARK}
    ),
    "disable_eagle_block_drop": frozenset({Method.EAGLE, Method.EAGLE3, Method.MTP, Method.DFLASH, Method.DSPARK}),
}
"""Settings under draft that only some methods read (Python field -> methods)."""
