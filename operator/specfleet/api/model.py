"""spec.model, spec.engine and spec.template: what both arms share."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from specfleet.api.base import ApiModel, RawObject, cel, validations

Name = Annotated[str, Field(min_length=1, max_length=512)]
Raw = Annotated[RawObject, Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
RawList = Annotated[list[Any], Field(max_length=64, json_schema_extra={"x-specfleet-raw-items": True})]


class ModelSpec(ApiModel):
    """The target model, as vLLM takes it (`vllm serve MODEL`)."""

    name: Name = Field(description="Hugging Face repository or absolute path inside the engine container.")
    revision: Name | None = Field(
        None, description="Commit, tag or branch of the weights. Pin a commit: a moving branch cannot be compared."
    )
    tokenizer: Name | None = Field(None, description="Tokenizer repository or path. Default: the model's own.")
    tokenizer_revision: Name | None = Field(None, description="Revision of the tokenizer.")
    quantization: Name | None = Field(None, description="Quantisation method, as in `vllm serve --quantization`.")
    dtype: Name | None = Field(None, description="Weight type, as in `vllm serve --dtype`.")
    max_model_len: int | None = Field(None, ge=1, description="Context length in tokens (`--max-model-len`).")
    served_name: Name | None = Field(None, description="Model name that clients use. Default: `name`.")


class EngineSpec(ApiModel):
    """The vLLM image and how it is started. Both arms use the same one; only the proposer differs."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel(
                "!has(self.args) || "
                "self.args.all(a, !a.startsWith('--speculative') && !a.startsWith('--spec-') && a != '-sc')",
                "speculation is set in spec.speculation, not in engine.args: remove the speculative flags",
                ".args",
            ),
            cel(
                "!has(self.args) || self.args.all(a, !a.startsWith('--disable-log-stats'))",
                "--disable-log-stats removes every vllm metric and would leave the arm unwatched: remove it",
                ".args",
            ),
        )
    )

    image: Name = Field(description="Engine image. A digest (`name@sha256:...`) is preferred over a tag.")
    version: str | None = Field(
        None,
        pattern=r"^\d+\.\d+(\.\d+)?([.+-].*)?$",
        max_length=64,
        description="vLLM version of the image, needed when the tag does not say it (for example a digest).",
    )
    args: list[Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=list, max_length=128, description="More `vllm serve` arguments, the same in both arms."
    )
    env: RawList = Field(default_factory=list, description="Environment of the engine container (core/v1 EnvVar).")
    port: int = Field(8000, ge=1, le=65535, description="HTTP port of the engine.")
    shutdown_timeout_seconds: int = Field(
        120, ge=1, le=86400, description="`vllm serve --shutdown-timeout`: how long SIGTERM lets requests finish."
    )
    drain_timeout_seconds: int = Field(
        600,
        ge=1,
        le=86400,
        description="How long a pod that leaves the Service waits for its running requests before SIGTERM. Set it to "
        "at least the p99.9 request duration; no request is cut below it.",
    )
    startup_timeout_seconds: int = Field(
        1800, ge=10, le=86400, description="How long an engine may take from start to its first answered completion."
    )
    tensor_parallel_size: int = Field(1, ge=1, le=1024, description="`--tensor-parallel-size`.")
    pipeline_parallel_size: int = Field(1, ge=1, le=1024, description="`--pipeline-parallel-size`.")
    data_parallel_size: int = Field(1, ge=1, le=1024, description="`--data-parallel-size`.")


class MultiNodeSpec(ApiModel):
    """One engine over several pods, each on a node of its own: a group of a LeaderWorkerSet (0.6 or newer).

    Every replica is then a whole group. Only its leader answers requests and is scraped.
    """

    size: int = Field(
        ge=2,
        le=64,
        description="Pods per engine, leader included; `resources` are those of each pod. Tensor x pipeline x data "
        "parallel size has to be a multiple of it.",
    )
    exclusive_topology_key: Name | None = Field(
        None,
        description="Node label (a rack, a node pool, an NVLink domain): all pods of an engine run on nodes with one "
        "value of it, and no pod of another engine does (LeaderWorkerSet's exclusive placement).",
    )


class TemplateSpec(ApiModel):
    """Pod settings as the ecosystem writes them; the same in both arms."""

    labels: dict[str, str] = Field(default_factory=dict, description="More pod labels.")
    annotations: dict[str, str] = Field(default_factory=dict, description="More pod annotations.")
    resources: Raw = Field(default_factory=dict, description="core/v1 ResourceRequirements of the engine container.")
    resource_claims: RawList = Field(default_factory=list, description="core/v1 PodResourceClaim list (DRA).")
    node_selector: dict[str, str] = Field(default_factory=dict, description="core/v1 nodeSelector.")
    tolerations: RawList = Field(default_factory=list, description="core/v1 tolerations.")
    affinity: Raw = Field(default_factory=dict, description="core/v1 affinity.")
    topology_spread_constraints: RawList = Field(default_factory=list, description="core/v1 spread constraints.")
    volumes: RawList = Field(default_factory=list, description="core/v1 volumes (model cache: PVC or hostPath).")
    volume_mounts: RawList = Field(default_factory=list, description="core/v1 volumeMounts of the engine container.")
    init_containers: RawList = Field(default_factory=list, description="core/v1 init containers.")
    service_account_name: str | None = Field(None, description="Service account of the engine pods.")
    image_pull_secrets: RawList = Field(default_factory=list, description="core/v1 imagePullSecrets.")
    image_pull_policy: str | None = Field(None, pattern="^(Always|IfNotPresent|Never)$", description="Pull policy.")
    runtime_class_name: str | None = Field(None, description="core/v1 runtimeClassName, for example `nvidia`.")
    priority_class_name: str | None = Field(None, description="core/v1 priorityClassName.")
    scheduler_name: str | None = Field(None, description="core/v1 schedulerName.")
    host_ipc: bool | None = Field(None, alias="hostIPC", description="core/v1 hostIPC.")
    shared_memory_size: str | None = Field(
        None, description="Size of a memory volume at /dev/shm (tensor parallel engines need one), for example `8Gi`."
    )
    security_context: Raw = Field(default_factory=dict, description="core/v1 SecurityContext of the engine container.")
    pod_security_context: Raw = Field(default_factory=dict, description="core/v1 PodSecurityContext.")
    hugging_face_token_secret: str | None = Field(
        None, description="Name of a Secret with the key `token`, given to the engine as HF_TOKEN by reference."
    )
    kueue_queue_name: str | None = Field(None, description="Kueue LocalQueue of serving and benchmark pods.")
    multi_node: MultiNodeSpec | None = Field(
        None,
        description="An engine that spans several nodes; needs LeaderWorkerSet in the cluster. Default: one pod.",
    )
