"""prompts.jsonl. The operator reads it with this too, before any pod is made for it."""

import json

from .failures import CannotMeasureError
from .harness import Json


def parse_prompts(text: str, where: str) -> list[Json]:
    """One object with `prompt` (and optionally `slice`) per line.

    Raises CannotMeasureError, which names `where` and the line.
    """
    prompts: list[Json] = []
    # Not splitlines: a JSON string may hold U+2028 as it is.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            prompts.append({"prompt": str(entry["prompt"]), "slice": entry.get("slice")})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CannotMeasureError(
                f'{where} line {number} is not {{"prompt": "...", "slice": "..."}}: {type(error).__name__} {error}'
            ) from error
    if not prompts:
        raise CannotMeasureError(f"{where} has no prompts")
    return prompts
