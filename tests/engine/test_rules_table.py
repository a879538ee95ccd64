"""The verdict table: each method at the edges of the releases that have it, and combinations that fail."""

from typing import Any, NamedTuple

import pytest
from specfleet.api.speculation import Method
from specfleet.engine.findings import Severity
from specfleet.engine.rules import PROPOSER_RULES, SPEC_RULES

from tests.engine.specs import PROPOSERS, SCHEDULE, lint_raw, proposer, raw_spec

REFUSE, WARN = Severity.REFUSE, Severity.WARN
ACCEPTED = ""


def versioned(version: str) -> dict[str, Any]:
    return {"engine.image": f"vllm/vllm-openai:v{version}"}


METHOD_EDGES = {
    Method.NGRAM: ("0.21.0", "0.26.1", "0.32.0", "0.33.0"),
    Method.NGRAM_GPU: ("0.21.0", "0.26.1", "0.32.0", "0.33.0"),
    Method.SUFFIX: ("0.21.0", "0.26.1", "0.32.0", "0.33.0"),
    Method.DRAFT_MODEL: ("0.21.0", "0.26.1", "0.32.0", "0.33.0"),
    Method.EAGLE: ("0.21.0", "0.26.1", "0.32.0", "0.33.0"),
    Method.EAGLE3: ("0.21.0", "0.26.1", "0.32.0", "0.33.0"),
    Method.MTP: ("0.21.0", "0.26.1", "0.32.0", "0.33.0"),
    Method.MEDUSA: ("0.21.0", "0.26.1", "0.32.0"),
    Method.DFLASH: ("0.21.0", "0.26.1", "0.32.0", "0.33.0"),
    Method.DSPARK: ("0.25.0", "0.26.1", "0.32.0", "0.33.0", "0.32.0rc1"),
}


@pytest.mark.parametrize(
    ("method", "version"), [(method, version) for method, versions in METHOD_EDGES.items() for version in versions]
)
def test_a_method_is_accepted_in_every_release_that_has_it(method: Method, version: str) -> None:
    findings = lint_raw(raw_spec(method, versioned(version)))
    assert [one for one in findings if one.severity is REFUSE] == []


BEFORE_OR_AFTER = [
    (Method.NGRAM_GPU, "0.17.1", "exists since 0.18"),
    (Method.SUFFIX, "0.11.1", "exists since 0.11.2"),
    (Method.SUFFIX, "0.8.5", "exists since 0.11.2"),
    (Method.DRAFT_MODEL, "0.14.1", "exists since 0.15"),
    (Method.DRAFT_MODEL, "0.9.0", "exists since 0.15"),
    (Method.MTP, "0.10.2", "exists since 0.11"),
    (Method.MEDUSA, "0.33.0", "was removed after 0.32"),
    (Method.MEDUSA, "0.34.0", "was removed after 0.32"),
    (Method.DFLASH, "0.19.1", "exists since 0.20"),
    (Method.DSPARK, "0.24.0", "exists since 0.25"),
    (Method.DSPARK, "0.24.9rc2", "exists since 0.25"),
]


@pytest.mark.parametrize(("method", "version", "words"), BEFORE_OR_AFTER)
def test_a_method_is_refused_outside_its_releases(method: Method, version: str, words: str) -> None:
    findings = lint_raw(raw_spec(method, versioned(version)))
    (found,) = [one for one in findings if one.rule_id == "MethodNotInThisVersion"]
    assert found.severity is REFUSE
    assert words in found.message
    assert str(method) in found.message


KEY_EDGES: list[tuple[Method, dict[str, Any], str, str, str]] = [
    (Method.EAGLE, {"rejectionSampling": "standard"}, "0.17.1", "0.18.0", "rejectionSampling"),
    (Method.EAGLE, {"draft__parallelDrafting": True}, "0.15.0", "0.16.0", "draft.parallelDrafting"),
    (Method.EAGLE, {"draft__loadConfig": {"load_format": "auto"}}, "0.16.0", "0.17.0", "draft.loadConfig"),
    (Method.EAGLE, {"draft__localArgmaxReduction": True}, "0.16.0", "0.17.0", "draft.localArgmaxReduction"),
    (Method.EAGLE, {"draft__disablePaddedBatch": True}, "0.10.2", "0.11.0", "draft.disablePaddedBatch"),
    (Method.EAGLE, {"draft__moeBackend": "triton"}, "0.18.1", "0.19.0", "draft.moeBackend"),
    (Method.EAGLE, {"draft__sampling": "greedy"}, "0.20.2", "0.21.0", "draft.sampling"),
    (Method.EAGLE3, {"draft__attentionBackend": "FLASH_ATTN"}, "0.20.2", "0.21.0", "draft.attentionBackend"),
    (Method.EAGLE3, {"tokensPerBatchSize": SCHEDULE}, "0.23.0", "0.24.0", "tokensPerBatchSize"),
    (
        Method.DRAFT_MODEL,
        {"draft__heterogeneousVocabulary": True},
        "0.24.0",
        "0.25.0",
        "draft.heterogeneousVocabulary",
    ),
    (Method.EAGLE3, {"draft__kvCacheDtype": "fp8"}, "0.25.1", "0.26.0", "draft.kvCacheDtype"),
    (Method.DSPARK, {"dspark": {"adaptiveVerification": True}}, "0.27.1", "0.28.0", "dspark.adaptiveVerification"),
    (Method.DSPARK, {"dspark": {"draftTopk": 8}}, "0.27.1", "0.28.0", "dspark.draftTopk"),
    (Method.EAGLE3, {"draft__disableEagleBlockDrop": True}, "0.29.0", "0.30.0", "draft.disableEagleBlockDrop"),
    (Method.SUFFIX, {"suffix": {"maxTreeDepth": 16}}, "0.11.1", "0.11.2", "suffix.maxTreeDepth"),
]


@pytest.mark.parametrize(("method", "fields", "before", "since", "path"), KEY_EDGES)
def test_a_setting_is_refused_before_the_release_that_knows_its_key(
    method: Method, fields: dict[str, Any], before: str, since: str, path: str
) -> None:
    for version, expected in ((before, [f"spec.speculation.{path}"]), (since, [])):
        findings = lint_raw(raw_spec(method, versioned(version), **fields))
        assert [one.field_path for one in findings if one.rule_id == "SettingNotInThisVersion"] == expected


class Row(NamedTuple):
    """One combination: what is written, which rule answers and with which words."""

    sentence: str
    method: Method | None
    fields: dict[str, Any]
    changes: dict[str, Any]
    rule: str
    severity: Severity | None = None
    words: str = ""


