"""A completion or chat request, checked: what the engine is asked to do."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_sim.api_errors import ApiError, bad_request
from vllm_sim.tokens import pieces

_SPEC_MESSAGE = "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding."
DEFAULT_COMPLETION_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Generation:
    """One checked request."""

    chat: bool
    model: str
    prompt: tuple[str | int, ...]
    """Tokens: pieces of text, or token ids."""
    max_tokens: int
    min_tokens: int
    temperature: float
    seed: int | None
    stop: tuple[str, ...]
    ignore_eos: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool
    as_json: bool
    logprobs: bool
    tool: str | None
    """Name of the function that must be called."""
    echo: str


@dataclass(frozen=True, slots=True)
class EngineRules:
    """What the checks need to know about the engine."""

    served_names: tuple[str, ...]
    max_model_len: int
    speculation: bool


def parse_generation(body: bytes, chat: bool, rules: EngineRules) -> Generation:
    """JSON bytes to a checked request. Raises ApiError."""
    try:
        data = json.loads(body)
    except ValueError as error:
        raise ApiError(
            400, "Bad Request", f"[{{'type': 'json_invalid', 'msg': 'JSON decode error: {error}'}}]"
        ) from None
    if not isinstance(data, dict):
        raise ApiError(400, "Bad Request", "[{'type': 'model_attributes_type', 'msg': 'Input should be an object'}]")
    model = check_model(data.get("model"), rules)
    prompt, shown = _chat_prompt(data) if chat else _completion_prompt(data)
    if rules.speculation and (_number(data, "min_p", 0.0, 0.0, 1.0) > 1e-5 or data.get("logit_bias")):
        raise bad_request(_SPEC_MESSAGE)
    if _integer(data, "n", 1) != 1:
        raise bad_request("the simulated engine answers n=1 only", "n")
    options = data.get("stream_options") or {}
    stop = data.get("stop") or []
    names = [stop] if isinstance(stop, str) else stop
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise bad_request("stop must be a string or a list of strings", "stop")
    return Generation(
        chat=chat,
        model=model,
        prompt=prompt,
        max_tokens=_max_tokens(data, chat, len(prompt), rules),
        min_tokens=_integer(data, "min_tokens", 0),
        temperature=_number(data, "temperature", 1.0, 0.0, float("inf")),
        seed=None if data.get("seed") is None else _integer(data, "seed", 0, minimum=-(2**63)),
        stop=tuple(name for name in names if name),
        ignore_eos=bool(data.get("ignore_eos", False)),
        stream=bool(data.get("stream", False)),
        include_usage=bool(options.get("include_usage", False)),
        continuous_usage=bool(options.get("continuous_usage_stats", False)),
        as_json=_wants_json(data),
        logprobs=data.get("logprobs") not in (None, False),
        tool=_forced_tool(data) if chat else None,
        echo=shown if not chat and data.get("echo") else "",
    )


def check_model(model: object, rules: EngineRules) -> str:
    """The served name that a request means. Raises ApiError 404."""
    if model is None or model == "":
        return rules.served_names[0]
    if model not in rules.served_names:
        aliases = ", ".join(rules.served_names)
        message = f"The model `{model}` does not exist. Valid aliases: {aliases}."
        raise ApiError(404, "NotFoundError", message, "model")
    return str(model)


def _completion_prompt(data: Mapping[str, Any]) -> tuple[tuple[str | int, ...], str]:
    prompt = data.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return tuple(prompt), ""
    if not isinstance(prompt, str):
        if isinstance(prompt, list):
            raise bad_request("the simulated engine answers one prompt per request", "prompt")
        raise bad_request("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    tokens = ("<s>", *pieces(prompt))
    return tokens, prompt


def _chat_prompt(data: Mapping[str, Any]) -> tuple[tuple[str | int, ...], str]:
    messages = data.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad_request("messages must be a non-empty list", "messages")
    tokens: list[str | int] = ["<s>"]
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise bad_request("every message needs a role", "messages")
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        tokens += [f"<|{message['role']}|>", *pieces(str(content)), "<|end|>"]
    for tool in data.get("tools") or []:
        tokens += pieces(json.dumps(tool, sort_keys=True))
    tokens.append("<|assistant|>")
    return tuple(tokens), ""


def _max_tokens(data: Mapping[str, Any], chat: bool, prompt_tokens: int, rules: EngineRules) -> int:
    limit = rules.max_model_len
    if prompt_tokens >= limit:
        raise bad_request(
            f"This model's maximum context length is {limit} tokens. However, your request has {prompt_tokens} input "
            "tokens. Please reduce the length of the input messages.",
            "input_tokens",
        )
    name = "max_completion_tokens" if data.get("max_completion_tokens") is not None else "max_tokens"
    if data.get(name) is None:
        return limit - prompt_tokens if chat else min(DEFAULT_COMPLETION_TOKENS, limit - prompt_tokens)
    wanted = _integer(data, name, 0)
    if wanted < 1:
        raise bad_request(f"max_tokens must be at least 1, got {wanted}.", "max_tokens")
    if prompt_tokens + wanted > limit:
        raise bad_request(
            f"'max_tokens' or 'max_completion_tokens' is too large: {wanted}. This model's maximum context length is "
            f"{limit} tokens and your request has {prompt_tokens} input tokens ({wanted} > {limit} - {prompt_tokens}).",
            "max_tokens",
        )
    return wanted


def _integer(data: Mapping[str, Any], name: str, default: int, minimum: int = 0) -> int:
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise bad_request(f"{name} must be an integer of at least {minimum}, got {value!r}.", name)
    return value


def _number(data: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise bad_request(f"{name} must be in [{low:g}, {high:g}], got {value!r}.", name)
    return float(value)


def _wants_json(data: Mapping[str, Any]) -> bool:
    wanted = data.get("response_format") or {}
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    return kind in ("json_object", "json_schema") or bool(data.get("guided_json") or data.get("structured_outputs"))


def _forced_tool(data: Mapping[str, Any]) -> str | None:
    tools = data.get("tools") or []
    choice = data.get("tool_choice")
    if isinstance(choice, dict):
        return str((choice.get("function") or {}).get("name", ""))
    if choice == "required" and tools:
        return str((tools[0].get("function") or {}).get("name", ""))
    return None
