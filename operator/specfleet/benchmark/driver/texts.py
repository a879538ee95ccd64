"""The prompts of a run, from the source that the plan names."""

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path

from .completions import post
from .failures import CannotMeasureError
from .harness import API_KEY, Json
from .prompt_file import parse_prompts


def load_prompts(path: str) -> list[Json]:
    """The prompts of a prompts.jsonl. Raises CannotMeasureError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CannotMeasureError(f"the prompt file {path} cannot be read: {error}") from error
    return parse_prompts(text, path)


def build_prompts(
    source: Sequence[Json],
    slice_name: str,
    count: int,
    prompt_tokens: int,
    characters_per_token: float,
    seed: str,
    attempt: int = 0,
) -> list[str]:
    """`count` prompts for one run. The same seed gives the same prompts; another seed shares no prefix with them.

    Another attempt has the same texts behind other tags: comparable with the other arm's run, unknown to the cache.

    Prompts that the source labels with this slice are used whole; otherwise texts are joined and cut to length.
    The tag in front is different in every prompt, so that no prefix cache can serve one run from another.
    """
    chooser = random.Random(seed)  # noqa: S311
    own = [entry["prompt"] for entry in source if entry["slice"] == slice_name]
    texts = own or [entry["prompt"] for entry in source if entry["slice"] is None] or [e["prompt"] for e in source]
    order = list(range(len(texts)))
    chooser.shuffle(order)
    prompts = []
    for index in range(count):
        head = _head(f"{seed}/{attempt}/{index}")
        if own:
            prompts.append(head + texts[order[index % len(order)]])
            continue
        characters = max(16, round(prompt_tokens * characters_per_token) - len(head))
        step = index
        text = texts[order[step % len(order)]]
        while len(text) < characters:
            step += 1
            text += "\n\n" + texts[order[step % len(order)]]
        prompts.append(head + text[:characters])
    return prompts


def retagged(prompt: str, what: str) -> str:
    """One of build_prompts, behind a tag that says also `what`: as long, and unknown to every cache."""
    length = len(_head(""))
    return _head(prompt[:length] + what) + prompt[length:]


def _head(what: str) -> str:
    return f"[{hashlib.sha256(what.encode()).hexdigest()[:8]}] "


def characters_per_token(base_url: str, model: str, source: Sequence[Json]) -> float:
    """Measured on the engine's own tokenizer, so that promptTokens means what the user wrote."""
    sample = "\n\n".join(entry["prompt"] for entry in source[:4])[:1200]
    status, answer = post(base_url, "/v1/completions", {"model": model, "prompt": sample, "max_tokens": 1}, 120.0)
    tokens = (answer.get("usage") or {}).get("prompt_tokens")
    if status in (401, 403):
        raise CannotMeasureError(
            f"{base_url} refuses our API key (HTTP {status}); give it as {API_KEY} in spec.engine.env, and start pods "
            "again that were started with another one"
        )
    if status != 200 or not isinstance(tokens, int) or tokens < 1:
        raise CannotMeasureError(
            f"{base_url} does not answer a completion for model {model!r} (HTTP {status}: {str(answer)[:200]}); "
            "check model.servedName and that the pod is ready"
        )
    return len(sample) / tokens
