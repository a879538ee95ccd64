"""What is written into the cluster: safe pods, names that fit, nothing copied from the user's object."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specfleet.api import labels, names
from specfleet.api.base import RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import ArmRole
from specfleet.decide.exchange import SETTLE_SECONDS
from specfleet.decide.plan import JobIntent
from specfleet.resources import monitoring, revision, workloads
from specfleet.resources.benchmark_job import benchmark_job, config_map
from specfleet.resources.evidence import speculative_benchmark
from specfleet.resources.identity import BUILDER
from specfleet.resources.pods import READY_TIMEOUT
from specfleet.resources.preflight_job import preflight_job
from specfleet.resources.route import accepted, http_route, read_weights

from tests.controller.objects import NOW, deployment, wanted
from tests.decide.world import spec_of

FINGERPRINT = "0123456789ab"
JOB = JobIntent(
    benchmark="b1",
    unit="p0",
    pair=0,
    purpose="Qualify",
    arms={ArmRole.BASELINE: FINGERPRINT},
    pods={ArmRole.BASELINE: "p1"},
    cells=(("low", "chat"),),
)


def evidence() -> BenchmarkEvidenceSpec:
    return BenchmarkEvidenceSpec.model_validate(
        {
            "deployment": "llama",
            "benchmark": "b1",
            "purpose": "Qualify",
            "unit": "p0",
            "pair": 0,
            "baseline": "f1",
            "candidate": "f2",
            "proposer": "eagle3 k=3",
            "started": NOW,
            "finished": NOW,
            "gpuSeconds": 30,
            "runs": [],
        }
    )


def arm(owner: SpeculativeDeployment, benchmark: bool = False, drafted: bool = False) -> RawObject:
    arms = wanted(owner)
    view = arms.proposers[0] if drafted else arms.baseline
    engine = arms.engines[view.fingerprint]
    return workloads.arm_workload(owner, owner.spec, engine, view.role, 2, benchmark)


def route(owner: SpeculativeDeployment, **changes: Any) -> RawObject:
    given: dict[str, Any] = {"weights": {"f1": 3, "f2": 1}, "plain": "f1", "live": None, "now": NOW, **changes}
    return http_route(owner, **given)


def on_disk(volumes: list[RawObject] | None = None) -> SpeculativeDeployment:
    template = {
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "volumes": [
            *(volumes or [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}]),
            {"name": "token", "secret": {"secretName": "token"}},
        ],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}, {"name": "token", "mountPath": "/token"}],
        "podSecurityContext": {"fsGroup": 2000},
    }
    speculation = {"method": "draft_model", "draft": {"model": "/models/draft"}, "numSpeculativeTokens": 3}
    return deployment(template=template, speculation=speculation, model={"name": "/models/target"})


def preflight(owner: SpeculativeDeployment) -> RawObject:
    made = preflight_job(owner, "abc")
    assert made is not None
    return made


def everything(owner: SpeculativeDeployment) -> list[RawObject]:
    return [
        arm(owner),
        arm(owner, benchmark=True),
        arm(owner, drafted=True),
        workloads.arm_service(owner, owner.spec, ArmRole.BASELINE, FINGERPRINT),
        workloads.shared_service(owner, owner.spec),
        route(owner),
        monitoring.pod_monitor(owner),
        benchmark_job(owner, "b1", JOB, 600),
        config_map(owner, "b1", JOB, {"pair": 0}, "{}\n"),
        preflight(on_disk() if owner.name == "llama" else owner.model_copy(update={"spec": on_disk().spec})),
        revision.controller_revision(owner, "llama-abc"),
        speculative_benchmark(owner, evidence()),
    ]


def test_every_child_is_owned_by_uid_so_that_the_garbage_collector_removes_it() -> None:
    for manifest in everything(deployment()):
        (reference,) = manifest["metadata"]["ownerReferences"]
        assert reference["uid"] == "u-1"
        assert reference["controller"]
        assert manifest["metadata"]["namespace"] == "ml"
        assert "finalizers" not in manifest["metadata"]


def test_nothing_is_copied_from_the_labels_and_annotations_of_the_users_object() -> None:
    for manifest in everything(deployment()):
        text = (
            json.dumps(manifest["metadata"]) + json.dumps(manifest["spec"].get("template", {}).get("metadata", {}))
            if "spec" in manifest
            else json.dumps(manifest["metadata"])
        )
        assert "argocd" not in text
        assert "kubectl.kubernetes.io" not in text
        assert "search" not in text


def test_every_child_carries_the_label_by_which_it_is_found() -> None:
    for manifest in everything(deployment()):
        assert manifest["metadata"]["labels"][labels.DEPLOYMENT] == "llama"
        assert manifest["metadata"]["labels"][labels.MANAGED_BY] == labels.MANAGER


def object_names() -> st.SearchStrategy[str]:
    part = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?", fullmatch=True)
    return part.filter(lambda name: len(name) <= 63 and ".." not in name and ".-" not in name and "-." not in name)


@given(object_names())
def test_every_name_and_label_fits_what_kubernetes_takes(name: str) -> None:
    owner = deployment(name)
    for manifest in everything(owner):
        own = manifest["metadata"]["name"]
        limit = 46 if manifest["kind"] == "Deployment" else 63
        assert len(own) <= limit or own == name, f"{manifest['kind']} {own}"
        if manifest["kind"] == "Service":
            assert names.DNS_LABEL.fullmatch(own), own
        assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", own)
        for value in manifest["metadata"]["labels"].values():
            assert len(value) <= 63
            assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?", value)


@pytest.mark.parametrize(
    ("one", "other"), [("llama-3.1", "llama-3-1"), ("a" * 62, "a" * 63), ("3b", "sd-3b"), ("a.b", "a-b")]
)
def test_names_that_look_alike_after_shortening_stay_different(one: str, other: str) -> None:
    assert names.arm(one, FINGERPRINT) != names.arm(other, FINGERPRINT)
    assert names.service(one) != names.service(other)
    assert names.unit(one, "b1", "p0") != names.unit(other, "b1", "p0")


def test_a_plain_name_is_used_as_it_is() -> None:
    assert names.service("llama") == "llama"
    assert names.arm("llama", FINGERPRINT) == f"llama-{FINGERPRINT}"
    assert names.arm("llama", FINGERPRINT, benchmark=True) == f"llama-bench-{FINGERPRINT}"


def test_the_route_sends_traffic_to_the_services_of_the_arms() -> None:
    owner = deployment("llama-3.1")
    backend = route(owner)["spec"]["rules"][-1]["backendRefs"][0]
    service = workloads.arm_service(owner, owner.spec, ArmRole.BASELINE, "f1")
    assert backend["name"] == service["metadata"]["name"]
    assert backend["port"] == service["spec"]["ports"][0]["port"]


def test_the_benchmark_job_passes_the_restricted_pod_security_standard_and_gets_no_token() -> None:
    pod = benchmark_job(deployment(), "b1", JOB, 600)["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert not container["securityContext"].get("privileged")
    assert not any("hostPath" in volume for volume in pod["volumes"])


def test_the_benchmark_job_takes_no_gpu_is_bounded_in_time_and_never_repeats_itself() -> None:
    job = benchmark_job(deployment(), "b1", JOB, 600)
    assert "nvidia.com/gpu" not in json.dumps(job["spec"]["template"]["spec"]["containers"][0]["resources"])
    assert job["spec"]["activeDeadlineSeconds"] >= 600
    assert job["spec"]["backoffLimit"] == 0
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_whoever_may_read_the_engines_volumes_is_named_to_the_client_too() -> None:
    owner = on_disk()
    for job in (benchmark_job(owner, "b1", JOB, 600), preflight(owner)):
        context = job["spec"]["template"]["spec"]["securityContext"]
        assert context["supplementalGroups"] == [2000]
        assert "fsGroup" not in context, "nothing on a volume changes its owner"


VOLUMES = {
    "volumes": [
        {"name": "weights", "persistentVolumeClaim": {"claimName": "weights"}},
        {"name": "prompts", "persistentVolumeClaim": {"claimName": "prompts"}},
    ],
    "volumeMounts": [
        {"name": "weights", "mountPath": "/models"},
        {"name": "prompts", "mountPath": "/data/prompts"},
    ],
}


def mounted(**changes: Any) -> dict[str, Any]:
    """User volumes that a Job mounts: path by name."""
    owner = deployment(template=VOLUMES, **changes)
    pod = benchmark_job(owner, "b1", JOB, 600)["spec"]["template"]["spec"]
    mounts = {one["name"]: one for one in pod["containers"][0]["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    assert all(one["readOnly"] for name, one in mounts.items() if name != "scratch")
    return {name: one["mountPath"] for name, one in mounts.items() if name not in ("driver", "scratch")}


def test_the_benchmark_job_mounts_only_the_users_volumes_that_the_client_reads_from() -> None:
    benchmark = {**spec_of()["benchmark"], "prompts": {"volume": "/data/prompts/captured.jsonl"}}
    engine = {"image": "vllm/vllm-openai:v0.32.0"}
    assert mounted() == {}, "a ReadWriteOnce volume of the engines would keep the driver from starting elsewhere"
    assert mounted(benchmark=benchmark) == {"prompts": "/data/prompts"}
    assert mounted(model={"name": "/models/llama"}) == {"weights": "/models"}
    cached = {**engine, "env": [{"name": "HF_HOME", "value": "/models/hub"}]}
    assert mounted(engine=cached) == {"weights": "/models"}
    assert mounted(model={"name": "/models-of-others/llama"}) == {}


@pytest.mark.parametrize(
    ("volume", "written"),
    [({"emptyDir": {}}, True), ({"persistentVolumeClaim": {"claimName": "hub"}}, False)],
    ids=["a cache that begins empty in every pod", "a cache that the engines have filled"],
)
def test_the_driver_may_write_to_a_hub_cache_of_its_own_and_to_no_other(volume: dict[str, Any], written: bool) -> None:
    template = {"volumes": [{"name": "hub", **volume}], "volumeMounts": [{"name": "hub", "mountPath": "/hub"}]}
    engine = {"image": "vllm/vllm-openai:v0.32.0", "env": [{"name": "HF_HOME", "value": "/hub"}]}
    pod = benchmark_job(deployment(template=template, engine=engine), "b1", JOB, 600)["spec"]["template"]["spec"]
    (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "hub")
    assert mount["readOnly"] is not written, "without the tokenizer there is no run at all"


def test_what_the_driver_needs_wins_over_the_engines_environment() -> None:
    env = [
        {"name": "HOME", "value": "/root"},
        {"name": "CUDA_VISIBLE_DEVICES", "value": "0"},
        {"name": "A", "value": "b"},
    ]
    owner = deployment(
        engine={"image": "vllm/vllm-openai:v0.32.0", "env": env}, template={"huggingFaceTokenSecret": "hub"}
    )
    listed = benchmark_job(owner, "b1", JOB, 600)["spec"]["template"]["spec"]["containers"][0]["env"]
    values = {one["name"]: one.get("value") for one in listed}
    assert len(values) == len(listed)
    assert values == {
        "HF_TOKEN": None,
        "A": "b",
        "HOME": "/tmp",
        "CUDA_VISIBLE_DEVICES": "",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }


def test_the_preflight_passes_the_restricted_standard_takes_no_gpu_and_is_bounded_in_time() -> None:
    job = preflight(on_disk())
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["securityContext"]["supplementalGroups"] == [2000]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["image"] == on_disk().spec.engine.image
    assert "nvidia.com/gpu" not in json.dumps(container["resources"])
    assert 0 < job["spec"]["activeDeadlineSeconds"] <= 300
    assert job["spec"]["backoffLimit"] == 0
    assert pod["restartPolicy"] == "Never"


def test_the_preflight_mounts_the_models_alone_and_read_only() -> None:
    pod = preflight(on_disk())["spec"]["template"]["spec"]
    assert [one["name"] for one in pod["volumes"]] == ["models"]
    assert pod["containers"][0]["volumeMounts"] == [{"name": "models", "mountPath": "/models", "readOnly": True}]


def test_the_preflight_runs_where_an_engine_pod_serves() -> None:
    pod = preflight(on_disk())["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    own = workloads.shared_service(on_disk(), on_disk().spec)["spec"]["selector"]
    assert term["labelSelector"]["matchLabels"] == own
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]


def test_a_draft_that_an_init_container_fetches_is_not_looked_for_in_another_pod() -> None:
    volumes = [{"name": "models", "emptyDir": {}}]
    owner = on_disk(volumes)
    assert preflight_job(owner, "abc") is None
    assert wanted(owner).preflight_key is None


def test_the_plan_of_a_job_cannot_be_changed_under_it() -> None:
    made = config_map(deployment(), "b1", JOB, {"pair": 0}, "{}\n")
    assert made["immutable"] is True
    job = benchmark_job(deployment(), "b1", JOB, 600)
    found = {
        volume["configMap"]["name"] for volume in job["spec"]["template"]["spec"]["volumes"] if "configMap" in volume
    }
    assert found == {made["metadata"]["name"]}


def test_pods_beside_the_engines_pass_a_quota_on_limits_and_the_taints_of_gpu_nodes() -> None:
    owner = on_disk()
    made = [benchmark_job(owner, "b1", JOB, 600), preflight(owner)]
    for job in made:
        pod = job["spec"]["template"]["spec"]
        assert set(pod["containers"][0]["resources"]["limits"]) == {"cpu", "memory"}
        assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]


def test_engine_pods_get_no_token_no_privileges_and_time_to_drain() -> None:
    owner = deployment()
    pod = arm(owner)["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    engine = pod["containers"][0]
    assert engine["securityContext"]["allowPrivilegeEscalation"] is False
    least = owner.spec.engine.drain_timeout_seconds + owner.spec.engine.shutdown_timeout_seconds
    assert pod["terminationGracePeriodSeconds"] > least
    assert "preStop" in engine["lifecycle"]
    assert "exec" in engine["startupProbe"], "ready means that a completion was answered, not /health"


def test_only_a_pod_that_users_reach_waits_until_its_endpoint_is_gone() -> None:
    def settles(benchmark: bool) -> float:
        (engine,) = arm(deployment(), benchmark=benchmark)["spec"]["template"]["spec"]["containers"]
        return float(next(one["value"] for one in engine["env"] if one["name"] == "SPECFLEET_SETTLE_SECONDS"))

    assert settles(benchmark=False) > SETTLE_SECONDS
    assert settles(benchmark=True) == 0


def test_benchmark_pods_are_never_chosen_by_a_serving_service_or_the_monitor() -> None:
    owner = deployment()
    bench = arm(owner, benchmark=True)["spec"]["template"]["metadata"]["labels"]
    serving = arm(owner)["spec"]["template"]["metadata"]["labels"]
    selectors = [
        workloads.shared_service(owner, owner.spec)["spec"]["selector"],
        workloads.arm_service(owner, owner.spec, ArmRole.BASELINE, wanted(owner).baseline.fingerprint)["spec"][
            "selector"
        ],
        monitoring.pod_monitor(owner)["spec"]["selector"]["matchLabels"],
    ]
    for chosen in selectors:
        assert chosen.items() <= serving.items()
        assert not chosen.items() <= bench.items()


def test_the_arms_differ_in_speculation_and_fingerprint_alone() -> None:
    owner = deployment()
    plain, drafted = (arm(owner, drafted=one)["spec"]["template"]["spec"] for one in (False, True))
    for field in set(plain) | set(drafted):
        if field != "containers":
            assert plain.get(field) == drafted.get(field)
    one, other = plain["containers"][0], drafted["containers"][0]
    assert {field for field in set(one) | set(other) if one.get(field) != other.get(field)} == {"args", "env"}
    changed = [a["name"] for a, b in zip(one["env"], other["env"], strict=True) if a != b]
    assert changed == ["SPECFLEET_FINGERPRINT"]


@pytest.mark.parametrize(("given", "wanted_seconds"), [([], "86400"), ([{"name": READY_TIMEOUT, "value": "50"}], "50")])
def test_the_engine_does_not_end_its_start_before_we_do(given: list[RawObject], wanted_seconds: str) -> None:
    engine = {"image": "vllm/vllm-openai:v0.32.0", "startupTimeoutSeconds": 900, "env": given}
    container = arm(deployment(engine=engine))["spec"]["template"]["spec"]["containers"][0]
    assert [one["value"] for one in container["env"] if one["name"] == READY_TIMEOUT] == [wanted_seconds]


def test_users_labels_cannot_take_the_place_of_ours() -> None:
    owner = deployment(template={"labels": {labels.ROLE: "serving", labels.DEPLOYMENT: "other", "team": "x"}})
    own = arm(owner, benchmark=True)["spec"]["template"]["metadata"]["labels"]
    assert own[labels.ROLE] == labels.ROLE_BENCHMARK
    assert own[labels.DEPLOYMENT] == "llama"
    assert own["team"] == "x"


def test_a_running_arm_keeps_its_template_when_another_operator_version_would_build_it_differently() -> None:
    owner = deployment()
    live = arm(owner)
    live["metadata"]["annotations"][BUILDER] = "0"
    live["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 7
    arms = wanted(owner)
    engine = arms.engines[arms.baseline.fingerprint]
    again = workloads.arm_workload(owner, owner.spec, engine, ArmRole.BASELINE, 3, False, live)
    assert again["spec"]["template"] == live["spec"]["template"]
    assert again["spec"]["replicas"] == 3


def test_a_benchmark_pod_prefers_a_node_beside_the_users_affinity_and_keeps_its_place_while_it_runs() -> None:
    zone = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [zone]}, "podAffinity": {"a": 1}}
    owner = deployment(template={"affinity": affinity})
    arms = wanted(owner)
    engine = arms.engines[arms.baseline.fingerprint]

    def made(node: str | None, live: RawObject | None) -> RawObject:
        built = workloads.arm_workload(owner, owner.spec, engine, ArmRole.BASELINE, 1, True, live, node)
        return built["spec"]["template"]["spec"]["affinity"]

    plain = made(None, None)
    assert plain == affinity
    swapped = made("node-b", None)
    terms = swapped["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert terms[0] == zone
    assert terms[1]["preference"] == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-b"]}]}
    assert swapped["podAffinity"] == affinity["podAffinity"]
    live = arm(owner, benchmark=True)
    assert made("node-b", live) == affinity, "a changed template would replace a pod under its runs"
    live["spec"]["replicas"] = 0
    assert made("node-b", live) == swapped


def test_an_arm_of_an_earlier_spec_is_scaled_without_touching_its_template() -> None:
    owner = deployment()
    live = arm(owner, benchmark=True)
    scaled = workloads.rescaled(owner, live, 0)
    assert scaled["spec"]["template"] == live["spec"]["template"]
    assert scaled["spec"]["selector"] == live["spec"]["selector"]
    assert scaled["metadata"]["name"] == live["metadata"]["name"]
    assert scaled["spec"]["replicas"] == 0


def test_the_route_writes_the_defaults_of_the_api_out_so_that_nobody_sees_a_difference() -> None:
    for rule in route(deployment())["spec"]["rules"]:
        for backend in rule["backendRefs"]:
            assert backend["group"] == ""
            assert backend["kind"] == "Service"
        for match in rule["matches"]:
            assert match["path"] == {"type": "PathPrefix", "value": "/"}
    parent = route(deployment())["spec"]["parentRefs"][0]
    assert parent["group"] == "gateway.networking.k8s.io"
    assert parent["kind"] == "Gateway"


def test_a_long_completion_is_never_cut_by_the_gateway() -> None:
    assert all(rule["timeouts"]["request"] == "0s" for rule in route(deployment())["spec"]["rules"])
    traffic = {"parentRefs": [{"name": "gateway"}], "routeTemplate": {"timeouts": {"request": "90s"}}}
    assert route(deployment(traffic=traffic))["spec"]["rules"][-1]["timeouts"]["request"] == "90s"


def test_clients_with_the_plain_header_reach_only_the_plain_arm() -> None:
    first, second = route(deployment())["spec"]["rules"]
    assert {backend["name"] for backend in first["backendRefs"] if backend.get("weight", 1)} == {
        names.arm("llama", "f1")
    }
    assert first["matches"][0]["headers"][0]["name"] == "x-specfleet-plain"
    assert len(second["backendRefs"]) == 2


def test_without_a_serving_plain_arm_the_header_loses_no_request() -> None:
    (only,) = route(deployment(), plain=None)["spec"]["rules"]
    assert len(only["backendRefs"]) == 2


def test_weights_are_read_back_as_they_were_written() -> None:
    assert read_weights(route(deployment())) == {"f1": 3, "f2": 1}
    assert read_weights({"metadata": {}}) == {}


def test_the_time_of_the_weights_moves_only_when_the_weights_do() -> None:
    owner = deployment()
    live = route(owner)
    later = NOW.replace(hour=20)
    assert route(owner, live=live, now=later) == live
    moved = route(owner, live=live, now=later, weights={"f1": 2, "f2": 2})
    assert moved["metadata"]["annotations"] != live["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("parents", "expected"),
    [
        ([], False),
        ([{"conditions": [{"type": "Accepted", "status": "True", "observedGeneration": 2}]}], True),
        ([{"conditions": [{"type": "Accepted", "status": "True", "observedGeneration": 1}]}], False),
        ([{"conditions": [{"type": "Accepted", "status": "False", "message": "no such gateway"}]}], False),
        ([{"conditions": [{"type": "ResolvedRefs", "status": "False", "message": "no Service"}]}], False),
        (
            [
                {"conditions": [{"type": "Accepted", "status": "True"}]},
                {"conditions": [{"type": "Accepted", "status": "False"}]},
            ],
            False,
        ),
    ],
    ids=["nobody answered", "accepted", "an older generation", "refused", "unresolved", "one of two gateways refused"],
)
def test_a_route_counts_only_when_every_gateway_has_taken_this_generation(
    parents: list[dict[str, Any]], expected: bool
) -> None:
    live = {"metadata": {"generation": 2}, "status": {"parents": parents}}
    assert accepted(live)[0] is expected


def test_a_revision_keeps_the_whole_spec() -> None:
    owner = deployment()
    assert revision.read_revision(revision.controller_revision(owner, "r1")) == owner.spec


def test_evidence_recorded_twice_has_one_name() -> None:
    one, other = (speculative_benchmark(deployment(), evidence()) for _ in range(2))
    assert one["metadata"]["name"] == other["metadata"]["name"] == names.unit("llama", "b1", "p0")


def test_a_change_that_no_engine_notices_does_not_cost_the_only_pod_where_a_spare_one_is_declared() -> None:
    spare, none = deployment(replicas=1), deployment(replicas=1, capacity={"maxExtraReplicas": 0})
    assert arm(spare)["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert arm(none)["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
