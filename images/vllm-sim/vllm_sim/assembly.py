"""Puts an engine together from arguments and profile: limits, KV cache, metrics, identity."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from vllm_sim.arguments import ServeArguments
from vllm_sim.endpoints import Identity
from vllm_sim.engine import Engine
from vllm_sim.engine_metrics import EngineMetrics
from vllm_sim.kv_cache import KvCache
from vllm_sim.profile import Profile
from vllm_sim.scheduler import Scheduler, SchedulerLimits
from vllm_sim.speculative_config import (
    DROPS_LAST_BLOCK,
    ConfigError,
    SpeculativeSettings,
    Target,
    check_speculative_config,
    is_local_path,
    missing_model,
    read_config,
)
from vllm_sim.step_time import StepTimer


@dataclass(frozen=True)
class Configuration:
    """A checked command line."""

    arguments: ServeArguments
    profile: Profile
    speculation: SpeculativeSettings | None
    max_model_len: int


def check_configuration(arguments: ServeArguments, profile: Profile) -> Configuration:
    """Everything the real engine refuses before it starts. Raises ConfigError."""
    target_config = read_config(arguments.model)
    if target_config is None and is_local_path(arguments.model):
        raise ConfigError(
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
            f"  Value error, {missing_model(arguments.model)} [type=value_error, input_value=ArgsKwargs((), "
            "{'model': ...config_format': 'auto'}), input_type=ArgsKwargs]\n"
            "    For further information visit https://errors.pydantic.dev/2.14/v/value_error"
        )
    config = target_config or {}
    vocabulary, longest = config.get("vocab_size"), config.get("max_position_embeddings")
    target = Target(
        model=arguments.model,
        vocab_size=vocabulary if isinstance(vocabulary, int) else None,
        tensor_parallel_size=arguments.tensor_parallel_size,
        async_scheduling=arguments.async_scheduling,
        installed=profile.installed,
    )
    speculation = check_speculative_config(arguments.speculative_config, target)
    default_len = longest if isinstance(longest, int) else profile.max_model_len
    max_model_len = arguments.max_model_len or default_len
    if target_config is not None and isinstance(longest, int) and max_model_len > longest:
        raise ConfigError(
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
            f"  Value error, User-specified max_model_len ({max_model_len}) is greater than the derived max_model_len "
            f"(max_position_embeddings={longest} or model_max_length=None in model's config.json)."
        )
    if kv_tokens(arguments, profile, speculation) < max_model_len:
        raise ConfigError(
            f"ValueError: To serve at least one request with the models's max seq len ({max_model_len}), more KV cache "
            "is needed than is available. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
            "initializing the engine."
        )
    return Configuration(arguments, profile, speculation, max_model_len)


def kv_tokens(arguments: ServeArguments, profile: Profile, speculation: SpeculativeSettings | None) -> int:
    """Tokens that the KV cache holds, whole blocks."""
    factor = 1.0
    if speculation is not None:
        factor = profile.proposer(speculation.method, speculation.model).kv_capacity_factor
    return int(profile.kv_capacity_tokens * factor) // arguments.block_size * arguments.block_size


def build_scheduler(configuration: Configuration) -> Scheduler:
    """Limits and KV cache."""
    arguments, speculation = configuration.arguments, configuration.speculation
    drops = speculation is not None and speculation.method in DROPS_LAST_BLOCK and not speculation.disable_block_drop
    limits = SchedulerLimits(
        max_num_seqs=arguments.max_num_seqs,
        max_num_batched_tokens=arguments.max_num_batched_tokens,
        max_model_len=configuration.max_model_len,
        speculative_tokens=speculation.tokens if speculation else 0,
        # Dynamic speculation is silently off with data parallelism.
        schedule=speculation.schedule if speculation and arguments.data_parallel_size == 1 else (),
        drop_last_cached_block=drops,
        draft_max_model_len=speculation.draft_max_model_len if speculation else None,
    )
    blocks = kv_tokens(arguments, configuration.profile, speculation) // arguments.block_size
    return Scheduler(limits, KvCache(blocks, arguments.block_size, arguments.enable_prefix_caching))


def build_metrics(configuration: Configuration) -> EngineMetrics:
    """The vllm:* families."""
    arguments = configuration.arguments
    return EngineMetrics(
        arguments.served_model_name[0],
        configuration.max_model_len,
        configuration.speculation.tokens if configuration.speculation else 0,
        _cache_config(configuration),
        arguments.custom_histogram_buckets,
    )


def build_engine(configuration: Configuration, metrics: EngineMetrics, on_death: Callable[[int, str], None]) -> Engine:
    """The engine, on the running event loop."""
    speculation, profile = configuration.speculation, configuration.profile
    proposer = profile.proposer(speculation.method, speculation.model) if speculation else None
    return Engine(build_scheduler(configuration), StepTimer(profile, proposer), metrics, on_death)


def build_identity(configuration: Configuration) -> Identity:
    """What the engine says about itself."""
    speculation, profile = configuration.speculation, configuration.profile
    return Identity(
        arguments=configuration.arguments,
        profile=profile,
        speculation=speculation,
        proposer=profile.proposer(speculation.method, speculation.model) if speculation else None,
        max_model_len=configuration.max_model_len,
        fingerprint=system_fingerprint(configuration.arguments, profile.engine_version),
        created=int(time.time()),
    )


def system_fingerprint(arguments: ServeArguments, version: str) -> str:
    """Custom value, or `vllm-<version>[-tpN]-<hash>`; like the real one it covers the revision and ignores k."""
    if arguments.fingerprint_mode == "custom" and arguments.fingerprint_value is not None:
        return arguments.fingerprint_value
    method = (arguments.speculative_config or {}).get("method")
    parts = (
        arguments.model,
        arguments.revision,
        arguments.given.get("quantization"),
        method,
        arguments.given.get("dtype"),
    )
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:8]
    parallel = f"-tp{arguments.tensor_parallel_size}" if arguments.tensor_parallel_size > 1 else ""
    return f"vllm-{version}{parallel}-{digest}"


def _cache_config(configuration: Configuration) -> dict[str, str]:
    arguments = configuration.arguments
    tokens = kv_tokens(arguments, configuration.profile, configuration.speculation)
    given = arguments.given
    blocks = tokens // arguments.block_size
    unset = (
        *("cache_hit_alignment_tokens", "hash_block_size", "kv_cache_layout", "kv_offloading_size", "mamba_block_size"),
        *("mamba_page_size_padded", "num_cpu_blocks", "num_gpu_blocks_override", "prefix_match_unit"),
        *("skip_page_size_padded", "sliding_window", "kv_cache_memory_bytes"),
    )
    return dict.fromkeys(unset, "None") | {
        "_block_size_resolved": "True",
        "block_size": str(arguments.block_size),
        "cache_dtype": str(given.get("kv_cache_dtype", "auto")),
        "effective_attention_block_size": str(arguments.block_size),
        "enable_mamba_shared_prefix_checkpoint": "False",
        "enable_prefix_caching": str(arguments.enable_prefix_caching),
        "engine": "0",
        "gpu_memory_utilization": str(given.get("gpu_memory_utilization", "0.92")),
        "is_attention_free": "False",
        "kv_cache_dtype_skip_layers": "[]",
        "kv_cache_max_concurrency": str(round(tokens / configuration.max_model_len, 4)),
        "kv_cache_size_tokens": str(tokens),
        "kv_offloading_backend": "native",
        "kv_sharing_fast_prefill": "False",
        "mamba_cache_dtype": "auto",
        "mamba_cache_mode": "none",
        "mamba_ssm_cache_dtype": "float32",
        "num_gpu_blocks": str(blocks),
        "prefix_cache_retention_interval": "0",
        "prefix_caching_hash_algo": "sha256",
        "replayssm_buffer_len": "16",
        "swa_bounded_replay": "True",
        "use_kda_recoverssm": "False",
        "use_replayssm": "False",
        "user_specified_block_size": str("block_size" in given),
    }
