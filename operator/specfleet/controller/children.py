"""From a plan to the manifests of all children that should exist."""

from specfleet.api.base import RawObject
from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.api.status import ArmRole
from specfleet.benchmark.plan import ArmTarget, build_plan, built_in_prompts, latest_end_seconds
from specfleet.benchmark.result import capacity_of
from specfleet.controller.wanted import WantedArms
from specfleet.decide.observation import Observation
from specfleet.decide.plan import ArmIntent, JobIntent, Plan
from specfleet.decide.units import measured_spec, of_benchmark
from specfleet.engine.arguments import EngineArm, build_arm, served_name
from specfleet.engine.environment import ConfigMaps
from specfleet.kube import kinds
from specfleet.kube.cache import Cache, Key
from specfleet.resources import monitoring, revision, workloads
from specfleet.resources import route as routes
from specfleet.resources.benchmark_job import benchmark_job, config_map, unit_name
from specfleet.resources.identity import ArmIdentity
from specfleet.resources.pods import base_url
from specfleet.resources.preflight_job import preflight_job


def desired_children(
    obs: Observation,
    plan: Plan,
    wanted: WantedArms,
    cache: Cache,
    key: Key,
    optional: frozenset[str],
    prompts: str | None,
) -> list[RawObject]:
    """Every child that should exist, in the order in which they are to be written.

    `optional`: kinds that the cluster has. `prompts`: the user's prompts.jsonl, None for the built-in ones.
    """
    owner, live = obs.deployment, _Live(cache, key)
    manifests: list[RawObject] = []
    if plan.revision is not None:
        manifests.append(revision.controller_revision(owner, plan.revision))
    serving = [intent for intent in plan.arms if not intent.benchmark]
    # Of a spec that is refused from the first, nothing is made that looks as if it served.
    served = bool(serving) or plan.status.stable is not None
    if served:
        manifests.append(workloads.shared_service(owner, owner.spec))
    manifests += [workloads.arm_service(owner, owner.spec, one.role, one.fingerprint) for one in serving]
    if served and monitoring.KIND in optional and owner.spec.monitoring.pod_monitor:
        manifests.append(monitoring.pod_monitor(owner))
    if routes.KIND in optional and owner.spec.traffic.parent_refs and plan.weights:
        plain = next((one.fingerprint for one in serving if one.role is ArmRole.BASELINE), None)
        routed_plain = plain if plain is not None and plan.weights.get(plain, 0) > 0 else None
        manifests.append(
            routes.http_route(owner, plan.weights, routed_plain, live.one(kinds.HTTP_ROUTE, owner.name), obs.now)
        )
    manifests += [one for intent in plan.arms if (one := _arm(obs, intent, wanted, live)) is not None]
    if plan.job is not None and plan.status.benchmark is not None:
        manifests += _benchmark(obs, plan, plan.job, live, prompts)
    look = preflight_job(owner, plan.preflight) if plan.preflight is not None else None
    return [*manifests, *([look] if look is not None else [])]


class _Live:
    """Children as they are."""

    def __init__(self, cache: Cache, key: Key) -> None:
        self._cache = cache
        self._key = key

    def one(self, kind: kinds.Kind, name: str) -> RawObject | None:
        return next((body for body in self._cache.children(self._key, kind) if body["metadata"]["name"] == name), None)

    def arm(self, owner: SpeculativeDeployment, arm: ArmIdentity) -> RawObject | None:
        """The workload of an arm, of whichever kind: its fingerprint tells whether its engines span nodes."""
        found = (self.one(kind, workloads.arm_workload_name(owner, kind.kind, arm)) for kind in kinds.ARMS)
        return next((body for body in found if body is not None), None)


def _arm(obs: Observation, intent: ArmIntent, wanted: WantedArms, live: _Live) -> RawObject | None:
    """A workload from the present spec, from the revision that it belongs to, or from itself with other replicas."""
    owner = obs.deployment
    existing = live.arm(owner, ArmIdentity(intent.role, intent.fingerprint, intent.benchmark))
    engine = wanted.engines.get(intent.fingerprint)
    if engine is not None:
        return workloads.arm_workload(
            owner, owner.spec, engine, intent.role, intent.replicas, intent.benchmark, existing, intent.node
        )
    earlier = obs.revisions.get(intent.revision or "")
    if existing is not None:
        moved = existing if earlier is None or not intent.benchmark else workloads.moved(existing, earlier, intent.node)
        rescaled = workloads.rescaled(owner, moved, intent.replicas)
        if rescaled is not None:
            return rescaled
    if earlier is None:
        return None
    engine = _as_before(earlier, intent, wanted.config_maps)
    if engine is None:
        return None
    return workloads.arm_workload(
        owner, earlier, engine, intent.role, intent.replicas, intent.benchmark, None, intent.node
    )


def _as_before(earlier: DeploymentSpec, intent: ArmIntent, config_maps: ConfigMaps) -> EngineArm | None:
    """An arm of an earlier spec that has no workload any more.

    What it was made of may have changed under its name since (a ConfigMap's content, how an older operator counted).
    Without it nothing could be rolled back to, so it is made as it can be: where its role leaves no doubt which it was.
    """
    proposers = (None, *(earlier.speculation.proposers() if earlier.speculation else ()))
    built = [(one, build_arm(earlier, one, config_maps)) for one in proposers]
    same = next((engine for _, engine in built if engine.fingerprint == intent.fingerprint), None)
    if same is not None:
        return same
    meant = [one for one in proposers if (one is None) is (intent.role is ArmRole.BASELINE)]
    return build_arm(earlier, meant[0], config_maps, intent.fingerprint) if len(meant) == 1 else None


def _spec_of(obs: Observation, fingerprint: str) -> DeploymentSpec:
    """The spec that an arm was built from: the present one, or that of the revision which serves."""
    stable = obs.status.stable
    earlier = obs.revisions.get(stable.name) if stable is not None and obs.wanted(fingerprint) is None else None
    return earlier if earlier is not None else obs.spec


def _benchmark(obs: Observation, plan: Plan, job: JobIntent, live: _Live, prompts: str | None) -> list[RawObject]:
    """The Job and its ConfigMap. Both are made once: what runs is never changed under a run."""
    owner, progress = obs.deployment, plan.status.benchmark
    assert progress is not None
    name = unit_name(owner, progress.id, job)
    existing = [live.one(kind, name) for kind in (kinds.CONFIG_MAP, kinds.JOB)]
    if all(existing):
        return [body for body in existing if body is not None]
    targets = {}
    for role, fingerprint in job.arms.items():
        arm = obs.bench_arm(fingerprint)
        pod = next((pod for pod in arm.serving if pod.name == job.pods.get(role)), None) if arm else None
        if pod is None or pod.ip is None:
            return [body for body in existing if body is not None]
        spec = _spec_of(obs, fingerprint)
        targets[role] = ArmTarget(base_url(pod.ip, spec.engine.port), pod.name, fingerprint, served_name(spec))
    drawn = build_plan(
        measured_spec(owner.spec, progress),
        job.pair,
        targets,
        job.cells,
        capacity_of(of_benchmark(obs.evidence, progress)),
        job.purpose,
        progress.id,
        progress.retries,
    )
    return [
        config_map(owner, progress.id, job, drawn, prompts if prompts is not None else built_in_prompts()),
        benchmark_job(owner, progress.id, job, latest_end_seconds(drawn)),
    ]
