"""A proposer as the JSON of `--speculative-config`, and back. One table maps typed fields to vLLM's keys."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specfleet.api.speculation import Proposer


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key of --speculative-config that a typed field renders to."""

    key: str
    """vLLM's name, with underscores."""
    field: tuple[str, ...]
    """Python field path in Proposer."""
    since: str | None = None
    """First vLLM release that knows the key; None: all since 0.8. Earlier ones exit with a validation error."""

    @property
    def wire_path(self) -> str:
        """JSON path below the proposer, for example `draft.kvCacheDtype`."""
        return ".".join(_camel(name) for name in self.field)


CONFIG_KEYS = (
    ConfigKey("num_speculative_tokens", ("num_speculative_tokens",)),
    ConfigKey("num_speculative_tokens_per_batch_size", ("tokens_per_batch_size",), "0.24"),
    ConfigKey("rejection_sample_method", ("rejection_sampling",), "0.18"),
    ConfigKey("model", ("draft", "model")),
    ConfigKey("revision", ("draft", "revision")),
    ConfigKey("code_revision", ("draft", "code_revision")),
    ConfigKey("quantization", ("draft", "quantization")),
    ConfigKey("draft_tensor_parallel_size", ("draft", "tensor_parallel_size")),
    ConfigKey("max_model_len", ("draft", "max_model_len")),
    ConfigKey("enforce_eager", ("draft", "enforce_eager")),
    ConfigKey("disable_padded_drafter_batch", ("draft", "disable_padded_batch"), "0.11"),
    ConfigKey("parallel_drafting", ("draft", "parallel_drafting"), "0.16"),
    ConfigKey("draft_load_config", ("draft", "load_config"), "0.17"),
    ConfigKey("use_local_argmax_reduction", ("draft", "local_argmax_reduction"), "0.17"),
    ConfigKey("moe_backend", ("draft", "moe_backend"), "0.19"),
    ConfigKey("draft_sample_method", ("draft", "sampling"), "0.21"),
    ConfigKey("attention_backend", ("draft", "attention_backend"), "0.21"),
    ConfigKey("use_heterogeneous_vocab", ("draft", "heterogeneous_vocabulary"), "0.25"),
    ConfigKey("kv_cache_dtype", ("draft", "kv_cache_dtype"), "0.26"),
    ConfigKey("disable_eagle_block_drop", ("draft", "disable_eagle_block_drop"), "0.30"),
    ConfigKey("prompt_lookup_min", ("ngram", "prompt_lookup_min")),
    ConfigKey("prompt_lookup_max", ("ngram", "prompt_lookup_max")),
    ConfigKey("suffix_decoding_max_tree_depth", ("suffix", "max_tree_depth"), "0.11.2"),
    ConfigKey("suffix_decoding_max_cached_requests", ("suffix", "max_cached_requests"), "0.11.2"),
    ConfigKey("suffix_decoding_max_spec_factor", ("suffix", "max_spec_factor"), "0.11.2"),
    ConfigKey("suffix_decoding_min_token_prob", ("suffix", "min_token_probability"), "0.11.2"),
    ConfigKey("enable_adaptive_verification", ("dspark", "adaptive_verification"), "0.28"),
    ConfigKey("dspark_draft_topk", ("dspark", "draft_topk"), "0.28"),
)
TYPED_KEYS = frozenset({"method", *(key.key for key in CONFIG_KEYS)})


def speculative_config(proposer: Proposer) -> dict[str, Any]:
    """The object for --speculative-config. `method` is always set; `extra` never overrides a typed field."""
    config: dict[str, Any] = dict(proposer.extra or {})
    config["method"] = proposer.method.value
    for key in CONFIG_KEYS:
        value = field_value(proposer, key.field)
        if value is not None:
            config[key.key] = _to_config(key, value)
    return config


def config_text(config: Mapping[str, Any]) -> str:
    """Compact JSON with sorted keys: equal configurations give equal command lines."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def proposer_of(config: Mapping[str, Any]) -> Proposer:
    """The proposer that renders to this configuration; unknown keys go to `extra`.

    Raises pydantic.ValidationError when a value does not fit its field.
    """
    tree: dict[str, Any] = {"method": config.get("method")}
    for key in CONFIG_KEYS:
        if key.key in config:
            place = tree
            for name in key.field[:-1]:
                place = place.setdefault(name, {})
            place[key.field[-1]] = _from_config(key, config[key.key])
    extra = {key: value for key, value in config.items() if key not in TYPED_KEYS}
    return Proposer.model_validate({**tree, "extra": extra or None})


def proposer_label(proposer: Proposer | None) -> str:
    """Short name for status and tables: `none`, `ngram k=3`, `mtp`."""
    if proposer is None:
        return "none"
    tokens = proposer.num_speculative_tokens
    return proposer.method.value if tokens is None else f"{proposer.method.value} k={tokens}"


def field_value(proposer: Proposer, path: tuple[str, ...]) -> Any:
    """Value of a typed field, None when it or a parent is absent."""
    value: Any = proposer
    for name in path:
        value = getattr(value, name)
        if value is None:
            return None
    return value


def _to_config(key: ConfigKey, value: Any) -> Any:
    if key.field == ("tokens_per_batch_size",):
        return [[rule.min_batch_size, rule.max_batch_size, rule.tokens] for rule in value]
    return value.value if hasattr(value, "value") else value


def _from_config(key: ConfigKey, value: Any) -> Any:
    if key.field == ("tokens_per_batch_size",):
        return [{"minBatchSize": first, "maxBatchSize": last, "tokens": k} for first, last, k in value]
    return value


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)
