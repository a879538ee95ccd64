"""Command-line arguments of `vllm serve`: those that mean something here, and those that are only accepted."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

USAGE = "usage: vllm serve [model_tag] [options]"

# Accepted and without effect: they change nothing that this engine simulates.
_VALUE_FLAGS = """
--tokenizer --tokenizer-revision --tokenizer-mode --quantization --dtype --load-format --download-dir --kv-cache-dtype
--gpu-memory-utilization --swap-space --cpu-offload-gb --code-revision --hf-config-path --hf-overrides --hf-token
--config-format --chat-template --chat-template-content-format --response-role --reasoning-parser --tool-call-parser
--tool-parser-plugin --limit-mm-per-prompt --mm-processor-kwargs --uvicorn-log-level --log-level --ssl-keyfile
--ssl-certfile --ssl-ca-certs --root-path --middleware --allowed-origins --allowed-methods --allowed-headers
--distributed-executor-backend --data-parallel-size-local --data-parallel-address --data-parallel-rpc-port
--data-parallel-backend --data-parallel-rank --expert-parallel-size --max-parallel-loading-workers
--prefill-context-parallel-size --decode-context-parallel-size --compilation-config --additional-config
--attention-backend --attention-config --kv-transfer-config --kv-events-config --structured-outputs-config
--guided-decoding-backend --max-logprobs --logprobs-mode --max-seq-len-to-capture --cudagraph-capture-sizes
--max-cudagraph-capture-size --long-prefill-token-threshold --max-num-partial-prefills --max-long-partial-prefills
--num-gpu-blocks-override --num-lookahead-slots --scheduling-policy --scheduler-cls --preemption-mode --rope-scaling
--rope-theta --generation-config --override-generation-config --model-impl --runner --convert --task
--prefix-caching-hash-algo --mamba-cache-dtype --mamba-ssm-cache-dtype --mamba-block-size --kv-cache-memory-bytes
--kv-offloading-size --kv-offloading-backend --lora-modules --max-loras --max-lora-rank --lora-dtype --max-cpu-loras
--fully-sharded-loras --worker-cls --worker-extension-cls --node-rank --nnodes --master-addr --master-port
--api-server-count --otlp-traces-endpoint --collect-detailed-traces --show-hidden-metrics-for-version
--kv-cache-metrics-sample --max-log-len --log-config-file --h11-max-incomplete-event-size --h11-max-header-count
--stream-interval --pooler-config --logits-processors --io-processor-plugin --model-loader-extra-config
--ignore-patterns --safetensors-load-strategy --optimization-level --performance-mode --moe-backend --kernel-config
--profiler-config --ec-transfer-config --all2all-backend --enable-eplb-config --eplb-config --uds --tokens-only
"""
_SWITCH_FLAGS = """
--trust-remote-code --enforce-eager --enable-chunked-prefill --enable-expert-parallel --enable-eplb --enable-lora
--enable-sleep-mode --enable-auto-tool-choice --enable-prompt-tokens-details --enable-log-requests
--enable-log-outputs --disable-uvicorn-access-log --allow-credentials --disable-frontend-multiprocessing
--disable-fastapi-docs --enable-request-id-headers --return-tokens-as-token-ids --enable-force-include-usage
--calculate-kv-scales --kv-sharing-fast-prefill --disable-sliding-window --disable-cascade-attn --skip-tokenizer-init
--enable-prompt-embeds --allow-deprecated-quantization --use-tqdm-on-load --pt-load-map-location
--disable-custom-all-reduce --disable-hybrid-kv-cache-manager --disable-chunked-mm-input --ray-workers-use-nsight
--enable-dbo --headless --enable-cudagraph-gc-nsys --disable-nccl-for-dp-synchronization --kv-cache-metrics
--cudagraph-metrics --enable-layerwise-nvtx-tracing --enable-mfu-metrics --enable-return-routed-experts
--enable-multimodal-encoder-data-parallel --exclude-tools-when-tool-choice-none --trust-request-chat-template
--disable-access-log-for-endpoints --enable-scale-out
"""
IGNORED_VALUES = tuple(_VALUE_FLAGS.split())
IGNORED_SWITCHES = tuple(_SWITCH_FLAGS.split())

FINGERPRINT_MODES = ("full", "hash", "custom", "none")


class ArgumentsError(Exception):
    """The command line cannot be used: exit code 2, text on standard error."""


@dataclass(frozen=True)
class ServeArguments:
    """The arguments that mean something."""

    model: str
    served_model_name: tuple[str, ...]
    host: str | None
    port: int
    revision: str | None
    max_model_len: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    block_size: int
    seed: int
    enable_prefix_caching: bool
    async_scheduling: bool | None
    speculative_config: dict[str, Any] | None
    fingerprint_mode: str
    fingerprint_value: str | None
    shutdown_timeout: float
    custom_histogram_buckets: dict[str, list[float]]
    disable_log_stats: bool
    disable_uvicorn_access_log: bool
    enable_server_load_tracking: bool
    api_key: tuple[str, ...]
    per_request_spec_decode_metrics: str
    given: dict[str, Any]
    """What was given, by name: for the log line of non-default arguments."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # Flags that nobody takes are refused by the parser above that of `serve`, as in the real one.
        program = "vllm" if message.startswith("unrecognized arguments") else "vllm serve"
        raise ArgumentsError(f"{USAGE}\n{program}: error: {message}")


