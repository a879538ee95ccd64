"""The command line, the fingerprint and fairness: what a user sees of an arm."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.speculation import Method, Proposer
from specfleet.engine.arguments import EngineArm, build_arm, fairness
from specfleet.engine.environment import matters
from specfleet.engine.fingerprint import describe_difference, observed_fingerprint, observed_inputs
from specfleet.engine.flags import parse_flags
from specfleet.engine.parse import parse_command
from specfleet.engine.speculative import CONFIG_KEYS, config_text, proposer_of, speculative_config
from specfleet.resources.pods import engine_container, worker_container

from tests.engine.specs import PROPOSERS, SCHEDULE, VALID, proposer, put, raw_spec, spec_of


def arm_of(changes: dict[str, Any] | None = None, method: Method | None = None, **fields: Any) -> EngineArm:
    spec = DeploymentSpec.model_validate(raw_spec(method, changes, **fields))
    return build_arm(spec, spec.speculation.proposers()[0] if spec.speculation else None)


def flag_value(arm: EngineArm, name: str) -> str:
    return arm.args[arm.args.index(name) + 1]


def test_the_command_names_model_address_identity_and_drain() -> None:
    spec = spec_of(Method.EAGLE3, {"model.servedName": "chat", "model.revision": "a" * 40})
    arm = build_arm(spec, spec.speculation.proposers()[0])  # type: ignore[union-attr]
    assert arm.args[0] == "/models/target"
    assert flag_value(arm, "--served-model-name") == "chat"
    assert flag_value(arm, "--revision") == "a" * 40
    assert flag_value(arm, "--host") == "0.0.0.0"
    assert flag_value(arm, "--port") == "8000"
    assert flag_value(arm, "--shutdown-timeout") == "120"
    assert flag_value(arm, "--fingerprint-mode") == "custom"
    assert flag_value(arm, "--fingerprint-value") == arm.fingerprint
    assert json.loads(flag_value(arm, "--speculative-config")) == {
        "method": "eagle3",
        "model": "/models/head",
        "num_speculative_tokens": 3,
    }


def test_the_plain_arm_has_no_speculation_and_is_labelled_none() -> None:
    plain = arm_of()
    assert "--speculative-config" not in plain.args
    assert plain.speculative_config is None
    assert plain.proposer_label == "none"


@pytest.mark.parametrize(
    ("version", "flag", "present"),
    [
        ("0.17.1", "--shutdown-timeout", False),
        ("0.18.0", "--shutdown-timeout", True),
        ("0.20.2", "--fingerprint-value", False),
        ("0.21.0", "--fingerprint-value", True),
        ("0.31.0", "--custom-histogram-buckets", False),
        ("0.32.0rc1", "--custom-histogram-buckets", True),
        ("0.32.0", "--custom-histogram-buckets", True),
    ],
)
def test_flags_appear_with_the_release_that_knows_them(version: str, flag: str, present: bool) -> None:
    assert (flag in arm_of({"engine.image": f"vllm/vllm-openai:v{version}"}).args) is present


def test_declared_slos_are_bucket_edges_and_the_same_in_both_arms() -> None:
    slos = {"guardrails.tpotSloSeconds": 0.0137, "guardrails.ttftSloSeconds": 0.77, "guardrails.stallSloSeconds": 0.31}
    plain, speculative = arm_of(slos), arm_of(slos, Method.NGRAM)
    buckets = json.loads(flag_value(plain, "--custom-histogram-buckets"))
    assert {0.0137, 0.31} <= set(buckets["inter_token_latency"])
    assert 0.77 in buckets["time_to_first_token"]
    assert all(edges == sorted(set(edges)) for edges in buckets.values())
    assert flag_value(speculative, "--custom-histogram-buckets") == flag_value(plain, "--custom-histogram-buckets")


def test_the_order_and_spelling_of_user_arguments_do_not_make_another_variant() -> None:
    one = arm_of({"engine.args": ["--max-num-seqs", "8", "--enable-prefix-caching", "--seed=1"]})
    two = arm_of({"engine.args": ["--seed", "1", "--max_num_seqs=8", "--enable_prefix_caching"]})
    assert one.args == two.args
    assert one.fingerprint == two.fingerprint


def test_the_last_of_two_switches_of_one_setting_still_wins() -> None:
    arm = arm_of({"engine.args": ["--no-enable-prefix-caching", "--seed=1", "--enable-prefix-caching"]})
    switches = [token for token in arm.args if token.endswith("enable-prefix-caching")]
    assert switches == ["--no-enable-prefix-caching", "--enable-prefix-caching"]


def test_a_negative_value_stays_attached_to_its_flag() -> None:
    assert "--seed=-1" in arm_of({"engine.args": ["--seed=-1"]}).args


def test_the_token_is_given_by_reference_and_never_by_value() -> None:
    arm = arm_of({"template.huggingFaceTokenSecret": "hub"})
    assert arm.env == ({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},)


def test_secret_looking_values_do_not_appear_in_fingerprint_inputs() -> None:
    arm = arm_of({"engine.env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "topsecret"}]})
    assert "topsecret" not in str(dict(arm.fingerprint_inputs))
    other = arm_of({"engine.env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "other"}]})
    assert arm.fingerprint != other.fingerprint


def test_extra_keys_are_passed_and_marked_unverified() -> None:
    arm = arm_of(method=Method.MTP, extra={"index_share_for_mtp_iteration": True})
    assert arm.unverified
    assert json.loads(flag_value(arm, "--speculative-config"))["index_share_for_mtp_iteration"] is True


def test_extra_never_overrides_a_typed_field() -> None:
    config = speculative_config(Proposer.model_validate(proposer("ngram", extra={"num_speculative_tokens": 9})))
    assert config["num_speculative_tokens"] == 3


CHANGES_THAT_MATTER: dict[str, tuple[dict[str, Any], str]] = {
    "model": ({"model.name": "/models/other"}, "model /models/target -> /models/other"),
    "model revision": ({"model.revision": "a1b2c3d4" * 5}, "model revision none -> a1b2c3d4"),
    "tokenizer": ({"model.tokenizer": "/models/tok"}, "tokenizer none -> /models/tok"),
    "tokenizer revision": ({"model.tokenizerRevision": "r1"}, "tokenizer revision none -> r1"),
    "quantisation": ({"model.quantization": "fp8"}, "quantization none -> fp8"),
    "weight type": ({"model.dtype": "bfloat16"}, "dtype none -> bfloat16"),
    "context": ({"model.maxModelLen": 8192}, "context length 4096 -> 8192"),
    "served name": ({"model.servedName": "chat"}, "served name /models/target -> chat"),
    "image": ({"engine.image": "vllm/vllm-openai:v0.33.0"}, "engine 0.32.0 -> 0.33.0"),
    "registry": ({"engine.image": "mirror/vllm-openai:v0.32.0"}, "image vllm/vllm-openai:v0.32.0 -> mirror/"),
    "argument": ({"engine.args": ["--max-num-seqs", "8"]}, "--max-num-seqs none -> 8"),
    "switch": ({"engine.args": ["--enforce-eager"]}, "--enforce-eager none -> set"),
    "port": ({"engine.port": 9000}, "--port 8000 -> 9000"),
    "shutdown timeout": ({"engine.shutdownTimeoutSeconds": 60}, "shutdown timeout 120 -> 60"),
    "variable": ({"engine.env": [{"name": "VLLM_ATTENTION_BACKEND", "value": "X"}]}, "env VLLM_ATTENTION_BACKEND none"),
    "secret by name": (
        {"engine.env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
        "env A none -> secret s/k",
    ),
    "tensor ranks": ({"engine.tensorParallelSize": 2}, "tensor parallel size none -> 2"),
    "pipeline": ({"engine.pipelineParallelSize": 2}, "pipeline parallel size none -> 2"),
    "data parallel": ({"engine.dataParallelSize": 2}, "data parallel size none -> 2"),
    "GPU count": ({"template.resources": {"limits": {"nvidia.com/gpu": "2"}}}, "resources "),
    "GPU node": ({"template.nodeSelector": {"gpu": "h100"}}, "node selector none"),
    "claims": ({"template.resourceClaims": [{"name": "g"}]}, "resource claims none"),
    "runtime": ({"template.runtimeClassName": "nvidia"}, "runtime class none -> nvidia"),
    "shared memory": ({"template.sharedMemorySize": "8Gi"}, "shared memory none -> 8Gi"),
    "volume": ({"template.volumes": [{"name": "models", "emptyDir": {}}]}, "volumes "),
    "nodes": ({"template.multiNode": {"size": 2}}, "pods per engine none -> 2"),
    "more nodes": ({"template.multiNode": {"size": 4}}, "pods per engine none -> 4"),
    "where the nodes are": (
        {"template.multiNode": {"size": 2, "exclusiveTopologyKey": "rack"}},
        "exclusive topology none -> rack",
    ),
    "an SLO, because it is a bucket edge": ({"guardrails.tpotSloSeconds": 0.0137}, "histogram buckets "),
}


@pytest.mark.parametrize(("changes", "words"), CHANGES_THAT_MATTER.values(), ids=CHANGES_THAT_MATTER)
def test_a_change_that_matters_changes_the_fingerprint_and_is_named(changes: dict[str, Any], words: str) -> None:
    before, after = arm_of(), arm_of(changes)
    assert before.fingerprint != after.fingerprint
    assert words in describe_difference(before.fingerprint_inputs, after.fingerprint_inputs)
    assert words in (fairness(before, after) or "")


def test_a_long_value_is_told_where_it_differs() -> None:
    before, after = arm_of(), arm_of({"guardrails.tpotSloSeconds": 0.0137})
    said = describe_difference(before.fingerprint_inputs, after.fingerprint_inputs)
    assert "0.0137" in said
    assert len(said) < 250
    older = arm_of({"engine.version": "0.31.0", "engine.image": "vllm/vllm-openai:v0.31.0"})
    upgrade = describe_difference(older.fingerprint_inputs, before.fingerprint_inputs)
    assert "engine 0.31.0 -> 0.32.0" in upgrade
    assert len(upgrade) < 250


CHANGES_THAT_DO_NOT_MATTER: dict[str, dict[str, Any]] = {
    "replicas": {"replicas": 8},
    "extra replicas": {"capacity.maxExtraReplicas": 4},
    "rollout": {"rollout.steps": [{"weightPercent": 10}]},
    "window": {"monitoring.windowSeconds": 120},
    "remedies": {"remedies.rollback": False},
    "benchmark": {"benchmark.pairs": 4},
    "a guard that is no SLO": {"guardrails.minAcceptanceRate": 0.5},
    "labels": {"template.labels": {"team": "a"}},
    "annotations": {"template.annotations": {"a": "b"}},
    "priority": {"template.priorityClassName": "high"},
    "queue": {"template.kueueQueueName": "gpu"},
    "pull secrets": {"template.imagePullSecrets": [{"name": "x"}]},
    "pause": {"paused": True},
    "hub token": {"template.huggingFaceTokenSecret": "hub"},
    "proxy": {"engine.env": [{"name": "HTTPS_PROXY", "value": "http://p"}]},
    "logging": {"engine.env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]},
    "start-up time": {"engine.startupTimeoutSeconds": 60},
    "drain time": {"engine.drainTimeoutSeconds": 60},
}


@pytest.mark.parametrize("changes", CHANGES_THAT_DO_NOT_MATTER.values(), ids=CHANGES_THAT_DO_NOT_MATTER)
def test_a_change_that_does_not_matter_keeps_the_fingerprint_and_the_engine(changes: dict[str, Any]) -> None:
    assert arm_of(changes).fingerprint == arm_of().fingerprint
    assert engine_of(changes) == engine_of({})


def engine_of(changes: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of the rendered containers that make the engine: image, command, resources, mounts, variables; of an
    engine over several pods those of the leader and of the others, with how many there are."""
    spec = DeploymentSpec.model_validate(raw_spec(None, changes))
    arm, nodes = build_arm(spec, None), spec.template.multi_node
    containers = [engine_container(spec, arm), *([worker_container(spec, arm)] if nodes else [])]
    made: list[dict[str, Any]] = [{"pods": nodes.size if nodes else 1}]
    for container in containers:
        kept = {key: container.get(key) for key in ("image", "command", "args", "resources", "volumeMounts")}
        own = [one for one in container["env"] if matters(one["name"]) and not one["name"].startswith("SPECFLEET_")]
        made.append({**kept, "env": own})
    return made


