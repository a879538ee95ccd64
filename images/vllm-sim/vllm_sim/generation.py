"""A completion or chat request, checked: what the engine is asked to do."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_sim.api_errors import ApiError, bad_request, invalid_field
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
    top_logprobs: bool
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
    data = _object(body)
    model = check_model(data.get("model"), rules)
    prompt, shown = _chat_prompt(data) if chat else _completion_prompt(data)
    if not 0 <= (min_p := _real(data, "min_p", 0.0)) <= 1:
        raise bad_request(f"min_p must be in [0, 1], got {min_p}.")
    # The real one forgets min_p where it decodes greedily, and so does not refuse it there.
    if rules.speculation and ((min_p > 1e-5 and _temperature(data) > 1e-5) or data.get("logit_bias")):
        raise bad_request(_SPEC_MESSAGE)
    if _integer(data, "n", 1) != 1:
        raise bad_request("the simulated engine answers n=1 only", "n", data["n"])
    if not 0 < (top_p := _real(data, "top_p", 1.0)) <= 1:
        raise bad_request(f"top_p must be in (0, 1], got {top_p}.", "top_p", top_p)
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
        temperature=_temperature(data),
        seed=None if data.get("seed") is None else _integer(data, "seed", 0),
        stop=tuple(name for name in names if name),
        ignore_eos=bool(data.get("ignore_eos", False)),
        stream=bool(data.get("stream", False)),
        include_usage=bool(options.get("include_usage", False)),
        continuous_usage=bool(options.get("continuous_usage_stats", False)),
        as_json=_wants_json(data),
        logprobs=data.get("logprobs") not in (None, False),
        top_logprobs=_integer(data, "top_logprobs" if chat else "logprobs", 0) > 0,
        tool=_forced_tool(data) if chat else None,
        echo=shown if not chat and data.get("echo") else "",
    )


def _object(body: bytes) -> dict[str, Any]:
    if not body:
        raise invalid_field("missing", "body", "Field required", None)
    try:
        data = json.loads(body)
    except json.JSONDecodeError as error:
        raise invalid_field("json_invalid", f"body.{error.pos}", "JSON decode error", {}, error.msg) from None
    except ValueError:
        raise ApiError(400, "Bad Request", "There was an error parsing the body") from None
    if not isinstance(data, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise invalid_field("model_attributes_type", "body", message, data)
    return data


def check_model(model: object, rules: EngineRules) -> str:
    """The name that the answer has: the first one, whichever alias was asked for. Raises ApiError 404."""
    if model not in (None, "", *rules.served_names):
        aliases = ", ".join(rules.served_names)
        message = f"The model `{model}` does not exist. Valid aliases: {aliases}."
        raise ApiError(404, "NotFoundError", message, "model")
    return rules.served_names[0]


def _completion_prompt(data: Mapping[str, Any]) -> tuple[tuple[str | int, ...], str]:
    prompt = data.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return tuple(prompt), ""
    if not isinstance(prompt, str) or not prompt:
        if isinstance(prompt, list) and prompt:
            raise bad_request("the simulated engine answers one prompt per request", "prompt")
        raise bad_request("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    tokens = ("<s>", *pieces(prompt))
    return tokens, prompt


def _chat_prompt(data: Mapping[str, Any]) -> tuple[tuple[str | int, ...], str]:
    if "messages" not in data:
        raise invalid_field("missing", "body.messages", "Field required", dict(data))
    messages = data["messages"]
    if not isinstance(messages, list):
        raise invalid_field("list_type", "body.messages", "Input should be a valid list", messages)
    if not messages:
        raise bad_request("Cannot apply chat template to an empty conversation. Provide at least one message.")
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
        # The real one stops counting one token beyond the limit.
        counted = min(prompt_tokens, limit + 1)
        raise bad_request(
            f"This model's maximum context length is {limit} tokens. However, your prompt contains at least {counted} "
            "input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the "
            "input prompt.",
            "input_tokens",
            counted,
        )
    name = "max_completion_tokens" if data.get("max_completion_tokens") is not None else "max_tokens"
    if data.get(name) is None:
        return limit - prompt_tokens if chat else min(DEFAULT_COMPLETION_TOKENS, limit - prompt_tokens)
    wanted = _integer(data, name, 0)
    if wanted < 1:
        raise bad_request(f"max_tokens must be at least 1, got {wanted}.", "max_tokens", wanted)
    if wanted > limit:
        raise bad_request(
            f"max_tokens={wanted} cannot be greater than max_model_len={limit}. Please request fewer output tokens.",
            "max_tokens",
            wanted,
        )
    # Prompt and answer together may ask for more than fits: the answer is cut, not refused.
    return min(wanted, limit - prompt_tokens)


def _integer(data: Mapping[str, Any], name: str, default: int) -> int:
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, str):
        message = "Input should be a valid integer, unable to parse string as an integer"
        raise invalid_field("int_parsing", f"body.{name}", message, value)
    if not isinstance(value, (int, float)) or value != int(value):
        raise invalid_field("int_type", f"body.{name}", "Input should be a valid integer", value)
    return int(value)


def _real(data: Mapping[str, Any], name: str, default: float) -> float:
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        message = "Input should be a valid number, unable to parse string as a number"
        raise invalid_field("float_parsing", f"body.{name}", message, value)
    return float(value)


def _temperature(data: Mapping[str, Any]) -> float:
    value = _real(data, "temperature", 1.0)
    if value < 0:
        raise bad_request(f"temperature must be non-negative, got {value}.", "temperature", value)
    return value


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
