"""Rules about the draft's context length and memory."""

from collections.abc import Iterator

from specfleet.api.speculation import Method
from specfleet.engine.findings import Severity
from specfleet.engine.flags import find
from specfleet.engine.rules.case import ARGS, ProposerCase
from specfleet.engine.rules.rule import Hit, Shows, proposer_rule

SAFE_MEMORY_RATIO = 0.92


@proposer_rule(
    Severity.REFUSE,
    Shows.START,
    why="vLLM refuses a draft context above the target's",
    remedy="Remove draft.maxModelLen, or lower it to model.maxModelLen",
    source="vllm 0.32 source",
)
def draft_context_too_long(case: ProposerCase) -> Iterator[Hit]:
    """draft.maxModelLen above model.maxModelLen."""
    draft, target = case.proposer.draft, case.spec.model.max_model_len
    if draft is not None and draft.max_model_len and target and draft.max_model_len > target:
        yield Hit(case.at("draft.maxModelLen"), f"{draft.max_model_len} is above the target's {target}")


@proposer_rule(
    Severity.WARN,
    Shows.SILENT,
    why="one request beyond it switches useful drafting off for the whole batch, while the zeros are still verified",
    remedy="Remove draft.maxModelLen, or set it to model.maxModelLen",
    source="vllm 0.32 run: acceptance 100 % -> 29 %",
)
def draft_context_short(case: ProposerCase) -> Iterator[Hit]:
    """draft.maxModelLen below the target's."""
    draft, target = case.proposer.draft, case.spec.model.max_model_len
    if draft is None or draft.max_model_len is None or (target and draft.max_model_len >= target):
        return
    against = f"the target's {target}" if target else "the target's own length (model.maxModelLen is not set)"
    yield Hit(case.at("draft.maxModelLen"), f"{draft.max_model_len} may be below {against}")


@proposer_rule(
    Severity.WARN,
    Shows.LOAD,
    why="profiling counts one draft token per request, so the KV cache is sized too large for k and memory can run out",
    remedy=f"Set --gpu-memory-utilization to {SAFE_MEMORY_RATIO} or less, or lower --max-num-seqs",
    source="vllm#37521",
)
def little_memory_for_draft(case: ProposerCase) -> Iterator[Hit]:
    """A draft beside a very high --gpu-memory-utilization."""
    flag = find(case.flags, "--gpu-memory-utilization")
    share = _number(flag.text) if flag is not None else None
    drafts = case.method not in (Method.NGRAM, Method.SUFFIX)
    if share is not None and share > SAFE_MEMORY_RATIO and drafts and not case.cpu_engine:
        yield Hit(ARGS, f"--gpu-memory-utilization {share} leaves no headroom for {case.method}")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