@pytest.mark.parametrize("method", list(Method))
def test_arms_that_differ_in_the_proposer_only_are_fair(method: Method) -> None:
    plain, speculative = arm_of(), arm_of(None, method)
    assert fairness(plain, speculative) is None
    assert plain.fingerprint != speculative.fingerprint


def test_a_difference_between_proposers_is_named_in_words() -> None:
    one = arm_of(method=Method.EAGLE3, draft__revision="a1b2c3d4" * 5)
    two = arm_of({"engine.image": "vllm/vllm-openai:v0.31.0"}, Method.EAGLE3, draft__revision="c3d4e5f6" * 5)
    words = describe_difference(two.fingerprint_inputs, one.fingerprint_inputs)
    assert "engine 0.31.0 -> 0.32.0" in words
    assert "draft revision c3d4e5f6 -> a1b2c3d4" in words


def test_revisions_that_share_their_first_digits_are_shown_whole() -> None:
    words = describe_difference({"r": "a" * 39 + "b"}, {"r": "a" * 39 + "c"})
    assert words == f"r {'a' * 39}b -> {'a' * 39}c"


def test_config_maps_count_by_content_and_secrets_by_name() -> None:
    reference = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}
    volume = {"name": "t", "configMap": {"name": "template"}}
    spec = DeploymentSpec.model_validate(raw_spec(None, {"engine.env": [reference], "template.volumes": [volume]}))
    first = build_arm(spec, None, {"c": {"k": "1"}, "template": {"chat": "x"}})
    assert first.fingerprint == build_arm(spec, None, {"template": {"chat": "x"}, "c": {"k": "1"}}).fingerprint
    assert first.fingerprint != build_arm(spec, None, {"c": {"k": "2"}, "template": {"chat": "x"}}).fingerprint
    changed = build_arm(spec, None, {"c": {"k": "1"}, "template": {"chat": "y"}})
    assert "configMap template" in describe_difference(first.fingerprint_inputs, changed.fingerprint_inputs)


