"""Rules about engines that span several nodes (template.multiNode)."""

from collections.abc import Iterator

from specfleet.engine.findings import Severity
from specfleet.engine.nodes import SET_VARIABLES, SINCE
from specfleet.engine.rules.case import ENV, Case
from specfleet.engine.rules.rule import Hit, Shows, spec_rule

_NODES = "spec.template.multiNode"
_EXECUTORS = ("--distributed-executor-backend", "--data-parallel-backend", "-dpb")
_BEFORE_SINCE = "0.11.1"


@spec_rule(
    Severity.REFUSE,
    Shows.START,
    why="older releases span nodes through Ray alone, and specfleet runs no Ray cluster",
    remedy=f"Use vLLM {SINCE} or newer, or an engine that fits one node",
    source="vllm#23691",
    last=_BEFORE_SINCE,
)
def nodes_not_in_this_version(case: Case) -> Iterator[Hit]:
    """An engine on several nodes, before vLLM could do that by itself."""
    if case.template.multi_node is not None:
        yield Hit(_NODES, f"vLLM {case.version} has no --nnodes")


@spec_rule(
    Severity.REFUSE,
    Shows.START,
    why="every pod of a multi-node engine holds the same number of ranks",
    remedy="Choose sizes whose product is a multiple of template.multiNode.size",
    source="vllm 0.32 source; vllm#23691",
)
def nodes_do_not_divide(case: Case) -> Iterator[Hit]:
    """Ranks that do not divide over the pods."""
    if case.gpus_per_pod is None:
        ranks = "1 rank does" if case.gpus_needed == 1 else f"{case.gpus_needed} ranks ({case.sizes}) do"
        yield Hit(f"{_NODES}.size", f"{ranks} not divide over {case.pods_per_engine} pods")


@spec_rule(
    Severity.REFUSE,
    Shows.START,
    why="a data parallel rank spans whole pods, or a pod holds whole data parallel ranks: else vLLM exits",
    remedy="Make template.multiNode.size a multiple of engine.dataParallelSize, or the other way round",
    source="vllm 0.32 source (nnodes_within_dp)",
)
def data_ranks_do_not_divide(case: Case) -> Iterator[Hit]:
    """Data parallel ranks whose borders lie inside a pod."""
    engine, local = case.spec.engine, case.gpus_per_pod
    one = engine.tensor_parallel_size * engine.pipeline_parallel_size
    if case.pods_per_engine == 1 or local is None or local % one == 0 or one % local == 0:
        return
    ranks = f"{engine.data_parallel_size} data parallel ranks of {one} GPUs"
    yield Hit(f"{_NODES}.size", f"{ranks} do not lie on {case.pods_per_engine} pods of {local}")


@spec_rule(
    Severity.WARN,
    Shows.LOAD,
    why="every layer of every step then waits for an all-reduce over the network",
    remedy="Set tensorParallelSize to the GPUs of one pod and pipelineParallelSize to the number of pods; keep it "
    "where the nodes share NVLink or a fast RDMA network",
    source="vLLM documentation: parallelism and scaling",
)
def tensor_ranks_span_nodes(case: Case) -> Iterator[Hit]:
    """A tensor parallel group that does not fit into a pod."""
    size, local = case.spec.engine.tensor_parallel_size, case.gpus_per_pod
    if case.pods_per_engine > 1 and local is not None and local % size:
        yield Hit("spec.engine.tensorParallelSize", f"groups of {size} ranks lie on pods of {local} GPUs")


@spec_rule(
    Severity.REFUSE,
    Shows.START,
    why="specfleet starts the pods of an engine with vLLM's multiprocess executor, without a Ray cluster",
    remedy="Remove it from engine.args: specfleet sets mp",
    source="vllm 0.32 source: nnodes > 1 needs mp",
)
def nodes_need_multiprocessing(case: Case) -> Iterator[Hit]:
    """Another executor for an engine on several nodes."""
    if case.pods_per_engine == 1:
        return
    for flag in case.flags:
        if flag.name in _EXECUTORS and flag.text != "mp":
            yield Hit(f"spec.engine.args[{flag.index}]", f"{flag.name} {flag.text} does not go with template.multiNode")


@spec_rule(
    Severity.REFUSE,
    Shows.START,
    why="each pod announces its own address to the others",
    remedy="Remove it: specfleet sets VLLM_HOST_IP to the address of each pod; choose interfaces by NCCL_SOCKET_IFNAME "
    "and GLOO_SOCKET_IFNAME",
    source="vllm 0.32 source (get_ip)",
)
def node_address_fixed(case: Case) -> Iterator[Hit]:
    """VLLM_HOST_IP with one value for all pods."""
    if case.pods_per_engine > 1 and case.env.get("VLLM_HOST_IP") is not None:
        yield Hit(ENV, f"VLLM_HOST_IP is {case.env['VLLM_HOST_IP']!r} in every pod of the engine")


@spec_rule(
    Severity.REFUSE,
    Shows.SILENT,
    why="LeaderWorkerSet puts its own values over them",
    remedy="Rename it",
    source="LeaderWorkerSet 0.7 source",
)
def set_variable_reserved(case: Case) -> Iterator[Hit]:
    """A variable that begins with LWS_."""
    if case.pods_per_engine > 1:
        for name in case.env:
            if name.startswith(SET_VARIABLES):
                yield Hit(ENV, f"{name} is set by LeaderWorkerSet")


@spec_rule(
    Severity.REFUSE,
    Shows.ADMISSION,
    why="one ResourceClaim is allocated on one node, so the other pods of the engine would wait for ever",
    remedy="Use resourceClaimTemplateName: each pod then gets a claim of its own",
    source="kubernetes: dynamic resource allocation",
)
def claim_shared_by_nodes(case: Case) -> Iterator[Hit]:
    """resourceClaimName for an engine on several nodes."""
    if case.pods_per_engine == 1:
        return
    for index, claim in enumerate(case.template.resource_claims):
        if isinstance(claim, dict) and claim.get("resourceClaimName"):
            yield Hit(
                f"spec.template.resourceClaims[{index}].resourceClaimName",
                f"claim {claim['resourceClaimName']!r} would be shared by {case.pods_per_engine} nodes",
            )