def _human_integer(text: str) -> int:
    """1024, 8k (8000), 8K (8192)."""
    factors = {"k": 1000, "m": 1_000_000, "K": 1024, "M": 1024**2}
    factor = factors.get(text[-1:], 1)
    return int(float(text[:-1]) * factor) if factor != 1 else int(text)


def _json_object(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        # The real message shows the converter's address.
        message = f"Value {text} cannot be converted to <function loads at 0x{id(json.loads):x}>."
        raise argparse.ArgumentTypeError(message) from None


def _parser() -> _Parser:
    parser = _Parser(prog="vllm serve", add_help=False, allow_abbrev=False)
    add = parser.add_argument
    add("model_tag", nargs="?")
    add("-h", "--help", action="store_true")
    add("--model")
    add("--served-model-name", nargs="+")
    add("--host")
    add("--port", type=int, default=8000)
    add("--revision")
    add("--max-model-len", type=_human_integer)
    add("--max-num-seqs", type=_human_integer, default=256)
    add("--max-num-batched-tokens", type=_human_integer, default=8192)
    add("--tensor-parallel-size", "-tp", type=int, default=1)
    add("--pipeline-parallel-size", "-pp", type=int, default=1)
    add("--data-parallel-size", "-dp", type=int, default=1)
    add("--block-size", type=int)
    add("--seed", type=int, default=0)
    add("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    add("--async-scheduling", action=argparse.BooleanOptionalAction)
    add("--speculative-config", "-sc", type=_json_object)
    add("--spec-method")
    add("--spec-model")
    add("--spec-tokens", type=int)
    add("--fingerprint-mode", choices=FINGERPRINT_MODES, default="full")
    add("--fingerprint-value")
    add("--shutdown-timeout", type=float, default=0.0)
    add("--custom-histogram-buckets", type=_json_object)
    add("--disable-log-stats", action=argparse.BooleanOptionalAction, default=False)
    add("--enable-server-load-tracking", action=argparse.BooleanOptionalAction, default=False)
    add("--api-key", nargs="+", default=[])
    add("--per-request-spec-decode-metrics", choices=("none", "summary", "detailed"), default="none")
    for name in IGNORED_VALUES:
        add(name, default=argparse.SUPPRESS)
    add("-O", "--compilation-level", default=argparse.SUPPRESS)
    add("-cc", default=argparse.SUPPRESS)
    for name in IGNORED_SWITCHES:
        add(name, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS)
    return parser


def _normalise(arguments: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Underscores in flag names become dashes; `--speculative-config.method x` becomes part of one JSON object."""
    words: list[str] = []
    nested: dict[str, Any] = {}
    pending: str | None = None
    for word in arguments:
        if pending is not None:
            nested[pending] = _literal(word)
            pending = None
            continue
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            name = name.replace("_", "-")
            for prefix in ("--speculative-config.", "-sc."):
                if name.startswith(prefix):
                    key = name.removeprefix(prefix).replace("-", "_")
                    if equals:
                        nested[key] = _literal(value)
                    else:
                        pending = key
                    break
            else:
                words.append(name + equals + value)
            continue
        words.append(word)
    return words, nested


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def parse_serve_arguments(arguments: Sequence[str], default_block_size: int = 16) -> ServeArguments:
    """Raises ArgumentsError. `--help` prints the usage and raises SystemExit(0)."""
    words, nested = _normalise(arguments)
    space = _parser().parse_args(words)
    if space.help:
        print(USAGE)
        sys.exit(0)
    model = space.model_tag or space.model or "Qwen/Qwen3-0.6B"
    speculative = _speculative(space, nested)
    buckets = space.custom_histogram_buckets or {}
    if not isinstance(buckets, dict) or not all(isinstance(edges, list) for edges in buckets.values()):
        raise ArgumentsError(f"{USAGE}\nvllm serve: error: argument --custom-histogram-buckets: expected a JSON object")
    return ServeArguments(
        model=model,
        served_model_name=tuple(space.served_model_name or [model]),
        host=space.host,
        port=space.port,
        revision=space.revision,
        max_model_len=space.max_model_len,
        max_num_seqs=space.max_num_seqs,
        max_num_batched_tokens=space.max_num_batched_tokens,
        tensor_parallel_size=space.tensor_parallel_size,
        pipeline_parallel_size=space.pipeline_parallel_size,
        data_parallel_size=space.data_parallel_size,
        block_size=space.block_size or default_block_size,
        seed=space.seed,
        enable_prefix_caching=space.enable_prefix_caching,
        async_scheduling=space.async_scheduling,
        speculative_config=speculative,
        fingerprint_mode=space.fingerprint_mode,
        fingerprint_value=space.fingerprint_value,
        shutdown_timeout=space.shutdown_timeout,
        custom_histogram_buckets=buckets,
        disable_log_stats=space.disable_log_stats,
        disable_uvicorn_access_log=bool(getattr(space, "disable_uvicorn_access_log", False)),
        enable_server_load_tracking=space.enable_server_load_tracking,
        api_key=tuple(space.api_key),
        per_request_spec_decode_metrics=space.per_request_spec_decode_metrics,
        given=_given(space),
    )


def _speculative(space: argparse.Namespace, nested: dict[str, Any]) -> dict[str, Any] | None:
    config = space.speculative_config
    if config is not None and not isinstance(config, dict):
        raise ArgumentsError(f"{USAGE}\nvllm serve: error: argument --speculative-config/-sc: expected a JSON object")
    merged = {str(key).replace("-", "_"): value for key, value in (config or {}).items()} | nested
    for name, key in (("spec_method", "method"), ("spec_model", "model"), ("spec_tokens", "num_speculative_tokens")):
        value = getattr(space, name)
        if value is None:
            continue
        if key in merged:
            flag = "--" + name.replace("_", "-")
            raise ArgumentsError(
                f"{USAGE}\nvllm serve: error: {flag} and --speculative-config.{key} are mutually exclusive"
            )
        merged[key] = value
    return merged or None


def _given(space: argparse.Namespace) -> dict[str, Any]:
    defaults = vars(_parser().parse_args([]))
    return {name: value for name, value in vars(space).items() if name not in defaults or defaults[name] != value}
