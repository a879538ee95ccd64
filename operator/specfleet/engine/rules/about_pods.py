"""Rules about volumes and about what the rest of the spec asks of the engine."""

from collections.abc import Iterator

from specfleet.engine.buckets import SINCE as BUCKETS_SINCE
from specfleet.engine.findings import Severity
from specfleet.engine.metrics import DEFAULT_FIRST_TOKEN_EDGES_SECONDS, DEFAULT_TOKEN_EDGES_SECONDS
from specfleet.engine.mounts import readable_elsewhere
from specfleet.engine.rules.case import Case, ProposerCase
from specfleet.engine.rules.rule import Hit, Shows, proposer_rule, spec_rule


@spec_rule(
    Severity.REFUSE,
    Shows.ADMISSION,
    why="the API server refuses the pod",
    remedy="Add the volume to template.volumes, or correct the name",
    source="kubernetes core/v1 VolumeMount",
)
def mount_without_volume(case: Case) -> Iterator[Hit]:
    """A mount of a volume that is not there."""
    known = {str(one.get("name")) for one in case.template.volumes if isinstance(one, dict)}
    for index, mount in enumerate(case.template.volume_mounts):
        name = str(mount.get("name")) if isinstance(mount, dict) else ""
        if name not in known:
            yield Hit(f"spec.template.volumeMounts[{index}].name", f"no volume is named {name!r}")


@spec_rule(
    Severity.WARN,
    Shows.START,
    why="unless the image holds it, the engine takes the path for a repository name and exits",
    remedy="Mount the volume with the model there, or ignore this if the image holds the model",
    source="vllm 0.32 run: missing draft directory",
)
def model_not_on_a_volume(case: Case) -> Iterator[Hit]:
    """An absolute model path that no mount covers."""
    if not _mounted(case, case.spec.model.name):
        yield Hit("spec.model.name", f"no volumeMount covers {case.spec.model.name}")
    tokenizer = case.spec.model.tokenizer
    if tokenizer and not _mounted(case, tokenizer):
        yield Hit("spec.model.tokenizer", f"no volumeMount covers {tokenizer}")


@proposer_rule(
    Severity.WARN,
    Shows.START,
    why="unless the image holds it, the engine takes the path for a repository name and exits",
    remedy="Mount the volume with the draft there, or ignore this if the image holds the draft",
    source="vllm 0.32 run: missing draft directory",
)
def draft_not_on_a_volume(case: ProposerCase) -> Iterator[Hit]:
    """An absolute draft path that no mount covers."""
    draft = case.proposer.draft
    if draft is not None and not _mounted(case, draft.model):
        yield Hit(case.at("draft.model"), f"no volumeMount covers {draft.model}")


@spec_rule(
    Severity.REFUSE,
    Shows.OPERATION,
    why="the benchmark reads its prompts from there",
    remedy="Mount the volume with the prompts, or use prompts.configMap",
    source="specfleet",
)
def prompts_not_on_a_volume(case: Case) -> Iterator[Hit]:
    """benchmark.prompts.volume outside every mount."""
    path = case.spec.benchmark.prompts.volume
    if path is not None and not _mounted(case, path):
        yield Hit("spec.benchmark.prompts.volume", f"no volumeMount covers {path}")


@spec_rule(
    Severity.WARN,
    Shows.OPERATION,
    why="the benchmark's client is a pod of its own: a volume that begins empty in every pod shows it nothing, so that "
    "no pair can be measured and nothing is promoted",
    remedy="Set model.tokenizer to a repository or to a folder on a shared volume (a claim, the image), or keep the "
    "model on one",
    source="specfleet",
)
def benchmark_sees_no_tokenizer(case: Case) -> Iterator[Hit]:
    """A local tokenizer on an emptyDir or ephemeral volume, with something to measure."""
    model = case.spec.model
    tokenizer = model.tokenizer or model.name
    if case.spec.speculation is None or not tokenizer.startswith("/"):
        return
    if not readable_elsewhere(case.template, tokenizer):
        path = "spec.model.tokenizer" if model.tokenizer else "spec.model.name"
        yield Hit(path, f"the benchmark's client has no tokenizer: {tokenizer} lies on a volume of each pod's own")


@spec_rule(
    Severity.WARN,
    Shows.START,
    why="nothing is downloaded in offline mode, so every file has to lie in the cache already",
    remedy="Mount a cache volume, or name the model by its path",
    source="vllm 0.32 source",
)
def offline_without_cache(case: Case) -> Iterator[Hit]:
    """HF_HUB_OFFLINE with repositories and no volume."""
    offline = case.env.get("HF_HUB_OFFLINE") not in (None, "0", "false", "False", "")
    if offline and not case.spec.model.name.startswith("/") and not case.template.volume_mounts:
        yield Hit("spec.template.volumeMounts", "HF_HUB_OFFLINE is on and no volume holds a cache")


@spec_rule(
    Severity.WARN,
    Shows.OPERATION,
    why="before 0.32 buckets are fixed: the share above an SLO between two edges is known as an interval only",
    remedy=f"Use vLLM {BUCKETS_SINCE} or newer, or choose an SLO that is an edge",
    source="vllm 0.8 to 0.33 source (histogram buckets)",
    since="0.21",
    last="0.31",
)
def slo_between_buckets(case: Case) -> Iterator[Hit]:
    """A declared SLO that is no edge of the fixed buckets."""
    guards = case.spec.guardrails
    declared = (
        ("tpotSloSeconds", guards.tpot_slo_seconds, DEFAULT_TOKEN_EDGES_SECONDS),
        ("stallSloSeconds", guards.stall_slo_seconds, DEFAULT_TOKEN_EDGES_SECONDS),
        ("ttftSloSeconds", guards.ttft_slo_seconds, DEFAULT_FIRST_TOKEN_EDGES_SECONDS),
    )
    for name, slo, edges in declared:
        if slo is not None and slo not in edges:
            near = min(edges, key=lambda edge: abs(edge - slo))
            yield Hit(f"spec.guardrails.{name}", f"{slo:g} s is no bucket edge (nearest: {near:g} s)")


def _mounted(case: Case, path: str) -> bool:
    """Whether a path lies on a volume of the engine; names of repositories always do."""
    if not path.startswith("/"):
        return True
    mounts = [str(one.get("mountPath", "")).rstrip("/") for one in case.template.volume_mounts if isinstance(one, dict)]
    return any(path == mount or path.startswith(mount + "/") for mount in mounts)
