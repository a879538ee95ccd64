"""An engine over several pods: the flags by which they find each other, and what the pods without HTTP leave out.

vLLM's own multiprocess executor (`--nnodes`), never Ray. Rank and leader address come from variables that
LeaderWorkerSet puts first into every container; Kubernetes expands them in the arguments, so no shell is needed.
"""

from collections.abc import Sequence

from specfleet.api.deployment import DeploymentSpec
from specfleet.engine.flags import Flag, parse_flags

SINCE = "0.11.2"
"""The oldest release whose wheel was read for `--nnodes` (vllm#23691)."""
LEADER_ADDRESS = "LWS_LEADER_ADDRESS"
WORKER_INDEX = "LWS_WORKER_INDEX"
SET_VARIABLES = "LWS_"
"""Prefix of the variables that LeaderWorkerSet sets, over whatever the container says."""
HEADLESS = "--headless"
OF_THE_LEADER = frozenset({"--api-server-count", "-asc", "--grpc", "--grpc-port"})
"""Flags of the HTTP side: vLLM ends with an error where they meet --headless."""
EXECUTOR = ("--distributed-executor-backend", "mp")


def node_flags(spec: DeploymentSpec) -> list[Flag]:
    """What the pods of one engine are told, the same text in each; nothing for an engine in one pod."""
    nodes = spec.template.multi_node
    if nodes is None:
        return []
    name, backend = EXECUTOR
    return [
        Flag(name, (backend,)),
        Flag("--nnodes", (str(nodes.size),)),
        Flag("--node-rank", (f"$({WORKER_INDEX})",)),
        Flag("--master-addr", (f"$({LEADER_ADDRESS})",)),
    ]


def headless_args(args: Sequence[str]) -> tuple[str, ...]:
    """Arguments of a pod that is not the leader, from those of the leader: the same engine without its HTTP side."""
    model, *rest = args
    kept = [flag for flag in parse_flags(rest) if flag.name not in OF_THE_LEADER]
    return (model, *(token for flag in kept for token in flag.tokens), HEADLESS)
