"""Rules about the engine's version and about references that move."""

import re
from collections.abc import Iterator

from specfleet.engine.arguments import FINGERPRINT_SINCE
from specfleet.engine.config_keys import FIRST, LAST
from specfleet.engine.findings import Severity
from specfleet.engine.rules.case import Case, ProposerCase
from specfleet.engine.rules.rule import Hit, Shows, proposer_rule, spec_rule
from specfleet.engine.versions import tag_of, version_in_tag

COMMIT = re.compile(r"^[0-9a-f]{40}$")
_MOVING_TAGS = ("latest", "nightly", "main", "stable", "edge", "dev")


@spec_rule(
    Severity.REFUSE,
    Shows.OPERATION,
    why="every rule depends on the version; guessing it would let a broken spec through",
    remedy="Set engine.version to the vLLM version that the image holds",
    source="specfleet",
)
def engine_version_unknown(case: Case) -> Iterator[Hit]:
    """Neither engine.version nor the image tag says which vLLM this is."""
    if case.version is None:
        yield Hit("spec.engine.image", f"the image {case.spec.engine.image} does not say which vLLM version it holds")


@spec_rule(
    Severity.REFUSE,
    Shows.OPERATION,
    why="the rules would be applied for the wrong version",
    remedy="Correct engine.version or the tag",
    source="specfleet",
)
def engine_version_contradicts_tag(case: Case) -> Iterator[Hit]:
    """engine.version says one release, the image tag another one."""
    tagged = version_in_tag(case.spec.engine.image)
    if case.version is not None and tagged is not None and case.version.release != tagged.release:
        yield Hit("spec.engine.version", f"engine.version is {case.version}, but the image tag says {tagged}")


@spec_rule(
    Severity.REFUSE,
    Shows.OPERATION,
    why=f"without --fingerprint-value (vLLM {FINGERPRINT_SINCE}+) nothing proves which variant answered a request",
    remedy=f"Use vLLM {FINGERPRINT_SINCE} or newer (the other findings of this lint hold for the version named here)",
    source="vllm 0.21 source",
)
def engine_too_old_to_operate(case: Case) -> Iterator[Hit]:
    """vLLM before 0.21 can be linted but not operated."""
    if case.version is not None and not case.version.has(FINGERPRINT_SINCE):
        what = "is older than the rules reach" if not case.version.has(FIRST) else "can be linted but not operated"
        yield Hit("spec.engine", f"vLLM {case.version} {what}")


@spec_rule(
    Severity.WARN,
    Shows.OPERATION,
    why="methods, keys and metrics may have changed since the rules were written",
    remedy="Watch the first start, or use a release that the rules know",
    source="specfleet",
)
def engine_newer_than_rules(case: Case) -> Iterator[Hit]:
    """The release is newer than the rule table."""
    if case.version is not None and not case.version.has(None, LAST):
        yield Hit("spec.engine", f"vLLM {case.version} is newer than the rules (up to {LAST})")


@spec_rule(
    Severity.WARN,
    Shows.OPERATION,
    why="pods of one arm may run different engines; specfleet then sees two arms and compares neither",
    remedy="Name the image by digest (name@sha256:...)",
    source="specfleet",
)
def image_tag_moves(case: Case) -> Iterator[Hit]:
    """A tag such as latest or nightly, or none at all."""
    image = case.spec.engine.image
    tag = tag_of(image)
    if "@sha256:" not in image and (tag is None or tag.lower().startswith(_MOVING_TAGS)):
        yield Hit("spec.engine.image", f"the image {image} has a tag that moves" if tag else f"{image} has no tag")


@spec_rule(
    Severity.WARN,
    Shows.OPERATION,
    why="vLLM never resolves a branch to a commit: a push changes the model under a running comparison",
    remedy="Pin the commit (40 hexadecimal digits) of the repository",
    source="vllm 0.32 run: revision main and its commit give different fingerprints",
)
def model_revision_not_pinned(case: Case) -> Iterator[Hit]:
    """Model or tokenizer from the hub without a commit."""
    model = case.spec.model
    if _from_hub(model.name) and not _commit(model.revision):
        yield Hit("spec.model.revision", _unpinned(model.name, model.revision))
    if model.tokenizer and _from_hub(model.tokenizer) and not _commit(model.tokenizer_revision):
        yield Hit("spec.model.tokenizerRevision", _unpinned(model.tokenizer, model.tokenizer_revision))


@proposer_rule(
    Severity.WARN,
    Shows.OPERATION,
    why="the draft has a revision of its own; a push to it changes acceptance without any change of the spec",
    remedy="Pin the draft's commit in draft.revision",
    source="vllm 0.32 source: revision of the draft is separate from --revision",
)
def draft_revision_not_pinned(case: ProposerCase) -> Iterator[Hit]:
    """Draft from the hub without a commit."""
    draft = case.proposer.draft
    if draft is not None and _from_hub(draft.model) and not _commit(draft.revision):
        yield Hit(case.at("draft.revision"), _unpinned(draft.model, draft.revision))


def _from_hub(name: str) -> bool:
    return not name.startswith(("/", "./", "s3://", "gs://", "runai"))


def _commit(revision: str | None) -> bool:
    return revision is not None and COMMIT.match(revision) is not None


def _unpinned(name: str, revision: str | None) -> str:
    return f"{name} is taken from {revision!r}, which can move" if revision else f"{name} has no revision"
