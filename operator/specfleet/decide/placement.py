"""On which pods and nodes the arms are measured, so that what one node or process is good at belongs to neither."""

from collections.abc import Mapping
from datetime import datetime

from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import ArmRole, BenchmarkProgress
from specfleet.decide.observation import ArmView, Observation, PodView
from specfleet.decide.three_way import CHANGE_PAIRS
from specfleet.decide.units import Unit, of_benchmark, pairs_of

PLAIN, DRAFTED = ArmRole.BASELINE, ArmRole.SPECULATIVE


def worn_pods(
    obs: Observation, progress: BenchmarkProgress, unit: Unit, arms: Mapping[ArmRole, str], together: bool
) -> list[PodView]:
    """Pods of the first half of the pairs that would measure the second half too: both arms get fresh ones half way.

    They all go before the first fresh one comes, so that the arms can change places where each node has one GPU free.
    Arms that take turns change their pods at every turn anyway.
    """
    if not together or unit.pair < _half(obs, progress):
        return []
    # By age too: a group of pods (LeaderWorkerSet) that is made anew has the name of the one before.
    runs = ((run.pod, one.finished) for one in _first_half(obs, progress) for run in one.runs)
    used = {pod: finished for pod, finished in runs if pod is not None}
    views = (obs.bench_arm(one) for one in arms.values())
    return [pod for view in views if view is not None for pod in view.pods if _is_among(pod, used)]


def _is_among(pod: PodView, used: Mapping[str, datetime]) -> bool:
    return pod.name in used and pod.created <= used[pod.name]


def preferred_nodes(obs: Observation, progress: BenchmarkProgress, unit: Unit, together: bool) -> dict[ArmRole, str]:
    """Node that an arm should rather run on; an arm without one goes where the scheduler puts it.

    Side by side, each arm gets the other one's node for the second half, so that a difference between two nodes
    cancels. Taking turns, both get the node of the first turn, so that there is none. Only a preference: a full node
    keeps no benchmark waiting, and what became of it is in the evidence.
    """
    if together:
        before = [one.nodes for one in _first_half(obs, progress) if len(one.nodes) == len(ArmRole)]
        if unit.pair < _half(obs, progress) or not before:
            return {}
        return {PLAIN: before[-1][DRAFTED], DRAFTED: before[-1][PLAIN]}
    first = next((one.nodes for one in pairs_of(of_benchmark(obs.evidence, progress)) if one.nodes), None)
    return dict.fromkeys(ArmRole, next(iter(first.values()))) if first else {}


def node_of(arm: ArmView | None, pod: str | None) -> str | None:
    """Node of an arm's pod, by its name or of the only one; None where it is not known."""
    pods = arm.pods if arm is not None else ()
    chosen = [one for one in pods if one.name == pod] if pod is not None else list(pods)
    return chosen[0].node if len(chosen) == 1 else None


def _half(obs: Observation, progress: BenchmarkProgress) -> int:
    return (CHANGE_PAIRS if progress.purpose == "Change" else obs.spec.benchmark.pairs) // 2


def _first_half(obs: Observation, progress: BenchmarkProgress) -> list[BenchmarkEvidenceSpec]:
    half = _half(obs, progress)
    return [one for one in of_benchmark(obs.evidence, progress) if one.pair < half]
