"""Faults of particular releases: the spec is valid, but users have been hurt by it."""

from collections.abc import Iterator

from specfleet.api.speculation import Method
from specfleet.engine.findings import Severity
from specfleet.engine.flags import find, switched_on
from specfleet.engine.rules.case import ARGS, ProposerCase
from specfleet.engine.rules.rule import Hit, Shows, proposer_rule

_EAGLE = (Method.EAGLE, Method.EAGLE3)


@proposer_rule(
    Severity.WARN,
    Shows.LOAD,
    why="the accepted length decays over hours and only a restart restores it",
    remedy="Use a newer release, or keep remedies.restartProbe on",
    source="vllm#41838",
    since="0.17",
    last="0.17",
)
def eagle_acceptance_decays(case: ProposerCase) -> Iterator[Hit]:
    """EAGLE on 0.17."""
    if case.method in _EAGLE:
        yield Hit(case.at("method"), f"{case.method} on vLLM {case.version} is reported to lose acceptance over hours")


@proposer_rule(
    Severity.WARN,
    Shows.SILENT,
    why="acceptance is about 0 % on the V2 runner",
    remedy="Set VLLM_USE_V2_MODEL_RUNNER=0 in engine.env, or use another release",
    source="vllm#49559",
    since="0.25",
    last="0.25",
)
def dflash_accepts_nothing(case: ProposerCase) -> Iterator[Hit]:
    """dflash on 0.25 without the V1 runner."""
    if case.method is Method.DFLASH and case.runner_v2 is not False:
        yield Hit(case.at("method"), f"dflash on vLLM {case.version} is reported to accept no token on the V2 runner")


@proposer_rule(
    Severity.WARN,
    Shows.LOAD,
    why="the gain of EAGLE-3 was nearly halved by the upgrade while plain decoding did not change",
    remedy="Use another release, or let the benchmark decide",
    source="vllm#39940",
    since="0.19",
    last="0.19",
)
def eagle3_gain_halved(case: ProposerCase) -> Iterator[Hit]:
    """EAGLE-3 on 0.19."""
    if case.method is Method.EAGLE3:
        yield Hit(case.at("method"), f"eagle3 on vLLM {case.version} is reported to gain half of what 0.18 did")


@proposer_rule(
    Severity.WARN,
    Shows.LOAD,
    why="accuracy dropped by about 20 % with prefix caching",
    remedy="Use another release, add --no-enable-prefix-caching, or set guardrails.minAgreementRatio",
    source="vllm#43559",
    since="0.21",
    last="0.21",
)
def mtp_prefix_caching_inaccurate(case: ProposerCase) -> Iterator[Hit]:
    """MTP with prefix caching on 0.21."""
    cached = find(case.flags, "--no-enable-prefix-caching") is None
    if case.method is Method.MTP and cached:
        yield Hit(case.at("method"), f"mtp with prefix caching on vLLM {case.version} is reported to lose accuracy")


@proposer_rule(
    Severity.WARN,
    Shows.LOAD,
    why="illegal memory accesses on long sequences kill the engine",
    remedy="Use 0.21 or newer",
    source="vllm#40756",
    since="0.19",
    last="0.20",
)
def mtp_crashes_on_long_sequences(case: ProposerCase) -> Iterator[Hit]:
    """MTP on 0.19 and 0.20."""
    if case.method is Method.MTP:
        yield Hit(case.at("method"), f"mtp on vLLM {case.version} is reported to crash on long sequences")


@proposer_rule(
    Severity.WARN,
    Shows.LOAD,
    why="structured output has crashed engines that draft with an EAGLE head",
    remedy="Use the backend xgrammar, and keep structured requests away (traffic.plainHeader) if the engine dies",
    source="vllm#27969, vllm#47025",
)
def structured_output_may_crash(case: ProposerCase) -> Iterator[Hit]:
    """EAGLE with the guidance backend, or on 0.11 with any."""
    if case.method not in _EAGLE or case.version is None:
        return
    if case.structured_backend == "guidance" or case.version.has("0.11", "0.11"):
        yield Hit(case.at("method"), f"structured output with {case.method} is reported to crash the engine")


@proposer_rule(
    Severity.WARN,
    Shows.LOAD,
    why="more than one concurrent request with adapters has crashed the engine",
    remedy="Use another method with LoRA",
    source="vllm#20284",
)
def ngram_with_lora_may_crash(case: ProposerCase) -> Iterator[Hit]:
    """ngram with LoRA."""
    if case.lora and case.method in (Method.NGRAM, Method.NGRAM_GPU):
        yield Hit(ARGS, f"--enable-lora with {case.method} is reported to crash with concurrent requests")


@proposer_rule(
    Severity.WARN,
    Shows.OPERATION,
    why="the engine counts drafts that it never made, so the acceptance rate reads too low",
    remedy="Compare gains, not acceptance rates, for this method",
    source="vllm#44054 (ngram_gpu), vllm#50518 (KV transfer)",
)
def acceptance_counted_wrong(case: ProposerCase) -> Iterator[Hit]:
    """ngram_gpu, or KV transfer with any method: counters that mislead."""
    if case.method is Method.NGRAM_GPU:
        yield Hit(case.at("method"), "ngram_gpu under-counts accepted tokens")
    if find(case.flags, "--kv-transfer-config") is not None and not case.proposer.tokens_per_batch_size:
        yield Hit(ARGS, "with KV transfer every admitted request counts k rejected drafts")


@proposer_rule(
    Severity.WARN,
    Shows.LOAD,
    why="dual batch overlap does not speculate on the V2 runner",
    remedy="Remove --enable-dbo",
    source="vllm 0.32 source",
)
def dual_batch_overlap_without_speculation(case: ProposerCase) -> Iterator[Hit]:
    """--enable-dbo with speculation."""
    if switched_on(case.flags, "--enable-dbo"):
        yield Hit(ARGS, "--enable-dbo does not go together with speculation")
