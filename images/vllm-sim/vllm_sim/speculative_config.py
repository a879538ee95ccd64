"""What --speculative-config may contain, and the exact words with which vLLM 0.32 refuses the rest."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METHODS = (
    *("ngram", "medusa", "mlp_speculator", "draft_model", "suffix", "custom_class", "eagle", "eagle3"),
    *("extract_hidden_states", "deepseek_mtp", "dots3_note_mtp", "mimo_mtp", "mimo_v2_mtp", "glm4_moe_mtp"),
    *("glm4_moe_lite_mtp", "glm_ocr_mtp", "ernie_mtp", "nemotron_h_mtp", "exaone_moe_mtp", "exaone4_5_mtp"),
    *("qwen3_next_mtp", "qwen4_exp_mtp", "qwen3_5_mtp", "longcat_flash_mtp", "bailing_hybrid_v3_mtp"),
    *("minimax_m3_mtp", "bailing_hybrid_mtp", "mtp", "kimi_k3_mtp", "pangu_ultra_moe_mtp", "step3p5_mtp"),
    *("hy_v3_mtp", "hy_v4_mtp", "gemma4_mtp", "inkling_mtp", "glm5_next_mtp", "dflash", "ngram_gpu", "dspark"),
)
_NO_MODEL = ("ngram", "ngram_gpu", "suffix", "mtp", "dspark", "extract_hidden_states")
DROPS_LAST_BLOCK = ("eagle", "eagle3", "mtp", "dflash", "dspark")
SUFFIX_DEFAULT_TOKENS = 24

# Field -> kind of value that is checked. "any": accepted as it is.
FIELDS: dict[str, str] = {
    "num_speculative_tokens": "positive",
    "model": "text",
    "method": "method",
    "draft_tensor_parallel_size": "at_least_1",
    "tensor_parallel_size": "any",
    "quantization": "text",
    "moe_backend": "text",
    "attention_backend": "text",
    "kv_cache_dtype": "text",
    "enforce_eager": "boolean",
    "max_model_len": "at_least_1",
    "revision": "text",
    "code_revision": "text",
    "draft_load_config": "any",
    "disable_padded_drafter_batch": "boolean",
    "disable_eagle_block_drop": "boolean",
    "use_local_argmax_reduction": "boolean",
    "parallel_drafting": "boolean",
    "prompt_lookup_max": "at_least_1",
    "prompt_lookup_min": "at_least_1",
    "suffix_decoding_max_tree_depth": "integer",
    "suffix_decoding_max_cached_requests": "integer",
    "suffix_decoding_max_spec_factor": "any",
    "suffix_decoding_min_token_prob": "any",
    "rejection_sample_method": "text",
    "draft_sample_method": "text",
    "synthetic_acceptance_rates": "any",
    "synthetic_acceptance_length": "any",
    "num_speculative_tokens_per_batch_size": "any",
    "use_heterogeneous_vocab": "boolean",
    "enable_adaptive_verification": "boolean",
    "dspark_draft_topk": "any",
    "index_share_for_mtp_iteration": "any",
}
_ERRORS_PAGE = "https://errors.pydantic.dev/2.14/v/"


class ConfigError(Exception):
    """The engine does not start: exit code 1, these last lines."""

    def __init__(self, lines: str) -> None:
        super().__init__(lines)
        self.lines = lines


@dataclass(frozen=True)
class SpeculativeSettings:
    """A checked configuration."""

    method: str
    model: str | None
    tokens: int
    schedule: tuple[tuple[int, int, int], ...]
    draft_max_model_len: int | None
    disable_block_drop: bool

    def log_text(self) -> str:
        """As in the engine's log line."""
        model = None if self.method in ("ngram", "ngram_gpu", "suffix") else self.model
        return f"SpeculativeConfig(method={self.method!r}, model={model!r}, num_spec_tokens={self.tokens})"


@dataclass(frozen=True)
class Target:
    """The target model as far as drafts must fit it."""

    model: str
    vocab_size: int | None
    tensor_parallel_size: int
    async_scheduling: bool | None
    installed: tuple[str, ...]


def read_config(path: str) -> dict[str, Any] | None:
    """config.json of a model directory, None when the path is not one."""
    file = Path(path) / "config.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def is_local_path(name: str) -> bool:
    """Whether a model name can only be a directory."""
    return name.startswith(("/", "./", "../", "~"))


