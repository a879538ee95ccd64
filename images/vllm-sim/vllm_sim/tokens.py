"""A toy tokenizer and a deterministic text generator: what a model says depends on the prompt and the model only."""

import hashlib
import math
import random
import re
from collections.abc import Sequence

_PIECE = re.compile(r"\s?\w{1,6}|\s?[^\w\s]{1,4}|\s+")
_ONSETS = ("b", "d", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ee", "ou")
_CODAS = ("", "n", "r", "st")
VOCABULARY: tuple[str, ...] = tuple(
    f" {onset}{vowel}{coda}" for onset in _ONSETS for vowel in _VOWELS for coda in _CODAS
)
"""512 words of one token each (a leading space, at most six letters)."""


def pieces(text: str) -> list[str]:
    """Split text into tokens, about four characters each; every text of our own splits into its own tokens."""
    return _PIECE.findall(text)


def count_tokens(text: str) -> int:
    """Number of tokens of a text."""
    return len(_PIECE.findall(text))


def block_hashes(tokens: Sequence[str | int], block_size: int, salt: str = "") -> list[int]:
    """One hash per full block of tokens, each covering everything before it, as a prefix cache wants them."""
    found: list[int] = []
    last = hash(salt)
    for start in range(0, len(tokens) - block_size + 1, block_size):
        last = hash((last, tuple(tokens[start : start + block_size])))
        found.append(last)
    return found


def text_seed(*parts: object) -> int:
    """A 64-bit seed, the same in every process and on every machine."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def natural_length(seed: int, median_tokens: float, log_sd: float) -> int:
    """Tokens until the model ends by itself (end-of-text token included), at least 1."""
    deviation = random.Random(seed ^ 0x5F5F).gauss(0.0, 1.0)  # noqa: S311
    return max(1, round(median_tokens * math.exp(log_sd * deviation)))


class TextStream:
    """The words of one answer, drawn as they are needed."""

    __slots__ = ("_close", "_draw", "_open", "taken")

    def __init__(self, seed: int, as_json: bool = False) -> None:
        self._draw = random.Random(seed).getrandbits  # noqa: S311
        self._open = '{"answer":"' if as_json else None
        self._close = '"}' if as_json else ""
        self.taken = 0

    def take(self, count: int, ends: bool) -> list[str]:
        """The next `count` tokens' texts. `ends`: the last of them is the end-of-text token (shown as nothing)."""
        draw, words = self._draw, VOCABULARY
        found = [words[draw(9)] for _ in range(count)]
        if self._open is not None and self.taken == 0 and found:
            found[0] = self._open
        if ends and found:
            found[-1] = self._close
        self.taken += count
        return found