def test_the_observed_fingerprint_shows_a_moved_tag_another_engine_and_another_gpu() -> None:
    base = observed_fingerprint("abc", "sha256:1", "0.32.0", "NVIDIA-H100")
    assert base == observed_fingerprint("abc", "sha256:1", "0.32.0", "NVIDIA-H100")
    others = [
        observed_fingerprint("abd", "sha256:1", "0.32.0", "NVIDIA-H100"),
        observed_fingerprint("abc", "sha256:2", "0.32.0", "NVIDIA-H100"),
        observed_fingerprint("abc", "sha256:1", "0.32.1", "NVIDIA-H100"),
        observed_fingerprint("abc", "sha256:1", "0.32.0", "NVIDIA-A100"),
    ]
    assert len({base, *others}) == 5
    seen = observed_inputs(arm_of().fingerprint_inputs, "sha256:" + "1" * 64, "0.32.0", None)
    moved = observed_inputs(arm_of().fingerprint_inputs, "sha256:" + "2" * 64, "0.32.0", None)
    assert describe_difference(seen, moved) == "image digest sha256:111111111111 -> sha256:222222222222"


def test_a_fingerprint_fits_a_dns_label_and_a_label_value() -> None:
    assert len(arm_of().fingerprint) == 12
    assert set(arm_of().fingerprint) <= set("0123456789abcdef")


text = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
optional = st.none()
drafts = st.fixed_dictionaries(
    {"model": text},
    optional={
        "revision": text,
        "quantization": text,
        "tensorParallelSize": st.integers(1, 8),
        "maxModelLen": st.integers(1, 10**6),
        "sampling": st.sampled_from(["greedy", "probabilistic"]),
        "parallelDrafting": st.booleans(),
        "heterogeneousVocabulary": st.booleans(),
        "enforceEager": st.booleans(),
        "kvCacheDtype": text,
        "loadConfig": st.dictionaries(st.sampled_from(["load_format", "device"]), text, max_size=2),
    },
)
proposers = st.fixed_dictionaries(
    {"method": st.sampled_from([method.value for method in Method])},
    optional={
        "numSpeculativeTokens": st.integers(1, 128),
        "draft": drafts,
        "ngram": st.fixed_dictionaries({}, optional={"promptLookupMin": st.integers(1, 9)}).filter(bool),
        "suffix": st.fixed_dictionaries({}, optional={"minTokenProbability": st.floats(0, 1)}).filter(bool),
        "dspark": st.fixed_dictionaries({}, optional={"draftTopk": st.integers(1, 99)}).filter(bool),
        "rejectionSampling": st.sampled_from(["standard", "block"]),
        "tokensPerBatchSize": st.just(SCHEDULE),
        "extra": st.dictionaries(st.sampled_from(["a_key", "other"]), st.integers() | text, min_size=1),
    },
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "model.name": text.map(lambda name: f"/{name}"),
        "model.revision": text.filter(lambda one: not one.startswith("-")),
        "model.servedName": text.filter(lambda one: not one.startswith("-")),
        "model.dtype": st.sampled_from(["auto", "bfloat16"]),
        "model.maxModelLen": st.integers(1, 10**6),
        "engine.port": st.integers(1, 65535),
        "engine.tensorParallelSize": st.integers(1, 8),
        "engine.shutdownTimeoutSeconds": st.integers(1, 600),
        "engine.args": st.sampled_from([[], ["--max-num-seqs", "4"], ["--seed=1"], ["--enforce-eager", "--seed", "2"]]),
        "template.sharedMemorySize": st.sampled_from(["8Gi", "16Gi"]),
        "template.multiNode": st.fixed_dictionaries(
            {"size": st.integers(2, 8)}, optional={"exclusiveTopologyKey": st.sampled_from(["rack", "pool"])}
        ),
        "replicas": st.integers(1, 9),
        "guardrails.tpotSloSeconds": st.floats(0.001, 1),
    },
)


