"""Rules about keys of --speculative-config: typed fields per release, and what may stand in `extra`."""

from collections.abc import Iterator

from specfleet.api.speculation import DraftSampling, Method
from specfleet.engine.config_keys import FIRST, LAST, LOSSY_PREFIXES, LOSSY_SAMPLERS, UNTYPED_KEYS
from specfleet.engine.findings import Severity
from specfleet.engine.rules.case import ProposerCase
from specfleet.engine.rules.rule import Hit, Shows, proposer_rule
from specfleet.engine.speculative import CONFIG_KEYS, TYPED_KEYS, field_value


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="--speculative-config forbids unknown keys: the engine exits about 13 s after start",
    remedy="Remove the field, or use a release that knows it",
    source="compared across the wheels 0.8.5 to 0.33.0; vllm 0.32 run: unknown key exits 1",
)
def setting_not_in_this_version(case: ProposerCase) -> Iterator[Hit]:
    """A typed field whose key this release does not have."""
    for key in CONFIG_KEYS:
        if field_value(case.proposer, key.field) is None or case.version is None or case.version.has(key.since):
            continue
        message = f"{key.key} exists since {key.since}, the engine is vLLM {case.version}"
        yield Hit(case.at(key.wire_path), message)


@proposer_rule(
    Severity.REFUSE,
    Shows.SILENT,
    why="lossy samplers accept tokens that the target would not have chosen; a comparison would not be one of speed",
    remedy="Remove it: rejectionSampling takes standard or block, which keep the output",
    source="vllm 0.32 source; fly: vllm 0.33 source",
)
def lossy_sampling(case: ProposerCase) -> Iterator[Hit]:
    """Synthetic or fly acceptance through `extra`."""
    extra = case.proposer.extra or {}
    for key in sorted(_normal(name) for name in extra):
        if key.startswith(LOSSY_PREFIXES):
            yield Hit(case.at(f"extra.{key}"), f"{key} changes the output of the model")
    sampler = extra.get("rejection_sample_method")
    if sampler in LOSSY_SAMPLERS:
        yield Hit(case.at("extra.rejection_sample_method"), f"{sampler} sampling changes the output of the model")


@proposer_rule(
    Severity.REFUSE,
    Shows.SILENT,
    why="the typed field would be checked and the extra key would be run",
    remedy="Use the typed field and remove the key from extra",
    source="specfleet",
)
def extra_shadows_field(case: ProposerCase) -> Iterator[Hit]:
    """`extra` holds a key that has a typed field."""
    for name in sorted(case.proposer.extra or {}):
        if _normal(name) in TYPED_KEYS:
            field = next((key.wire_path for key in CONFIG_KEYS if key.key == _normal(name)), "method")
            yield Hit(case.at(f"extra.{name}"), f"{name} has a field of its own: {field}")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="--speculative-config forbids unknown keys, and some known ones do nothing or are rejected by the engine",
    remedy="Remove the key",
    source="compared across the wheels 0.8.5 to 0.33.0; vllm 0.32 run: unknown key exits 1",
    last=LAST,
)
def extra_key_not_accepted(case: ProposerCase) -> Iterator[Hit]:
    """`extra` holds a key that this release does not have or does not use."""
    for name in sorted(case.proposer.extra or {}):
        key = _normal(name)
        if key in TYPED_KEYS or key.startswith(LOSSY_PREFIXES) or case.version is None:
            continue
        known = UNTYPED_KEYS.get(key)
        if known is None:
            yield Hit(case.at(f"extra.{name}"), f"no vLLM from {FIRST} to {LAST} has the key {key}")
        elif known.refused:
            yield Hit(case.at(f"extra.{name}"), f"{key} cannot be used: {known.refused}", known.remedy)
        elif not case.version.has(known.since, known.last):
            span = f"from {known.since or FIRST} to {known.last or 'now'}"
            yield Hit(case.at(f"extra.{name}"), f"{key} exists {span}, the engine is vLLM {case.version}")


@proposer_rule(
    Severity.WARN,
    Shows.OPERATION,
    why="no rule has looked at these keys",
    remedy="Nothing to do if you know what the keys do; the status says Unverified",
    source="specfleet",
)
def extra_unverified(case: ProposerCase) -> Iterator[Hit]:
    """Any use of the escape hatch."""
    if case.proposer.extra:
        names = ", ".join(sorted(case.proposer.extra))
        yield Hit(case.at("extra"), f"passed through unverified: {names}")


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="the token mapping exists for separate draft models with greedy drafting only",
    remedy="Remove the conflicting setting, or draft.heterogeneousVocabulary",
    source="vllm 0.32 source; vllm#51561",
    since="0.25",
)
def heterogeneous_vocabulary_conflict(case: ProposerCase) -> Iterator[Hit]:
    """heterogeneousVocabulary with another method or probabilistic drafting."""
    draft = case.proposer.draft
    if draft is None or not draft.heterogeneous_vocabulary:
        return
    where = case.at("draft.heterogeneousVocabulary")
    if case.method is not Method.DRAFT_MODEL:
        yield Hit(where, f"heterogeneousVocabulary works with draft_model only, not with {case.method}")
    if draft.sampling is DraftSampling.PROBABILISTIC:
        yield Hit(case.at("draft.sampling"), "heterogeneousVocabulary needs greedy drafting")


@proposer_rule(
    Severity.REFUSE,
    Shows.SILENT,
    why="the reduction picks tokens before they are mapped to the target's vocabulary (later releases refuse it)",
    remedy="Remove draft.localArgmaxReduction",
    source="vllm#51561; vllm 0.32 run: accepted without a word",
    since="0.25",
)
def local_argmax_skips_mapping(case: ProposerCase) -> Iterator[Hit]:
    """localArgmaxReduction with heterogeneousVocabulary."""
    draft = case.proposer.draft
    if draft is not None and draft.heterogeneous_vocabulary and draft.local_argmax_reduction:
        yield Hit(case.at("draft.localArgmaxReduction"), "heterogeneousVocabulary excludes localArgmaxReduction")


def _normal(key: str) -> str:
    return key.replace("-", "_")