def missing_model(name: str) -> str:
    """The real message for a model that is neither a repository nor a directory."""
    return (
        f"Invalid repository ID or local directory specified: {name!r}.\n"
        "Please verify the following requirements:\n"
        "1. Provide a valid Hugging Face repository ID.\n"
        "2. Specify a local directory that contains a recognized configuration file.\n"
        "   - For Hugging Face models: ensure the presence of a 'config.json'.\n"
        "   - For Mistral models: ensure the presence of a 'params.json'.\n"
    )


def check_speculative_config(config: Mapping[str, Any] | None, target: Target) -> SpeculativeSettings | None:
    """A configuration to settings. Raises ConfigError with the real engine's last lines."""
    if config is None:
        return None
    problems = [problem for name, value in config.items() if name in FIELDS for problem in _field_problem(name, value)]
    problems += [
        (name, "Unexpected keyword argument", "unexpected_keyword_argument", value)
        for name, value in config.items()
        if name not in FIELDS
    ]
    if problems:
        raise ConfigError(_validation_error(problems))
    try:
        return _check_together(config, target)
    except _ValueProblemError as problem:
        raise ConfigError(_value_error(str(problem), config, problem.owner)) from None


class _ValueProblemError(Exception):
    def __init__(self, message: str, owner: str = "speculative") -> None:
        super().__init__(message)
        self.owner = owner


def _field_problem(name: str, value: Any) -> list[tuple[str, str, str, Any]]:
    kind = FIELDS[name]
    if value is None or kind == "any":
        return []
    if kind == "method":
        if value in METHODS:
            return []
        listed = ", ".join(repr(method) for method in METHODS[:-1]) + f" or {METHODS[-1]!r}"
        return [(name, f"Input should be {listed}", "literal_error", value)]
    if kind == "text":
        return [] if isinstance(value, str) else [(name, "Input should be a valid string", "string_type", value)]
    if kind == "boolean":
        good = isinstance(value, bool) or value in (0, 1)
        return [] if good else [(name, "Input should be a valid boolean", "bool_type", value)]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        if isinstance(value, str) and value.lstrip("-").isdigit():
            return _field_problem(name, int(value))
        return [(name, "Input should be a valid integer", "int_type", value)]
    if kind == "positive" and value <= 0:
        return [(name, "Input should be greater than 0", "greater_than", value)]
    if kind == "at_least_1" and value < 1:
        return [(name, "Input should be greater than or equal to 1", "greater_than_equal", value)]
    return []


def _validation_error(problems: list[tuple[str, str, str, Any]]) -> str:
    plural = "s" if len(problems) > 1 else ""
    lines = [
        f"pydantic_core._pydantic_core.ValidationError: {len(problems)} validation error{plural} for SpeculativeConfig"
    ]
    for name, message, kind, value in problems:
        lines += [
            name,
            f"  {message} [type={kind}, input_value={_shortened(repr(value))}, input_type={type(value).__name__}]",
            f"    For further information visit {_ERRORS_PAGE}{kind}",
        ]
    return "\n".join(lines)


def _value_error(message: str, config: Mapping[str, Any], owner: str) -> str:
    first = next(iter(config), "method")
    shown = f"ArgsKwargs((), {{'{first}':...very_timeout_sec=120))}})"
    if owner == "draft":
        shown = "ArgsKwargs((), {'model': ...config_format': 'auto'})"
    return (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
        f"  Value error, {message} [type=value_error, input_value={shown}, input_type=ArgsKwargs]\n"
        f"    For further information visit {_ERRORS_PAGE}value_error"
    )


def _shortened(text: str) -> str:
    return text if len(text) <= 50 else f"{text[:25]}...{text[-24:]}"


def _method(config: Mapping[str, Any]) -> str:
    """The method as given, or as the engine guesses it from the model's name."""
    method, model = config.get("method"), str(config.get("model") or "")
    if method is not None:
        return "mtp" if str(method).endswith("_mtp") else str(method)
    if model in ("ngram", "[ngram]"):
        return "ngram"
    for part, name in (("eagle3", "eagle3"), ("eagle-", "eagle"), ("dflash", "dflash"), ("dspark", "dspark")):
        if part in model.lower():
            return name
    return "draft_model"


