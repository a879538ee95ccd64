"""From requests of production to prompts of a benchmark: what identifies people or opens doors is masked. Pure.

Masks keep length and shape (letters become x, digits become 0), so that prompts stay as long in tokens as they were.
What only a person can tell, a name in a sentence, stays: whoever captures reads the file before it is used.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

_SCHEME = "[a-z0-9+.-]"
MASKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "key",
        re.compile(r"(?P<found>-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----)|-----BEGIN [A-Z ]+-----.*", re.DOTALL),
    ),
    ("e-mail", re.compile(r"(?P<found>[\w.+-]++@[\w-]+(?:\.[\w-]+)+)|[\w.+-]++")),
    (
        "address of a page",
        re.compile(
            rf"(?={_SCHEME}++://\S){_SCHEME}*?(?P<found>\b[a-z]{_SCHEME}*+://\S+)|{_SCHEME}++",
            re.IGNORECASE,
        ),
    ),
    ("token", re.compile(r"(?<![\w-])-*+(?P<found>(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{20,})")),
    ("account", re.compile(r"(?P<found>\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b)")),
    (
        "network address",
        re.compile(r"(?P<found>\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-fA-F]{1,4}:){3,7}[0-9a-fA-F]{1,4}\b)"),
    ),
    ("number", re.compile(r"(?P<found>(?<![\w.])\+?\d(?:[ ()/.-]{0,2}\d){6,}(?!\w))")),
    ("handle", re.compile(r"(?P<found>(?<!\w)@\w{2,})")),
)
"""What is masked (the group `found`), in this order: a later one sees what the earlier ones left.

Anybody may have written a prompt, and it may be a megabyte of one character: a run of characters with nothing to mask
is taken as a whole, without `found`, so that it is not looked at again from each of its places.
"""


@dataclass(frozen=True)
class Captured:
    """Prompts, and what was done to get them."""

    prompts: tuple[str, ...]
    read: int
    unusable: int
    """Lines that are no request with a prompt in words."""
    masked: Counter[str] = field(default_factory=Counter)
    """Places by kind, in the prompts that were kept."""


def masked(text: str) -> tuple[str, Counter[str]]:
    """The text with every match of MASKS in its shape only, and how many there were of each kind."""
    found: Counter[str] = Counter()
    for kind, pattern in MASKS:
        parts, end = [], 0
        for match in pattern.finditer(text):
            start = match.start("found")
            if start >= 0:
                parts += [text[end:start], _shape(match["found"])]
                end = match.end()
                found[kind] += 1
        text = "".join([*parts, text[end:]])
    return text, found


def _shape(text: str) -> str:
    return "".join("x" if one.isalpha() else "0" if one.isdigit() else one for one in text)


def prompt_of(body: Any) -> str | None:
    """The words of an OpenAI-style request: `prompt`, or the contents of `messages`; None where there are none."""
    if not isinstance(body, dict):
        return None
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return prompt.strip() or None
    texts = []
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else []:
        content = message.get("content") if isinstance(message, dict) else None
        parts = content if isinstance(content, list) else [{"text": content}]
        words = [part.get("text") for part in parts if isinstance(part, dict)]
        texts += [f"{message.get('role', 'user')}: {one}" for one in words if isinstance(one, str) and one.strip()]
    return "\n\n".join(texts) or None


def capture(lines: Iterable[str], most: int, seed: int) -> Captured:
    """At most `most` different prompts, each request as likely as any other (reservoir sampling)."""
    chooser = random.Random(seed)  # noqa: S311
    kept: list[str] = []
    seen: set[str] = set()
    read = unusable = different = 0
    for line in lines:
        if not line.strip():
            continue
        read += 1
        try:
            prompt = prompt_of(json.loads(line))
        except ValueError:
            prompt = None
        if prompt is None:
            unusable += 1
            continue
        if prompt in seen:
            continue
        seen.add(prompt)
        different += 1
        if len(kept) < most:
            kept.append(prompt)
        elif (place := chooser.randrange(different)) < most:
            kept[place] = prompt
    found: Counter[str] = Counter()
    prompts = []
    for prompt in kept:
        text, kinds = masked(prompt)
        prompts.append(text)
        found.update(kinds)
    return Captured(tuple(dict.fromkeys(prompts)), read, unusable, found)