def two_gpus(**more: Any) -> dict[str, Any]:
    return {
        "engine.tensorParallelSize": 2,
        "template.resources": {"limits": {"nvidia.com/gpu": "2"}},
        "template.sharedMemorySize": "8Gi",
        **{key.replace("__", "."): value for key, value in more.items()},
    }


def args(*values: str) -> dict[str, Any]:
    return {"engine.args": list(values)}


def env(**values: str) -> dict[str, Any]:
    return {"engine.env": [{"name": name, "value": value} for name, value in values.items()]}


def on(version: str) -> dict[str, Any]:
    return {"engine__image": f"vllm/vllm-openai:v{version}"}


def two_nodes(**more: Any) -> dict[str, Any]:
    """Two pods of two GPUs: tensor ranks within a pod, a pipeline over the pods."""
    nodes = {"template__multiNode": {"size": 2}, "engine__pipelineParallelSize": 2}
    return two_gpus(**{**nodes, **more})


CPU = {
    "engine.image": "vllm/vllm-openai-cpu:v0.32.0",
    "template.resources": None,
    "template.sharedMemorySize": "1Gi",
}
EXTRA = "spec.speculation.extra"

ROWS = [
    Row(
        "a load format of the draft that medusa does not read",
        Method.MEDUSA,
        {"draft__loadConfig": {"load_format": "dummy"}},
        {},
        "DraftSettingWithoutEffect",
        WARN,
    ),
    Row(
        "a flag that the plain arm cannot start with",
        None,
        {},
        args("--per-request-spec-decode-metrics", "summary"),
        "ArgumentNeedsSpeculation",
        REFUSE,
    ),
    Row(
        "tensor parallelism by its short flag with an equals sign", None, {}, args("-tp=2"), "ArgumentHasField", REFUSE
    ),
    Row("the number of nodes glued to its flag", None, {}, args("-n2"), "ArgumentHasField", REFUSE, "multiNode"),
    Row("a data parallel rank", None, {}, args("-dpn", "1"), "ArgumentIsOperated", REFUSE),
    Row(
        "a schedule in another order",
        Method.NGRAM,
        {
            "tokensPerBatchSize": [
                {"minBatchSize": 1, "maxBatchSize": 2, "tokens": 3},
                {"minBatchSize": 9, "maxBatchSize": 16, "tokens": 1},
                {"minBatchSize": 3, "maxBatchSize": 8, "tokens": 2},
            ]
        },
        {},
        "ScheduleMayCollapseThroughput",
        WARN,
    ),
    Row(
        "no padded batch with asynchronous scheduling",
        Method.EAGLE,
        {"draft__disablePaddedBatch": True},
        args("--async-scheduling"),
        "AsyncSchedulingNeedsPaddedBatch",
        REFUSE,
    ),
    Row(
        "no padded batch with parallel drafting",
        Method.EAGLE,
        {"draft__disablePaddedBatch": True, "draft__parallelDrafting": True},
        {},
        "PaddedBatchNeeded",
        REFUSE,
    ),
    Row("a watermark with ngram", Method.NGRAM, {}, args("--watermark-config", "{}"), "WatermarkConflict", REFUSE),
    Row(
        "a watermark with greedy drafts",
        Method.EAGLE,
        {},
        args("--watermark-config", "{}"),
        "WatermarkConflict",
        REFUSE,
        "probabilistic",
    ),
    Row(
        "a watermark with probabilistic drafts",
        Method.EAGLE,
        {"draft__sampling": "probabilistic"},
        args("--watermark-config", "{}"),
        ACCEPTED,
    ),
    # versions and references
    Row(
        "an image whose tag is no version",
        None,
        {},
        {"engine.image": "acme/vllm:prod"},
        "EngineVersionUnknown",
        REFUSE,
        "does not say which vLLM",
    ),
    Row(
        "a vendor tag is not taken for a vLLM version",
        None,
        {},
        {"engine.image": "nvcr.io/nvidia/vllm:25.09-py3"},
        "EngineVersionUnknown",
        REFUSE,
    ),
    Row(
        "a digest without engine.version",
        None,
        {},
        {"engine.image": "vllm/vllm-openai@sha256:" + "a" * 64},
        "EngineVersionUnknown",
        REFUSE,
    ),
    Row(
        "a digest with engine.version",
        None,
        {},
        {"engine.image": "vllm/vllm-openai@sha256:" + "a" * 64, "engine.version": "0.32.0"},
        ACCEPTED,
    ),
    Row(
        "a version that contradicts the tag",
        None,
        {},
        {"engine.version": "0.31.0"},
        "EngineVersionContradictsTag",
        REFUSE,
        "0.31.0, but the image tag says 0.32.0",
    ),
    Row("an engine before the fingerprint flag", None, {}, versioned("0.20.2"), "EngineTooOldToOperate", REFUSE),
    Row("the first engine that is operated", None, {}, versioned("0.21.0"), ACCEPTED),
    Row(
        "an engine before the rules begin", None, {}, versioned("0.7.3"), "EngineTooOldToOperate", REFUSE, "older than"
    ),
    Row("an engine newer than the rules", None, {}, versioned("0.34.0"), "EngineNewerThanRules", WARN),
    Row("the newest engine that the rules know", None, {}, versioned("0.33.0"), ACCEPTED),
    Row(
        "a moving tag",
        None,
        {},
        {"engine.image": "vllm/vllm-openai:latest", "engine.version": "0.32.0"},
        "ImageTagMoves",
        WARN,
    ),
    Row("a model from the hub without a commit", None, {}, {"model.name": "org/model"}, "ModelRevisionNotPinned", WARN),
    Row(
        "a model from the hub at a branch",
        None,
        {},
        {"model.name": "org/model", "model.revision": "main"},
        "ModelRevisionNotPinned",
        WARN,
        "'main'",
    ),
    Row(
        "a model from the hub at a commit", None, {}, {"model.name": "org/model", "model.revision": "a" * 40}, ACCEPTED
    ),
    Row(
        "a draft from the hub without a commit",
        Method.EAGLE3,
        {"draft__model": "org/head"},
        {},
        "DraftRevisionNotPinned",
        WARN,
    ),
    # the command line
    Row("the port as an argument", None, {}, args("--port", "9000"), "ArgumentHasField", REFUSE, "spec.engine.port"),
    Row("the port with an equals sign", None, {}, args("--port=9000"), "ArgumentHasField", REFUSE),
    Row("an abbreviated flag", None, {}, args("--max-model", "8192"), "ArgumentHasField", REFUSE, "maxModelLen"),
    Row("a flag with underscores", None, {}, args("--served_model_name=x"), "ArgumentHasField", REFUSE, "servedName"),
    Row("tensor parallelism by its short flag", None, {}, args("-tp", "2"), "ArgumentHasField", REFUSE),
    Row("quantisation as an argument", None, {}, args("--quantization", "fp8"), "ArgumentHasField", REFUSE),
    Row("another host", None, {}, args("--host", "127.0.0.1"), "ArgumentIsOperated", REFUSE),
    Row("a fingerprint of one's own", None, {}, args("--fingerprint-value", "x"), "ArgumentIsOperated", REFUSE),
    Row("buckets of one's own", None, {}, args("--custom-histogram-buckets", "{}"), "ArgumentIsOperated", REFUSE),
    Row("an API key in the arguments", None, {}, args("--api-key", "x"), "ArgumentIsOperated", REFUSE, "401"),
    Row("a configuration file", None, {}, args("--config", "/c.yaml"), "ArgumentIsOperated", REFUSE),
    Row(
        "speculation with underscores, which CEL does not see",
        None,
        {},
        args("--spec_model=/x"),
        "ArgumentSpeculates",
        REFUSE,
    ),
    Row("speculation by an abbreviation", None, {}, args("--spec", "x"), "ArgumentSpeculates", REFUSE),
    Row(
        "log stats off with underscores, which CEL does not see",
        None,
        {},
        args("--disable_log_stats"),
        "LogStatsDisabled",
        REFUSE,
    ),
    Row("log stats off by an abbreviation", None, {}, args("--disable-log-stat"), "LogStatsDisabled", REFUSE),
    Row("flag and value in one string", None, {}, args("--max-num-seqs 8"), "ArgumentNotSplit", REFUSE),
    Row("a value before any flag", None, {}, args("other-model"), "ArgumentWithoutFlag", REFUSE),
    Row("a shell pipe", None, {}, args("--seed", "1", "|", "tee"), "ArgumentIsShell", REFUSE),
    Row("a command substitution", None, {}, args("--seed", "$(date +%s)"), "ArgumentIsShell", REFUSE),
    Row("a variable that Kubernetes expands", None, {}, args("--seed", "$(SEED)"), ACCEPTED),
    Row("ordinary arguments", None, {}, args("--max-num-seqs", "64", "--enable-prefix-caching"), ACCEPTED),
    Row("a misspelt flag", None, {}, args("--max-num-sequences", "64"), "ArgumentUnknown", REFUSE),
    Row("a misspelt flag of another release", None, {}, {**args("--quux"), **versioned("0.31.0")}, ACCEPTED),
    Row("logged requests", None, {}, args("--enable-log-requests"), "RequestLoggingOn", WARN),
    # the environment
    Row("a variable without a name", None, {}, {"engine.env": [{"value": "1"}]}, "VariableMalformed", REFUSE),
    Row("a variable with a number", None, {}, {"engine.env": [{"name": "A", "value": 1}]}, "VariableMalformed", REFUSE),
    Row(
        "a variable twice",
        None,
        {},
        {"engine.env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
        "VariableRepeated",
        WARN,
    ),
    Row("a reserved variable", None, {}, env(SPECFLEET_PORT="1"), "VariableReserved", REFUSE),
    Row("a token in plain text", None, {}, env(HF_TOKEN="hf_x"), "TokenInPlainText", WARN),
    Row("development mode", None, {}, env(VLLM_SERVER_DEV_MODE="1"), "DevelopmentMode", WARN),
    Row(
        "an engine that outlives its death",
        None,
        {},
        env(VLLM_KEEP_ALIVE_ON_ENGINE_DEATH="1"),
        "DeadEngineKeptAlive",
        REFUSE,
    ),
    Row("the V0 engine", None, {}, env(VLLM_USE_V1="0"), "RemovedEngineAsked", REFUSE),
    Row(
        "adapters at run time",
        None,
        {},
        {**args("--enable-lora"), **env(VLLM_ALLOW_RUNTIME_LORA_UPDATING="True")},
        "AdaptersAtRunTime",
        WARN,
    ),
    # accelerators
    Row("two ranks on one GPU", None, {}, {"engine.tensorParallelSize": 2}, "TooFewDevices", REFUSE, "needs 2"),
    Row(
        "pipeline and tensor ranks are multiplied",
        None,
        {},
        two_gpus(engine__pipelineParallelSize=2),
        "TooFewDevices",
        REFUSE,
        "needs 4 (2 x 2 x 1)",
    ),
    Row("data parallel ranks count", None, {}, {"engine.dataParallelSize": 2}, "TooFewDevices", REFUSE),
    Row("an idle GPU", None, {}, {"template.resources": {"limits": {"nvidia.com/gpu": "2"}}}, "IdleDevices", WARN),
    Row("no GPU at all", None, {}, {"template.resources": None}, "NoDeviceAsked", WARN),
    Row("no GPU for a CPU image", None, {}, CPU, ACCEPTED),
    Row(
        "half a GPU",
        None,
        {},
        {"template.resources": {"limits": {"nvidia.com/gpu": "500m"}}},
        "DeviceQuantityInvalid",
        REFUSE,
    ),
    Row(
        "requests without limits",
        None,
        {},
        {"template.resources": {"requests": {"nvidia.com/gpu": "1"}}},
        "DeviceQuantityInvalid",
        REFUSE,
    ),
    Row(
        "requests that differ from limits",
        None,
        {},
        {"template.resources": {"requests": {"nvidia.com/gpu": "2"}, "limits": {"nvidia.com/gpu": "1"}}},
        "DeviceQuantityInvalid",
        REFUSE,
    ),
    Row(
        "AMD GPUs count",
        None,
        {},
        two_gpus(template__resources={"limits": {"amd.com/gpu": "1"}}),
        "TooFewDevices",
        REFUSE,
    ),
    Row(
        "a claim that is not there",
        None,
        {},
        {"template.resources": {"claims": [{"name": "gpu"}]}},
        "ClaimUnknown",
        REFUSE,
    ),
    Row(
        "a claim that the engine does not use",
        None,
        {},
        {"template.resources": {"claims": [{"name": "a"}]}, "template.resourceClaims": [{"name": "a"}, {"name": "b"}]},
        "ClaimUnused",
        REFUSE,
    ),
    Row(
        "a claim used by default",
        None,
        {},
        {"template.resources": None, "template.resourceClaims": [{"name": "gpu", "resourceClaimName": "g"}]},
        ACCEPTED,
    ),
    # engines over several nodes
    Row("an engine on two nodes", None, {}, two_nodes(), ACCEPTED),
    Row("an engine on two nodes that drafts", Method.EAGLE3, {}, two_nodes(), ACCEPTED),
    Row("an engine on two nodes with a draft model", Method.DRAFT_MODEL, {}, two_nodes(), ACCEPTED),
    Row(
        "an engine on two nodes before vLLM could",
        None,
        {},
        two_nodes(**on("0.11.1")),
        "NodesNotInThisVersion",
        REFUSE,
        "no --nnodes",
    ),
    Row(
        "ranks that do not divide over the nodes",
        None,
        {},
        {"template.multiNode": {"size": 2}, "engine.tensorParallelSize": 3},
        "NodesDoNotDivide",
        REFUSE,
        "3 ranks (3 x 1 x 1) do not divide over 2 pods",
    ),
    Row(
        "the same, by the API server already",
        None,
        {},
        {"template.multiNode": {"size": 2}, "engine.tensorParallelSize": 3},
        "AdmissionRefused",
        REFUSE,
        "every pod of an engine holds the same number of ranks",
    ),
    Row(
        "fewer GPUs in a pod than its share of the ranks",
        None,
        {},
        two_nodes(engine__tensorParallelSize=4),
        "TooFewDevices",
        REFUSE,
        "2 devices per pod, the engine needs 4 (4 x 2 x 1)",
    ),
    Row(
        "a GPU of each pod idle",
        None,
        {},
        two_nodes(template__resources={"limits": {"nvidia.com/gpu": "3"}}),
        "IdleDevices",
        WARN,
    ),
    Row(
        "data parallel ranks that begin inside a pod",
        None,
        {},
        two_nodes(
            engine__pipelineParallelSize=1,
            engine__dataParallelSize=3,
            template__resources={"limits": {"nvidia.com/gpu": "3"}},
        ),
        "DataRanksDoNotDivide",
        REFUSE,
        "3 data parallel ranks of 2 GPUs do not lie on 2 pods of 3",
    ),
    Row(
        "two data parallel ranks on two nodes",
        None,
        {},
        two_nodes(engine__pipelineParallelSize=1, engine__dataParallelSize=2),
        ACCEPTED,
    ),
    Row(
        "tensor ranks over the network",
        None,
        {},
        two_nodes(engine__tensorParallelSize=4, engine__pipelineParallelSize=1),
        "TensorRanksSpanNodes",
        WARN,
        "groups of 4 ranks lie on pods of 2 GPUs",
    ),
    Row(
        "Ray for an engine on two nodes",
        None,
        {},
        two_nodes(engine__args=["--distributed-executor-backend", "ray"]),
        "NodesNeedMultiprocessing",
        REFUSE,
    ),
    Row(
        "Ray for data parallel ranks on two nodes",
        None,
        {},
        two_nodes(engine__args=["--data-parallel-backend=ray"]),
        "NodesNeedMultiprocessing",
        REFUSE,
    ),
    Row(
        "Ray in one pod is not specfleet's business", None, {}, args("--distributed-executor-backend", "ray"), ACCEPTED
    ),
    Row("the leader's address", None, {}, args("--master-addr", "10.0.0.1"), "ArgumentIsOperated", REFUSE),
    Row(
        "the place of data parallel ranks", None, {}, args("--data-parallel-size-local=1"), "ArgumentIsOperated", REFUSE
    ),
    Row(
        "one address for all pods of an engine",
        None,
        {},
        two_nodes(engine__env=[{"name": "VLLM_HOST_IP", "value": "10.0.0.1"}]),
        "NodeAddressFixed",
        REFUSE,
    ),
    Row(
        "an address of its own for each pod",
        None,
        {},
        two_nodes(engine__env=[{"name": "VLLM_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}]),
        ACCEPTED,
    ),
    Row(
        "a variable of LeaderWorkerSet",
        None,
        {},
        two_nodes(engine__env=[{"name": "LWS_WORKER_INDEX", "value": "0"}]),
        "SetVariableReserved",
        REFUSE,
    ),
    Row(
        "one claim for two nodes",
        None,
        {},
        two_nodes(template__resources=None, template__resourceClaims=[{"name": "g", "resourceClaimName": "mine"}]),
        "ClaimSharedByNodes",
        REFUSE,
    ),
    Row(
        "a claim for each node",
        None,
        {},
        two_nodes(
            template__resources=None, template__resourceClaims=[{"name": "g", "resourceClaimTemplateName": "eight"}]
        ),
        ACCEPTED,
    ),
    Row("prediction layers over two nodes", Method.MTP, {}, two_nodes(), "PipelineDoubtful", WARN),
    Row("a look-up on the GPU over two nodes", Method.NGRAM_GPU, {}, two_nodes(), "PipelineUnsupported", REFUSE),
    Row(
        "drafts over two nodes without asynchronous scheduling",
        Method.EAGLE3,
        {},
        two_nodes(engine__args=["--no-async-scheduling"]),
        "PipelineWithoutAsyncScheduling",
        REFUSE,
    ),
    Row(
        "a draft on fewer ranks than the target's over two nodes",
        Method.DRAFT_MODEL,
        {"draft__tensorParallelSize": 1},
        two_nodes(),
        "DraftModelParallelSizeDiffers",
        REFUSE,
    ),
    Row(
        "a CPU engine in a container's shared memory",
        None,
        {},
        {**CPU, "template.sharedMemorySize": None},
        "SharedMemorySmall",
        WARN,
        "needs 160 MiB",
    ),
    Row(
        "a CPU engine in too small a shared memory",
        None,
        {},
        {**CPU, "template.sharedMemorySize": "128Mi"},
        "SharedMemorySmall",
        WARN,
        "128Mi is less",
    ),
    Row(
        "a CPU engine in the host's shared memory",
        None,
        {},
        {**CPU, "template.sharedMemorySize": None, "template.hostIPC": True},
        ACCEPTED,
    ),
    Row(
        "two ranks without shared memory",
        None,
        {},
        two_gpus(template__sharedMemorySize=None),
        "SharedMemorySmall",
        WARN,
    ),
    Row(
        "two ranks with host IPC", None, {}, two_gpus(template__sharedMemorySize=None, template__hostIPC=True), ACCEPTED
    ),
    Row("two ranks with shared memory", None, {}, two_gpus(), ACCEPTED),
    # volumes and guardrails
    Row("a mount without a volume", None, {}, {"template.volumes": None}, "MountWithoutVolume", REFUSE),
    Row("a model outside the mounts", None, {}, {"model.name": "/elsewhere/target"}, "ModelNotOnAVolume", WARN),
    Row(
        "a mount that is only a prefix of the name",
        None,
        {},
        {"model.name": "/models-old/target"},
        "ModelNotOnAVolume",
        WARN,
    ),
    Row("a draft outside the mounts", Method.EAGLE, {"draft__model": "/elsewhere/head"}, {}, "DraftNotOnAVolume", WARN),
    Row(
        "a tokenizer that the benchmark's client does not see",
        Method.NGRAM,
        {},
        {"template.volumes": [{"name": "models", "emptyDir": {}}]},
        "BenchmarkSeesNoTokenizer",
        WARN,
        "/models/target",
    ),
    Row(
        "a tokenizer from the hub for a model that an init container fetches",
        Method.NGRAM,
        {},
        {
            "template.volumes": [{"name": "models", "emptyDir": {}}],
            "model.tokenizer": "org/target",
            "model.tokenizerRevision": "a" * 40,
        },
        ACCEPTED,
    ),
    Row("nothing to measure", None, {}, {"template.volumes": [{"name": "models", "emptyDir": {}}]}, ACCEPTED),
    Row(
        "prompts outside the mounts",
        None,
        {},
        {"benchmark.prompts": {"volume": "/p/prompts.jsonl"}},
        "PromptsNotOnAVolume",
        REFUSE,
    ),
    Row(
        "offline without a cache",
        None,
        {},
        {**env(HF_HUB_OFFLINE="1"), "model.name": "org/m", "model.revision": "a" * 40, "template.volumeMounts": None},
        "OfflineWithoutCache",
        WARN,
    ),
    Row(
        "an SLO between fixed buckets",
        None,
        {},
        {**versioned("0.31.0"), "guardrails.tpotSloSeconds": 0.03},
        "SloBetweenBuckets",
        WARN,
        "nearest: 0.025",
    ),
    Row("an SLO on a fixed bucket", None, {}, {**versioned("0.31.0"), "guardrails.tpotSloSeconds": 0.05}, ACCEPTED),
    Row("any SLO with buckets of our own", None, {}, {"guardrails.tpotSloSeconds": 0.03}, ACCEPTED),
    # completeness of proposers
    Row(
        "MTP without k and without a draft",
        Method.MTP,
        {"numSpeculativeTokens": None},
        {},
        "TokensNeededWithoutDraft",
        REFUSE,
    ),
    Row(
        "DSpark without k and without a draft",
        Method.DSPARK,
        {"numSpeculativeTokens": None},
        {},
        "TokensNeededWithoutDraft",
        REFUSE,
    ),
    Row(
        "DSpark without k but with a draft",
        Method.DSPARK,
        {"numSpeculativeTokens": None, "draft__model": "/models/dspark"},
        {},
        ACCEPTED,
    ),
    Row(
        "a draft model whose path says eagle3",
        Method.DRAFT_MODEL,
        {"draft__model": "/models/EAGLE3-small"},
        {},
        "DraftNameChangesMethod",
        REFUSE,
        "would run eagle3 instead of draft_model",
    ),
    Row(
        "medusa heads whose path says eagle-",
        Method.MEDUSA,
        {"draft__model": "/models/eagle-heads"},
        {},
        "DraftNameChangesMethod",
        REFUSE,
    ),
    Row(
        "MTP of a target whose path says dspark",
        Method.MTP,
        {},
        {"model.name": "/models/dspark-target"},
        "DraftNameChangesMethod",
        REFUSE,
    ),
    Row("an EAGLE-3 head whose path says so", Method.EAGLE3, {"draft__model": "/models/eagle3-head"}, {}, ACCEPTED),
    Row(
        "the target as its own draft",
        Method.DRAFT_MODEL,
        {"draft__model": "/models/target"},
        {},
        "DraftIsTheTarget",
        WARN,
    ),
    Row(
        "a setting that medusa does not read",
        Method.MEDUSA,
        {"draft__parallelDrafting": True},
        {},
        "DraftSettingWithoutEffect",
        WARN,
    ),
    Row(
        "no padded batch with a draft model",
        Method.DRAFT_MODEL,
        {"draft__disablePaddedBatch": True},
        {},
        "PaddedBatchNeeded",
        REFUSE,
    ),
    Row("suffix decoding", Method.SUFFIX, {}, {}, "SuffixNeedsArcticInference", WARN),
    Row(
        "prompt look-up with tools",
        Method.NGRAM,
        {},
        args("--enable-auto-tool-choice"),
        "NgramWithToolsNeedsLongMatch",
        WARN,
    ),
    Row(
        "prompt look-up with tools and long matches",
        Method.NGRAM,
        {"ngram": {"promptLookupMin": 8}},
        args("--enable-auto-tool-choice"),
        ACCEPTED,
    ),
    Row(
        "other vocabularies with an EAGLE head",
        Method.EAGLE,
        {"draft__heterogeneousVocabulary": True},
        {},
        "HeterogeneousVocabularyConflict",
        REFUSE,
    ),
    Row(
        "other vocabularies with probabilistic drafts",
        Method.DRAFT_MODEL,
        {"draft__heterogeneousVocabulary": True, "draft__sampling": "probabilistic"},
        {},
        "HeterogeneousVocabularyConflict",
        REFUSE,
        "greedy",
    ),
    Row(
        "other vocabularies with local argmax",
        Method.DRAFT_MODEL,
        {"draft__heterogeneousVocabulary": True, "draft__localArgmaxReduction": True},
        {},
        "LocalArgmaxSkipsMapping",
        REFUSE,
    ),
    Row("other vocabularies alone", Method.DRAFT_MODEL, {"draft__heterogeneousVocabulary": True}, {}, ACCEPTED),
    Row(
        "a draft with a longer context than the target",
        Method.EAGLE,
        {"draft__maxModelLen": 8192},
        {},
        "DraftContextTooLong",
        REFUSE,
    ),
    Row(
        "a draft with a shorter context than the target",
        Method.DRAFT_MODEL,
        {"draft__maxModelLen": 1024},
        {},
        "DraftContextShort",
        WARN,
    ),
    Row("a draft with the target's context", Method.DRAFT_MODEL, {"draft__maxModelLen": 4096}, {}, ACCEPTED),
    Row(
        "no memory left for the draft",
        Method.EAGLE3,
        {},
        args("--gpu-memory-utilization", "0.97"),
        "LittleMemoryForDraft",
        WARN,
    ),
    Row(
        "memory does not matter to the prompt look-up",
        Method.NGRAM,
        {},
        args("--gpu-memory-utilization", "0.97"),
        ACCEPTED,
    ),
    # extra
    Row(
        "a typing error in extra",
        Method.NGRAM,
        {"extra": {"num_spec_tokens_typo": 3}},
        {},
        "ExtraKeyNotAccepted",
        REFUSE,
        "num_spec_tokens_typo",
    ),
    Row(
        "a key that the engine never reads",
        Method.NGRAM,
        {"extra": {"disable_by_batch_size": 8}},
        versioned("0.21.0"),
        "ExtraKeyNotAccepted",
        REFUSE,
        "never reads",
    ),
    Row(
        "a key that is gone",
        Method.NGRAM,
        {"extra": {"speculative_token_tree": "x"}},
        {},
        "ExtraKeyNotAccepted",
        REFUSE,
        "0.9.2 to 0.20",
    ),
    Row(
        "a key that is not there yet",
        Method.MTP,
        {"extra": {"index_share_for_mtp_iteration": True}},
        versioned("0.28.0"),
        "ExtraKeyNotAccepted",
        REFUSE,
        "from 0.29",
    ),
    Row(
        "the rejected key tensor_parallel_size",
        Method.EAGLE,
        {"extra": {"tensor_parallel_size": 1}},
        {},
        "ExtraKeyNotAccepted",
        REFUSE,
    ),
    Row(
        "a known key in its release",
        Method.MTP,
        {"extra": {"index_share_for_mtp_iteration": True}},
        {},
        "ExtraUnverified",
        WARN,
        "index_share_for_mtp_iteration",
    ),
    Row(
        "any key of an engine that the rules do not know",
        Method.NGRAM,
        {"extra": {"new_key": 1}},
        versioned("0.34.0"),
        "ExtraUnverified",
        WARN,
    ),
    Row(
        "a typed key in extra",
        Method.NGRAM,
        {"extra": {"prompt_lookup_max": 5}},
        {},
        "ExtraShadowsField",
        REFUSE,
        "ngram.promptLookupMax",
    ),
    Row(
        "a typed key in extra with dashes",
        Method.NGRAM,
        {"extra": {"prompt-lookup-max": 5}},
        {},
        "ExtraShadowsField",
        REFUSE,
    ),
    Row("another method in extra", Method.NGRAM, {"extra": {"method": "eagle"}}, {}, "ExtraShadowsField", REFUSE),
    Row(
        "synthetic acceptance",
        Method.EAGLE,
        {"extra": {"synthetic_acceptance_length": 2.0}},
        {},
        "LossySampling",
        REFUSE,
    ),
    Row("a lossy sampler", Method.EAGLE, {"extra": {"rejection_sample_method": "fly"}}, {}, "LossySampling", REFUSE),
    # schedules
    Row(
        "a schedule with medusa",
        Method.MEDUSA,
        {"tokensPerBatchSize": SCHEDULE},
        {},
        "ScheduleKillsEngine",
        REFUSE,
        "dies",
    ),
    Row("a schedule with suffix", Method.SUFFIX, {"tokensPerBatchSize": SCHEDULE}, {}, "ScheduleKillsEngine", REFUSE),
    Row(
        "a schedule with ngram_gpu",
        Method.NGRAM_GPU,
        {"tokensPerBatchSize": SCHEDULE},
        {},
        "ScheduleKillsEngine",
        REFUSE,
    ),
    Row("a schedule with ngram", Method.NGRAM, {"tokensPerBatchSize": SCHEDULE[:1]}, {}, ACCEPTED),
    Row("a schedule with draft_model", Method.DRAFT_MODEL, {"tokensPerBatchSize": SCHEDULE[:1]}, {}, ACCEPTED),
    Row("a schedule with eagle", Method.EAGLE, {"tokensPerBatchSize": SCHEDULE[:1]}, {}, ACCEPTED),
    Row("a schedule with dflash", Method.DFLASH, {"tokensPerBatchSize": SCHEDULE[:1]}, {}, "ScheduleUntried", WARN),
    Row(
        "a schedule with data parallel ranks",
        Method.NGRAM,
        {"tokensPerBatchSize": SCHEDULE[:1]},
        two_gpus(engine__tensorParallelSize=1, engine__dataParallelSize=2),
        "ScheduleIgnoredWithDataParallel",
        REFUSE,
    ),
    Row(
        "a schedule that overlaps",
        Method.NGRAM,
        {"tokensPerBatchSize": [SCHEDULE[0], SCHEDULE[0]]},
        {},
        "ScheduleRangesOverlap",
        REFUSE,
        "ends at 8",
    ),
    Row(
        "a schedule with an edge",
        Method.NGRAM,
        {"tokensPerBatchSize": SCHEDULE},
        {},
        "ScheduleMayCollapseThroughput",
        WARN,
    ),
    # runners and scheduling
    Row(
        "asynchronous scheduling with ngram",
        Method.NGRAM,
        {},
        args("--async-scheduling"),
        "AsyncSchedulingUnsupported",
        REFUSE,
    ),
    Row(
        "asynchronous scheduling with suffix",
        Method.SUFFIX,
        {},
        args("--async-scheduling"),
        "AsyncSchedulingUnsupported",
        REFUSE,
    ),
    Row(
        "asynchronous scheduling with medusa",
        Method.MEDUSA,
        {},
        args("--async-scheduling"),
        "AsyncSchedulingUnsupported",
        REFUSE,
    ),
    Row(
        "asynchronous scheduling switched off again",
        Method.NGRAM,
        {},
        args("--async-scheduling", "--no-async-scheduling"),
        ACCEPTED,
    ),
    Row(
        "asynchronous scheduling with ngram_gpu",
        Method.NGRAM_GPU,
        {},
        args("--async-scheduling"),
        "AcceptanceCountedWrong",
        WARN,
    ),
    Row("asynchronous scheduling with EAGLE-3", Method.EAGLE3, {}, args("--async-scheduling"), ACCEPTED),
    Row("suffix on the V2 runner", Method.SUFFIX, {}, env(VLLM_USE_V2_MODEL_RUNNER="1"), "WrongModelRunner", REFUSE),
    Row("medusa on the V2 runner", Method.MEDUSA, {}, env(VLLM_USE_V2_MODEL_RUNNER="1"), "WrongModelRunner", REFUSE),
    Row("DSpark on the V1 runner", Method.DSPARK, {}, env(VLLM_USE_V2_MODEL_RUNNER="0"), "WrongModelRunner", REFUSE),
    Row("EAGLE on the V2 runner", Method.EAGLE, {}, env(VLLM_USE_V2_MODEL_RUNNER="1"), ACCEPTED),
    Row(
        "parallel drafting on the V2 runner",
        Method.EAGLE,
        {"draft__parallelDrafting": True},
        env(VLLM_USE_V2_MODEL_RUNNER="1"),
        "WrongModelRunner",
        REFUSE,
    ),
    Row("ngram_gpu on a CPU image", Method.NGRAM_GPU, {}, CPU, "MethodNeedsGpu", REFUSE),
    Row("DSpark on a CPU image", Method.DSPARK, {}, CPU, "MethodNeedsGpu", REFUSE),
    Row("EAGLE on a CPU image", Method.EAGLE, {}, CPU, ACCEPTED),
    Row(
        "speculation on an old CPU image",
        Method.NGRAM,
        {},
        {**CPU, "engine.image": "vllm-cpu:v0.19.0"},
        "CpuEngineWithoutSpeculation",
        REFUSE,
    ),
    Row(
        "custom logits processors",
        Method.EAGLE,
        {},
        args("--logits-processors", "a.B"),
        "LogitsProcessorsUnsupported",
        REFUSE,
    ),
    Row(
        "the backend lm-format-enforcer",
        Method.EAGLE,
        {},
        args("--structured-outputs-config.backend", "lm-format-enforcer"),
        "StructuredBackendUnsupported",
        REFUSE,
    ),
    Row(
        "the backend lm-format-enforcer as JSON",
        Method.NGRAM,
        {},
        args("--structured-outputs-config", '{"backend": "lm-format-enforcer"}'),
        "StructuredBackendUnsupported",
        REFUSE,
    ),
    Row("the backend xgrammar", Method.NGRAM, {}, args("--structured-outputs-config.backend", "xgrammar"), ACCEPTED),
    Row(
        "the backend guidance with EAGLE-3",
        Method.EAGLE3,
        {},
        args("--structured-outputs-config.backend", "guidance"),
        "StructuredOutputMayCrash",
        WARN,
    ),
    Row(
        "fast prefill with EAGLE", Method.EAGLE, {}, args("--kv-sharing-fast-prefill"), "FastPrefillUnsupported", REFUSE
    ),
    Row("fast prefill with ngram", Method.NGRAM, {}, args("--kv-sharing-fast-prefill"), ACCEPTED),
    Row(
        "a batch too small for a draft model",
        Method.DRAFT_MODEL,
        {},
        args("--max-num-batched-tokens", "1"),
        "BatchTooSmallForDrafts",
        REFUSE,
    ),
    Row(
        "a batch too small with LoRA",
        Method.EAGLE,
        {},
        args("--enable-lora", "--max-num-batched-tokens", "255", "--max-num-seqs", "64"),
        "BatchTooSmallForDrafts",
        REFUSE,
        "need 256 tokens",
    ),
    Row(
        "a batch just large enough with LoRA",
        Method.EAGLE,
        {},
        args("--enable-lora", "--max-num-batched-tokens", "256", "--max-num-seqs", "64"),
        ACCEPTED,
    ),
    Row(
        "block sampling on the V1 runner",
        Method.EAGLE,
        {"rejectionSampling": "block"},
        env(VLLM_USE_V2_MODEL_RUNNER="0"),
        "BlockSamplingWithoutEffect",
        WARN,
    ),
    Row(
        "adaptive verification with LoRA",
        Method.DSPARK,
        {"dspark": {"adaptiveVerification": True}},
        args("--enable-lora"),
        "AdaptiveVerificationConflict",
        REFUSE,
    ),
    Row(
        "adaptive verification in eager mode",
        Method.DSPARK,
        {"dspark": {"adaptiveVerification": True}},
        args("--enforce-eager"),
        "AdaptiveVerificationConflict",
        REFUSE,
    ),
    Row("ngram_gpu without compilation", Method.NGRAM_GPU, {}, args("-O0"), "NgramGpuNeedsCompilation", REFUSE),
    Row(
        "KV transfer counts phantom drafts",
        Method.EAGLE,
        {},
        args("--kv-transfer-config", "{}"),
        "AcceptanceCountedWrong",
        WARN,
    ),
    Row("LoRA with ngram", Method.NGRAM, {}, args("--enable-lora"), "NgramWithLoraMayCrash", WARN),
    Row("dual batch overlap", Method.EAGLE, {}, args("--enable-dbo"), "DualBatchOverlapWithoutSpeculation", WARN),
    # parallelism
    Row(
        "a draft group that is neither 1 nor the target's",
        Method.EAGLE,
        {"draft__tensorParallelSize": 2},
        two_gpus(engine__tensorParallelSize=4, template__resources={"limits": {"nvidia.com/gpu": "4"}}),
        "DraftParallelSizeInvalid",
        REFUSE,
        "2 is neither 1 nor the target's 4",
    ),
    Row("an EAGLE head on one rank", Method.EAGLE, {"draft__tensorParallelSize": 1}, two_gpus(), ACCEPTED),
    Row(
        "a draft model on one rank",
        Method.DRAFT_MODEL,
        {"draft__tensorParallelSize": 1},
        two_gpus(),
        "DraftModelParallelSizeDiffers",
        REFUSE,
    ),
    Row(
        "a draft model on the target's ranks",
        Method.DRAFT_MODEL,
        {"draft__tensorParallelSize": 2},
        two_gpus(),
        ACCEPTED,
    ),
    Row(
        "DSpark candidates on two ranks",
        Method.DSPARK,
        {"dspark": {"draftTopk": 8}},
        two_gpus(),
        "DraftTopkNeedsOneRank",
        REFUSE,
    ),
    Row(
        "ngram_gpu on a pipeline",
        Method.NGRAM_GPU,
        {},
        two_gpus(engine__tensorParallelSize=1, engine__pipelineParallelSize=2),
        "PipelineUnsupported",
        REFUSE,
    ),
    Row(
        "MTP on a pipeline",
        Method.MTP,
        {},
        two_gpus(engine__tensorParallelSize=1, engine__pipelineParallelSize=2),
        "PipelineDoubtful",
        WARN,
    ),
    Row(
        "a pipeline without asynchronous scheduling",
        Method.EAGLE,
        {},
        two_gpus(engine__tensorParallelSize=1, engine__pipelineParallelSize=2, engine__args=["--no-async-scheduling"]),
        "PipelineWithoutAsyncScheduling",
        REFUSE,
    ),
    Row(
        "a pipeline with asynchronous scheduling on V1",
        Method.EAGLE,
        {},
        two_gpus(
            engine__tensorParallelSize=1,
            engine__pipelineParallelSize=2,
            engine__args=["--async-scheduling"],
            engine__env=[{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}],
        ),
        "PipelineWithAsyncSchedulingOnV1",
        REFUSE,
    ),
    Row(
        "data parallel ranks with MTP",
        Method.MTP,
        {},
        two_gpus(engine__tensorParallelSize=1, engine__dataParallelSize=2),
        "DataParallelMayHang",
        WARN,
    ),
    # faults of releases
    Row("EAGLE on 0.17", Method.EAGLE, {}, versioned("0.17.1"), "EagleAcceptanceDecays", WARN),
    Row("EAGLE-3 on 0.19", Method.EAGLE3, {}, versioned("0.19.0"), "Eagle3GainHalved", WARN),
    Row("DFlash on 0.25", Method.DFLASH, {}, versioned("0.25.1"), "DflashAcceptsNothing", WARN),
    Row(
        "DFlash on 0.25 with the V1 runner",
        Method.DFLASH,
        {},
        {**versioned("0.25.1"), **env(VLLM_USE_V2_MODEL_RUNNER="0")},
        ACCEPTED,
    ),
    Row("MTP with prefix caching on 0.21", Method.MTP, {}, versioned("0.21.0"), "MtpPrefixCachingInaccurate", WARN),
    Row(
        "MTP without prefix caching on 0.21",
        Method.MTP,
        {},
        {**versioned("0.21.0"), **args("--no-enable-prefix-caching")},
        ACCEPTED,
    ),
    Row("MTP on 0.20", Method.MTP, {}, versioned("0.20.1"), "MtpCrashesOnLongSequences", WARN),
    # admission
    Row("log stats off", None, {}, args("--disable-log-stats"), "AdmissionRefused", REFUSE, "unwatched"),
    Row("speculation in the arguments", None, {}, args("--speculative-config", "{}"), "AdmissionRefused", REFUSE),
    Row(
        "medusa without a floor of agreement",
        Method.MEDUSA,
        {},
        {"guardrails": {}},
        "AdmissionRefused",
        REFUSE,
        "medusa can change the output",
    ),
    Row("ngram with a draft", Method.NGRAM, {"draft__model": "/models/x"}, {}, "AdmissionRefused", REFUSE),
    Row("ngram settings with EAGLE", Method.EAGLE, {"ngram": {"promptLookupMin": 2}}, {}, "AdmissionRefused", REFUSE),
    Row(
        "look-up bounds the wrong way round",
        Method.NGRAM,
        {"ngram": {"promptLookupMin": 5, "promptLookupMax": 3}},
        {},
        "AdmissionRefused",
        REFUSE,
    ),
    Row(
        "a schedule that starts at 2",
        Method.NGRAM,
        {"tokensPerBatchSize": [{"minBatchSize": 2, "maxBatchSize": 8, "tokens": 1}]},
        {},
        "AdmissionRefused",
        REFUSE,
    ),
    Row(
        "a schedule above k",
        Method.NGRAM,
        {"tokensPerBatchSize": [{"minBatchSize": 1, "maxBatchSize": 8, "tokens": 9}]},
        {},
        "AdmissionRefused",
        REFUSE,
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=[row.sentence for row in ROWS])
def test_lint_says(row: Row) -> None:
    findings = lint_raw(raw_spec(row.method, row.changes, **row.fields))
    if row.rule == ACCEPTED:
        assert [one for one in findings if one.rule_id != "SuffixNeedsArcticInference"] == []
        return
    found = [one for one in findings if one.rule_id == row.rule]
    assert found, [one.sentence() for one in findings]
    assert found[0].severity is row.severity
    assert row.words in found[0].message
    assert found[0].remedy
    assert found[0].source
    assert found[0].field_path.startswith("spec.")


def test_the_table_is_as_large_as_promised() -> None:
    edges = sum(len(versions) for versions in METHOD_EDGES.values()) + len(BEFORE_OR_AFTER) + 2 * len(KEY_EDGES)
    assert edges + len(ROWS) >= 150


def test_every_rule_is_shown_by_at_least_one_row() -> None:
    shown = {row.rule for row in ROWS} | {"MethodNotInThisVersion", "SettingNotInThisVersion"}
    shown |= {"CandidateRepeated", "ManyCandidates"}
    assert {rule.id for rule in SPEC_RULES} | {rule.id for rule in PROPOSER_RULES} <= shown


def test_every_method_has_a_least_proposer_in_the_table() -> None:
    assert set(PROPOSERS) == set(Method)


def test_rule_identifiers_are_unique_and_fit_a_condition_reason() -> None:
    identifiers = [rule.id for rule in SPEC_RULES] + [rule.id for rule in PROPOSER_RULES]
    assert len(identifiers) == len(set(identifiers))
    assert all(one.isalnum() and one[0].isupper() for one in identifiers)


def test_several_nodes_are_taken_from_the_first_release_that_has_them() -> None:
    said = {version: lint_raw(raw_spec(None, two_nodes(**on(version)))) for version in ("0.11.1", "0.11.2", "0.12.0")}
    refused = [version for version, found in said.items() if "NodesNotInThisVersion" in {one.rule_id for one in found}]
    assert refused == ["0.11.1"]


def test_a_medusa_candidate_needs_a_floor_of_agreement_too() -> None:
    raw = raw_spec(None, {"guardrails": {}, "speculation": {"candidates": [proposer(Method.MEDUSA)]}})
    assert "medusa can change the output" in {one.message for one in lint_raw(raw)}


def test_a_repeated_candidate_is_refused_where_it_is_written() -> None:
    candidates = [proposer(Method.NGRAM), proposer(Method.EAGLE), proposer(Method.NGRAM)]
    findings = lint_raw(raw_spec(None, {"speculation": {"candidates": candidates}}))
    (found,) = [one for one in findings if one.rule_id == "CandidateRepeated"]
    assert "spec.speculation.candidates[0]" in found.message


def test_many_candidates_are_warned_about() -> None:
    wide = proposer(Method.NGRAM, numSpeculativeTokens=None, numSpeculativeTokensRange={"min": 1, "max": 8})
    more = [wide, proposer(Method.EAGLE)]
    findings = lint_raw(raw_spec(None, {"speculation": {"candidates": more}}))
    assert "9 candidates" in next(one.message for one in findings if one.rule_id == "ManyCandidates")


def test_a_finding_names_the_candidate_it_is_about_also_out_of_a_range_of_k() -> None:
    ranged = proposer(Method.EAGLE3, numSpeculativeTokens=None, numSpeculativeTokensRange={"min": 2, "max": 3})
    ranged["draft"]["maxModelLen"] = 9999
    findings = lint_raw(raw_spec(None, {"speculation": {"candidates": [proposer(Method.NGRAM), ranged]}}))
    assert [one.field_path for one in findings if one.rule_id == "DraftContextTooLong"] == [
        "spec.speculation.candidates[1].draft.maxModelLen"
    ]