@settings(max_examples=200, deadline=None)
@given(proposers)
def test_any_typed_proposer_renders_json_that_parses_back_to_itself(raw: dict[str, Any]) -> None:
    typed = Proposer.model_validate(raw)
    rendered = config_text(speculative_config(typed))
    assert isinstance(json.loads(rendered), dict)
    assert proposer_of(json.loads(rendered)) == typed


@settings(max_examples=200, deadline=None)
@given(specs, proposers)
def test_a_rendered_command_parses_back_to_the_spec(changes: dict[str, Any], speculation: dict[str, Any]) -> None:
    spec = DeploymentSpec.model_validate({**raw_spec(None, changes), "speculation": speculation})
    (wanted,) = spec.speculation.proposers()  # type: ignore[union-attr]
    arm = build_arm(spec, wanted)
    command = parse_command(arm.args)
    assert command.proposer == wanted
    assert command.fingerprint == arm.fingerprint
    assert command.nodes == (spec.template.multi_node.size if spec.template.multi_node else None)
    assert {**spec.model.model_dump(exclude_none=True), "served_name": command.model["served_name"]} == command.model
    for field, value in command.engine.items():
        assert getattr(spec.engine, field) == value
    assert sorted(command.others, key=str) == sorted(parse_flags(spec.engine.args), key=str)


@settings(max_examples=200, deadline=None)
@given(specs)
def test_the_pods_of_one_engine_differ_in_their_rank_and_in_who_answers_alone(changes: dict[str, Any]) -> None:
    arm = arm_of(changes)
    if "template.multiNode" not in changes:
        assert not {"--nnodes", "--node-rank", "--headless"} & set(arm.args)
        return
    assert arm.worker_args == (*arm.args, "--headless")
    assert flag_value(arm, "--node-rank") == "$(LWS_WORKER_INDEX)"
    assert flag_value(arm, "--master-addr") == "$(LWS_LEADER_ADDRESS)"
    assert flag_value(arm, "--distributed-executor-backend") == "mp"


@pytest.mark.parametrize("flag", [["--api-server-count", "4"], ["-asc", "4"], ["--grpc-port", "9000"]])
def test_flags_of_the_http_side_stay_with_the_leader(flag: list[str]) -> None:
    arm = arm_of({"template.multiNode": {"size": 2}, "engine.args": [*flag, "--seed", "1"]})
    assert set(flag) <= set(arm.args)
    assert not set(flag) & set(arm.worker_args)
    assert arm.worker_args[-3:] == ("--seed", "1", "--headless")


@settings(max_examples=200, deadline=None)
@given(specs, specs)
def test_equal_fingerprints_mean_equal_engines(one: dict[str, Any], two: dict[str, Any]) -> None:
    first, second = arm_of(one), arm_of(two)
    if first.fingerprint == second.fingerprint:
        assert first.args == second.args
        assert engine_of(one) == engine_of(two)
        assert dict(first.fingerprint_inputs) == dict(second.fingerprint_inputs)
    else:
        assert describe_difference(first.fingerprint_inputs, second.fingerprint_inputs)


@settings(max_examples=100, deadline=None)
@given(specs, st.sampled_from(sorted(CHANGES_THAT_MATTER)))
def test_any_change_that_matters_changes_the_fingerprint_of_any_spec(base: dict[str, Any], name: str) -> None:
    changes, _ = CHANGES_THAT_MATTER[name]
    raw = raw_spec(None, base)
    changed = deepcopy(raw)
    for path, value in changes.items():
        put(changed, path, value)
    if changed != raw:
        before = build_arm(DeploymentSpec.model_validate(raw), None)
        after = build_arm(DeploymentSpec.model_validate(changed), None)
        assert before.fingerprint != after.fingerprint


def test_every_key_of_the_speculative_configuration_is_in_the_fingerprint() -> None:
    full = Proposer.model_validate(
        {**PROPOSERS[Method.EAGLE], "method": "eagle", "extra": {"x": 1}, "tokensPerBatchSize": SCHEDULE}
    )
    spec = DeploymentSpec.model_validate(deepcopy(VALID))
    inputs = build_arm(spec, full).fingerprint_inputs
    assert len(inputs) - len(build_arm(spec, None).fingerprint_inputs) == len(speculative_config(full))
    assert len({key.key for key in CONFIG_KEYS}) == len(CONFIG_KEYS)