def _check_together(config: Mapping[str, Any], target: Target) -> SpeculativeSettings:
    if config.get("tensor_parallel_size") is not None:
        raise _ValueProblemError(
            "'tensor_parallel_size' is not a valid argument in the speculative_config. Please pass "
            "'draft_tensor_parallel_size' instead."
        )
    method, model, tokens = _method(config), config.get("model"), config.get("num_speculative_tokens")
    if model is None and method not in _NO_MODEL:
        if tokens is not None:
            raise _ValueProblemError("num_speculative_tokens was provided but without speculative model.")
        raise _ValueProblemError("A speculative model is required for this method.")
    if method in ("ngram", "ngram_gpu"):
        _check_lookup(config)
        if method == "ngram" and target.async_scheduling:
            raise _ValueProblemError("Async scheduling is not supported with ngram speculative decoding.")
    elif method == "suffix":
        if "arctic-inference" not in target.installed:
            raise ConfigError(
                "ImportError: Arctic Inference is required for suffix decoding. Install via `pip install "
                "arctic-inference==0.1.1`."
            )
        tokens = tokens or int(config.get("suffix_decoding_max_tree_depth") or SUFFIX_DEFAULT_TOKENS)
    elif method == "mlp_speculator":
        raise _ValueProblemError("Model architectures ['MLPSpeculatorPreTrainedModel'] are not supported for now.")
    elif model is not None:
        tokens = _check_draft(config, str(model), method, tokens, target)
    if tokens is None:
        raise _ValueProblemError("A speculative model was provided, but `num_speculative_tokens` was not provided")
    if method == "extract_hidden_states" and int(tokens) != 1:
        raise _ValueProblemError("num_speculative_tokens must be 1 for extract_hidden_states.")
    wanted = config.get("draft_tensor_parallel_size")
    if wanted not in (None, 1, target.tensor_parallel_size):
        raise _ValueProblemError(
            f"speculative_draft_tensor_parallel_size={wanted} cannot be other value than 1 or target model "
            "tensor_parallel_size"
        )
    limit = config.get("max_model_len")
    return SpeculativeSettings(
        method=method,
        model=str(model) if model is not None else None,
        tokens=int(tokens),
        schedule=_schedule(config.get("num_speculative_tokens_per_batch_size")),
        draft_max_model_len=int(limit) if limit is not None else None,
        disable_block_drop=bool(config.get("disable_eagle_block_drop")),
    )


def _check_lookup(config: Mapping[str, Any]) -> None:
    low, high = config.get("prompt_lookup_min"), config.get("prompt_lookup_max")
    if low is None and high is None:
        return
    low, high = (high if low is None else low), (low if high is None else high)
    if low is not None and high is not None and low > high:
        raise _ValueProblemError(f"prompt_lookup_min={low} must be <= prompt_lookup_max={high}")


def _check_draft(config: Mapping[str, Any], model: str, method: str, tokens: int | None, target: Target) -> int | None:
    draft = read_config(model)
    if draft is None:
        if is_local_path(model):
            raise _ValueProblemError(missing_model(model), "draft")
        return tokens
    vocabulary = draft.get("vocab_size")
    if (
        method == "draft_model"
        and target.vocab_size is not None
        and isinstance(vocabulary, int)
        and vocabulary != target.vocab_size
        and not config.get("use_heterogeneous_vocab")
    ):
        raise _ValueProblemError(
            "Target and draft model should have the same vocabulary size. Target model "
            f"vocab_size={target.vocab_size}. Draft model vocab_size={vocabulary}. Using models with different "
            "tokenizers can cause out-of-bounds errors during speculative decoding."
        )
    predicted = draft.get("n_predict")
    if isinstance(predicted, int):
        tokens = predicted if tokens is None else tokens
        if tokens > predicted and tokens % predicted:
            raise _ValueProblemError(f"num_speculative_tokens:{tokens} must be divisible by n_predict={predicted}")
    return tokens


def _schedule(value: Any) -> tuple[tuple[int, int, int], ...]:
    if not value:
        return ()
    rows: list[tuple[int, int, int]] = []
    for row in value if isinstance(value, list) else ():
        good = isinstance(row, list) and len(row) == 3 and all(isinstance(n, int) and n >= 0 for n in row)
        if not good or row[0] > row[1] or (rows and row[0] <= rows[-1][1]):
            raise _ValueProblemError(
                "num_speculative_tokens_per_batch_size must be a list of non-overlapping [start, end, "
                f"num_speculative_tokens] ranges, got {value}"
            )
        rows.append((row[0], row[1], row[2]))
    if not rows or rows[0][0] != 1:
        raise _ValueProblemError("num_speculative_tokens_per_batch_size must start with batch size 1")
    return tuple(rows)
