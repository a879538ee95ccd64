"""Rules about methods: which release has them and what each one needs."""

from collections.abc import Iterator

from specfleet.api.speculation import Method
from specfleet.engine.findings import Severity
from specfleet.engine.methods import DRAFT_SETTINGS, Need
from specfleet.engine.rules.case import ProposerCase
from specfleet.engine.rules.rule import Hit, Shows, proposer_rule

_NAMES_THAT_DECIDE = {"eagle-": "eagle", "eagle3": "eagle3", "dflash": "dflash", "dspark": "dspark"}
"""Substrings of a draft's path by which vLLM 0.32 overrides the explicit methods draft_model, mtp and medusa."""


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="the engine's schema or registry does not have the method in this release and exits",
    remedy="Use a release that has the method, or another method",
    source="compared across the wheels 0.8.5 to 0.33.0; draft_model: vllm#31883, vllm#24322",
)
def method_not_in_this_version(case: ProposerCase) -> Iterator[Hit]:
    """The method does not exist in this release."""
    facts, version = case.facts, case.version
    if version is None or version.has(facts.since, facts.last):
        return
    span = f"exists since {facts.since}" if not version.has(facts.since) else f"was removed after {facts.last}"
    yield Hit(case.at("method"), f"{case.method} {span}, the engine is vLLM {version}")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="only a checkpoint named under draft.model can supply the default; without one the engine exits",
    remedy="Set numSpeculativeTokens (MTP: the model's num_nextn_predict_layers; DSpark: its block size)",
    source="vllm 0.32 source: num_speculative_tokens must be provided",
)
def tokens_needed_without_draft(case: ProposerCase) -> Iterator[Hit]:
    """mtp or dspark with the target's own weights and no k."""
    if case.facts.draft is Need.OPTIONAL and case.tokens is None and case.proposer.draft is None:
        yield Hit(case.at("numSpeculativeTokens"), f"{case.method} without draft.model needs numSpeculativeTokens")


@proposer_rule(
    Severity.REFUSE,
    Shows.SILENT,
    why="vLLM looks at the draft's path after the explicit method and rewrites draft_model, mtp and medusa",
    remedy="Set the method that the draft is made for, or store the draft under another path",
    source="vllm 0.32 source (name-based detection)",
)
def draft_name_changes_method(case: ProposerCase) -> Iterator[Hit]:
    """The draft's path makes vLLM run another method than the one written."""
    if case.method not in (Method.DRAFT_MODEL, Method.MTP, Method.MEDUSA):
        return
    draft = case.proposer.draft
    name = draft.model if draft is not None else case.spec.model.name
    where = case.at("draft.model") if draft is not None else "spec.model.name"
    for part, becomes in _NAMES_THAT_DECIDE.items():
        if part in name.lower():
            yield Hit(where, f"vLLM would run {becomes} instead of {case.method}, because {name!r} contains {part!r}")
            return


@proposer_rule(
    Severity.WARN,
    Shows.SILENT,
    why="the setting is read by other methods only",
    remedy="Remove it",
    source="vllm 0.32 source",
)
def draft_setting_without_effect(case: ProposerCase) -> Iterator[Hit]:
    """A draft setting that this method does not read."""
    draft = case.proposer.draft
    if draft is None:
        return
    for field, methods in DRAFT_SETTINGS.items():
        if getattr(draft, field) and case.method not in methods:
            names = ", ".join(sorted(methods))
            yield Hit(case.at(f"draft.{_camel(field)}"), f"{case.method} does not read it (only {names} do)")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="proposers with extra slots per request only have the padded batch",
    remedy="Remove draft.disablePaddedBatch",
    source="vllm 0.32 source: only supports padded drafter batch",
)
def padded_batch_needed(case: ProposerCase) -> Iterator[Hit]:
    """disablePaddedBatch with draft_model or parallel drafting."""
    draft = case.proposer.draft
    if draft is None or not draft.disable_padded_batch:
        return
    if case.method is Method.DRAFT_MODEL or draft.parallel_drafting:
        what = "draft_model" if case.method is Method.DRAFT_MODEL else "parallelDrafting"
        yield Hit(case.at("draft.disablePaddedBatch"), f"{what} needs the padded batch")


@proposer_rule(
    Severity.WARN,
    Shows.START,
    why="the official images do not hold arctic-inference; without it the engine exits with ImportError",
    remedy="Use an image with arctic-inference==0.1.1 (specfleet cannot look into the image)",
    source="vllm 0.32 run: ImportError, exit 1",
)
def suffix_needs_arctic_inference(case: ProposerCase) -> Iterator[Hit]:
    """suffix needs a package that is not part of vLLM."""
    if case.method is Method.SUFFIX:
        yield Hit(case.at("method"), "suffix needs the package arctic-inference in the image")


@proposer_rule(
    Severity.WARN,
    Shows.LOAD,
    why="short matches inside tool calls are drafted and verified wrongly often enough to corrupt them",
    remedy="Set ngram.promptLookupMin to at least 8, or use another method with tools",
    source="vllm#40875",
)
def ngram_with_tools_needs_long_match(case: ProposerCase) -> Iterator[Hit]:
    """ngram with tool calling and short matches."""
    if case.method not in (Method.NGRAM, Method.NGRAM_GPU) or not case.tools:
        return
    ngram = case.proposer.ngram
    shortest = (ngram.prompt_lookup_min or ngram.prompt_lookup_max) if ngram else None
    if (shortest or 5) < 8:
        yield Hit(case.at("ngram.promptLookupMin"), f"tool calls with matches of {shortest or 5} tokens")


@proposer_rule(
    Severity.WARN,
    Shows.SILENT,
    why="a draft as large as its target cannot be faster than it",
    remedy="Name a smaller draft",
    source="specfleet",
)
def draft_is_the_target(case: ProposerCase) -> Iterator[Hit]:
    """draft_model with the target itself."""
    draft = case.proposer.draft
    if draft is not None and case.method is Method.DRAFT_MODEL and draft.model == case.spec.model.name:
        yield Hit(case.at("draft.model"), f"the draft {draft.model} is the target itself")


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)
